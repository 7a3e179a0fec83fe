/* The engine's lane. A connection in it is armed (lane_fd reports it, once), or disarmed:
 * then the engine is about to poll it itself, or somebody reads it right now. Before the
 * engine blocks it arms all of them; while the engine is busy for longer than a tick the
 * loop's thread arms them and reads in its place. */
#include "base/clock.h"
#include "wire/server_internal.h"
#include "wire/spin.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

enum { EVENTS_MAX = 16 };

/* Busy for less than this at a tick: look again at the next one. */
#define TAKEOVER_MIN_NS (MS_TAKEOVER_TICK_NS / 3)

static int arm(struct server_conn *sc)
{
    struct epoll_event ev = {.events = EPOLLIN | EPOLLRDHUP | EPOLLONESHOT,
                             .data.u64 = sc->id};

    ms_list_remove(&sc->idle_link);
    sc->armed = true;
    return epoll_ctl(sc->server->lane_fd, EPOLL_CTL_MOD, ms_conn_fd(sc->conn), &ev);
}

static void set_disarmed(struct server_conn *sc)
{
    sc->armed = false;
    ms_list_remove(&sc->idle_link);
    ms_list_add_tail(&sc->server->disarmed, &sc->idle_link);
}

static void disarm(struct server_conn *sc)
{
    struct epoll_event ev = {.events = 0, .data.u64 = sc->id};

    if (!sc->armed)
        return;
    epoll_ctl(sc->server->lane_fd, EPOLL_CTL_MOD, ms_conn_fd(sc->conn), &ev);
    set_disarmed(sc);
}

static void arm_all(struct ms_server *s)
{
    ms_list_each (sc, &s->disarmed, struct server_conn, idle_link)
        if (!sc->reading)
            arm(sc);
}

int ms_lane_add(struct server_conn *sc)
{
    struct epoll_event ev = {.events = EPOLLIN | EPOLLRDHUP | EPOLLONESHOT,
                             .data.u64 = sc->id};

    sc->in_lane = sc->armed = true;
    if (epoll_ctl(sc->server->lane_fd, EPOLL_CTL_ADD, ms_conn_fd(sc->conn), &ev) < 0)
        return -errno;
    return 0;
}

void ms_lane_remove(struct server_conn *sc)
{
    if (sc->server->hot == sc)
        sc->server->hot = NULL;
    ms_list_remove(&sc->idle_link);
    if (sc->in_lane)
        epoll_ctl(sc->server->lane_fd, EPOLL_CTL_DEL, ms_conn_fd(sc->conn), NULL);
    sc->in_lane = false;
}

static void wake_write(struct ms_server *s)
{
    ssize_t n = write(s->wake_write, "", 1);

    (void)n; /* a full pipe wakes too */
}

void ms_lane_wake(struct ms_server *s)
{
    if (s->engine_blocked)
        wake_write(s);
}

static void wake_drain(struct ms_server *s)
{
    char bin[64];

    while (read(s->wake_read, bin, sizeof bin) == sizeof bin)
        ;
}

/* Give the connection back after a read. */
static void read_done(struct server_conn *sc, int rc)
{
    struct ms_server *s = sc->server;

    sc->reading = false;
    if (rc < 0 && rc != -EAGAIN)
        ms_server_conn_lost(sc);
    else if (!sc->armed && (s->taken || s->engine_blocked))
        arm(sc);
}

/* ---- the loop's thread ------------------------------------------------------------ */

static void read_on_loop(struct ms_server *s, uint64_t id)
{
    struct server_conn *sc;
    int rc;

    pthread_mutex_lock(&s->lock);
    sc = ms_map_find(&s->by_id, id);
    if (!sc || sc->reading || sc->dead) {
        pthread_mutex_unlock(&s->lock);
        return;
    }
    set_disarmed(sc);
    sc->reading = true;
    pthread_mutex_unlock(&s->lock);
    rc = ms_server_conn_read(sc, NULL);
    pthread_mutex_lock(&s->lock);
    read_done(sc, rc);
    pthread_mutex_unlock(&s->lock);
}

static void on_lane(void *arg, unsigned events)
{
    struct ms_server *s = arg;
    struct epoll_event ev[EVENTS_MAX];
    bool taken;
    int n;

    (void)events;
    pthread_mutex_lock(&s->lock);
    taken = s->taken;
    pthread_mutex_unlock(&s->lock);
    if (!taken) { /* the engine is back */
        ms_watch_set(&s->lane_watch, 0);
        return;
    }
    n = epoll_wait(s->lane_fd, ev, EVENTS_MAX, 0);
    for (int i = 0; i < n; i++) {
        if (ev[i].data.u64)
            read_on_loop(s, ev[i].data.u64);
        else
            wake_drain(s);
    }
}

