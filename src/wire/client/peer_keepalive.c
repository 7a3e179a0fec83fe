/* peer_keepalive.c - silence on a network connection: PING while calls are open,
 * suspicion, fresh connections beside the old one, and the end of patience. All on the
 * loop's thread, at the client's timer, which is set only while something is expected. */
#include "base/clock.h"
#include "wire/client/client_impl.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#define PROBE_LOOK_NS (100 * MS_NS_PER_MS)

static int64_t sooner(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

void ms_peer_expect(struct ms_peer *p, int64_t now_ns)
{
    if (p->open_count > 1)
        return;
    p->expect_ns = now_ns;
    ms_client_wake_at(p->client, now_ns + MS_PING_NS);
}

/* While we have much to send the other side may have nothing to say: what its host
 * acknowledges counts too. */
int64_t ms_peer_heard_ns(const struct ms_peer *p, int64_t now_ns)
{
    int64_t heard_ns = p->expect_ns, said_ns = p->conn ? ms_conn_heard_ns(p->conn) : 0;

    if (said_ns > heard_ns)
        heard_ns = said_ns;
    if (p->conn && ms_conn_queued(p->conn)) {
        int64_t unheard_ns = ms_tcp_unheard_ns(ms_conn_fd(p->conn));

        if (unheard_ns != MS_NEVER && now_ns - unheard_ns > heard_ns)
            heard_ns = now_ns - unheard_ns;
    }
    return heard_ns;
}

void ms_peer_was_suspended(struct ms_peer *p, int64_t suspended_ns, int64_t now_ns)
{
    if (p->state == PEER_UP && p->conn && p->is_network)
        p->expect_ns = sooner(ms_peer_heard_ns(p, now_ns) + suspended_ns, now_ns);
}

/* ---- a connection that is not proven yet ------------------------------------------- */

static int64_t check_unproven(struct ms_peer *p, int64_t now_ns)
{
    int64_t age_ns = now_ns - p->opened_ns;

    if (age_ns < MS_CONNECT_NS)
        return p->opened_ns + MS_CONNECT_NS;
    if (age_ns < MS_HANDSHAKE_NS &&
        ms_tcp_connected(ms_conn_fd(p->conn)) != -EINPROGRESS)
        return p->opened_ns + MS_HANDSHAKE_NS;
    ms_peer_break(p, -ETIMEDOUT);
    return MS_NEVER;
}

/* ---- fresh connections -------------------------------------------------------------- */

static void probe_start(struct ms_peer *p, int64_t now_ns)
{
    struct sockaddr_storage sa = {0};
    socklen_t len = sizeof sa;

    p->probe_ns = now_ns;
    if (getpeername(ms_conn_fd(p->conn), (struct sockaddr *)&sa, &len) == 0)
        p->probe_fd = ms_tcp_connect((struct sockaddr *)&sa, len, NULL);
    if (p->probe_fd < 0)
        p->probe_fd = -1;
}

/* TCP itself looks for a healed link ever more seldom. Once a fresh connection is made (or
 * its host says that nobody listens), the old one is given up: the calls are attached to
 * the next. */
static int64_t probe(struct ms_peer *p, int64_t now_ns)
{
    int rc;

    if (p->probe_fd < 0) {
        if (now_ns - p->probe_ns >= MS_PROBE_NS)
            probe_start(p, now_ns);
        return now_ns + PROBE_LOOK_NS;
    }
    rc = ms_tcp_connected(p->probe_fd);
    if (rc == -EINPROGRESS && now_ns - p->probe_ns < MS_PROBE_NS)
        return now_ns + PROBE_LOOK_NS;
    ms_fd_close(&p->probe_fd);
    if (rc != 0 && rc != -ECONNREFUSED)
        return now_ns + PROBE_LOOK_NS;
    ms_peer_break(p, -ETIMEDOUT);
    return MS_NEVER;
}

/* ---- a proven one -------------------------------------------------------------------- */

static void give_up_silent(struct ms_peer *p, int64_t silent_ns)
{
    if (p->reading)
        shutdown(ms_conn_fd(p->conn), SHUT_RDWR); /* its reader will drop it */
    else
        ms_peer_drop_conn(p);
    ms_dial_restart(&p->dial);
    p->expect_ns = ms_now_ns(); /* what comes now begins anew */
    ms_peer_give_up(p,
                    "it was silent for %lld s: its host, or the network to it, is gone",
                    (long long)(silent_ns / MS_NS_PER_S));
}

int64_t ms_peer_check_silence(struct ms_peer *p, int64_t now_ns)
{
    static const struct ms_frame ping = {.kind = MS_KIND_PING, .call_id = 1};
    int64_t heard_ns, silent_ns, next_ns;

    if (!ms_conn_is_ready(p->conn))
        return check_unproven(p, now_ns);
    heard_ns = ms_peer_heard_ns(p, now_ns);
    silent_ns = now_ns - heard_ns;
    if (silent_ns < MS_SUSPECT_NS)
        p->is_suspect = false;
    if (p->open_count == 0)
        return MS_NEVER;
    p->is_suspect = silent_ns >= MS_SUSPECT_NS;
    if (silent_ns >= p->client->o.grace_ns) {
        give_up_silent(p, silent_ns);
        return MS_NEVER;
    }
    if (now_ns - ms_conn_sent_ns(p->conn) >= MS_PING_NS && !ms_conn_queued(p->conn))
        ms_peer_send(p, &ping, NULL, 0);
    if (!p->conn || p->is_broken || p->state != PEER_UP)
        return MS_NEVER; /* the ping has found the end */
    next_ns = sooner(ms_conn_sent_ns(p->conn) + MS_PING_NS, now_ns + MS_PING_NS);
    next_ns = next_ns > now_ns ? next_ns : now_ns + MS_PING_NS;
    if (!p->is_suspect) {
        ms_fd_close(&p->probe_fd);
        return sooner(next_ns, heard_ns + MS_SUSPECT_NS);
    }
    next_ns = sooner(next_ns, heard_ns + p->client->o.grace_ns);
    return sooner(next_ns, probe(p, now_ns));
}
