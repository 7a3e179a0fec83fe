/* The engine's lane. Every connection in it is read by the loop's thread (armed: lane_fd
 * reports it, once), but for one: `hot`, which gave the engine its last calls. That one the
 * engine reads itself, polling it or sleeping on it, because a hand-over between two threads
 * costs as much as the call.
 *
 * While the engine is busy hot is armed too, so that health, cancels and more calls are
 * seen. If something comes within a moment the loop does not jump at it (the engine will be
 * back) but looks again at a tick. So a call costs two epoll_ctl and no timer. */
#include "base/clock.h"
#include "wire/server_internal.h"
#include "wire/spin.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

enum { EVENTS_MAX = 16 };

/* What we write into our own pipe; any other byte is somebody's signal. */
enum { WAKE_QUEUED = 'q', WAKE_STOP = 's' };

/* Busy for less than this: the engine will be back before the loop has read anything. */
#define MOMENT_NS (MS_TAKEOVER_TICK_NS / 3)

/* Busy for longer: look for cancels before the next request. */
#define GLANCE_NS (20 * MS_NS_PER_US)

/* Between two moves to another core. */
#define MOVE_NS (5 * MS_NS_PER_MS)

static void lane_ctl(struct server_conn *sc, unsigned events)
{
    struct epoll_event ev = {.events = events | EPOLLONESHOT, .data.u64 = sc->id};

    epoll_ctl(sc->server->lane_fd, EPOLL_CTL_MOD, ms_conn_fd(sc->conn), &ev);
}

/* Let the loop read it, unless somebody reads it now. */
static void arm(struct server_conn *sc)
{
    if (sc->armed || sc->reading)
        return;
    sc->armed = true;
    lane_ctl(sc, EPOLLIN | EPOLLRDHUP);
}

static void claim(struct server_conn *sc)
{
    if (sc->armed)
        lane_ctl(sc, 0);
    sc->armed = false;
    sc->reading = true;
}

/* Give the connection back after a read that ended with `rc`. */
static void release(struct server_conn *sc, int rc)
{
    sc->reading = false;
    pthread_cond_signal(&sc->server->released);
    if ((rc < 0 && rc != -EAGAIN) || (sc->attached && !sc->ledger))
        ms_serving_lost(sc);
}

static void set_hot(struct ms_server *s, struct server_conn *sc)
{
    struct server_conn *old = s->hot;

    s->hot = sc;
    s->rival = NULL;
    if (old && old != sc)
        arm(old);
}

int ms_lane_add(struct server_conn *sc)
{
    struct ms_server *s = sc->server;
    struct epoll_event ev = {.events = EPOLLIN | EPOLLRDHUP | EPOLLONESHOT,
                             .data.u64 = sc->id};

    sc->in_lane = sc->armed = true;
    if (epoll_ctl(s->lane_fd, EPOLL_CTL_ADD, ms_conn_fd(sc->conn), &ev) < 0)
        return -errno;
    if (!s->hot && !s->is_async)
        set_hot(s, sc); /* its first call may have come with its proof */
    return 0;
}

void ms_lane_remove(struct server_conn *sc)
{
    struct ms_server *s = sc->server;

    if (s->hot == sc)
        s->hot = NULL;
    if (s->rival == sc)
        s->rival = NULL;
    if (sc->in_lane)
        epoll_ctl(s->lane_fd, EPOLL_CTL_DEL, ms_conn_fd(sc->conn), NULL);
    sc->in_lane = sc->armed = false;
}

static void wake_engine(struct ms_server *s, char why)
{
    ssize_t n = write(s->wake_write, &why, 1);

    (void)n; /* a full pipe wakes too */
}

void ms_lane_wake(struct server_conn *sc)
{
    struct ms_server *s = sc->server;

    if (s->engine_blocked && s->engine_reads != sc)
        wake_engine(s, WAKE_QUEUED);
}

/* -EINTR if somebody else than we wrote. */
static int wake_drain(struct ms_server *s)
{
    char bytes[64];
    ssize_t n;
    int rc = 0;

    do {
        n = read(s->wake_read, bytes, sizeof bytes);
        for (ssize_t i = 0; i < n; i++)
            if (bytes[i] != WAKE_QUEUED)
                rc = -EINTR;
    } while (n == sizeof bytes);
    return rc;
}

/* ---- the loop's thread ----------------------------------------------------------- */

static void tick_set(struct ms_server *s)
{
    struct itimerspec when = {.it_value.tv_nsec = MS_TAKEOVER_TICK_NS};

    s->tick_armed = true;
    timerfd_settime(s->tick_fd, 0, &when, NULL);
}

/* The engine is away for a moment only: let it read this one itself. */
static bool may_wait(const struct server_conn *sc, int64_t now_ns)
{
    const struct ms_server *s = sc->server;

    return sc == s->hot && s->busy_since_ns && !atomic_load(&s->stopping) &&
           now_ns - s->busy_since_ns < MOMENT_NS;
}