static void tick_set(struct ms_server *s)
{
    struct itimerspec when = {.it_value.tv_nsec = MS_TAKEOVER_TICK_NS};

    timerfd_settime(s->tick_fd, 0, &when, NULL);
}

static void on_tick(void *arg, unsigned events)
{
    struct ms_server *s = arg;
    int64_t now_ns = ms_now_ns();
    uint64_t count;
    bool take = false, again = false;

    (void)events;
    if (read(s->tick_fd, &count, sizeof count) < 0)
        return;
    pthread_mutex_lock(&s->lock);
    if (s->busy_since_ns && now_ns - s->busy_since_ns >= TAKEOVER_MIN_NS) {
        take = s->taken = true;
        arm_all(s);
    } else {
        again = s->busy_since_ns || s->calls_done != s->calls_at_tick;
    }
    s->calls_at_tick = s->calls_done;
    if (again)
        tick_set(s);
    else
        atomic_store(&s->tick_armed, false);
    pthread_mutex_unlock(&s->lock);
    if (take)
        ms_watch_set(&s->lane_watch, MS_READ);
}

/* ---- the engine's thread ---------------------------------------------------------- */

/* The first request of the queue, if it is whole and still wanted. */
static struct ms_request *pop(struct ms_server *s, int64_t now_ns)
{
    while (!ms_list_is_empty(&s->queue)) {
        struct ms_request *r = ms_list_first(&s->queue, struct ms_request, queue_link);

        if (r->state == MS_REQUEST_RECEIVING)
            return NULL;
        ms_list_remove(&r->queue_link);
        atomic_fetch_sub(&s->queued, 1);
        if (r->deadline_ns > now_ns) {
            r->state = MS_REQUEST_RUNNING;
            r->refs++;
            s->refs++;
            return r;
        }
        ms_request_fail_locked(
            r, MUSTER__FAILURE__KIND__DEADLINE, "its deadline came before its turn");
    }
    return NULL;
}

static void become_busy(struct ms_server *s, struct ms_request *r, int64_t now_ns)
{
    s->running = r;
    s->busy_since_ns = now_ns;
    s->spin_next = r->flags & MS_FRAME_SPIN;
    if (!atomic_load(&s->tick_armed)) {
        atomic_store(&s->tick_armed, true);
        tick_set(s);
    }
}

/* Read the hot connection, polling for a while if the caller holds a lease. True if
 * something may have changed. */
static bool poll_hot(struct ms_server *s, int64_t spin_until_ns)
{
    struct server_conn *sc = s->hot;
    int rc;

    if (!sc || sc->reading)
        return false;
    sc->reading = true;
    disarm(sc);
    pthread_mutex_unlock(&s->lock);
    for (;;) {
        rc = ms_server_conn_read(sc, NULL);
        if (rc != -EAGAIN || spin_until_ns == 0 || ms_now_ns() >= spin_until_ns ||
            atomic_load_explicit(&s->queued, memory_order_relaxed) ||
            atomic_load_explicit(&s->stopping, memory_order_relaxed))
            break;
        ms_spin_relax();
    }
    pthread_mutex_lock(&s->lock);
    read_done(sc, rc);
    return rc != -EAGAIN;
}

static int timeout_ms(int64_t until_ns)
{
    int64_t left;

    if (until_ns == MS_NEVER)
        return -1;
    left = (until_ns - ms_now_ns() + MS_NS_PER_MS - 1) / MS_NS_PER_MS;
    return left < 0 ? 0 : left > 3600000 ? 3600000 : (int)left;
}

static int block(struct ms_server *s, int64_t until_ns)
{
    struct epoll_event ev[EVENTS_MAX];
    int n, rc;

    arm_all(s);
    s->engine_blocked = true;
    pthread_mutex_unlock(&s->lock);
    n = epoll_wait(s->lane_fd, ev, EVENTS_MAX, timeout_ms(until_ns));
    rc = n < 0 ? -errno : n == 0 ? -ETIMEDOUT : 0;
    pthread_mutex_lock(&s->lock);
    s->engine_blocked = false;
    for (int i = 0; i < n; i++) {
        struct server_conn *sc;

        if (ev[i].data.u64 == 0) {
            wake_drain(s);
            rc = -EINTR;
            continue;
        }
        sc = ms_map_find(&s->by_id, ev[i].data.u64);
        if (!sc || sc->dead)
            continue;
        if (sc->armed && !sc->reading)
            set_disarmed(sc);
        s->hot = sc;
        poll_hot(s, 0);
    }
    return rc;
}

