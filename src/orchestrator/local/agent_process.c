/* agent_process.c - starts `muster agent` for a head that it dials, and watches its process */
#include "orchestrator/local/agent_process.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/env.h"
#include "io/addr.h"
#include "io/proc.h"
#include "io/tcp.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Descriptors of the agent. */
enum { SHAPE_FD = 3, READY_FD = 4, ARGS_MAX = 40 };

/* How long a process may take to vanish after SIGKILL. */
#define VANISH_NS (1 * MS_NS_PER_S)

/* Finds the prefix in the path, as a shell would. */
#define ENV_PATH "/usr/bin/env"

/* ---- what it is started with ------------------------------------------------------- */

struct args {
    const char *at[ARGS_MAX + 1];
    size_t count;
    char pid[16];
};

static int add_arg(struct args *a, const char *text)
{
    if (a->count == ARGS_MAX)
        return -E2BIG;
    a->at[a->count++] = text;
    return 0;
}

/* An agent beside a head on loopback has nobody to talk to beyond it. */
static bool is_loopback(const char *head)
{
    struct sockaddr_storage sa;
    struct ms_addr addr;
    socklen_t len;

    return ms_addr_parse(head, &addr, NULL) == 0 && !addr.is_unix &&
           ms_tcp_numeric(addr.name, addr.port, &sa, &len) == 0 &&
           ms_sockaddr_is_loopback(&sa);
}

static int fill_args(struct args *a, const struct ms_agent_process_spec *s)
{
    const char *const options[][2] = {
        {"--head", s->head},
        {"--secret-file", s->secret_file},
        {"--node-name", s->name},
        {"--shape-fd", "3"},
        {"--ready-fd", "4"},
        {"--end-with", s->end_with ? a->pid : NULL},
        {"--bind", s->head && is_loopback(s->head) ? "127.0.0.1" : NULL},
    };
    int rc = 0;

    snprintf(a->pid, sizeof a->pid, "%d", (int)s->end_with);
    if (s->prefix)
        rc = add_arg(a, ENV_PATH);
    for (size_t i = 0; s->prefix && s->prefix[i] && rc == 0; i++)
        rc = add_arg(a, s->prefix[i]);
    if (rc == 0)
        rc = add_arg(a, s->path);
    if (rc == 0)
        rc = add_arg(a, "agent");
    for (size_t i = 0; i < MS_COUNT(options) && rc == 0; i++)
        if (options[i][1] && (rc = add_arg(a, options[i][0])) == 0)
            rc = add_arg(a, options[i][1]);
    return rc;
}

static int fill_env(struct ms_env *e, const char *const *more)
{
    int rc;

    ms_env_init(e);
    rc = ms_env_set_own(e);
    for (size_t i = 0; more && more[i] && rc == 0; i++)
        rc = ms_env_set(e, more[i]);
    return rc;
}

/* It is read from the beginning, to the end. */
static int open_shape(const struct ms_agent_process_spec *s)
{
    MS_CLEANUP(ms_cleanup_fd) int fd = memfd_create("shape", MFD_CLOEXEC);

    if (fd < 0)
        return -errno;
    for (size_t at = 0; at < s->shape_len;) {
        ssize_t n = write(fd, s->shape + at, s->shape_len - at);

        if (n < 0)
            return -errno;
        at += (size_t)n;
    }
    return lseek(fd, 0, SEEK_SET) < 0 ? -errno : MS_TAKE_FD(fd);
}

static int open_log(const char *path)
{
    int fd = open(path ? path : "/dev/null",
                  O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_CLOEXEC,
                  0600);

    return fd < 0 ? -errno : fd;
}

static int spawn(struct ms_agent_process *l,
                 const struct ms_agent_process_spec *s,
                 int ready,
                 struct ms_error *err)
{
    MS_CLEANUP(ms_env_finish) struct ms_env env = {0};
    MS_CLEANUP(ms_cleanup_fd) int shape = open_shape(s);
    MS_CLEANUP(ms_cleanup_fd) int log = open_log(s->log_path);
    struct args args = {0};
    int rc = fill_args(&args, s);

    if (log < 0)
        return ms_error_sys(err, log, "cannot open '%s'", s->log_path);
    if (rc == 0)
        rc = shape < 0 ? shape : fill_env(&env, s->env);
    if (rc < 0)
        return ms_error_sys(err, rc, "cannot start the agent of node %s", s->name);
    return ms_spawn(
        &(struct ms_spawn){
            .path = args.at[0],
            .argv = args.at,
            .env = (const char *const *)env.entries,
            .fds =
                (struct ms_spawn_fd[]){
                    {log, 1}, {log, 2}, {shape, SHAPE_FD}, {ready, READY_FD}},
            .fd_count = 4,
            .new_session = true,
        },
        &l->process,
        err);
}

