#include "base/buf.h"
#include "base/clock.h"
#include "base/name.h"
#include "io/sock.h"
#include "wire/client_internal.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define RETRY_FIRST_NS (1 * MS_NS_PER_MS)

/* ---- the end --------------------------------------------------------------------- */

/* All of them, or but for those that can go on. */
static void
fail_calls(struct ms_peer *p, const uint8_t *failure, size_t len, bool also_unsent)
{
    size_t at = 0;
    struct ms_call *c;

    while ((c = ms_map_next(&p->pending, &at))) {
        uint8_t *copy;

        if (!also_unsent && ms_call_can_go_on(c))
            continue;
        copy = ms_bytes_copy(failure, len);
        ms_map_remove(&p->pending, c->id);
        ms_call_complete(c, MS_KIND_ERROR, MS_CODEC_PROTO, copy, copy ? len : 0);
        ms_peer_drop_call(p, c);
        at = 0;
    }
}

void ms_peer_fail_all(struct ms_peer *p, const uint8_t *failure, size_t len)
{
    fail_calls(p, failure, len, true);
}

/* Its calls may have arrived. */
static void mark_sent(struct ms_peer *p)
{
    size_t at = 0;
    struct ms_call *c;

    p->was_known = true;
    while ((c = ms_map_next(&p->pending, &at)))
        c->sent = true;
}

/* `is_dead`: what is open now was never meant for it. */
static void drop_conn(struct ms_peer *p, bool is_dead)
{
    if (!p->conn)
        return;
    if (ms_conn_has_sent(p->conn) && !is_dead)
        mark_sent(p);
    epoll_ctl(p->client->epoll_fd, EPOLL_CTL_DEL, ms_conn_fd(p->conn), NULL);
    ms_conn_destroy(p->conn);
    ms_fd_close(&p->probe_fd);
    p->conn = NULL;
    p->armed = p->is_working = false;
}

void ms_peer_drop_conn(struct ms_peer *p)
{
    drop_conn(p, false);
}

void ms_peer_die(struct ms_peer *p, uint8_t *failure, size_t len)
{
    if (p->state == PEER_DEAD) {
        free(failure);
        return;
    }
    p->state = PEER_DEAD;
    free(p->failure);
    p->failure = failure;
    p->failure_len = failure ? len : 0;
    if (p->conn && ms_conn_has_sent(p->conn))
        mark_sent(p);
    if (p->conn && p->reading)
        shutdown(ms_conn_fd(p->conn), SHUT_RDWR); /* its reader will drop it */
    else
        ms_peer_drop_conn(p);
    fail_calls(p, failure, p->failure_len, !p->is_mortal);
    if (p->pending.count)
        ms_peer_seek(p);
}

static void die_of(struct ms_peer *p, const char *text)
{
    size_t len = 0;
    uint8_t *f =
        ms_failure_pack(MUSTER__FAILURE__KIND__UNREACHABLE, p->label, text, NULL, &len);

    ms_peer_die(p, f, len);
}

/* Nobody answers and nobody says why: what is open fails, a later call tries again. */
void ms_peer_give_up(struct ms_peer *p, const char *text)
{
    size_t len = 0;
    uint8_t *f =
        ms_failure_pack(MUSTER__FAILURE__KIND__UNREACHABLE, p->label, text, NULL, &len);

    p->state = PEER_IDLE;
    p->asked = p->wants_verdict = false;
    p->attempts = 0;
    if (text != p->problem)
        snprintf(p->problem, sizeof p->problem, "%s", text);
    ms_peer_fail_all(p, f, f ? len : 0);
    free(f);
}

static void retry_later(struct ms_peer *p, int64_t now_ns)
{
    int64_t delay_ns = RETRY_FIRST_NS << (p->attempts < 8 ? p->attempts : 8);

    if (p->attempts == 0)
        delay_ns = 0;
    if (delay_ns > MS_RETRY_MAX_NS)
        delay_ns = MS_RETRY_MAX_NS;
    p->attempts++;
    p->retry_ns = now_ns + delay_ns;
    ms_client_wake_at(p->client, p->retry_ns);
}

/* Nobody listens: somebody knows why, and will say so. */
static void await_verdict(struct ms_peer *p, int64_t now_ns)
{
    if (p->verdict_ns == MS_NEVER)
        p->verdict_ns = ms_deadline_ns(now_ns, p->client->verdict_ns);
    p->wants_verdict = true;
    ms_client_wake_at(p->client, now_ns); /* it is asked for from there */
}

