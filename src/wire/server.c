#include "wire/server.h"
#include "base/clock.h"
#include "base/name.h"
#include "io/sock.h"
#include "wire/server_internal.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <string.h>

#define LISTEN_AGAIN_NS (50 * MS_NS_PER_MS) /* after running out of descriptors */

bool ms_server_on_loop(const struct ms_server *s)
{
    return s->loop_thread_known && pthread_equal(s->loop_thread, pthread_self());
}

/* ---- routing what arrived --------------------------------------------------------- */

static bool is_for_engine(const struct ms_request *r)
{
    return r->server->has_engine && r->op >= MS_OP_CONFIGURE;
}

static void queue_add(struct ms_server *s, struct ms_request *r)
{
    ms_list_add_tail(&s->queue, &r->queue_link);
    atomic_fetch_add(&s->queued, 1);
}

static void deliver(void *arg)
{
    struct ms_request *r = arg;

    r->server->ops->on_request(r->server->arg, r);
}

/* Hand out on the loop's thread. Lock held; returns unlocked. */
static void route_to_loop(struct ms_server *s, struct ms_request *r)
{
    bool here = ms_server_on_loop(s);

    r->state = MS_REQUEST_RUNNING;
    r->refs++;
    s->refs++;
    pthread_mutex_unlock(&s->lock);
    if (here)
        deliver(r);
    else if (ms_loop_post(s->loop, deliver, r) < 0)
        ms_request_fail_text(r, MUSTER__FAILURE__KIND__NO_MEMORY, "out of memory");
}

/* A whole request: lock held; returns unlocked. */
static void route(struct ms_server *s, struct ms_request *r, bool has_place)
{
    bool tell;

    if (!is_for_engine(r)) {
        route_to_loop(s, r);
        return;
    }
    if (r->op >= MS_OP_METHOD && !r->method) {
        if (has_place) {
            ms_list_remove(&r->queue_link);
            atomic_fetch_sub(&s->queued, 1);
        }
        ms_request_fail_locked(
            r, MUSTER__FAILURE__KIND__NO_METHOD, "a method that was never named");
        pthread_mutex_unlock(&s->lock);
        return;
    }
    if (!has_place)
        queue_add(s, r);
    tell = s->is_async && s->ops->on_queued;
    ms_lane_wake(s);
    pthread_mutex_unlock(&s->lock);
    if (tell)
        s->ops->on_queued(s->arg);
}

static int on_begin(void *arg, const struct ms_frame *head)
{
    struct server_conn *sc = arg;
    struct ms_server *s = sc->server;
    struct ms_request *fresh = NULL;
    int rc = -ENOMEM;

    pthread_mutex_lock(&s->lock);
    if (sc->ledger || ms_ledger_attach(s, sc))
        rc = ms_ledger_begin(sc->ledger, head, ms_now_ns(), &fresh);
    if (fresh && is_for_engine(fresh))
        queue_add(s, fresh);
    pthread_mutex_unlock(&s->lock);
    return rc;
}

static void on_acks(struct ms_ledger *l, const struct ms_message *m)
{
    for (size_t at = 0; at + sizeof(uint64_t) <= m->len; at += sizeof(uint64_t)) {
        uint64_t id;

        memcpy(&id, m->body + at, sizeof id);
        ms_ledger_ack(l, le64toh(id));
    }
}

static void tell_cancelled(struct ms_server *s, struct ms_request *r)
{
    if (s->ops->on_cancel)
        s->ops->on_cancel(s->arg, r);
    pthread_mutex_lock(&s->lock);
    ms_request_unref_locked(r);
    pthread_mutex_unlock(&s->lock);
}

static int on_call(struct server_conn *sc, struct ms_message *m)
{
    struct ms_server *s = sc->server;
    struct ms_request *ready;
    bool has_place;
    int rc = ms_ledger_call(sc->ledger, m, ms_now_ns(), &ready, &has_place);

    if (rc == 0 && ready) {
        if (has_place && !is_for_engine(ready))
            has_place = false;
        if (sc->in_lane && is_for_engine(ready))
            s->hot = sc;
        route(s, ready, has_place); /* unlocks */
        return 0;
    }
    pthread_mutex_unlock(&s->lock);
    return rc;
}

