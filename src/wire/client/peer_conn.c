/* peer_conn.c - a peer's connection: sending, losing it, and the peer's death */
#include "base/buf.h"
#include "base/clock.h"
#include "wire/client/client_impl.h"

#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define RETRY_FIRST_NS (1 * MS_NS_PER_MS)

/* ---- the end --------------------------------------------------------------------- */

void ms_peer_end_calls(struct ms_peer *p,
                       const uint8_t *failure,
                       size_t len,
                       bool but_unsent)
{
    size_t at = 0;
    struct ms_call *c;

    while ((c = ms_map_next(&p->calls, &at))) {
        if (but_unsent && ms_call_can_go_on(c))
            continue;
        ms_peer_drop_call(p, ms_peer_take_call(p, c->id));
        if (!c->given_up) {
            uint8_t *copy = ms_bytes_copy(failure, len);

            ms_call_complete(c, MS_KIND_ERROR, MS_CODEC_PROTO, copy, copy ? len : 0);
        }
        at = 0;
    }
}

/* Its calls may have arrived. Those made since its end was found were not sent. */
static void mark_sent(struct ms_peer *p)
{
    size_t at = 0;
    struct ms_call *c;

    if (!p->conn || !ms_conn_has_sent(p->conn) || p->is_broken || p->is_dying)
        return;
    p->was_known = true;
    while ((c = ms_map_next(&p->calls, &at)))
        c->sent = true;
}

/* `is_dead`: what is open now was never meant for it. */
static void drop_conn(struct ms_peer *p, bool is_dead)
{
    if (!p->conn)
        return;
    if (!is_dead)
        mark_sent(p);
    epoll_ctl(p->client->epoll_fd, EPOLL_CTL_DEL, ms_conn_fd(p->conn), NULL);
    ms_inbox_release(p);
    ms_conn_destroy(p->conn);
    ms_fd_close(&p->probe_fd);
    p->conn = NULL;
    p->armed = NOT_ARMED;
    p->watched = 0;
    p->is_working = p->is_broken = false;
}

void ms_peer_drop_conn(struct ms_peer *p)
{
    drop_conn(p, false);
}

static void end_dead(struct ms_peer *p)
{
    p->state = PEER_DEAD;
    ms_peer_end_calls(p, p->failure, p->failure_len, p->may_have_successor);
    if (p->successor_uid)
        p->state = PEER_SEEKING;
    else if (p->open_count)
        ms_peer_seek_successor(p);
}

void ms_peer_die(struct ms_peer *p,
                 Muster__Failure__Kind kind,
                 const char *text,
                 const Muster__Exit *exit)
{
    bool is_told = kind == MUSTER__FAILURE__KIND__WORKER_DIED;

    if (p->state == PEER_DEAD ||
        (p->is_dying && kind == MUSTER__FAILURE__KIND__WORKER_DIED))
        return;
    if (kind == MUSTER__FAILURE__KIND__SHUTTING_DOWN) {
        ms_dial_finish(&p->successor_dial);
        p->successor_uid = 0;
    }
    if (!p->is_dying) {
        free(p->failure);
        p->failure = ms_failure_pack(kind, p->label, text, exit, &p->failure_len);
    }
    mark_sent(p);
    p->is_dying = p->conn && p->reading && is_told;
    if (p->conn && p->reading)
        shutdown(ms_conn_fd(p->conn), SHUT_RDWR); /* its reader will drop it */
    else
        ms_peer_drop_conn(p);
    if (!p->is_dying)
        end_dead(p);
}

/* Nobody answers and nobody says why: what is open fails, a later call tries again. */
void ms_peer_give_up(struct ms_peer *p, const char *fmt, ...)
{
    char text[PROBLEM_MAX];
    size_t len = 0;
    uint8_t *f;
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    memcpy(p->problem, text, sizeof text);
    f = ms_failure_pack(MUSTER__FAILURE__KIND__UNREACHABLE, p->label, text, NULL, &len);
    p->state = PEER_IDLE;
    p->asked = p->wants_exit = false;
    p->attempts = 0;
    ms_peer_end_calls(p, f, len, false);
    free(f);
}

void ms_peer_retry_later(struct ms_peer *p, int64_t now_ns)
{
    int64_t delay_ns = RETRY_FIRST_NS << (p->attempts < 8 ? p->attempts : 8);

    /* at once, but on this host: there a connection breaks because the worker has died, and
     * the thread that reports it would wait while this thread dials */
    if (p->attempts == 0 && p->is_network)
        delay_ns = 0;
    if (delay_ns > MS_RETRY_MAX_NS)
        delay_ns = MS_RETRY_MAX_NS;
    p->attempts++;
    p->retry_ns = now_ns + delay_ns;
    ms_client_wake_at(p->client, p->retry_ns);
}

