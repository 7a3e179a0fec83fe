/* readers.c - requests for pieces of logs wait here until a file grows */
#include "agent/logs/readers.h"
#include "agent/logs/piece.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>

struct reader {
    struct ms_list link;
    struct ms_log_readers *waits;
    struct ms_timer timer;
    uint64_t request;
    Muster__ReadLog want; /* name is ours, node is none */
    bool is_due;          /* something has happened to its file */
};

void ms_log_readers_init(struct ms_log_readers *w,
                         struct ms_loop *loop,
                         const char *session_dir,
                         const struct ms_log_readers_ops *ops,
                         void *arg)
{
    *w = (struct ms_log_readers){.loop = loop,
                                 .session_dir = session_dir,
                                 .ops = ops,
                                 .arg = arg,
                                 .inotify = -1};
    ms_list_init(&w->held);
}

static void forget(struct reader *q)
{
    ms_timer_finish(&q->timer);
    ms_list_remove(&q->link);
    q->waits->count--;
    free(q->want.name);
    free(q);
}

/* ---- the folder ------------------------------------------------------------------ */

static void unwatch(struct ms_log_readers *w)
{
    ms_watch_finish(&w->watch);
    ms_fd_close(&w->inotify);
}

static void on_events(void *arg, unsigned events);

/* Before a file is looked at: what happens to it afterwards is an event then. */
static int watch(struct ms_log_readers *w, struct ms_error *err)
{
    char logs[4096];
    int rc = 0;

    if (w->inotify >= 0)
        return 0;
    snprintf(logs, sizeof logs, "%s/logs", w->session_dir);
    w->inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    if (w->inotify < 0 ||
        inotify_add_watch(w->inotify, logs, IN_MODIFY | IN_CREATE | IN_MOVED_TO) < 0)
        rc = -errno;
    if (rc == 0)
        rc = ms_watch_init(&w->watch, w->loop, w->inotify, MS_READ, on_events, w);
    if (rc == 0)
        return 0;
    unwatch(w);
    return ms_error_sys(err, rc, "cannot watch '%.200s'", logs);
}

/* ---- questions ------------------------------------------------------------------- */

/* Read and answer; false: there is nothing, and it may wait. */
static bool answer(struct ms_log_readers *w,
                   uint64_t request,
                   const Muster__ReadLog *want,
                   bool may_wait)
{
    Muster__LogPiece piece = MUSTER__LOG_PIECE__INIT;
    struct ms_error err = {0};
    int rc;

    piece.time_ns = (uint64_t)ms_wall_ns();
    rc = ms_log_piece_read(w->session_dir, want, &piece, &err);
    may_wait = may_wait && rc == 0 && !piece.data.len;
    if (rc < 0)
        w->ops->on_refused(w->arg, request, err.text);
    else if (!may_wait)
        w->ops->on_piece(w->arg, request, &piece);
    free(piece.data.data);
    return !may_wait;
}

static void on_time(void *arg)
{
    struct reader *q = arg;
    struct ms_log_readers *w = q->waits;

    answer(w, q->request, &q->want, false);
    forget(q);
    if (w->count == 0)
        unwatch(w);
}

static int hold(struct ms_log_readers *w, uint64_t request, const Muster__ReadLog *want)
{
    struct reader *q = calloc(1, sizeof *q);

    if (!q)
        return -ENOMEM;
    *q = (struct reader){.waits = w, .request = request, .want = *want};
    q->want.node = NULL;
    q->want.name = strdup(want->name);
    if (!q->want.name || ms_timer_init(&q->timer, w->loop, on_time, q) < 0) {
        free(q->want.name);
        free(q);
        return -ENOMEM;
    }
    ms_timer_set(&q->timer,
                 want->wait_ns < MS_HOLD_MAX_NS ? (int64_t)want->wait_ns
                                                : MS_HOLD_MAX_NS);
    ms_list_add_tail(&w->held, &q->link);
    w->count++;
    return 0;
}

void ms_log_readers_ask(struct ms_log_readers *w,
                        uint64_t request,
                        const Muster__ReadLog *want)
{
    bool may_wait = want->wait_ns > 0;
    struct ms_error err = {0};

    if (may_wait && w->count == MS_LOG_WAITERS_MAX)
        w->ops->on_refused(
            w->arg, request, "too many logs of this node are followed already");
    else if (may_wait && watch(w, &err) < 0)
        w->ops->on_refused(w->arg, request, err.text);
    else if (!answer(w, request, want, may_wait) && hold(w, request, want) < 0)
        w->ops->on_refused(w->arg, request, "out of memory");
    if (w->count == 0)
        unwatch(w);
}

/* ---- what has happened ----------------------------------------------------------- */

/* NULL: to any of them. */
static void mark(struct ms_log_readers *w, const char *name)
{
    ms_list_each (q, &w->held, struct reader, link)
        if (!name || strcmp(q->want.name, name) == 0)
            q->is_due = true;
}

static void mark_events(struct ms_log_readers *w)
{
    _Alignas(struct inotify_event) char events[16 << 10];
    ssize_t n;

    while ((n = read(w->inotify, events, sizeof events)) > 0)
        for (char *p = events; p < events + n;) {
            const struct inotify_event *e = (const void *)p;

            mark(w, e->len ? e->name : NULL);
            p += sizeof *e + e->len;
        }
}

/* An answer may end the link, but asks nothing: the list changes only here. */
static void on_events(void *arg, unsigned events)
{
    struct ms_log_readers *w = arg;

    (void)events;
    mark_events(w);
    ms_list_each (q, &w->held, struct reader, link) {
        if (!q->is_due)
            continue;
        q->is_due = false;
        if (answer(w, q->request, &q->want, true))
            forget(q);
    }
    if (w->count == 0)
        unwatch(w);
}

void ms_log_readers_finish(struct ms_log_readers *w)
{
    if (!w->loop)
        return;
    ms_list_each (q, &w->held, struct reader, link)
        forget(q);
    unwatch(w);
}