static int on_pinged(struct server_conn *sc, const struct ms_message *m)
{
    struct ms_frame pong = {.kind = MS_KIND_PONG, .call_id = m->head.call_id};

    ms_conn_send(sc->conn, &pong, NULL, 0);
    ms_server_conn_want_flush(sc);
    return 0;
}

/* Without the lock; the connection's reader. */
static int on_message(void *arg, struct ms_message *m)
{
    struct server_conn *sc = arg;
    struct ms_server *s = sc->server;
    struct ms_request *cancelled = NULL;
    int rc = 0;

    pthread_mutex_lock(&s->lock);
    if (!sc->ledger && !ms_ledger_attach(s, sc)) {
        pthread_mutex_unlock(&s->lock);
        return -ENOMEM;
    }
    if (m->head.ack)
        ms_ledger_ack(sc->ledger, m->head.ack);
    switch (m->head.kind) {
    case MS_KIND_CALL:
        return on_call(sc, m);
    case MS_KIND_CANCEL:
        cancelled = ms_ledger_cancel(sc->ledger, m->head.call_id);
        break;
    case MS_KIND_ACK:
        on_acks(sc->ledger, m);
        break;
    case MS_KIND_CREDIT:
        ms_ledger_credit(sc->ledger, m->head.call_id, m->head.op);
        break;
    case MS_KIND_METHOD:
        rc = ms_ledger_method(sc->ledger, m);
        break;
    case MS_KIND_PING:
        rc = on_pinged(sc, m);
        break;
    default:
        rc = -EPROTO;
    }
    pthread_mutex_unlock(&s->lock);
    if (cancelled)
        tell_cancelled(s, cancelled);
    return rc;
}

int ms_server_conn_read(struct server_conn *sc, struct ms_error *err)
{
    static const struct ms_conn_sink sink = {.on_begin = on_begin,
                                             .on_message = on_message};

    return ms_conn_read(sc->conn, &sink, sc, err);
}

/* ---- connections ------------------------------------------------------------------ */

static void conn_destroy(struct server_conn *sc)
{
    struct ms_server *s = sc->server;

    pthread_mutex_lock(&s->lock);
    ms_lane_remove(sc);
    ms_ledger_detach(sc);
    ms_map_remove(&s->by_id, sc->id);
    ms_list_remove(&sc->link);
    s->conn_count--;
    pthread_mutex_unlock(&s->lock);
    ms_watch_finish(&sc->watch);
    ms_timer_finish(&sc->deadline);
    ms_conn_destroy(sc->conn);
    free(sc);
}

static void sweep_soon(struct ms_server *s, int64_t now_ns, int64_t next_ns)
{
    if (next_ns != MS_NEVER)
        ms_timer_set(&s->sweep, next_ns - now_ns);
}

static void on_sweep(void *arg)
{
    struct ms_server *s = arg;
    int64_t now_ns = ms_now_ns(), next_ns;

    pthread_mutex_lock(&s->lock);
    next_ns = ms_ledger_sweep(s, now_ns);
    pthread_mutex_unlock(&s->lock);
    sweep_soon(s, now_ns, next_ns);
}

/* On the loop. */
static void conn_bury(void *arg)
{
    struct server_conn *sc = arg;
    struct ms_server *s = sc->server;

    conn_destroy(sc);
    on_sweep(s);
}

void ms_server_conn_lost(struct server_conn *sc)
{
    if (sc->dead)
        return;
    sc->dead = true;
    ms_lane_remove(sc);
    ms_ledger_detach(sc);
    /* out of memory here leaves the connection to ms_server_destroy */
    ms_loop_post(sc->server->loop, conn_bury, sc);
}

