/* lane.c - connections that the engine's thread and the loop's read in turns. Every
 * connection in it is read by the loop's thread (armed: lane_fd reports it, once), but
 * for one: `hot`, which gave the engine its last calls. That one the engine reads
 * itself, polling it or sleeping on it, because a hand-over between two threads costs as
 * much as the call.
 *
 * When the engine stays away the loop takes hot over (arms it), so that cancels and
 * more calls are seen. It looks at a tick whether the engine is away for longer than a
 * moment. A tick that finds the engine asleep is the last; so a row of calls costs a
 * timer now and then, and an idle server none. */
#include "base/clock.h"
#include "wire/server/server_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

enum { EVENTS_MAX = 16 };

/* Busy for less than this: the engine will be back before the loop has read anything. */
#define MOMENT_NS (MS_TAKEOVER_TICK_NS / 8)

static void lane_ctl(struct ms_server_conn *sc, unsigned events)
{
    struct epoll_event ev = {.events = events | EPOLLONESHOT, .data.u64 = sc->id};

    epoll_ctl(sc->server->lane_fd, EPOLL_CTL_MOD, ms_conn_fd(sc->conn), &ev);
}

void ms_lane_arm(struct ms_server_conn *sc)
{
    if (sc->armed || sc->reading)
        return;
    sc->armed = true;
    lane_ctl(sc, EPOLLIN | EPOLLRDHUP);
}

void ms_lane_claim(struct ms_server_conn *sc)
{
    if (sc->armed)
        lane_ctl(sc, 0);
    sc->armed = false;
    sc->reading = true;
}

int ms_lane_read(struct ms_server_conn *sc)
{
    struct ms_server *s = sc->server;
    uint64_t turn = s->turn;
    int rc;

    pthread_mutex_unlock(&s->lock);
    rc = ms_server_conn_read(sc, NULL);
    pthread_mutex_lock(&s->lock);
    sc->read_turn = turn;
    return rc;
}

void ms_lane_release(struct ms_server_conn *sc, int rc)
{
    sc->reading = false;
    pthread_cond_signal(&sc->server->released);
    if ((rc < 0 && rc != -EAGAIN) || (sc->attached && !sc->ledger))
        ms_server_conn_lost(sc);
}

void ms_lane_set_hot(struct ms_server *s, struct ms_server_conn *sc)
{
    struct ms_server_conn *old = s->hot;

    s->hot = sc;
    s->rival = NULL;
    if (old && old != sc)
        ms_lane_arm(old);
}

int ms_lane_add(struct ms_server_conn *sc)
{
    struct ms_server *s = sc->server;
    struct epoll_event ev = {.events = EPOLLIN | EPOLLRDHUP | EPOLLONESHOT,
                             .data.u64 = sc->id};

    sc->in_lane = sc->armed = true;
    if (epoll_ctl(s->lane_fd, EPOLL_CTL_ADD, ms_conn_fd(sc->conn), &ev) < 0)
        return -errno;
    if (!s->hot && !s->is_async)
        ms_lane_set_hot(s, sc); /* its first call may have come with its proof */
    return 0;
}

void ms_lane_remove(struct ms_server_conn *sc)
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

/* ---- the loop's thread ----------------------------------------------------------- */

/* Below a second; any thread. */
static void timer_set(int fd, int64_t delay_ns)
{
    struct itimerspec when = {.it_value.tv_nsec = delay_ns};

    timerfd_settime(fd, 0, &when, NULL);
}

static void tick_set(struct ms_server *s, int64_t delay_ns)
{
    s->tick_armed = true;
    timer_set(s->tick_fd, delay_ns);
}

void ms_lane_watch_engine(struct ms_server *s)
{
    if (!s->hot || s->hot->armed || s->tick_armed)
        return;
    if (s->spin_next || atomic_load(&s->queued))
        tick_set(s, MS_TAKEOVER_TICK_NS);
    else
        ms_lane_arm(s->hot);
}

/* lane_fd has reported this one. Lock held; let go meanwhile. */
static void read_reported(struct ms_server *s, uint64_t id)
{
    struct ms_server_conn *sc = ms_map_find(&s->by_id, id);
    int rc;

    if (!sc || !sc->armed || sc->reading || sc->dead)
        return;        /* it was claimed meanwhile */
    sc->armed = false; /* that was its one time */
    sc->reading = true;
    rc = ms_lane_read(sc);
    ms_lane_release(sc, rc);
    if (!sc->dead)
        ms_lane_arm(sc);
}

static void on_lane(void *arg, unsigned events)
{
    struct ms_server *s = arg;
    struct epoll_event ev[EVENTS_MAX];
    int n = epoll_wait(s->lane_fd, ev, EVENTS_MAX, 0);
    MS_LOCK(&s->lock);

    (void)events;
    for (int i = 0; i < n; i++)
        read_reported(s, ev[i].data.u64);
}

static void on_tick(void *arg, unsigned events)
{
    struct ms_server *s = arg;
    uint64_t count;

    (void)events;
    if (read(s->tick_fd, &count, sizeof count) < 0)
        return;
    MS_LOCK(&s->lock);
    s->tick_armed = false;
    if (s->busy_since_ns && s->hot) {
        if (ms_now_ns() - s->busy_since_ns < MOMENT_NS)
            tick_set(s, MOMENT_NS);
        else
            ms_lane_arm(s->hot);
    }
}

void ms_lane_await_long(struct ms_server *s)
{
    if (s->long_fd < 0 || s->long_armed)
        return;
    s->long_armed = true;
    timer_set(s->long_fd, MS_LONG_NS);
}

/* A call that is over by now was a short one: the next one is looked at. */
static bool is_long(struct ms_server *s)
{
    int64_t left_ns = s->busy_since_ns + MS_LONG_NS - ms_now_ns();

    s->long_armed = s->busy_since_ns && left_ns > 0;
    if (s->is_async || (s->busy_since_ns && left_ns <= 0))
        return true;
    if (s->long_armed)
        timer_set(s->long_fd, left_ns);
    return false;
}

static void on_long(void *arg, unsigned events)
{
    struct ms_server *s = arg;
    uint64_t count;
    bool tell;

    (void)events;
    if (read(s->long_fd, &count, sizeof count) < 0)
        return;
    pthread_mutex_lock(&s->lock);
    tell = is_long(s);
    if (tell) {
        ms_watch_finish(&s->long_watch);
        ms_fd_close(&s->long_fd);
    }
    pthread_mutex_unlock(&s->lock);
    if (tell)
        s->o.ops->on_long(s->o.arg);
}

static int watch_for_long(struct ms_server *s)
{
    if (!s->o.ops->on_long)
        return 0;
    s->long_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (s->long_fd < 0)
        return -errno;
    return ms_watch_init(&s->long_watch, s->o.loop, s->long_fd, MS_READ, on_long, s);
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
    rc = ms_watch_init(&s->tick_watch, s->o.loop, s->tick_fd, MS_READ, on_tick, s);
    if (rc == 0)
        rc = ms_watch_init(&s->lane_watch, s->o.loop, s->lane_fd, MS_READ, on_lane, s);
    return rc < 0 ? rc : watch_for_long(s);
}

void ms_lane_finish(struct ms_server *s)
{
    ms_watch_finish(&s->tick_watch);
    ms_watch_finish(&s->lane_watch);
    ms_watch_finish(&s->long_watch);
}