int ms_server_engine_next(struct ms_server *s, int64_t until_ns, struct ms_request **out)
{
    int64_t now_ns = ms_now_ns(), spin_until_ns;
    int rc = 0;

    pthread_mutex_lock(&s->lock);
    s->busy_since_ns = 0;
    s->taken = false;
    spin_until_ns = s->spin_next ? now_ns + MS_SPIN_NS : 0;
    s->spin_next = false;
    for (;;) {
        struct ms_request *r;

        if (atomic_load(&s->stopping)) {
            rc = -ESHUTDOWN;
            break;
        }
        r = pop(s, now_ns);
        if (r) {
            become_busy(s, r, now_ns);
            *out = r;
            rc = 0;
            break;
        }
        if (rc < 0)
            break;
        if (!poll_hot(s, spin_until_ns))
            rc = block(s, until_ns);
        spin_until_ns = 0;
        now_ns = ms_now_ns();
    }
    pthread_mutex_unlock(&s->lock);
    return rc;
}

static void watch_lane(void *arg)
{
    struct ms_server *s = arg;

    ms_watch_set(&s->lane_watch, MS_READ);
}

void ms_server_engine_is_async(struct ms_server *s)
{
    pthread_mutex_lock(&s->lock);
    s->is_async = s->taken = true;
    arm_all(s);
    pthread_mutex_unlock(&s->lock);
    ms_loop_post(s->loop, watch_lane, s);
}

struct ms_request *ms_server_engine_poll(struct ms_server *s)
{
    struct ms_request *r;

    pthread_mutex_lock(&s->lock);
    r = pop(s, ms_now_ns());
    pthread_mutex_unlock(&s->lock);
    return r;
}

void ms_server_engine_stop(struct ms_server *s)
{
    atomic_store(&s->stopping, true);
    wake_write(s);
}

int ms_server_engine_wake_fd(const struct ms_server *s)
{
    return s->wake_write;
}

bool ms_server_engine_running(struct ms_server *s,
                              char *name,
                              size_t room,
                              int64_t *since_ns,
                              uint64_t *queued,
                              uint64_t *done)
{
    bool running;

    pthread_mutex_lock(&s->lock);
    running = s->running != NULL;
    *since_ns = s->busy_since_ns;
    *queued = atomic_load(&s->queued);
    *done = s->calls_done;
    name[0] = 0;
    if (running && s->running->method)
        snprintf(name,
                 room,
                 "%s.%s",
                 s->running->method->engine,
                 s->running->method->name);
    else if (running)
        snprintf(name, room, "operation %u", s->running->op);
    pthread_mutex_unlock(&s->lock);
    return running;
}

/* ---- life ------------------------------------------------------------------------- */

int ms_lane_init(struct ms_server *s)
{
    struct epoll_event ev = {.events = EPOLLIN, .data.u64 = 0};
    int pipe_fds[2];
    int rc;

    ms_list_init(&s->disarmed);
    s->lane_fd = epoll_create1(EPOLL_CLOEXEC);
    s->tick_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (s->lane_fd < 0 || s->tick_fd < 0 ||
        pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK) < 0)
        return -errno;
    s->wake_read = pipe_fds[0];
    s->wake_write = pipe_fds[1];
    if (epoll_ctl(s->lane_fd, EPOLL_CTL_ADD, s->wake_read, &ev) < 0)
        return -errno;
    rc = ms_watch_init(&s->tick_watch, s->loop, s->tick_fd, MS_READ, on_tick, s);
    if (rc == 0)
        rc = ms_watch_init(
            &s->lane_watch, s->loop, s->lane_fd, s->has_engine ? MS_READ : 0, on_lane, s);
    s->taken = true; /* until the engine comes for the first time */
    return rc;
}

void ms_lane_finish(struct ms_server *s)
{
    ms_watch_finish(&s->tick_watch);
    ms_watch_finish(&s->lane_watch);
    ms_fd_close(&s->lane_fd);
    ms_fd_close(&s->tick_fd);
    ms_fd_close(&s->wake_read);
    ms_fd_close(&s->wake_write);
}
