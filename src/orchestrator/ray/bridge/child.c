/* child.c - a Python script of ours as a child process, by lines */
#include "orchestrator/ray/bridge/child.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "io/spawn.h"
#include "orchestrator/ray/job/python.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

enum { READ_SIZE = 64 << 10, ARGV_MAX = 64 };

struct child {
    struct ms_bridge_transport base;
    struct ms_process process;
    int fd; /* its stdin and stdout; -1: it has closed them */
    struct ms_watch io, ended;
    struct ms_buf unsent, part;
    bool is_ending;         /* its stdin ends when everything is sent */
    bool is_deaf;           /* it does not read any more, or its stdin has ended */
    struct ms_error broken; /* what it did wrong */
    const char *what;
    bool *is_gone; /* set when it is destroyed while it gives a line */
    const struct ms_bridge_transport_events *events;
    void *arg;
};

/* ---- reading ----------------------------------------------------------------------- */

/* All whole lines. False: it was destroyed by who got one. */
static bool give_lines(struct child *c)
{
    size_t done = 0;
    uint8_t *newline;
    bool is_gone = false;

    while (c->part.len > done &&
           (newline = memchr(c->part.data + done, '\n', c->part.len - done))) {
        char *line = (char *)c->part.data + done;

        *newline = 0;
        done = (size_t)(newline + 1 - c->part.data);
        c->is_gone = &is_gone;
        c->events->on_line(c->arg, line, (size_t)((char *)newline - line));
        if (is_gone)
            return false;
        c->is_gone = NULL;
    }
    ms_buf_consume(&c->part, done);
    return true;
}

/* 1: there may be more; 0: not now; < 0: that was all; -ECANCELED: it is destroyed. */
static int read_some(struct child *c)
{
    ssize_t got;

    if (ms_buf_reserve(&c->part, READ_SIZE) < 0)
        return ms_error_set(&c->broken, -ENOMEM, "out of memory");
    got = read(c->fd, c->part.data + c->part.len, READ_SIZE);
    if (got < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    if (got == 0)
        return -EPIPE;
    c->part.len += (size_t)got;
    if (!give_lines(c))
        return -ECANCELED;
    if (c->part.len > MS_RAY_LINE_MAX)
        return ms_error_set(
            &c->broken, -EPROTO, "%s has sent a line without end", c->what);
    return 1;
}

static void on_ended(void *arg, unsigned events)
{
    struct child *c = arg;
    struct ms_process_end end = {0};
    struct ms_error why = {0};
    char how[64];
    int rc = 1;

    (void)events;
    if (ms_process_reap(c->process.pidfd, &end) == -EAGAIN)
        return;
    ms_watch_finish(&c->ended);
    ms_fd_close(&c->process.pidfd);
    while (c->fd >= 0 && rc > 0) /* what it said last */
        rc = read_some(c);
    if (rc == -ECANCELED)
        return;
    ms_error_set(&why,
                 end.known && !end.signaled && end.code == 0 ? 0 : -ECHILD,
                 "%s %s",
                 c->what,
                 ms_process_end_print(&end, how, sizeof how));
    c->events->on_down(c->arg, c->broken.code ? &c->broken : &why);
}

/* ---- writing ----------------------------------------------------------------------- */

static void write_some(struct child *c)
{
    while (!c->is_deaf && c->unsent.len > 0) {
        ssize_t sent = send(c->fd, c->unsent.data, c->unsent.len, MSG_NOSIGNAL);

        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0 && errno == EAGAIN)
            break;
        if (sent < 0)
            c->is_deaf = true; /* its end follows */
        else
            ms_buf_consume(&c->unsent, (size_t)sent);
    }
    if (c->is_ending && !c->is_deaf && c->unsent.len == 0) {
        shutdown(c->fd, SHUT_WR);
        c->is_deaf = true;
    }
    if (c->fd >= 0)
        ms_watch_set(&c->io, MS_READ | (c->is_deaf || !c->unsent.len ? 0 : MS_WRITE));
}

static void on_io(void *arg, unsigned events)
{
    struct child *c = arg;
    int rc;

    if (events & MS_WRITE)
        write_some(c);
    rc = events & MS_READ ? read_some(c) : 0;
    if (rc >= 0 || rc == -ECANCELED)
        return;
    ms_watch_finish(&c->io);
    ms_fd_close(&c->fd);
    c->is_deaf = true;
    if (c->broken.code)
        ms_process_signal(c->process.pidfd, SIGKILL);
}

static int child_send(struct ms_bridge_transport *base, const char *line, size_t len)
{
    struct child *c = (struct child *)base;

    if (c->is_deaf || c->is_ending)
        return -EPIPE;
    if (ms_buf_reserve(&c->unsent, len + 1) < 0)
        return -ENOMEM;
    ms_buf_append(&c->unsent, line, len);
    ms_buf_append(&c->unsent, "\n", 1);
    write_some(c);
    return 0;
}

