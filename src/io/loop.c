/* loop.c - the event loop, over libevent */
#include "io/loop.h"
#include "base/clock.h"
#include "base/list.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/eventfd.h>

struct post {
    struct ms_list link;
    void (*fn)(void *arg);
    void *arg;
};

struct ms_loop {
    struct event_base *base;
    int wake_fd;
    struct ms_watch wake;
    pthread_mutex_t lock; /* guards `posts` and `stopping` */
    struct ms_list posts;
    bool stopping;
};

static void on_wake(void *arg, unsigned events)
{
    struct ms_loop *loop = arg;
    struct ms_list todo;
    struct post *p;
    uint64_t count;
    bool stopping;

    (void)events;
    ms_list_init(&todo);
    if (read(loop->wake_fd, &count, sizeof count) < 0 && errno != EAGAIN)
        return;
    pthread_mutex_lock(&loop->lock);
    ms_list_splice(&todo, &loop->posts);
    stopping = loop->stopping;
    pthread_mutex_unlock(&loop->lock);
    while ((p = ms_list_take(&todo, struct post, link))) {
        p->fn(p->arg);
        free(p);
    }
    if (stopping)
        event_base_loopbreak(loop->base);
}

enum { BASE_DESCRIPTORS = 8 }; /* more than an event base opens */

/* libevent ends the process when it runs out of descriptors while it makes an event
 * base: look first. */
static bool has_descriptors(int some)
{
    int fds[BASE_DESCRIPTORS], count = 0;
    bool enough;

    while (count < BASE_DESCRIPTORS &&
           (fds[count] = fcntl(some, F_DUPFD_CLOEXEC, 0)) >= 0)
        count++;
    enough = count == BASE_DESCRIPTORS;
    while (count > 0)
        close(fds[--count]);
    return enough;
}

/* The library lives in the user's process and prints nothing there. */
static void be_quiet(int severity, const char *text)
{
    (void)severity;
    (void)text;
}

static struct event_base *base_create(int wake_fd)
{
    struct event_config *config;
    struct event_base *base;

    event_set_log_callback(be_quiet);
    config = has_descriptors(wake_fd) ? event_config_new() : NULL;
    if (!config)
        return NULL;
    event_config_set_flag(config,
                          EVENT_BASE_FLAG_NOLOCK | EVENT_BASE_FLAG_PRECISE_TIMER);
    base = event_base_new_with_config(config);
    event_config_free(config);
    return base;
}

struct ms_loop *ms_loop_create(void)
{
    struct ms_loop *loop = calloc(1, sizeof *loop);

    if (!loop)
        return NULL;
    ms_list_init(&loop->posts);
    pthread_mutex_init(&loop->lock, NULL);
    loop->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    loop->base = base_create(loop->wake_fd);
    if (loop->wake_fd < 0 || !loop->base ||
        ms_watch_init(&loop->wake, loop, loop->wake_fd, MS_READ, on_wake, loop) < 0) {
        ms_loop_destroy(loop);
        return NULL;
    }
    return loop;
}

void ms_loop_destroy(struct ms_loop *loop)
{
    if (!loop)
        return;
    ms_list_each (p, &loop->posts, struct post, link)
        free(p);
    ms_watch_finish(&loop->wake);
    ms_fd_close(&loop->wake_fd);
    if (loop->base)
        event_base_free(loop->base);
    pthread_mutex_destroy(&loop->lock);
    free(loop);
}

int ms_loop_run(struct ms_loop *loop)
{
    int rc = event_base_loop(loop->base, EVLOOP_NO_EXIT_ON_EMPTY);

    return rc < 0 ? -EIO : 0;
}

int ms_loop_run_once(struct ms_loop *loop, bool wait)
{
    int rc = event_base_loop(loop->base, EVLOOP_ONCE | (wait ? 0 : EVLOOP_NONBLOCK));

    return rc < 0 ? -EIO : 0;
}

