/* beside.c - a bridge as a process of its own on the controller's machine */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/env.h"
#include "io/spawn.h"
#include "io/supervised.h"
#include "orchestrator/ray/bridge/bridge.h"
#include "orchestrator/ray/bridge/home.h"
#include "orchestrator/ray/job/python.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* It has a session of its own, so that nothing that ends this process ends it; it watches our
 * parent by itself. It is found again by its pid and the time of its start. */

enum { READ_SIZE = 4096 };

struct beside {
    struct ms_process process;
    char name[MS_SUPERVISOR_NAME_MAX];
    int out; /* what it prints; -1: that is not heard */
    struct ms_watch said, ended;
    struct ms_timer gone; /* it was not there any more */
    int64_t polite_ns;    /* as its spec has it */
    const struct ms_ray_job_events *events;
    void *arg;
};

/* ---- what it says, and its end ----------------------------------------------------- */

static void on_said(void *arg, unsigned events)
{
    struct beside *b = arg;
    char text[READ_SIZE];
    ssize_t n = read(b->out, text, sizeof text);

    (void)events;
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0) {
        b->events->on_log(b->arg, text, (size_t)n);
        return;
    }
    ms_watch_finish(&b->said);
    ms_fd_close(&b->out);
}

static void on_ended(void *arg, unsigned events)
{
    struct beside *b = arg;
    struct ms_process_end end = {0};
    struct ms_error why = {0};
    char how[64];
    bool is_good;

    (void)events;
    if (ms_process_reap(b->process.pidfd, &end) == -EAGAIN)
        return;
    ms_watch_finish(&b->ended);
    ms_fd_close(&b->process.pidfd);
    is_good = end.known && !end.signaled && end.code == 0;
    ms_error_set(
        &why, -ECHILD, "the bridge %s", ms_process_end_print(&end, how, sizeof how));
    b->events->on_ended(b->arg, is_good ? 0 : -ECHILD, end.code, &why);
}

static void on_gone(void *arg)
{
    struct beside *b = arg;
    struct ms_error why = {-ECHILD, "the bridge is no more"};

    b->events->on_ended(b->arg, -ECHILD, 1, &why);
}

/* ---- its start --------------------------------------------------------------------- */

static int make_env(const struct ms_ray_job_spec *spec, struct ms_env *env)
{
    char parent[MS_SUPERVISOR_NAME_MAX];
    int rc = ms_supervisor_name(getppid(), parent);

    if (rc == 0)
        rc = ms_env_set_own(env);
    for (size_t i = 0; rc == 0 && spec->env[i]; i++)
        rc = ms_env_set(env, spec->env[i]);
    return rc < 0 ? rc : ms_env_printf(env, MS_BRIDGE_WITH_ENV "=%s", parent);
}

static int
spawn(struct beside *b, const struct ms_ray_job_spec *spec, struct ms_error *err)
{
    MS_CLEANUP(ms_env_finish) struct ms_env env = {0};
    MS_CLEANUP(ms_cleanup_fd) int theirs = -1;
    char path[PATH_MAX];
    int ends[2], rc;

    if (pipe2(ends, O_CLOEXEC) < 0)
        return ms_error_sys(err, -errno, "cannot make a pipe");
    b->out = ends[0];
    theirs = ends[1];
    fcntl(b->out, F_SETFL, O_NONBLOCK);
    if (b->events->on_submitting)
        b->events->on_submitting(b->arg, "127.0.0.1");
    ms_env_init(&env);
    rc = make_env(spec, &env);
    if (rc < 0)
        return ms_error_sys(err, rc, "cannot make the bridge's environment");
    rc = ms_ray_find_muster(&spec->site, path, err);
    if (rc < 0)
        return rc;
    return ms_spawn(
        &(struct ms_spawn){.path = path,
                           .argv = (const char *const[]){"muster", "bridge", NULL},
                           .env = (const char *const *)env.entries,
                           .fds =
                               (struct ms_spawn_fd[]){{theirs, STDOUT_FILENO},
                                                      {STDERR_FILENO, STDERR_FILENO}},
                           .fd_count = 2,
                           .new_session = true},
        &b->process,
        err);
}