/* Was there a word from it, or was it at least there for a while? */
static bool has_worked(const struct ms_peer *p, int64_t now_ns)
{
    return p->is_working || (p->conn && ms_conn_is_ready(p->conn) &&
                             now_ns - p->opened_ns >= MS_NS_PER_S);
}

/* Losing it again and again, without a word in between, is being lost all the time; and one
 * that is suspect was lost when it was last heard. */
static void set_lost(struct ms_peer *p, int64_t now_ns)
{
    if (p->state != PEER_LOST && (has_worked(p, now_ns) || p->attempts == 0)) {
        p->lost_ns = p->is_suspect ? ms_peer_heard_ns(p, now_ns) : now_ns;
        p->attempts = 0;
    }
    p->state = PEER_LOST;
    p->verdict_ns = MS_NEVER;
}

/* The handshake was refused. A worker that had talked to us is no longer there: its port
 * belongs to somebody else now. */
static void be_refused(struct ms_peer *p, const struct ms_error *err, int64_t now_ns)
{
    const char *text = err && err->code ? err->text : "it refused the handshake";

    if (p->is_network && p->was_known)
        await_verdict(p, now_ns);
    else
        die_of(p, text);
}

static bool is_refusal(int why)
{
    return why == -EACCES || why == -EPERM || why == -EPROTONOSUPPORT || why == -ENOKEY;
}

void ms_peer_lose(struct ms_peer *p, int why, const struct ms_error *err)
{
    int64_t now_ns = ms_now_ns();
    bool was_proven = p->conn && ms_conn_is_ready(p->conn);

    bool is_dead = p->state == PEER_DEAD || p->state == PEER_SEEKING;

    if (!is_dead)
        set_lost(p, now_ns);
    drop_conn(p, is_dead);
    if (is_dead) {
        ms_peer_succeed(p);
        return;
    }
    if (p->is_network && was_proven && p->pending.count == 0) {
        /* nobody waits: the next call tries */
        ms_dial_restart(&p->dial);
        p->attempts = 0;
        p->state = PEER_IDLE;
        return;
    }
    if (why == -ESTALE) { /* the worker's place was taken by another */
        await_verdict(p, now_ns);
    } else if (is_refusal(why)) {
        be_refused(p, err, now_ns);
    } else if (was_proven) {
        ms_dial_restart(&p->dial);
        retry_later(p, now_ns);
    } else { /* the next address, at once */
        ms_dial_failed(&p->dial, why);
        p->retry_ns = now_ns;
        ms_client_wake_at(p->client, now_ns);
    }
}

void ms_peer_break(struct ms_peer *p, int why)
{
    if (p->reading)
        shutdown(ms_conn_fd(p->conn), SHUT_RDWR);
    else
        ms_peer_lose(p, why, NULL);
}

/* ---- sending --------------------------------------------------------------------- */

int ms_peer_send(struct ms_peer *p,
                 const struct ms_frame *head,
                 const struct iovec *iov,
                 int count)
{
    int rc = ms_conn_send(p->conn, head, iov, count);

    if (rc == -ENOMEM || rc == -ENOBUFS || rc == -EMSGSIZE)
        return rc;
    if (rc < 0) {
        ms_peer_break(p, rc);
        return 0;
    }
    if (ms_conn_wants_write(p->conn))
        ms_peer_arm(p);
    return 0;
}

int ms_peer_send_method(struct ms_peer *p, uint32_t i)
{
    struct ms_frame head = {.kind = MS_KIND_METHOD, .op = (uint16_t)(MS_OP_METHOD + i)};
    struct iovec iov = {p->methods[i], p->method_lens[i]};

    return ms_peer_send(p, &head, &iov, 1);
}

uint64_t ms_call_budget(const struct ms_call *c, int64_t now_ns)
{
    if (c->deadline_ns == MS_NEVER)
        return 0;
    return c->deadline_ns > now_ns ? (uint64_t)(c->deadline_ns - now_ns) : 1;
}

/* ---- attaching again ------------------------------------------------------------- */

enum { ATTACH_IDS = 4096 }; /* in one message */

static int compare_ids(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

    return x < y ? -1 : x > y;
}

/* The ids of the open calls in order; NULL: out of memory. */
static uint64_t *open_ids(struct ms_peer *p)
{
    uint64_t *ids = malloc((p->pending.count + 1) * sizeof *ids);
    size_t at = 0, n = 0;
    struct ms_call *c;

    if (!ids)
        return NULL;
    while ((c = ms_map_next(&p->pending, &at)))
        ids[n++] = c->id;
    qsort(ids, n, sizeof *ids, compare_ids);
    return ids;
}