/* ---- what is heard of it ----------------------------------------------------------- */

static void on_ready(void *arg, unsigned events)
{
    struct ms_agent_process *l = arg;
    char byte;
    ssize_t n = read(l->ready_fd, &byte, 1);

    (void)events;
    if (n < 0)
        return;
    ms_watch_finish(&l->ready);
    ms_fd_close(&l->ready_fd);
    if (n == 1)
        l->events->on_ready(l->arg);
}

static void forget_process(struct ms_agent_process *l)
{
    ms_watch_finish(&l->ended);
    ms_watch_finish(&l->ready);
    ms_timer_finish(&l->force);
    ms_fd_close(&l->process.pidfd);
    ms_fd_close(&l->ready_fd);
}

static void on_ended(void *arg, unsigned events)
{
    struct ms_agent_process *l = arg;
    struct ms_process_end end = {0};

    (void)events;
    /* what is left of its group goes with it, while its number is still its own */
    if (!l->is_adopted)
        ms_proc_group_kill(l->process.pid, SIGKILL);
    if (ms_process_reap(l->process.pidfd, &end) == -EAGAIN)
        return;
    forget_process(l);
    l->events->on_ended(l->arg, &end);
}

static void on_force(void *arg)
{
    struct ms_agent_process *l = arg;

    ms_proc_group_kill(l->process.pid, SIGKILL);
    ms_process_signal(l->process.pidfd, SIGKILL);
}

/* ---- life -------------------------------------------------------------------------- */

int ms_agent_process_start(struct ms_agent_process *l,
                           struct ms_loop *loop,
                           const struct ms_agent_process_spec *spec,
                           const struct ms_agent_process_events *events,
                           void *arg,
                           struct ms_error *err)
{
    MS_CLEANUP(ms_cleanup_fd) int theirs = -1;
    int ends[2], rc;

    *l = (struct ms_agent_process){.loop = loop,
                                   .process.pidfd = -1,
                                   .ready_fd = -1,
                                   .events = events,
                                   .arg = arg};
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
        return ms_error_sys(err, -errno, "cannot start the agent of %s", spec->name);
    l->ready_fd = ends[0];
    theirs = ends[1];
    rc = ms_timer_init(&l->force, loop, on_force, l);
    if (rc == 0)
        rc = ms_watch_init(&l->ready, loop, l->ready_fd, MS_READ, on_ready, l);
    if (rc < 0)
        ms_error_sys(err, rc, "cannot watch the agent of node %s", spec->name);
    else
        rc = spawn(l, spec, theirs, err);
    if (rc < 0) {
        ms_watch_finish(&l->ready);
        ms_timer_finish(&l->force);
        ms_fd_close(&l->ready_fd);
        return rc;
    }
    rc = ms_watch_init(&l->ended, loop, l->process.pidfd, MS_READ, on_ended, l);
    if (rc < 0) {
        ms_agent_process_finish(l, 0);
        return ms_error_sys(err, rc, "cannot watch the agent of node %s", spec->name);
    }
    return 0;
}

int ms_agent_process_adopt(struct ms_agent_process *l,
                           struct ms_loop *loop,
                           pid_t pid,
                           const struct ms_agent_process_events *events,
                           void *arg)
{
    int fd = ms_process_open(pid), rc;

    *l = (struct ms_agent_process){.loop = loop,
                                   .process = {pid, fd},
                                   .is_adopted = true,
                                   .ready_fd = -1,
                                   .events = events,
                                   .arg = arg};
    if (fd < 0)
        return fd;
    rc = ms_timer_init(&l->force, loop, on_force, l);
    if (rc == 0)
        rc = ms_watch_init(&l->ended, loop, fd, MS_READ, on_ended, l);
    if (rc < 0)
        forget_process(l);
    return rc;
}

void ms_agent_process_leave(struct ms_agent_process *l)
{
    if (l->process.pidfd >= 0)
        forget_process(l);
}

void ms_agent_process_stop(struct ms_agent_process *l, int64_t grace_ns)
{
    if (l->process.pidfd < 0)
        return;
    ms_process_signal(l->process.pidfd, SIGTERM);
    ms_timer_set(&l->force, grace_ns);
}

void ms_agent_process_finish(struct ms_agent_process *l, int64_t until_ns)
{
    struct ms_process_end end;

    if (l->process.pidfd < 0)
        return;
    if (ms_process_wait(l->process.pidfd, until_ns, &end) == -ETIMEDOUT) {
        on_force(l);
        ms_process_wait(l->process.pidfd, ms_now_ns() + VANISH_NS, &end);
    }
    forget_process(l);
}