static void wake(struct ms_loop *loop)
{
    uint64_t one = 1;
    ssize_t n = write(loop->wake_fd, &one, sizeof one);

    (void)n; /* a full counter wakes too */
}

void ms_loop_stop(struct ms_loop *loop)
{
    pthread_mutex_lock(&loop->lock);
    loop->stopping = true;
    pthread_mutex_unlock(&loop->lock);
    wake(loop);
}

int ms_loop_post(struct ms_loop *loop, void (*fn)(void *arg), void *arg)
{
    struct post *p = malloc(sizeof *p);

    if (!p)
        return -ENOMEM;
    p->fn = fn;
    p->arg = arg;
    pthread_mutex_lock(&loop->lock);
    ms_list_add_tail(&loop->posts, &p->link);
    pthread_mutex_unlock(&loop->lock);
    wake(loop);
    return 0;
}

static void on_watch(evutil_socket_t fd, short what, void *arg)
{
    struct ms_watch *w = arg;
    unsigned events = 0;

    (void)fd;
    if (what & EV_READ)
        events |= MS_READ;
    if (what & EV_WRITE)
        events |= MS_WRITE;
    w->on_ready(w->arg, events);
}

int ms_watch_init(struct ms_watch *w,
                  struct ms_loop *loop,
                  int fd,
                  unsigned events,
                  void (*on_ready)(void *arg, unsigned events),
                  void *arg)
{
    int rc;

    *w = (struct ms_watch){.loop = loop, .fd = fd, .on_ready = on_ready, .arg = arg};
    w->event = event_new(loop->base, fd, EV_PERSIST, on_watch, w);
    if (!w->event)
        return -ENOMEM;
    rc = ms_watch_set(w, events);
    if (rc < 0)
        ms_watch_finish(w);
    return rc;
}

int ms_watch_set(struct ms_watch *w, unsigned events)
{
    short what = EV_PERSIST;

    if (events == w->events)
        return 0;
    event_del(w->event);
    w->events = 0;
    if (events == 0)
        return 0;
    if (events & MS_READ)
        what |= EV_READ;
    if (events & MS_WRITE)
        what |= EV_WRITE;
    if (event_assign(w->event, w->loop->base, w->fd, what, on_watch, w) < 0 ||
        event_add(w->event, NULL) < 0)
        return -EIO;
    w->events = events;
    return 0;
}

void ms_watch_finish(struct ms_watch *w)
{
    if (w->event)
        event_free(w->event);
    w->event = NULL;
    w->events = 0;
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
    struct ms_timer *t = arg;

    (void)fd;
    (void)what;
    t->on_time(t->arg);
}

int ms_timer_init(struct ms_timer *t,
                  struct ms_loop *loop,
                  void (*on_time)(void *arg),
                  void *arg)
{
    *t = (struct ms_timer){.on_time = on_time, .arg = arg};
    t->event = event_new(loop->base, -1, 0, on_timer, t);
    return t->event ? 0 : -ENOMEM;
}

int ms_timer_set(struct ms_timer *t, int64_t delay_ns)
{
    struct timeval tv;

    if (delay_ns < 0)
        delay_ns = 0;
    if (delay_ns > INT64_C(86400) * 365 * MS_NS_PER_S)
        delay_ns = INT64_C(86400) * 365 * MS_NS_PER_S;
    tv.tv_sec = (time_t)(delay_ns / MS_NS_PER_S);
    tv.tv_usec = (suseconds_t)(delay_ns % MS_NS_PER_S / MS_NS_PER_US);
    return event_add(t->event, &tv) < 0 ? -EIO : 0;
}

void ms_timer_cancel(struct ms_timer *t)
{
    if (t->event)
        event_del(t->event);
}

void ms_timer_finish(struct ms_timer *t)
{
    if (t->event)
        event_free(t->event);
    t->event = NULL;
}