static int
start(struct beside *b, const struct ms_ray_job_spec *spec, struct ms_error *err)
{
    int rc = spawn(b, spec, err);

    if (rc == 0)
        rc = ms_supervisor_name(b->process.pid, b->name);
    if (rc == 0)
        rc = ms_watch_init(&b->said, spec->loop, b->out, MS_READ, on_said, b);
    if (rc == 0)
        rc = ms_watch_init(
            &b->ended, spec->loop, b->process.pidfd, MS_READ, on_ended, b);
    return rc;
}

/* That of the controller before. */
static int adopt(struct beside *b, const struct ms_ray_job_spec *spec)
{
    pid_t pid = ms_supervisor_find(spec->id);

    snprintf(b->name, sizeof b->name, "%s", spec->id);
    b->process.pid = pid;
    b->process.pidfd = pid > 0 ? ms_process_open(pid) : -1;
    if (b->process.pidfd < 0)
        return ms_timer_set(&b->gone, 0);
    return ms_watch_init(&b->ended, spec->loop, b->process.pidfd, MS_READ, on_ended, b);
}

/* ---- the home ---------------------------------------------------------------------- */

static void stop(void *at)
{
    struct beside *b = at;

    if (b->process.pidfd >= 0)
        ms_process_signal(b->process.pidfd, SIGTERM);
}

static void look(void *at)
{
    (void)at; /* its end is heard at once */
}

static void leave(void *at)
{
    struct beside *b = at;

    if (!b)
        return;
    ms_watch_finish(&b->said);
    ms_watch_finish(&b->ended);
    ms_timer_finish(&b->gone);
    ms_fd_close(&b->out);
    ms_fd_close(&b->process.pidfd);
    free(b);
}

static void destroy(void *at, int64_t until_ns)
{
    struct beside *b = at;
    struct ms_process_end end;
    int rc = 0;

    if (b && b->process.pidfd >= 0) {
        int64_t polite_ns = ms_deadline_ns(ms_now_ns(), b->polite_ns);

        rc = ms_process_wait(
            b->process.pidfd, polite_ns < until_ns ? polite_ns : until_ns, &end);
    }
    if (rc == -ETIMEDOUT) {
        stop(b);
        rc = ms_process_wait(b->process.pidfd, until_ns, &end);
    }
    if (rc == -ETIMEDOUT) {
        ms_process_signal(b->process.pidfd, SIGKILL);
        ms_process_wait(b->process.pidfd, MS_NEVER, &end);
    }
    leave(b);
}

static const char *name_of(const void *at)
{
    return ((const struct beside *)at)->name;
}

static void *create(const struct ms_ray_job_spec *spec,
                    const struct ms_ray_job_events *events,
                    void *arg,
                    struct ms_error *err)
{
    struct beside *b = calloc(1, sizeof *b);
    int rc;

    if (!b) {
        ms_error_set(err, -ENOMEM, "out of memory");
        return NULL;
    }
    *b = (struct beside){.process.pidfd = -1,
                         .out = -1,
                         .polite_ns = spec->polite_ns,
                         .events = events,
                         .arg = arg};
    rc = ms_timer_init(&b->gone, spec->loop, on_gone, b);
    if (rc == 0)
        rc = spec->is_there ? adopt(b, spec) : start(b, spec, err);
    if (rc == 0)
        return b;
    if (err && !err->code)
        ms_error_sys(err, rc, "cannot start the bridge");
    destroy(b, 0);
    return NULL;
}

const struct ms_bridge_home ms_bridge_beside = {.create = create,
                                                .stop = stop,
                                                .look = look,
                                                .leave = leave,
                                                .destroy = destroy,
                                                .name = name_of};
