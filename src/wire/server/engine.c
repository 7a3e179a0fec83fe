/* engine.c - the engine's own thread: taking requests, reading the hot connection,
 * polling, sleeping. */
#include "base/clock.h"
#include "io/sock.h"
#include "wire/server/server_impl.h"
#include "wire/spin.h"

#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <string.h>

/* What we write into our own pipe; any other byte is a signal handler's. */
enum { WAKE_QUEUED = 'q', WAKE_STOP = 's' };

/* Busy for longer: cancels may have come. */
#define AWAY_NS (5 * MS_NS_PER_US)

/* Between two moves to another core; and when the last one took long, because others run
 * there. */
#define MOVE_NS      (2 * MS_NS_PER_MS)
#define MOVE_LONG_NS (1 * MS_NS_PER_MS)
#define MOVE_MAX_NS  (8 * MS_NS_PER_S)

static void wake_engine(struct ms_server *s, char why)
{
    ssize_t n = write(s->wake_write, &why, 1);

    (void)n; /* a full pipe wakes too */
}

void ms_engine_wake(struct ms_server *s, const struct ms_server_conn *sc)
{
    if (s->engine_blocked && (!sc || s->engine_reads != sc))
        wake_engine(s, WAKE_QUEUED);
}

/* -EINTR if a signal handler wrote. */
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

/* The connection of a request becomes hot if it gives two in a row. */
static void follow(struct ms_server *s, const struct ms_request *r)
{
    struct ms_server_conn *sc = r->ledger->conn;

    if (!sc || !sc->in_lane || sc == s->hot) {
        s->rival = NULL;
        return;
    }
    if (!s->hot || s->rival == sc)
        ms_lane_set_hot(s, sc);
    else
        s->rival = sc;
}

static uint32_t this_core(void)
{
    return (uint32_t)sched_getcpu() + 1;
}

/* From now on the engine is away: with a request, or with a signal. */
static void become_busy(struct ms_server *s, struct ms_request *r, int64_t now_ns)
{
    s->running = r;
    s->has_run = r;
    s->busy_since_ns = now_ns;
    s->spin_next = r && (r->flags & MS_FRAME_SPIN);
    s->caller_core = s->spin_next ? r->core : 0;
    atomic_store_explicit(
        &s->engine_core, s->spin_next ? this_core() : 0, memory_order_relaxed);
    if (r)
        follow(s, r);
    ms_lane_await_long(s);
    ms_lane_watch_engine(s);
}

/* Poll the claimed connection, without the lock. */
static int poll_hot(struct ms_server *s, struct ms_server_conn *hot, int64_t until_ns)
{
    int rc = ms_server_conn_read(hot, NULL);

    while (rc == -EAGAIN && ms_now_ns() < until_ns &&
           !atomic_load_explicit(&s->queued, memory_order_relaxed) &&
           !atomic_load_explicit(&s->stopping, memory_order_relaxed)) {
        ms_spin_relax();
        if (ms_conn_is_readable(hot->conn))
            rc = ms_server_conn_read(hot, NULL);
    }
    return rc;
}

/* Sleep until the claimed connection is readable (bit 1) or another thread wakes us (2). 0
 * at until_ns, or a negative errno. */
static int sleep_on(struct ms_server *s, struct ms_server_conn *hot, int64_t until_ns)
{
    struct pollfd pfd[2] = {
        {.fd = s->wake_read, .events = POLLIN},
        {.fd = hot ? ms_conn_fd(hot->conn) : -1, .events = POLLIN | POLLRDHUP}};
    int n = ms_poll_until(pfd, 2, until_ns);

    if (n < 0)
        return n;
    return (pfd[1].revents ? 1 : 0) | (pfd[0].revents ? 2 : 0);
}

/* Sleep, and read what came. Lock held; let go meanwhile. 0; -ETIMEDOUT, -EINTR. */
static int
engine_sleep(struct ms_server *s, struct ms_server_conn *hot, int64_t until_ns)
{
    int what, rc = -EAGAIN;

    s->engine_blocked = true;
    s->engine_reads = hot;
    pthread_mutex_unlock(&s->lock);
    what = sleep_on(s, hot, until_ns);
    if (what > 0 && (what & 1))
        rc = ms_server_conn_read(hot, NULL);
    pthread_mutex_lock(&s->lock);
    s->engine_blocked = false;
    if (hot) {
        hot->read_turn = s->turn; /* it alone changes that */
        ms_lane_release(hot, rc);
    }
    if (what <= 0)
        return what < 0 ? what : -ETIMEDOUT;
    return what & 2 ? wake_drain(s) : 0;
}