/* Tell which calls we still wait for: what else the worker remembers is of no use. */
static int send_attach(struct ms_peer *p, const uint64_t *ids, size_t count)
{
    uint64_t body[ATTACH_IDS + 1], after = 0;
    size_t at = 0;
    int rc = 0;

    do {
        size_t n = count - at < ATTACH_IDS ? count - at : ATTACH_IDS;
        bool is_last = at + n == count;
        struct ms_frame head = {.kind = MS_KIND_ATTACH,
                                .call_id = is_last ? p->next_call : ids[at + n - 1]};
        struct iovec iov = {body, (n + 1) * sizeof *body};

        body[0] = htole64(after);
        for (size_t i = 0; i < n; i++)
            body[i + 1] = htole64(ids[at + i]);
        rc = ms_peer_send(p, &head, &iov, 1);
        after = head.call_id;
        at += n;
    } while (rc == 0 && p->conn && at < count);
    return rc;
}

static int send_again(struct ms_peer *p, struct ms_call *c, int64_t now_ns)
{
    struct ms_frame head = {.kind = MS_KIND_CALL,
                            .codec = c->codec,
                            .op = c->op,
                            .flags = c->flags,
                            .call_id = c->id,
                            .budget_ns = ms_call_budget(c, now_ns)};
    struct iovec iov = {c->request, c->request_len};
    int rc;

    if (c->sent)
        head.flags |= MS_FRAME_RESEND;
    if (!c->request)
        head.flags |= MS_FRAME_RESEND | MS_FRAME_BARE;
    rc = ms_peer_send(p, &head, &iov, c->request ? 1 : 0);
    if (rc != -EMSGSIZE)
        return rc;
    ms_map_remove(&p->pending, c->id);
    ms_call_fail(
        c, MUSTER__FAILURE__KIND__REFUSED, "the arguments are too big to be sent");
    ms_peer_drop_call(p, c);
    return 0;
}

/* What we wait for, methods, then every open call; the worker knows which it has. */
static int attach_again(struct ms_peer *p)
{
    int64_t now_ns = ms_now_ns();
    size_t count = p->pending.count;
    uint64_t *ids = open_ids(p);
    int rc = 0;

    if (!ids)
        return -ENOMEM;
    p->ack_count = 0; /* what is not in `ids` needs no other word */
    if (p->was_known)
        rc = send_attach(p, ids, count);
    for (uint32_t i = 0; i < p->method_count && p->conn && rc == 0; i++)
        rc = ms_peer_send_method(p, i);
    for (size_t i = 0; i < count && p->conn && rc == 0; i++)
        rc = send_again(p, ms_map_find(&p->pending, ids[i]), now_ns);
    free(ids);
    return rc;
}

/* ---- connecting ------------------------------------------------------------------ */

/* Takes the transport. */
static struct ms_conn *conn_make(struct ms_peer *p, struct ms_transport *t, int *rc)
{
    struct ms_handshake h;
    struct ms_conn *conn;
    uint8_t nonce[32];

    *rc = ms_random_bytes(nonce, sizeof nonce);
    if (*rc < 0) {
        ms_transport_destroy(t);
        return NULL;
    }
    ms_handshake_init_client(
        &h, p->client->net.secret, nonce, p->session, MS_LANE_CALL, p->uid);
    conn = ms_conn_create_client(t, &h);
    ms_handshake_finish(&h);
    *rc = conn ? 0 : -ENOMEM;
    return conn;
}

