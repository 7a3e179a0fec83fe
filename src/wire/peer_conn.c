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

static void fail_all(struct ms_peer *p, const uint8_t *failure, size_t len)
{
    size_t at = 0;
    struct ms_call *c;

    while ((c = ms_map_next(&p->pending, &at))) {
        uint8_t *copy = ms_bytes_copy(failure, len);

        ms_map_remove(&p->pending, c->id);
        ms_call_complete(c, MS_KIND_ERROR, MS_CODEC_PROTO, copy, copy ? len : 0);
        ms_peer_drop_call(p, c);
        at = 0;
    }
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

void ms_peer_drop_conn(struct ms_peer *p)
{
    if (!p->conn)
        return;
    if (ms_conn_has_sent(p->conn))
        mark_sent(p);
    epoll_ctl(p->client->epoll_fd, EPOLL_CTL_DEL, ms_conn_fd(p->conn), NULL);
    ms_conn_destroy(p->conn);
    p->conn = NULL;
    p->armed = p->is_working = false;
}

void ms_peer_die(struct ms_peer *p, uint8_t *failure, size_t len)
{
    if (p->state == PEER_DEAD) {
        free(failure);
        return;
    }
    p->state = PEER_DEAD;
    p->failure = failure;
    p->failure_len = failure ? len : 0;
    if (p->conn && p->reading)
        shutdown(ms_conn_fd(p->conn), SHUT_RDWR); /* its reader will drop it */
    else
        ms_peer_drop_conn(p);
    fail_all(p, failure, p->failure_len);
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
    fail_all(p, f, f ? len : 0);
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

/* Losing it again and again, without a word in between, is being lost all the time. */
static void set_lost(struct ms_peer *p, int64_t now_ns)
{
    if (p->state != PEER_LOST && (p->is_working || p->attempts == 0)) {
        p->lost_ns = now_ns;
        p->attempts = 0;
    }
    p->state = PEER_LOST;
    p->verdict_ns = MS_NEVER;
}

void ms_peer_lose(struct ms_peer *p, int why, const struct ms_error *err)
{
    int64_t now_ns = ms_now_ns();

    if (p->state != PEER_DEAD)
        set_lost(p, now_ns);
    ms_peer_drop_conn(p);
    if (p->state == PEER_DEAD)
        return;
    if (why == -ESTALE) /* the worker's place was taken by another */
        await_verdict(p, now_ns);
    else if (why == -EACCES || why == -EPERM || why == -EPROTONOSUPPORT)
        die_of(p, err && err->code ? err->text : "it refused the handshake");
    else
        retry_later(p, now_ns);
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
        if (p->reading)
            shutdown(ms_conn_fd(p->conn), SHUT_RDWR); /* the reader sees the end */
        else
            ms_peer_lose(p, rc, NULL);
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

static struct ms_conn *conn_make(struct ms_peer *p, int fd, int *rc)
{
    struct ms_transport *t = ms_transport_unix(fd);
    struct ms_handshake h;
    struct ms_conn *conn;
    uint8_t nonce[32];

    *rc = -ENOMEM;
    if (!t) {
        close(fd);
        return NULL;
    }
    *rc = t->ops->check_peer(t, NULL);
    if (*rc == 0)
        *rc = ms_random_bytes(nonce, sizeof nonce);
    if (*rc < 0) {
        ms_transport_destroy(t);
        return NULL;
    }
    ms_handshake_init_client(
        &h, p->client->secret, nonce, p->session, MS_LANE_CALL, p->uid);
    conn = ms_conn_create_client(t, &h);
    ms_handshake_finish(&h);
    *rc = conn ? 0 : -ENOMEM;
    return conn;
}

/* 0, or a negative errno: then there is no connection. */
static int conn_open(struct ms_peer *p)
{
    struct epoll_event ev = {.events = EPOLLONESHOT, .data.u64 = p->id};
    int fd = ms_unix_connect(p->path, NULL), rc;

    if (fd < 0)
        return fd;
    p->conn = conn_make(p, fd, &rc);
    if (!p->conn)
        return rc;
    if (epoll_ctl(p->client->epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0) {
        rc = -errno;
        ms_peer_drop_conn(p);
        return rc;
    }
    p->armed = false;
    ms_conn_flush(p->conn); /* its failure is read as the end of file */
    return 0;
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
    } else if (rc == -ECONNREFUSED || rc == -ENOENT) {
        await_verdict(p, now_ns);
    } else if (rc == -EAGAIN) {
        retry_later(p, now_ns);
    } else {
        give_up_for(p, rc);
    }
}

int64_t ms_peer_on_time(struct ms_peer *p, int64_t now_ns)
{
    int64_t next_ns = ms_calls_expire(p, now_ns);

    if (p->state != PEER_LOST)
        return next_ns;
    if (p->verdict_ns <= now_ns) {
        ms_peer_give_up(p, "nobody answers for it at its socket, and nobody knows why");
    } else if (p->verdict_ns != MS_NEVER) {
        next_ns = p->verdict_ns < next_ns ? p->verdict_ns : next_ns;
    } else if (now_ns - p->lost_ns > p->client->grace_ns) {
        ms_peer_give_up(p, "the connection broke and could not be made again");
    } else if (p->retry_ns <= now_ns) {
        ms_peer_connect(p); /* sets the timer itself */
    } else {
        next_ns = p->retry_ns < next_ns ? p->retry_ns : next_ns;
    }
    return next_ns;
}