void ms_peer_await_exit(struct ms_peer *p, int64_t now_ns)
{
    if (p->exit_due_ns == MS_NEVER)
        p->exit_due_ns = ms_deadline_ns(now_ns, p->client->o.exit_wait_ns);
    p->wants_exit = true;
    ms_client_wake_at(p->client, now_ns); /* it is asked for from there */
}

/* Was there a word from it, or was it at least there for a while? */
static bool has_worked(const struct ms_peer *p, int64_t now_ns)
{
    return p->is_working || (p->conn && ms_conn_is_ready(p->conn) &&
                             now_ns - p->opened_ns >= MS_NS_PER_S);
}

void ms_peer_set_lost(struct ms_peer *p, int64_t now_ns)
{
    if (p->state != PEER_LOST && (has_worked(p, now_ns) || p->attempts == 0)) {
        p->lost_ns = p->is_suspect ? ms_peer_heard_ns(p, now_ns) : now_ns;
        p->attempts = 0;
    }
    p->state = PEER_LOST;
    p->exit_due_ns = MS_NEVER;
}

/* The handshake was refused. A worker that had talked to us is no longer there: its port
 * belongs to another process now. */
static void be_refused(struct ms_peer *p, const struct ms_error *err, int64_t now_ns)
{
    const char *text = err && err->code ? err->text : "it refused the handshake";

    if (p->is_network && p->was_known)
        ms_peer_await_exit(p, now_ns);
    else
        ms_peer_die(p, MUSTER__FAILURE__KIND__UNREACHABLE, text, NULL);
}

static bool is_refusal(int why)
{
    return why == -EACCES || why == -EPERM || why == -EPROTONOSUPPORT || why == -ENOKEY;
}

void ms_peer_lose(struct ms_peer *p, int why, const struct ms_error *err)
{
    int64_t now_ns = ms_now_ns();
    bool was_proven = p->conn && ms_conn_is_ready(p->conn);
    bool is_dying = p->is_dying;
    bool is_dead = is_dying || p->state == PEER_DEAD || p->state == PEER_SEEKING;

    p->is_dying = false;
    if (!is_dead)
        ms_peer_set_lost(p, now_ns);
    drop_conn(p, is_dead);
    if (is_dying)
        end_dead(p);
    if (is_dead) {
        ms_peer_succeed(p);
        return;
    }
    if (p->is_network && was_proven && p->calls.count == 0) {
        /* nobody waits: the next call tries */
        ms_dial_restart(&p->dial);
        p->attempts = 0;
        p->state = PEER_IDLE;
        return;
    }
    if (why == -ESTALE) { /* the worker's place was taken by another */
        ms_peer_await_exit(p, now_ns);
    } else if (is_refusal(why)) {
        be_refused(p, err, now_ns);
    } else if (was_proven) {
        ms_dial_restart(&p->dial);
        ms_peer_retry_later(p, now_ns);
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

/* What came before the end lies unread: it is read first, and the connection lost then. */
static void send_failed(struct ms_peer *p, int why)
{
    if (!p->reading && !ms_conn_is_ready(p->conn)) {
        ms_peer_lose(p, why, NULL);
        return;
    }
    mark_sent(p);
    p->is_broken = true;
    p->inbox_until_ns = 0;
    shutdown(ms_conn_fd(p->conn), SHUT_RDWR);
    ms_peer_look(p);
    ms_peer_arm(p);
}

int ms_peer_send(struct ms_peer *p,
                 const struct ms_frame *head,
                 const struct iovec *iov,
                 int count)
{
    int rc = p->is_broken ? 0 : ms_conn_send(p->conn, head, iov, count);

    if (rc == -ENOMEM || rc == -ENOBUFS || rc == -EMSGSIZE)
        return rc;
    if (rc < 0) {
        send_failed(p, rc);
        return 0;
    }
    if (ms_conn_wants_write(p->conn))
        ms_peer_arm(p);
    return 0;
}

int ms_peer_send_method(struct ms_peer *p, size_t i)
{
    struct ms_frame head = {.kind = MS_KIND_METHOD, .op = (uint16_t)(MS_OP_METHOD + i)};

    return ms_peer_send(p, &head, &p->methods[i], 1);
}

static uint64_t budget(const struct ms_call *c, int64_t now_ns)
{
    if (c->deadline_ns == MS_NEVER)
        return 0;
    return c->deadline_ns > now_ns ? (uint64_t)(c->deadline_ns - now_ns) : 1;
}

struct ms_frame ms_call_frame(const struct ms_call *c, int64_t now_ns)
{
    return (struct ms_frame){.kind = MS_KIND_CALL,
                             .codec = c->codec,
                             .op = c->op,
                             .flags = c->flags,
                             .call_id = c->id,
                             .budget_ns = budget(c, now_ns)};
}
