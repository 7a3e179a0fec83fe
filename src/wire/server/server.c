/* server.c - a server: life, timers, and what other threads leave to the loop */
#include "wire/server/server.h"
#include "base/clock.h"
#include "wire/server/server_impl.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>

bool ms_server_on_loop(const struct ms_server *s)
{
    return s->loop_thread_known && pthread_equal(s->loop_thread, pthread_self());
}

/* ---- what other threads leave for the loop --------------------------------------- */

void ms_server_wake_loop(struct ms_server *s)
{
    uint64_t one = 1;
    ssize_t n;

    if (s->todo_told || s->destroyed)
        return;
    s->todo_told = true;
    n = write(s->todo_fd, &one, sizeof one);
    (void)n; /* it cannot be full: the loop reads it before todo_told is false
                again */
}

void ms_server_wake_at(struct ms_server *s, int64_t at_ns)
{
    if (at_ns >= s->timer_ns)
        return;
    s->timer_ns = at_ns;
    ms_server_wake_loop(s);
}

void ms_server_hand_out(struct ms_server *s, struct ms_request *r, struct ms_list *to)
{
    r->state = MS_SERVE_RUNNING;
    r->refs++;
    s->refs++;
    ms_list_add_tail(to, &r->queue_link);
    ms_server_wake_at(s, r->deadline_ns);
}

void ms_server_tell(struct ms_server *s, struct ms_request *r)
{
    pthread_cond_broadcast(&s->credit);
    if (!s->o.ops->on_cancel || s->destroyed || !ms_list_is_empty(&r->tell_link))
        return;
    r->refs++;
    ms_list_add_tail(&s->tells, &r->tell_link);
    ms_server_wake_loop(s);
}

static void conns_do(struct ms_server *s)
{
    struct ms_server_conn *sc;

    while ((sc = ms_list_take(&s->todo, struct ms_server_conn, todo_link))) {
        if (sc->dead)
            ms_server_conn_destroy(sc);
        else
            ms_server_conn_watch(sc);
    }
}

void ms_server_deliver(struct ms_server *s)
{
    struct ms_request *r;

    while ((r = ms_list_take(&s->deliveries, struct ms_request, queue_link))) {
        ms_list_add_tail(&s->handed, &r->queue_link);
        pthread_mutex_unlock(&s->lock);
        s->o.ops->on_request(s->o.arg, r);
        pthread_mutex_lock(&s->lock);
    }
}

static void tell_all(struct ms_server *s)
{
    struct ms_request *r;

    while ((r = ms_list_take(&s->tells, struct ms_request, tell_link))) {
        bool open = r->state == MS_SERVE_RUNNING;

        pthread_mutex_unlock(&s->lock);
        if (open)
            s->o.ops->on_cancel(s->o.arg, r);
        pthread_mutex_lock(&s->lock);
        ms_request_unref_locked(r);
    }
}

static void timer_start(struct ms_server *s)
{
    if (s->timer_ns != MS_NEVER)
        ms_timer_set(&s->timer, s->timer_ns - ms_now_ns());
}

static void on_todo(void *arg, unsigned events)
{
    struct ms_server *s = arg;
    uint64_t count;

    (void)events;
    if (read(s->todo_fd, &count, sizeof count) < 0)
        return;
    MS_LOCK(&s->lock);
    s->todo_told = false;
    conns_do(s);
    timer_start(s);
    ms_server_deliver(s);
    tell_all(s);
    ms_submit_tell(s);
}

/* Tell the owners of requests whose deadline came; the next deadline. */
static int64_t expire(struct ms_server *s, int64_t now_ns)
{
    int64_t next_ns = MS_NEVER;

    ms_list_each (r, &s->handed, struct ms_request, queue_link) {
        if (r->cancelled || r->deadline_ns == MS_NEVER)
            continue;
        if (r->deadline_ns <= now_ns) {
            r->cancelled = r->expired = true;
            ms_server_tell(s, r);
        } else if (r->deadline_ns < next_ns) {
            next_ns = r->deadline_ns;
        }
    }
    return next_ns;
}

static void on_time(void *arg)
{
    struct ms_server *s = arg;
    int64_t now_ns = ms_now_ns(), deadline_ns, sweep_ns;
    MS_LOCK(&s->lock);

    deadline_ns = expire(s, now_ns);
    sweep_ns = ms_ledger_sweep(s, now_ns);
    s->timer_ns = deadline_ns < sweep_ns ? deadline_ns : sweep_ns;
    timer_start(s);
}

