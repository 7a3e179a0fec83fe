#include "base/clock.h"
#include "base/name.h"
#include "io/sock.h"
#include "wire/client_internal.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#define RETRY_FIRST_NS (1 * MS_NS_PER_MS)

/* ---- life ------------------------------------------------------------------------- */

struct ms_peer *ms_peer_create(struct ms_client *c,
                               const char *path,
                               uint64_t uid,
                               const char *label,
                               struct ms_error *err)
{
    struct ms_peer *p = calloc(1, sizeof *p);
    pthread_condattr_t attr;

    if (!p)
        goto no_memory;
    p->path = strdup(path);
    if (!p->path || ms_random_bytes(p->session, sizeof p->session) < 0)
        goto no_memory;
    p->refs = 1;
    p->client = c;
    p->uid = uid;
    p->pair = ms_random_id();
    snprintf(p->label, sizeof p->label, "%s", label);
    ms_map_init(&p->pending);
    pthread_mutex_init(&p->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&p->changed, &attr);
    pthread_condattr_destroy(&attr);
    pthread_mutex_lock(&c->lock);
    p->id = ++c->next_id;
    if (c->closed || ms_map_add(&c->by_id, p->id, p) < 0) {
        pthread_mutex_unlock(&c->lock);
        ms_error_set(err, -ESHUTDOWN, "the client is closed");
        goto out;
    }
    ms_list_add_tail(&c->peers, &p->link);
    atomic_fetch_add(&c->refs, 1);
    pthread_mutex_unlock(&c->lock);
    return p;

no_memory:
    ms_error_set(err, -ENOMEM, "out of memory");
out:
    free(p ? p->path : NULL);
    free(p);
    return NULL;
}

struct ms_peer *ms_peer_ref(struct ms_peer *p)
{
    atomic_fetch_add(&p->refs, 1);
    return p;
}

static void peer_free(struct ms_peer *p)
{
    assert(p->pending.count == 0); /* each open call holds a reference */
    ms_conn_destroy(p->conn);
    for (uint32_t i = 0; i < p->method_count; i++)
        free(p->methods[i]);
    free(p->methods);
    free(p->method_lens);
    ms_map_finish(&p->pending);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    free(p->failure);
    free(p->path);
    free(p);
}

void ms_peer_unref(struct ms_peer *p)
{
    struct ms_client *c;

    if (!p)
        return;
    c = p->client;
    pthread_mutex_lock(&c->lock); /* nobody finds it by id from here on */
    if (atomic_fetch_sub(&p->refs, 1) != 1) {
        pthread_mutex_unlock(&c->lock);
        return;
    }
    ms_map_remove(&c->by_id, p->id);
    ms_list_remove(&p->link);
    pthread_mutex_unlock(&c->lock);
    peer_free(p);
    ms_client_unref(c);
}

uint64_t ms_peer_uid(const struct ms_peer *p)
{
    return p->uid;
}

/* ---- losing and finding again ----------------------------------------------------- */

void ms_peer_fail_all(struct ms_peer *p, const uint8_t *failure, size_t len)
{
    for (;;) {
        size_t at = 0;
        struct ms_call *c = ms_map_next(&p->pending, &at);
        uint8_t *copy;

        if (!c)
            return;
        ms_map_remove(&p->pending, c->id);
        copy = malloc(len ? len : 1);
        if (copy && len)
            memcpy(copy, failure, len);
        ms_call_complete(c, MS_KIND_ERROR, MS_CODEC_PROTO, copy, copy ? len : 0);
        ms_call_unref(c);
    }
}

static void conn_drop(struct ms_peer *p)
{
    if (!p->conn)
        return;
    epoll_ctl(p->client->epoll_fd, EPOLL_CTL_DEL, ms_conn_fd(p->conn), NULL);
    ms_conn_destroy(p->conn);
    p->conn = NULL;
    p->armed = p->broken = false;
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
        conn_drop(p);
    ms_peer_fail_all(p, failure, p->failure_len);
    pthread_cond_broadcast(&p->changed);
}

static void die_of(struct ms_peer *p, const char *text)
{
    size_t len = 0;
    uint8_t *f = ms_failure_pack(
        MUSTER__FAILURE__KIND__UNREACHABLE, p->label, text, NULL, &len);

    ms_peer_die(p, f, len);
}