static void conn_lost(struct server_conn *sc)
{
    pthread_mutex_lock(&sc->server->lock);
    ms_server_conn_lost(sc);
    pthread_mutex_unlock(&sc->server->lock);
    ms_watch_set(&sc->watch, 0);
}

static void conn_watch(struct server_conn *sc)
{
    unsigned events = 0;

    if (sc->dead)
        return;
    if (!sc->in_lane)
        events |= MS_READ;
    if (ms_conn_wants_write(sc->conn))
        events |= MS_WRITE;
    ms_watch_set(&sc->watch, events);
}

/* The handshake is over: into the lane, or it stays with the loop. */
static int conn_proven(struct server_conn *sc)
{
    int rc = 0;

    ms_timer_cancel(&sc->deadline);
    if (sc->server->has_engine &&
        ms_conn_handshake(sc->conn)->lane == MS_LANE_CALL)
        rc = ms_lane_add(sc);
    return rc;
}

static void on_conn(void *arg, unsigned events)
{
    struct server_conn *sc = arg;
    struct ms_server *s = sc->server;
    bool was_ready = ms_conn_is_ready(sc->conn);
    int rc = 0;

    if (sc->dead)
        return;
    if (events & MS_WRITE) {
        pthread_mutex_lock(&s->lock);
        rc = ms_conn_flush(sc->conn);
        pthread_mutex_unlock(&s->lock);
    }
    if (rc == 0 && (events & MS_READ) && !sc->in_lane) {
        rc = ms_server_conn_read(sc, NULL);
        if (rc == -EAGAIN)
            rc = 0;
    }
    pthread_mutex_lock(&s->lock);
    if (rc >= 0 && !was_ready && ms_conn_is_ready(sc->conn))
        rc = conn_proven(sc);
    if (rc >= 0)
        conn_watch(sc);
    pthread_mutex_unlock(&s->lock);
    if (rc < 0)
        conn_lost(sc);
}

static void flush_later(void *arg)
{
    struct server_conn *sc = arg;

    pthread_mutex_lock(&sc->server->lock);
    sc->flush_posted = false;
    conn_watch(sc);
    pthread_mutex_unlock(&sc->server->lock);
}

void ms_server_conn_want_flush(struct server_conn *sc)
{
    if (sc->dead || sc->flush_posted || !ms_conn_wants_write(sc->conn))
        return;
    if (ms_server_on_loop(sc->server))
        conn_watch(sc);
    else
        sc->flush_posted = ms_loop_post(sc->server->loop, flush_later, sc) == 0;
}

static void on_handshake_deadline(void *arg)
{
    conn_lost(arg);
}

static struct ms_conn *conn_accept(struct ms_server *s, int fd)
{
    struct ms_transport *t = ms_transport_unix(fd);
    struct ms_handshake h;
    struct ms_conn *conn;
    uint8_t nonce[32];

    if (!t) {
        close(fd);
        return NULL;
    }
    if (t->ops->check_peer(t, NULL) < 0 || ms_random_bytes(nonce, sizeof nonce) < 0) {
        ms_transport_destroy(t);
        return NULL;
    }
    ms_handshake_init_server(&h, s->secret, nonce, s->identity);
    conn = ms_conn_create_server(t, &h);
    ms_handshake_finish(&h);
    return conn;
}

static void conn_create(struct ms_server *s, int fd)
{
    struct server_conn *sc;
    struct ms_conn *conn = conn_accept(s, fd);

    if (!conn)
        return;
    sc = calloc(1, sizeof *sc);
    if (!sc) {
        ms_conn_destroy(conn);
        return;
    }
    sc->server = s;
    sc->conn = conn;
    ms_list_init(&sc->idle_link);
    pthread_mutex_lock(&s->lock);
    sc->id = ++s->next_id;
    ms_list_add_tail(&s->conns, &sc->link);
    s->conn_count++;
    if (ms_map_add(&s->by_id, sc->id, sc) < 0)
        sc->dead = true;
    pthread_mutex_unlock(&s->lock);
    if (sc->dead ||
        ms_timer_init(&sc->deadline, s->loop, on_handshake_deadline, sc) < 0 ||
        ms_timer_set(&sc->deadline, MS_HANDSHAKE_NS) < 0 ||
        ms_watch_init(&sc->watch, s->loop, fd, MS_READ, on_conn, sc) < 0)
        conn_destroy(sc);
}