void ms_script_end(struct ms_bridge_transport *base)
{
    struct child *c = (struct child *)base;

    c->is_ending = true;
    write_some(c);
}

/* ---- life -------------------------------------------------------------------------- */

static int spawn(struct child *c,
                 const struct ms_script_spec *spec,
                 int theirs,
                 struct ms_error *err)
{
    const struct ms_spawn_fd fds[] = {{theirs, STDIN_FILENO},
                                      {theirs, STDOUT_FILENO},
                                      {STDERR_FILENO, STDERR_FILENO}};
    char found[PATH_MAX];
    const char *argv[ARGV_MAX] = {spec->python ? spec->python : found};
    int rc = spec->python ? 0 : ms_ray_find_python(found, err);

    for (size_t i = 0; spec->argv[i] && i < ARGV_MAX - 2; i++)
        argv[i + 1] = spec->argv[i];
    return rc < 0 ? rc
                  : ms_spawn(&(struct ms_spawn){.path = argv[0],
                                                .argv = argv,
                                                .env = (const char *const *)environ,
                                                .fds = fds,
                                                .fd_count = MS_COUNT(fds),
                                                .new_session = spec->new_session},
                             &c->process,
                             err);
}

static int
start(struct child *c, const struct ms_script_spec *spec, struct ms_error *err)
{
    int ends[2], rc;

    /* a socket can be written without a signal when nobody reads it any more */
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        return ms_error_sys(err, -errno, "cannot make a pipe");
    c->fd = ends[0];
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    rc = spawn(c, spec, ends[1], err);
    close(ends[1]);
    if (rc < 0)
        return rc;
    rc = ms_watch_init(&c->io, spec->loop, c->fd, MS_READ, on_io, c);
    if (rc == 0)
        rc = ms_watch_init(
            &c->ended, spec->loop, c->process.pidfd, MS_READ, on_ended, c);
    return rc < 0 ? ms_error_sys(err, rc, "cannot watch %s", spec->what) : 0;
}

/* It is below us: with `keep` it does not outlive us either. */
static void child_destroy(struct ms_bridge_transport *base, bool keep, int64_t until_ns)
{
    struct child *c = (struct child *)base;
    struct ms_process_end end;

    (void)keep;
    if (c->is_gone)
        *c->is_gone = true;
    ms_watch_finish(&c->io);
    ms_watch_finish(&c->ended);
    if (c->fd >= 0)
        shutdown(c->fd, SHUT_WR);
    if (c->process.pidfd >= 0 &&
        ms_process_wait(c->process.pidfd, until_ns, &end) == -ETIMEDOUT) {
        ms_process_signal(c->process.pidfd, SIGKILL);
        ms_process_wait(c->process.pidfd, MS_NEVER, &end);
    }
    ms_fd_close(&c->process.pidfd);
    ms_fd_close(&c->fd);
    ms_buf_finish(&c->unsent);
    ms_buf_finish(&c->part);
    free(c);
}

struct ms_bridge_transport *
ms_script_start(const struct ms_script_spec *spec,
                const struct ms_bridge_transport_events *events,
                void *arg,
                struct ms_error *err)
{
    static const struct ms_bridge_transport_ops ops = {child_send, child_destroy};
    struct child *c = calloc(1, sizeof *c);

    if (!c) {
        ms_error_set(err, -ENOMEM, "out of memory");
        return NULL;
    }
    *c = (struct child){.base.ops = &ops,
                        .what = spec->what,
                        .events = events,
                        .arg = arg,
                        .fd = -1,
                        .process.pidfd = -1};
    if (start(c, spec, err) == 0)
        return &c->base;
    child_destroy(&c->base, false, 0);
    return NULL;
}

struct ms_bridge_transport *
ms_bridge_child_start(const struct ms_bridge_child_spec *spec,
                      const struct ms_bridge_transport_events *events,
                      void *arg,
                      struct ms_error *err)
{
    char script[PATH_MAX], grace[32];
    const char *argv[] = {"-u",
                          spec->script ? spec->script : script,
                          "--name",
                          spec->name,
                          "--grace",
                          grace,
                          NULL};

    snprintf(grace, sizeof grace, "%.3f", (double)spec->grace_ns / (double)MS_NS_PER_S);
    if (!spec->script &&
        ms_ray_find_script(&spec->site, "ray_bridge.py", script, err) < 0)
        return NULL;
    return ms_script_start(&(struct ms_script_spec){.loop = spec->loop,
                                                    .what = "the bridge",
                                                    .python = spec->python,
                                                    .argv = argv},
                           events,
                           arg,
                           err);
}

struct ms_bridge_transport *
ms_bridge_open_child(const struct ms_ray_options *o,
                     const struct ms_bridge_transport_events *events,
                     void *arg,
                     struct ms_error *err)
{
    return ms_bridge_child_start(&(struct ms_bridge_child_spec){.loop = o->loop,
                                                                .site = o->site,
                                                                .name = o->name},
                                 events,
                                 arg,
                                 err);
}