/* lane_fd has reported this one. Lock held; let go meanwhile. */
static void read_reported(struct ms_server *s, uint64_t id)
{
    struct server_conn *sc = ms_map_find(&s->by_id, id);
    int rc;

    if (!sc || !sc->armed || sc->reading || sc->dead)
        return;        /* it was claimed meanwhile */
    sc->armed = false; /* that was its one time */
    if (may_wait(sc, ms_now_ns())) {
        tick_set(s);
        return;
    }
    sc->reading = true;
    pthread_mutex_unlock(&s->lock);
    rc = ms_serving_read(sc);
    pthread_mutex_lock(&s->lock);
    release(sc, rc);
    if (!sc->dead)
        arm(sc);
}

static void on_lane(void *arg, unsigned events)
{
    struct ms_server *s = arg;
    struct epoll_event ev[EVENTS_MAX];
    int n = epoll_wait(s->lane_fd, ev, EVENTS_MAX, 0);

    (void)events;
    pthread_mutex_lock(&s->lock);
    for (int i = 0; i < n; i++)
        read_reported(s, ev[i].data.u64);
    pthread_mutex_unlock(&s->lock);
}

static void on_tick(void *arg, unsigned events)
{
    struct ms_server *s = arg;
    uint64_t count;

    (void)events;
    if (read(s->tick_fd, &count, sizeof count) < 0)
        return;
    pthread_mutex_lock(&s->lock);
    s->tick_armed = false;
    if (s->busy_since_ns && s->hot) {
        if (may_wait(s->hot, ms_now_ns()))
            tick_set(s);
        else
            arm(s->hot);
    }
    pthread_mutex_unlock(&s->lock);
}

/* ---- the engine's thread --------------------------------------------------------- */

/* The connection of a request becomes hot if it gives two in a row. */
static void follow(struct ms_server *s, const struct ms_request *r)
{
    struct server_conn *sc = r->ledger->conn;

    if (!sc || !sc->in_lane || sc == s->hot) {
        s->rival = NULL;
        return;
    }
    if (!s->hot || s->rival == sc)
        set_hot(s, sc);
    else
        s->rival = sc;
}

/* From now on the engine is away: with a request, or with a signal. */
static void become_busy(struct ms_server *s, struct ms_request *r, int64_t now_ns)
{
    s->running = r;
    s->busy_since_ns = now_ns;
    s->spin_next = r && (r->flags & MS_FRAME_SPIN);
    s->caller_core = s->spin_next ? r->core : 0;
    s->engine_core = s->spin_next ? (uint32_t)sched_getcpu() + 1 : 0;
    if (r)
        follow(s, r);
    if (s->hot && !s->tick_armed)
        arm(s->hot);
}

/* Poll the claimed connection, without the lock. */
static int poll_hot(struct ms_server *s, struct server_conn *hot, int64_t until_ns)
{
    for (;;) {
        int rc = ms_serving_read(hot);

        if (rc != -EAGAIN || ms_now_ns() >= until_ns ||
            atomic_load_explicit(&s->queued, memory_order_relaxed) ||
            atomic_load_explicit(&s->stopping, memory_order_relaxed))
            return rc;
        ms_spin_relax();
    }
}

/* Sleep until the claimed connection has something or somebody wakes us: bits 1 and 2, 0
 * at until_ns, or a negative errno. */
static int sleep_on(struct ms_server *s, struct server_conn *hot, int64_t until_ns)
{
    struct pollfd pfd[2] = {
        {.fd = s->wake_read, .events = POLLIN},
        {.fd = hot ? ms_conn_fd(hot->conn) : -1, .events = POLLIN | POLLRDHUP}};
    struct timespec ts, *timeout = NULL;
    int n;

    if (until_ns != MS_NEVER) {
        int64_t left_ns = until_ns - ms_now_ns();

        if (left_ns < 0)
            left_ns = 0;
        ts.tv_sec = left_ns / MS_NS_PER_S;
        ts.tv_nsec = left_ns % MS_NS_PER_S;
        timeout = &ts;
    }
    n = ppoll(pfd, 2, timeout, NULL);
    if (n < 0)
        return -errno;
    return (pfd[1].revents ? 1 : 0) | (pfd[0].revents ? 2 : 0);
}

/* Sleep, and read what came. Lock held; let go meanwhile. 0; -ETIMEDOUT, -EINTR. */
static int engine_sleep(struct ms_server *s, struct server_conn *hot, int64_t until_ns)
{
    int what, rc = -EAGAIN;

    s->engine_blocked = true;
    s->engine_reads = hot;
    pthread_mutex_unlock(&s->lock);
    what = sleep_on(s, hot, until_ns);
    if (what > 0 && (what & 1))
        rc = ms_serving_read(hot);
    pthread_mutex_lock(&s->lock);
    s->engine_blocked = false;
    if (hot)
        release(hot, rc);
    if (what <= 0)
        return what < 0 ? what : -ETIMEDOUT;
    return what & 2 ? wake_drain(s) : 0;
}