static void on_listen_again(void *arg)
{
    struct ms_server *s = arg;

    ms_watch_set(&s->listen_watch, MS_READ);
}

static void on_listen(void *arg, unsigned events)
{
    struct ms_server *s = arg;

    (void)events;
    if (!s->loop_thread_known) { /* before the first connection: nobody reads it yet */
        s->loop_thread = pthread_self();
        s->loop_thread_known = true;
    }
    for (;;) {
        int fd;

        if (s->conn_count >= MS_PEERS_MAX)
            fd = -EMFILE;
        else
            fd = ms_unix_accept(s->listen_fd);
        if (fd == -EAGAIN)
            return;
        if (fd < 0) { /* no descriptor or no memory: not now, but not never */
            ms_watch_set(&s->listen_watch, 0);
            ms_timer_set(&s->listen_again, LISTEN_AGAIN_NS);
            return;
        }
        conn_create(s, fd);
    }
}

/* ---- life ------------------------------------------------------------------------- */

static void cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
}

struct ms_server *ms_server_create(const struct ms_server_options *o)
{
    struct ms_server *s = calloc(1, sizeof *s);

    if (!s)
        return NULL;
    s->loop = o->loop;
    memcpy(s->secret, o->secret, MS_SECRET_SIZE);
    s->identity = o->identity;
    s->has_engine = o->has_engine;
    s->ops = o->ops;
    s->arg = o->arg;
    s->refs = 1;
    s->listen_fd = s->lane_fd = s->tick_fd = s->wake_read = s->wake_write = -1;
    pthread_mutex_init(&s->lock, NULL);
    cond_init(&s->credit);
    ms_list_init(&s->conns);
    ms_list_init(&s->ledgers);
    ms_list_init(&s->queue);
    ms_map_init(&s->by_id);
    if (ms_timer_init(&s->listen_again, s->loop, on_listen_again, s) < 0 ||
        ms_timer_init(&s->sweep, s->loop, on_sweep, s) < 0 || ms_lane_init(s) < 0) {
        ms_server_destroy(s);
        return NULL;
    }
    return s;
}

int ms_server_listen(struct ms_server *s, int fd)
{
    assert(s->listen_fd < 0);
    s->listen_fd = fd;
    return ms_watch_init(&s->listen_watch, s->loop, fd, MS_READ, on_listen, s);
}

static void server_free(struct ms_server *s)
{
    for (uint32_t i = 0; i < s->method_count; i++) {
        free(s->methods[i]->engine);
        free(s->methods[i]->name);
        free(s->methods[i]);
    }
    free(s->methods);
    ms_map_finish(&s->by_id);
    pthread_cond_destroy(&s->credit);
    pthread_mutex_destroy(&s->lock);
    explicit_bzero(s->secret, sizeof s->secret);
    free(s);
}

void ms_server_unref_locked(struct ms_server *s)
{
    bool last = --s->refs == 0;

    pthread_mutex_unlock(&s->lock);
    if (last)
        server_free(s);
}

void ms_server_destroy(struct ms_server *s)
{
    if (!s)
        return;
    ms_watch_finish(&s->listen_watch);
    ms_timer_finish(&s->listen_again);
    ms_timer_finish(&s->sweep);
    ms_fd_close(&s->listen_fd);
    ms_list_each (sc, &s->conns, struct server_conn, link)
        conn_destroy(sc);
    pthread_mutex_lock(&s->lock);
    ms_list_each (l, &s->ledgers, struct ms_ledger, link)
        ms_ledger_destroy(l);
    ms_lane_finish(s);
    s->destroyed = true;
    ms_server_unref_locked(s);
}