static int conn_begin(struct ms_peer *p, struct ms_transport *t)
{
    struct epoll_event ev = {.events = EPOLLONESHOT, .data.u64 = p->id};
    int fd = t->fd, rc;

    p->conn = conn_make(p, t, &rc);
    if (!p->conn)
        return rc;
    if (epoll_ctl(p->client->epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0) {
        rc = -errno;
        ms_peer_drop_conn(p);
        return rc;
    }
    p->armed = false;
    p->is_network = ms_conn_is_network(p->conn);
    p->is_remote = p->is_network && !ms_tcp_is_same_host(fd);
    p->opened_ns = p->expect_ns = ms_now_ns();
    if (p->is_network)
        ms_client_wake_at(p->client, p->opened_ns + MS_PING_NS);
    ms_conn_flush(p->conn); /* its failure is read as the end of file */
    return 0;
}

/* Failures of one address, after which the next one may still be reached. */
static bool is_of_address(int rc)
{
    switch (rc) {
    case -ECONNREFUSED:
    case -ENOENT:
    case -EAGAIN:
    case -ETIMEDOUT:
    case -ECONNRESET:
    case -EPIPE:
    case -ENOTCONN:
    case -ENETUNREACH:
    case -EHOSTUNREACH:
    case -EHOSTDOWN:
    case -ENETDOWN:
    case -EADDRNOTAVAIL:
    case -EAFNOSUPPORT:
    case -ENXIO:
    case -EPROTO:
        return true;
    default:
        return false;
    }
}

/* 0: there is a connection, at least a beginning; -EINPROGRESS: a name is being looked up;
 * -ENODATA: the round is over; or a failure that other addresses do not heal. */
static int conn_open(struct ms_peer *p)
{
    struct ms_transport *t = NULL;
    int rc;

    do {
        rc = ms_dial_next(&p->dial, &p->client->net, &t, NULL);
        if (rc == 0)
            return conn_begin(p, t);
    } while (is_of_address(rc));
    return rc;
}

static void give_up_for(struct ms_peer *p, int rc)
{
    char text[PROBLEM_MAX];

    snprintf(text,
             sizeof text,
             "cannot connect to it: %s%s",
             strerror(-rc),
             rc == -EMFILE ? " (raise the limit of open files: ulimit -n)" : "");
    ms_peer_give_up(p, text);
}

/* All addresses have been tried. */
static void round_over(struct ms_peer *p, int64_t now_ns)
{
    int last = p->dial.last;
    bool refused = ms_dial_was_refused(&p->dial);

    ms_dial_restart(&p->dial);
    if (refused)
        await_verdict(p, now_ns);
    else if (last == -ENXIO && !p->was_known)
        give_up_for(p, last); /* a name that never meant anything */
    else
        retry_later(p, now_ns);
}

void ms_peer_connect(struct ms_peer *p)
{
    int64_t now_ns = ms_now_ns();
    int rc;

    assert(!p->conn);
    set_lost(p, now_ns);
    rc = conn_open(p);
    if (rc == 0) {
        p->state = PEER_UP;
        rc = attach_again(p);
        if (rc < 0 && p->conn)
            ms_peer_lose(p, rc, NULL);
        ms_peer_hand_over(p);
    } else if (rc == -EINPROGRESS) {
        p->retry_ns = now_ns + MS_LOOKUP_NS;
        ms_client_wake_at(p->client, p->retry_ns);
    } else if (rc == -ENODATA) {
        round_over(p, now_ns);
    } else {
        ms_dial_restart(&p->dial);
        give_up_for(p, rc);
    }
}

static void give_up_lost(struct ms_peer *p, int64_t now_ns)
{
    char text[PROBLEM_MAX];

    snprintf(text,
             sizeof text,
             "the connection broke and could not be made again for %lld s%s%s",
             (long long)((now_ns - p->lost_ns) / MS_NS_PER_S),
             p->dial.last ? ": " : "",
             p->dial.last ? strerror(-p->dial.last) : "");
    ms_peer_give_up(p, text);
}

/* Lost: a verdict that does not come, the grace, the next attempt; the next time to look. */
static int64_t lost_on_time(struct ms_peer *p, int64_t now_ns)
{
    if (p->is_network && p->pending.count && now_ns - p->lost_ns >= MS_SUSPECT_NS)
        p->is_suspect = true;
    if (p->verdict_ns <= now_ns) {
        ms_peer_give_up(p,
                        "nobody answers for it at its address, and nobody knows why");
    } else if (p->verdict_ns != MS_NEVER) {
        return p->verdict_ns;
    } else if (now_ns - p->lost_ns > p->client->grace_ns) {
        give_up_lost(p, now_ns);
    } else if (p->retry_ns <= now_ns) {
        ms_peer_connect(p); /* sets the timer itself */
    } else {
        return p->retry_ns;
    }
    return MS_NEVER;
}

int64_t ms_peer_on_time(struct ms_peer *p, int64_t now_ns)
{
    int64_t next_ns = ms_calls_expire(p, now_ns), other_ns = MS_NEVER;

    if (p->state == PEER_LOST)
        other_ns = lost_on_time(p, now_ns);
    else if (p->state == PEER_SEEKING)
        other_ns = p->seek_ns > now_ns ? p->seek_ns : now_ns + MS_SEEK_NS;
    else if (p->state == PEER_UP && p->conn && p->is_network)
        other_ns = ms_peer_listen(p, now_ns);
    return other_ns < next_ns ? other_ns : next_ns;
}