/* Nobody answers and nobody says why: what is open fails, a later call tries again. */
static void give_up(struct ms_peer *p, const char *text)
{
    size_t len = 0;
    uint8_t *f = ms_failure_pack(
        MUSTER__FAILURE__KIND__UNREACHABLE, p->label, text, NULL, &len);

    p->state = PEER_IDLE;
    p->asked = false;
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

/* The connection is over; the reader's role is ours, or nobody has it. */
static void lose(struct ms_peer *p, int why, const struct ms_error *err)
{
    int64_t now_ns = ms_now_ns();

    conn_drop(p);
    pthread_cond_broadcast(&p->changed);
    if (p->state == PEER_DEAD)
        return;
    if (why == -EACCES || why == -EPERM || why == -ESTALE || why == -EPROTONOSUPPORT) {
        die_of(p, err && err->code ? err->text : "it refused the handshake");
        return;
    }
    if (p->state != PEER_LOST)
        p->lost_ns = now_ns;
    p->state = PEER_LOST;
    p->verdict_ns = MS_NEVER;
    retry_later(p, now_ns);
}

/* ---- sending ---------------------------------------------------------------------- */

void ms_peer_arm(struct ms_peer *p)
{
    struct epoll_event ev = {.events = EPOLLONESHOT, .data.u64 = p->id};

    if (!p->conn)
        return;
    if (!p->reading)
        ev.events |= EPOLLIN | EPOLLRDHUP;
    if (ms_conn_wants_write(p->conn))
        ev.events |= EPOLLOUT;
    if (p->armed && !(ev.events & EPOLLOUT))
        return;
    p->armed = !p->reading;
    epoll_ctl(p->client->epoll_fd, EPOLL_CTL_MOD, ms_conn_fd(p->conn), &ev);
}

static void disarm(struct ms_peer *p)
{
    struct epoll_event ev = {.events = EPOLLONESHOT, .data.u64 = p->id};

    if (!p->armed)
        return;
    p->armed = false;
    if (ms_conn_wants_write(p->conn))
        ev.events |= EPOLLOUT;
    epoll_ctl(p->client->epoll_fd, EPOLL_CTL_MOD, ms_conn_fd(p->conn), &ev);
}

int ms_peer_send(struct ms_peer *p,
                 const struct ms_frame *head,
                 const struct iovec *iov,
                 int count)
{
    int rc = ms_conn_send(p->conn, head, iov, count);

    if (rc < 0 && rc != -ENOMEM && rc != -ENOBUFS) {
        if (p->reading)
            shutdown(ms_conn_fd(p->conn), SHUT_RDWR); /* the reader sees the end */
        else
            lose(p, rc, NULL);
        return 0;
    }
    if (rc == 0 && ms_conn_wants_write(p->conn))
        ms_peer_arm(p);
    return rc;
}

static int send_method(struct ms_peer *p, uint32_t i)
{
    struct ms_frame head = {.kind = MS_KIND_METHOD, .op = (uint16_t)(MS_OP_METHOD + i)};
    struct iovec iov = {p->methods[i], p->method_lens[i]};

    return ms_peer_send(p, &head, &iov, 1);
}

static int send_again(struct ms_peer *p, struct ms_call *c, int64_t now_ns)
{
    struct ms_frame head = {.kind = MS_KIND_CALL,
                            .codec = c->codec,
                            .op = c->op,
                            .flags = (uint16_t)(c->flags | MS_FRAME_RESEND),
                            .call_id = c->id};
    struct iovec iov = {c->request, c->request_len};

    if (c->deadline_ns != MS_NEVER)
        head.budget_ns =
            c->deadline_ns > now_ns ? (uint64_t)(c->deadline_ns - now_ns) : 1;
    return ms_peer_send(p, &head, &iov, 1);
}

/* Methods first, then every open call; the worker knows which it has already. */
static void attach_again(struct ms_peer *p)
{
    int64_t now_ns = ms_now_ns();

    for (uint32_t i = 0; i < p->method_count && p->conn; i++)
        send_method(p, i);
    for (uint64_t id = 1; id <= p->next_call && p->conn && p->pending.count; id++) {
        struct ms_call *c = ms_map_find(&p->pending, id);

        if (!c)
            continue;
        if (c->request) {
            send_again(p, c, now_ns);
        } else {
            ms_map_remove(&p->pending, id);
            ms_call_fail(c,
                         MUSTER__FAILURE__KIND__UNREACHABLE,
                         "the connection broke, and the call was too big to be kept "
                         "and sent again");
            ms_call_unref(c);
        }
    }
}

static struct ms_conn *conn_open(struct ms_peer *p, int *rc)
{
    uint8_t nonce[32];
    struct ms_handshake h;
    struct ms_transport *t;
    struct ms_conn *conn;
    int fd = ms_unix_connect(p->path, NULL);

    *rc = fd;
    if (fd < 0)
        return NULL;
    *rc = -ENOMEM;
    t = ms_transport_unix(fd);
    if (!t || ms_random_bytes(nonce, sizeof nonce) < 0) {
        if (!t)
            close(fd);
        ms_transport_destroy(t);
        return NULL;
    }
    ms_handshake_init_client(
        &h, p->client->secret, nonce, p->session, MS_LANE_CALL, p->uid);
    conn = ms_conn_create_client(t, &h);
    ms_handshake_finish(&h);
    return conn;
}

/* Nobody listens: somebody knows why, and will say so. */
static void await_verdict(struct ms_peer *p)
{
    if (p->verdict_ns == MS_NEVER) {
        p->verdict_ns = ms_deadline_ns(ms_now_ns(), MS_VERDICT_NS);
        ms_client_wake_at(p->client, p->verdict_ns);
    }
    if (p->asked || !p->client->ask_verdict)
        return;
    p->asked = true;
    p->client->ask_verdict(p->client->arg, p->uid);
}

void ms_peer_connect(struct ms_peer *p)
{
    struct epoll_event ev = {.events = 0, .data.u64 = p->id};
    char text[160];
    int rc;

    assert(!p->conn);
    if (p->state == PEER_IDLE) {
        p->lost_ns = ms_now_ns();
        p->verdict_ns = MS_NEVER;
    }
    p->conn = conn_open(p, &rc);
    if (p->conn &&
        epoll_ctl(p->client->epoll_fd, EPOLL_CTL_ADD, ms_conn_fd(p->conn), &ev) == 0) {
        p->state = PEER_UP;
        p->armed = false;
        ms_conn_flush(p->conn);
        attach_again(p);
        if (p->conn && p->pending.count)
            ms_peer_arm(p);
        return;
    }
    conn_drop(p);
    p->state = PEER_LOST;
    if (rc == -ECONNREFUSED || rc == -ENOENT) {
        await_verdict(p);
    } else if (rc == -EAGAIN) {
        retry_later(p, ms_now_ns());
    } else {
        snprintf(text,
                 sizeof text,
                 "cannot connect to it: %s%s",
                 strerror(-rc),
                 rc == -EMFILE ? " (raise the limit of open files: ulimit -n)" : "");
        give_up(p, text);
    }
}

int64_t ms_peer_on_time(struct ms_peer *p, int64_t now_ns)
{
    int64_t next_ns = ms_calls_expire(p, now_ns);

    if (p->state != PEER_LOST)
        return next_ns;
    if (p->verdict_ns <= now_ns) {
        give_up(p, "nobody listens at its socket, and nobody knows why");
    } else if (p->verdict_ns != MS_NEVER) {
        next_ns = p->verdict_ns < next_ns ? p->verdict_ns : next_ns;
    } else if (now_ns - p->lost_ns > MS_LINK_GRACE_NS) {
        give_up(p, "the connection broke and could not be made again");
    } else if (p->retry_ns <= now_ns) {
        ms_peer_connect(p);
    } else {
        next_ns = p->retry_ns < next_ns ? p->retry_ns : next_ns;
    }
    return next_ns;
}

/* ---- methods and calls ------------------------------------------------------------ */

static int method_find(
    const struct ms_peer *p, const char *engine, size_t engine_len, const char *method)
{
    for (uint32_t i = 0; i < p->method_count; i++)
        if (strcmp(p->methods[i], engine) == 0 &&
            strcmp(p->methods[i] + engine_len + 1, method) == 0)
            return (int)(MS_OP_METHOD + i);
    return -ENOENT;
}

static int
method_add(struct ms_peer *p, const char *engine, size_t engine_len, const char *method)
{
    size_t len = engine_len + 1 + strlen(method);
    uint32_t room = p->method_room ? p->method_room * 2 : 16;
    char *text;

    if (len > MS_METHOD_NAME_MAX || !*method)
        return -ENAMETOOLONG;
    if (p->method_count == MS_METHODS_MAX)
        return -ENOSPC;
    if (p->method_count == p->method_room) {
        char **methods = realloc(p->methods, room * sizeof *methods);
        size_t *lens;

        if (!methods)
            return -ENOMEM;
        p->methods = methods;
        lens = realloc(p->method_lens, room * sizeof *lens);
        if (!lens)
            return -ENOMEM;
        p->method_lens = lens;
        p->method_room = room;
    }
    text = malloc(len + 1);
    if (!text)
        return -ENOMEM;
    memcpy(text, engine, engine_len + 1);
    strcpy(text + engine_len + 1, method);
    p->methods[p->method_count] = text;
    p->method_lens[p->method_count] = len;
    p->method_count++;
    if (p->conn)
        send_method(p, p->method_count - 1);
    return (int)(MS_OP_METHOD + p->method_count - 1);
}

int ms_peer_method(struct ms_peer *p, const char *engine, const char *method)
{
    size_t engine_len = strlen(engine);
    int op;

    pthread_mutex_lock(&p->lock);
    op = method_find(p, engine, engine_len, method);
    if (op == -ENOENT)
        op = method_add(p, engine, engine_len, method);
    pthread_mutex_unlock(&p->lock);
    return op;
}

static uint64_t take_ack(struct ms_peer *p)
{
    return p->ack_count ? p->acks[--p->ack_count] : 0;
}

static int send_acks(struct ms_peer *p)
{
    struct ms_frame head = {.kind = MS_KIND_ACK};
    uint64_t ids[ACKS_MAX];
    struct iovec iov = {ids, p->ack_count * sizeof(uint64_t)};

    for (unsigned i = 0; i < p->ack_count; i++)
        ids[i] = htole64(p->acks[i]);
    p->ack_count = 0;
    return ms_peer_send(p, &head, &iov, 1);
}

enum { CALL_IOV_MAX = 64 };

/* The payload with the chain before it. */
static int
call_iov(const struct ms_call_spec *spec, uint8_t *chain, struct iovec iov[CALL_IOV_MAX])
{
    int n = 0;

    if (spec->chain_count) {
        uint16_t count = htole16((uint16_t)spec->chain_count);

        memcpy(chain, &count, sizeof count);
        for (uint32_t i = 0; i < spec->chain_count; i++) {
            uint64_t uid = htole64(spec->chain[i]);

            memcpy(chain + sizeof count + i * sizeof uid, &uid, sizeof uid);
        }
        iov[n++] = (struct iovec){
            chain, sizeof count + spec->chain_count * sizeof(uint64_t)};
    }
    for (int i = 0; i < spec->count; i++)
        iov[n++] = spec->iov[i];
    return n;
}

static void keep_request(struct ms_call *c, const struct iovec *iov, int count)
{
    size_t len = 0, at = 0;

    for (int i = 0; i < count; i++)
        len += iov[i].iov_len;
    if (len > MS_RESEND_MAX)
        return;
    c->request = malloc(len ? len : 1);
    if (!c->request)
        return;
    for (int i = 0; i < count; i++) {
        if (iov[i].iov_len)
            memcpy(c->request + at, iov[i].iov_base, iov[i].iov_len);
        at += iov[i].iov_len;
    }
    c->request_len = len;
}

/* Put the call on its way, or complete it with the reason why not. Lock held. */
static void call_start(struct ms_peer *p,
                       struct ms_call *c,
                       const struct ms_call_spec *spec)
{
    uint8_t chain[2 + MS_CHAIN_MAX * sizeof(uint64_t)];
    struct iovec iov[CALL_IOV_MAX];
    int count = call_iov(spec, chain, iov), rc;
    int64_t now_ns = ms_now_ns();
    struct ms_frame head = {.kind = MS_KIND_CALL, .codec = c->codec, .op = c->op};

    c->id = ++p->next_call;
    c->flags = (uint16_t)((spec->stream ? MS_FRAME_STREAM : 0) |
                          (spec->chain_count ? MS_FRAME_CHAIN : 0));
    if (spec->waits && atomic_load(&p->client->outstanding) == 1)
        c->spin = ms_spin_take(p->client->spin, p->pair, now_ns);
    if (!p->conn && p->state != PEER_LOST)
        ms_peer_connect(p);
    if (ms_map_add(&p->pending, c->id, c) < 0) {
        ms_call_fail(c, MUSTER__FAILURE__KIND__NO_MEMORY, "out of memory");
        return;
    }
    ms_call_ref(c);
    keep_request(c, iov, count);
    if (!p->conn) { /* sent by attach_again, when there is a connection */
        if (p->state == PEER_IDLE)
            give_up(p, p->problem);
        return;
    }
    head.flags = (uint16_t)(c->flags | (c->spin ? MS_FRAME_SPIN : 0));
    head.call_id = c->id;
    head.ack = take_ack(p);
    if (c->deadline_ns != MS_NEVER)
        head.budget_ns =
            c->deadline_ns > now_ns ? (uint64_t)(c->deadline_ns - now_ns) : 1;
    rc = ms_peer_send(p, &head, iov, count);
    if (rc < 0 && ms_map_remove(&p->pending, c->id)) {
        ms_call_fail(c, MUSTER__FAILURE__KIND__NO_MEMORY, "no memory to send the call");
        ms_call_unref(c);
        return;
    }
    if (!spec->waits && p->waiters == 0)
        ms_peer_arm(p);
}

static struct ms_call *call_create(struct ms_peer *p, const struct ms_call_spec *spec)
{
    struct ms_call *c = calloc(1, sizeof *c);

    if (!c)
        return NULL;
    c->refs = 1;
    c->peer = ms_peer_ref(p);
    c->op = spec->op;
    c->codec = spec->codec;
    c->deadline_ns = spec->deadline_ns;
    ms_list_init(&c->items);
    ms_list_init(&c->notices);
    return c;
}

struct ms_call *ms_peer_call(struct ms_peer *p, const struct ms_call_spec *spec)
{
    struct ms_call *c = call_create(p, spec);

    if (!c)
        return NULL;
    atomic_fetch_add(&p->client->outstanding, 1);
    pthread_mutex_lock(&p->lock);
    if (p->state == PEER_DEAD) {
        uint8_t *copy = malloc(p->failure_len ? p->failure_len : 1);

        if (copy && p->failure_len)
            memcpy(copy, p->failure, p->failure_len);
        ms_call_complete(
            c, MS_KIND_ERROR, MS_CODEC_PROTO, copy, copy ? p->failure_len : 0);
    } else if (spec->count + 1 > CALL_IOV_MAX || spec->chain_count > MS_CHAIN_MAX) {
        ms_call_fail(c, MUSTER__FAILURE__KIND__REFUSED, "too many pieces in one call");
    } else {
        call_start(p, c, spec);
    }
    if (!c->done && !spec->waits)
        ms_client_wake_at(p->client, c->deadline_ns);
    pthread_mutex_unlock(&p->lock);
    return c;
}

/* ---- reading ---------------------------------------------------------------------- */

static void add_ack(struct ms_peer *p, uint64_t id, size_t len)
{
    p->acks[p->ack_count++] = id;
    if ((p->ack_count == ACKS_MAX || len > MS_CHUNK_MAX) && p->conn && !p->locked_read)
        send_acks(p);
    if (p->ack_count == ACKS_MAX)
        p->ack_count = 0; /* cannot be told now; kept replies are bounded there */
}

static int on_reply(struct ms_peer *p, struct ms_message *m)
{
    struct ms_call *c = ms_map_remove(&p->pending, m->head.call_id);
    uint8_t *body;

    add_ack(p, m->head.call_id, m->len);
    if (!c)
        return 0; /* cancelled meanwhile */
    body = ms_message_take(m);
    c->ends_stream = m->head.flags & MS_FRAME_STREAM;
    if (body)
        ms_call_complete(c, m->head.kind, m->head.codec, body, m->len);
    else
        ms_call_fail(c, MUSTER__FAILURE__KIND__NO_MEMORY, "no memory for the result");
    ms_call_unref(c);
    return 0;
}

static int on_item(struct ms_peer *p, struct ms_message *m)
{
    struct ms_call *c = ms_map_find(&p->pending, m->head.call_id);

    return c ? ms_call_add_item(c, m) : 0;
}

static int on_message(void *arg, struct ms_message *m)
{
    struct ms_peer *p = arg;
    bool lock = !p->locked_read;
    int rc;

    if (lock)
        pthread_mutex_lock(&p->lock);
    switch (m->head.kind) {
    case MS_KIND_REPLY:
    case MS_KIND_ERROR:
        rc = on_reply(p, m);
        break;
    case MS_KIND_ITEM:
        rc = on_item(p, m);
        break;
    case MS_KIND_PONG:
        rc = 0;
        break;
    default:
        rc = -EPROTO;
    }
    if (lock)
        pthread_mutex_unlock(&p->lock);
    return rc;
}

static const struct ms_conn_sink peer_sink = {.on_message = on_message};

/* Wait for the socket without the lock. */
static int wait_socket(int fd, short events, int64_t until_ns)
{
    struct pollfd pfd = {.fd = fd, .events = events};
    struct timespec ts, *timeout = NULL;
    int n;

    if (until_ns != MS_NEVER) {
        int64_t left_ns = until_ns - ms_now_ns();

        if (left_ns <= 0)
            return -ETIMEDOUT;
        ts.tv_sec = left_ns / MS_NS_PER_S;
        ts.tv_nsec = left_ns % MS_NS_PER_S;
        timeout = &ts;
    }
    n = ppoll(&pfd, 1, timeout, NULL);
    return n < 0 ? -errno : n == 0 ? -ETIMEDOUT : 0;
}

static int
read_polling(struct ms_peer *p, struct ms_conn *conn, bool spin, struct ms_error *err)
{
    int64_t spin_until_ns = spin ? ms_now_ns() + MS_SPIN_NS : 0;

    for (;;) {
        int rc = ms_conn_read(conn, &peer_sink, p, err);

        if (rc != -EAGAIN || !spin || ms_now_ns() >= spin_until_ns)
            return rc;
        ms_spin_relax();
    }
}

/* During the handshake reading and sending share state: read under the lock. */
static int read_handshake(struct ms_peer *p, struct ms_error *err)
{
    int rc;

    p->locked_read = true;
    rc = ms_conn_read(p->conn, &peer_sink, p, err);
    p->locked_read = false;
    return rc;
}

/* The role is ours; lock held before and after. */
static int read_with_role(struct ms_peer *p, bool spin, int64_t until_ns)
{
    struct ms_error err = {0};
    struct ms_conn *conn = p->conn;
    bool proven = ms_conn_is_ready(conn);
    short events = (short)(POLLIN | (ms_conn_wants_write(conn) ? POLLOUT : 0));
    int rc = -EAGAIN, waited = 0;

    if (!proven)
        rc = read_handshake(p, &err);
    pthread_mutex_unlock(&p->lock);
    if (proven)
        rc = read_polling(p, conn, spin, &err);
    if (rc == -EAGAIN && until_ns != 0)
        waited = wait_socket(ms_conn_fd(conn), events, until_ns);
    if (proven && rc == -EAGAIN && waited == 0 && until_ns != 0)
        rc = ms_conn_read(conn, &peer_sink, p, &err);
    pthread_mutex_lock(&p->lock);
    if ((events & POLLOUT) && rc >= -EAGAIN)
        ms_conn_flush(conn); /* its failure is read as the end of file */
    if (rc < 0 && rc != -EAGAIN) {
        lose(p, rc, &err);
        return 0;
    }
    return waited;
}

int ms_peer_read(struct ms_peer *p, bool spin, int64_t until_ns)
{
    int rc;

    disarm(p);
    p->reading = true;
    rc = read_with_role(p, spin, until_ns);
    p->reading = false;
    return rc;
}