/* One step towards a request: read what is there, poll, or sleep. */
static int engine_step(struct ms_server *s, int64_t spin_until_ns, int64_t until_ns)
{
    struct server_conn *hot = s->hot && !s->hot->reading ? s->hot : NULL;
    int rc;

    if (hot)
        claim(hot);
    if (hot && spin_until_ns) {
        pthread_mutex_unlock(&s->lock);
        rc = poll_hot(s, hot, spin_until_ns);
        pthread_mutex_lock(&s->lock);
        if (rc != -EAGAIN || atomic_load(&s->queued) || atomic_load(&s->stopping)) {
            release(hot, rc);
            return 0;
        }
    }
    return engine_sleep(s, hot, until_ns);
}

/* Move to another core, if there is one: the kernel likes to put both ends of a socket on
 * the same, and two pollers there only wait for each other's time slice. */
static void step_aside(struct ms_server *s, int core, int64_t now_ns)
{
    cpu_set_t all, others;

    if (now_ns - s->moved_ns < MOVE_NS || sched_getaffinity(0, sizeof all, &all) < 0)
        return;
    s->moved_ns = now_ns;
    others = all;
    CPU_CLR(core, &others);
    if (CPU_COUNT(&others) && sched_setaffinity(0, sizeof others, &others) == 0)
        sched_setaffinity(0, sizeof all, &all);
}

/* Poll for the next call? The engine's thread, without the lock: it alone writes these. */
static bool may_spin(struct ms_server *s, int64_t now_ns)
{
    int core = sched_getcpu();

    if (!s->spin_next)
        return false;
    if (s->caller_core == (uint32_t)core + 1)
        step_aside(s, core, now_ns);
    return s->caller_core != (uint32_t)sched_getcpu() + 1;
}

/* A cancel of what waits may have come while the engine was busy. */
static void glance(struct ms_server *s)
{
    struct server_conn *hot;
    int rc;

    while ((hot = s->hot) && hot->reading) /* by the loop's thread */
        pthread_cond_wait(&s->released, &s->lock);
    if (!hot)
        return;
    claim(hot);
    pthread_mutex_unlock(&s->lock);
    rc = ms_serving_read(hot);
    pthread_mutex_lock(&s->lock);
    release(hot, rc);
}

int ms_server_engine_next(struct ms_server *s,
                          int64_t until_ns,
                          struct ms_request **out)
{
    int64_t now_ns = ms_now_ns(), spin_until_ns;
    int rc = 0;

    *out = NULL;
    spin_until_ns = may_spin(s, now_ns) ? now_ns + MS_SPIN_NS : 0;
    pthread_mutex_lock(&s->lock);
    if (atomic_load(&s->queued) && now_ns - s->busy_since_ns > GLANCE_NS)
        glance(s);
    s->busy_since_ns = 0;
    for (;;) {
        struct ms_request *r = NULL;

        if (atomic_load(&s->stopping))
            rc = -ESHUTDOWN;
        else
            r = ms_request_pop(s, now_ns);
        if (r || rc < 0) {
            become_busy(s, r, now_ns);
            *out = r;
            break;
        }
        rc = engine_step(s, spin_until_ns, until_ns);
        now_ns = ms_now_ns();
        if (now_ns >= spin_until_ns)
            spin_until_ns = 0;
    }
    pthread_mutex_unlock(&s->lock);
    return *out ? 0 : rc;
}

void ms_server_engine_is_async(struct ms_server *s)
{
    pthread_mutex_lock(&s->lock);
    s->is_async = true;
    set_hot(s, NULL);
    pthread_mutex_unlock(&s->lock);
}

struct ms_request *ms_server_engine_poll(struct ms_server *s)
{
    struct ms_request *r;

    pthread_mutex_lock(&s->lock);
    r = ms_request_pop(s, ms_now_ns());
    pthread_mutex_unlock(&s->lock);
    return r;
}

void ms_server_engine_stop(struct ms_server *s)
{
    atomic_store(&s->stopping, true);
    wake_engine(s, WAKE_STOP);
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
        snprintf(
            name, room, "%s.%s", s->running->method->engine, s->running->method->name);
    else if (running)
        snprintf(name, room, "operation %u", s->running->op);
    pthread_mutex_unlock(&s->lock);
    return running;
}

/* ---- life ------------------------------------------------------------------------ */

int ms_lane_init(struct ms_server *s)
{
    int pipe_fds[2];
    int rc;

    s->lane_fd = epoll_create1(EPOLL_CLOEXEC);
    s->tick_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (s->lane_fd < 0 || s->tick_fd < 0 || pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK) < 0)
        return -errno;
    s->wake_read = pipe_fds[0];
    s->wake_write = pipe_fds[1];
    rc = ms_watch_init(&s->tick_watch, s->loop, s->tick_fd, MS_READ, on_tick, s);
    if (rc == 0)
        rc = ms_watch_init(&s->lane_watch, s->loop, s->lane_fd, MS_READ, on_lane, s);
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
