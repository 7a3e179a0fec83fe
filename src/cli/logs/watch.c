/* watch.c - wait until a session's logs grow, or the session ends */
#include "cli/logs/watch.h"
#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <sys/inotify.h>

struct waiter {
    int lock, ended; /* ours: its own descriptors */
};

static void *wait_for_lock(void *arg)
{
    struct waiter *w = arg;
    uint64_t one = 1;

    while (flock(w->lock, LOCK_SH) < 0 && errno == EINTR)
        ;
    close(w->lock);
    while (write(w->ended, &one, sizeof one) < 0 && errno == EINTR)
        ;
    close(w->ended);
    free(w);
    return NULL;
}

/* The thread is never joined: it ends with the session or with us. Takes `lock` on
 * success. */
static int start_waiter(int lock, int ended)
{
    struct waiter *w = malloc(sizeof *w);
    pthread_t thread = 0;
    int rc;

    if (!w)
        return -ENOMEM;
    *w = (struct waiter){.lock = lock, .ended = fcntl(ended, F_DUPFD_CLOEXEC, 0)};
    rc = w->ended < 0 ? errno : pthread_create(&thread, NULL, wait_for_lock, w);
    if (rc != 0) {
        ms_fd_close(&w->ended);
        free(w);
        return -rc;
    }
    pthread_detach(thread);
    return 0;
}

static int watch_end(struct ms_logwatch *f, const struct ms_session *session)
{
    char path[MS_SESSION_DIR_MAX + sizeof "/lock"];
    MS_CLEANUP(ms_cleanup_fd) int lock = -1;
    uint64_t one = 1;
    int rc;

    snprintf(path, sizeof path, "%s/lock", session->dir);
    lock = open(path, O_RDONLY | O_CLOEXEC);
    if (lock < 0 && errno != ENOENT)
        return -errno;
    if (lock < 0) /* the lock goes last: it has ended */
        return write(f->ended, &one, sizeof one) < 0 ? -errno : 0;
    rc = start_waiter(lock, f->ended);
    if (rc == 0)
        (void)MS_TAKE_FD(lock);
    return rc;
}

int ms_logwatch_open(struct ms_logwatch *f,
                     const struct ms_session *session,
                     const char *logs,
                     struct ms_error *err)
{
    int rc = 0;

    f->inotify = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
    f->ended = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (f->inotify < 0 || f->ended < 0 ||
        inotify_add_watch(f->inotify, logs, IN_MODIFY | IN_CREATE | IN_MOVED_TO) < 0)
        rc = -errno;
    if (rc == 0)
        rc = watch_end(f, session);
    if (rc == 0)
        return 0;
    ms_logwatch_close(f);
    return ms_error_sys(err, rc, "cannot follow '%s'", logs);
}

void ms_logwatch_close(struct ms_logwatch *f)
{
    ms_fd_close(&f->inotify);
    ms_fd_close(&f->ended);
}

/* Take all events that are there. */
static int drain(int inotify)
{
    _Alignas(struct inotify_event) char events[16 << 10];
    int found = MS_LOGWATCH_WRITTEN;
    ssize_t n;

    while ((n = read(inotify, events, sizeof events)) > 0)
        for (char *p = events; p < events + n;) {
            const struct inotify_event *e = (const void *)p;

            if (e->mask & ~(uint32_t)IN_MODIFY) /* also: events were lost */
                found = MS_LOGWATCH_NEW;
            p += sizeof *e + e->len;
        }
    return n < 0 && errno != EAGAIN && errno != EINTR ? -errno : found;
}

int ms_logwatch_wait(struct ms_logwatch *f)
{
    struct pollfd fds[] = {{.fd = f->inotify, .events = POLLIN},
                           {.fd = f->ended, .events = POLLIN}};
    int rc;

    do
        rc = poll(fds, MS_COUNT(fds), -1);
    while (rc < 0 && errno == EINTR);
    if (rc < 0)
        return -errno;
    if (fds[1].revents)
        return MS_LOGWATCH_ENDED;
    return drain(f->inotify);
}