/* ---- life ------------------------------------------------------------------------ */

static void cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
}

static int loop_init(struct ms_server *s)
{
    int rc;

    s->todo_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (s->todo_fd < 0)
        return -errno;
    rc = ms_watch_init(&s->todo_watch, s->o.loop, s->todo_fd, MS_READ, on_todo, s);
    if (rc == 0)
        rc = ms_timer_init(&s->timer, s->o.loop, on_time, s);
    return rc < 0 ? rc : ms_lane_init(s);
}

struct ms_server *ms_server_create(const struct ms_server_options *o)
{
    struct ms_server *s = calloc(1, sizeof *s);

    if (!s)
        return NULL;
    s->o = *o;
    s->o.secret = NULL;
    s->o.handshake_ns = o->handshake_ns ? o->handshake_ns : MS_HANDSHAKE_NS;
    s->o.unproven_max = o->unproven_max ? o->unproven_max : MS_UNPROVEN_MAX;
    s->o.grace_ns = o->grace_ns ? o->grace_ns : 2 * MS_LINK_GRACE_NS;
    ms_net_init(&s->net, o->secret, o->tls);
    s->refs = 1;
    s->timer_ns = MS_NEVER;
    s->idle_since_ns = ms_now_ns();
    s->todo_fd = -1;
    s->lane_fd = s->tick_fd = s->long_fd = s->wake_read = s->wake_write = -1;
    pthread_mutex_init(&s->lock, NULL);
    cond_init(&s->credit);
    cond_init(&s->released);
    ms_list_init(&s->conns);
    ms_list_init(&s->ledgers);
    ms_list_init(&s->todo);
    ms_list_init(&s->deliveries);
    ms_list_init(&s->tells);
    ms_list_init(&s->handed);
    ms_list_init(&s->queue);
    ms_submit_init(s);
    if (loop_init(s) < 0) {
        ms_server_destroy(s);
        return NULL;
    }
    return s;
}

static void server_free(struct ms_server *s)
{
    for (size_t i = 0; i < s->method_count; i++) {
        free(s->methods[i]->engine);
        free(s->methods[i]->name);
        free(s->methods[i]);
    }
    free(s->methods);
    ms_map_finish(&s->by_id);
    ms_map_finish(&s->by_session);
    pthread_cond_destroy(&s->credit);
    pthread_cond_destroy(&s->released);
    pthread_mutex_destroy(&s->lock);
    ms_net_finish(&s->net);
    free(s);
}

void ms_server_unref_locked(struct ms_server *s)
{
    bool last = --s->refs == 0;

    pthread_mutex_unlock(&s->lock);
    if (last)
        server_free(s);
}

static void close_fds(struct ms_server *s)
{
    ms_fd_close(&s->todo_fd);
    ms_fd_close(&s->lane_fd);
    ms_fd_close(&s->tick_fd);
    ms_fd_close(&s->long_fd);
    ms_fd_close(&s->wake_read);
    ms_fd_close(&s->wake_write);
}

/* Requests that nobody will see any more. */
static void drop_undelivered(struct ms_server *s)
{
    struct ms_request *r;

    while ((r = ms_list_take(&s->deliveries, struct ms_request, queue_link))) {
        s->refs--;
        ms_request_unref_locked(r);
    }
    while ((r = ms_list_take(&s->tells, struct ms_request, tell_link)))
        ms_request_unref_locked(r);
}

void ms_server_destroy(struct ms_server *s)
{
    if (!s)
        return;
    ms_listeners_finish(s);
    ms_watch_finish(&s->todo_watch);
    ms_timer_finish(&s->timer);
    pthread_mutex_lock(&s->lock);
    s->destroyed = true;
    ms_list_each (sc, &s->conns, struct ms_server_conn, link)
        ms_server_conn_destroy(sc);
    ms_list_each (l, &s->ledgers, struct ms_ledger, link)
        ms_ledger_destroy(l);
    ms_submit_finish(s);
    drop_undelivered(s);
    ms_lane_finish(s);
    ms_heartbeat_unref(s->heartbeat);
    close_fds(s);
    ms_server_unref_locked(s);
}

void ms_server_forget(struct ms_server *s)
{
    ms_list_each (sc, &s->conns, struct ms_server_conn, link)
        close(sc->conn ? ms_conn_fd(sc->conn) : sc->fd);
    for (unsigned i = 0; i < s->listener_count; i++)
        ms_fd_close(&s->listeners[i].fd);
    close_fds(s);
}