/* One step towards a request: read what is there, poll, or sleep. */
static int engine_step(struct ms_server *s, int64_t spin_until_ns, int64_t until_ns)
{
    struct ms_server_conn *hot = s->hot && !s->hot->reading ? s->hot : NULL;
    int rc;

    if (hot)
        ms_lane_claim(hot);
    if (hot && spin_until_ns) {
        pthread_mutex_unlock(&s->lock);
        rc = poll_hot(s, hot, spin_until_ns);
        pthread_mutex_lock(&s->lock);
        hot->read_turn = s->turn;
        if (rc != -EAGAIN || atomic_load(&s->queued) || atomic_load(&s->stopping)) {
            ms_lane_release(hot, rc);
            return 0;
        }
    }
    return engine_sleep(s, hot, until_ns);
}

/* Move to another core, if there is one: the kernel likes to put both ends of a socket on
 * the same, and two pollers there only wait for each other's time slice. This is done
 * before the call is answered, while its caller sleeps: awake it may be on its way to
 * that very core. The engine's thread, without the lock: it alone writes these. */
static void step_aside(struct ms_server *s, int64_t now_ns)
{
    cpu_set_t all, others;
    uint32_t core = atomic_load_explicit(&s->engine_core, memory_order_relaxed);

    if (!s->spin_next || s->caller_core != core)
        return;
    if (s->move_again_ns ==
        0) /* its first call: the kernel may still place it better */
        s->move_again_ns = now_ns + MOVE_NS;
    if (now_ns < s->move_again_ns || sched_getaffinity(0, sizeof all, &all) < 0)
        return;
    others = all;
    CPU_CLR(core - 1, &others);
    if (CPU_COUNT(&others) && sched_setaffinity(0, sizeof others, &others) == 0)
        sched_setaffinity(0, sizeof all, &all);
    if (ms_now_ns() - now_ns < MOVE_LONG_NS)
        s->move_wait_ns = MOVE_NS;
    else if (s->move_wait_ns < MOVE_MAX_NS)
        s->move_wait_ns = s->move_wait_ns * 10 + MOVE_NS;
    s->move_again_ns = ms_now_ns() + s->move_wait_ns;
    atomic_store_explicit(&s->engine_core, this_core(), memory_order_relaxed);
}

/* Poll for the next call? */
static bool may_spin(const struct ms_server *s)
{
    return s->spin_next && s->caller_core != this_core();
}

/* Cancels that came while the engine was away count, wherever they are on their way: what
 * this connection has sent is read once after the engine came back. */
static bool is_up_to_date(const struct ms_server *s, const struct ms_server_conn *sc)
{
    if (!sc)
        return true;
    return !sc->reading && (!sc->in_lane || sc->read_turn == s->turn);
}

/* Lock held; let go meanwhile: the connection may be gone then, and the request too. */
static void bring_up_to_date(struct ms_server *s, struct ms_server_conn *sc)
{
    if (sc->reading) {
        pthread_cond_wait(&s->released, &s->lock);
        return;
    }
    ms_lane_claim(sc);
    ms_lane_release(sc, ms_lane_read(sc));
    if (!sc->dead && sc != s->hot)
        ms_lane_arm(sc);
}

static struct ms_request *take_next(struct ms_server *s, int64_t now_ns)
{
    struct ms_request *r;

    while ((r = ms_request_next(s))) {
        struct ms_server_conn *sc = r->ledger->conn;

        if (!is_up_to_date(s, sc)) {
            bring_up_to_date(s, sc);
            continue;
        }
        r = ms_request_pop(r, now_ns);
        if (r)
            return r;
    }
    return NULL;
}

int ms_server_engine_next(struct ms_server *s,
                          int64_t until_ns,
                          struct ms_request **out)
{
    int64_t now_ns = ms_now_ns(), spin_until_ns;
    int rc = 0;

    *out = NULL;
    spin_until_ns = may_spin(s) ? now_ns + MS_SPIN_NS : 0;
    pthread_mutex_lock(&s->lock);
    if (now_ns - s->busy_since_ns > AWAY_NS)
        s->turn++;
    if (s->has_run)
        ms_activity_back(s, now_ns);
    s->busy_since_ns = 0;
    for (;;) {
        struct ms_request *r = NULL;

        if (atomic_load(&s->stopping))
            rc = -ESHUTDOWN;
        else
            r = take_next(s, now_ns);
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
    step_aside(s, now_ns);
    return *out ? 0 : rc;
}

void ms_server_engine_is_async(struct ms_server *s)
{
    MS_LOCK(&s->lock);

    s->is_async = true;
    ms_lane_set_hot(s, NULL);
}

struct ms_request *ms_server_engine_poll(struct ms_server *s)
{
    struct ms_request *r;
    MS_LOCK(&s->lock);

    while ((r = ms_request_next(s)) && !(r = ms_request_pop(r, ms_now_ns())))
        ;
    if (r)
        ms_lane_await_long(s);
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
