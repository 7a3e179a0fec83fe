#include "agent/env.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/out.h"
#include "cli/run.h"
#include "head/head.h"
#include "io/secret.h"
#include "io/spawn.h"
#include "orchestrator/local/local.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

/* How long agents may take to join, and a driver to end that was told to. */
#define RESERVE_NS      (120 * MS_NS_PER_S)
#define DRIVER_GRACE_NS (10 * MS_NS_PER_S)

enum { SIGNALED = 128 }; /* what shells add to the signal that ended somebody */

struct job_run {
    const struct ms_run *run;
    struct ms_loop *loop;
    struct ms_head *head;
    struct ms_orchestrator *o;
    struct ms_orch_op *reserving; /* NULL: it has completed */
    struct ms_process driver;
    struct ms_watch ended, signals;
    struct ms_timer force;
    int signal_fd;
    char muster[PATH_MAX]; /* this program */
    char log_dir[PATH_MAX], secret_file[PATH_MAX];
    int stop_signal; /* that was got; 0: none */
    bool is_over;    /* what is lent is on its way back */
    enum ms_exit code;
};

static void fail(struct job_run *j, const char *what)
{
    j->code = ms_out_fail(j->run->cli, MS_EXIT_FAILED, "%s", what);
}

/* ---- the end ----------------------------------------------------------------------- */

static void on_released(void *arg,
                        int rc,
                        const struct ms_error *why,
                        const struct ms_orch_answer *answer)
{
    struct job_run *j = arg;

    (void)answer;
    if (rc < 0)
        fail(j, why->text);
    else
        ms_run_say(j->run, json_pack("{s:s}", "event", "released"), "released");
    ms_loop_stop(j->loop);
}

static void release(struct job_run *j)
{
    j->is_over = true;
    if (!j->o->ops->release(j->o, j->run->key, NULL, 0, on_released, j))
        ms_loop_stop(j->loop); /* destroying it does the same, without a word */
}

static void on_driver_ended(void *arg, unsigned events)
{
    struct job_run *j = arg;
    struct ms_process_end end = {0};

    (void)events;
    if (ms_process_reap(j->driver.pidfd, &end) == -EAGAIN)
        return;
    ms_watch_finish(&j->ended);
    ms_timer_cancel(&j->force);
    ms_fd_close(&j->driver.pidfd);
    j->code = (enum ms_exit)(end.signaled ? SIGNALED + end.code : end.code);
    ms_run_say(j->run,
               json_pack("{s:s, s:i}", "event", "driver_ended", "exit_code", j->code),
               "the driver has ended with exit code %d",
               (int)j->code);
    release(j);
}

/* ---- the driver -------------------------------------------------------------------- */

static int fill_env(struct job_run *j, struct ms_env *e)
{
    const char *const *at = ms_head_addresses(j->head);
    int rc;

    ms_env_init(e);
    rc = ms_env_set_own(e);
    for (size_t i = 0; j->run->job->env && j->run->job->env[i] && rc == 0; i++)
        rc = ms_env_set(e, j->run->job->env[i]);
    if (rc == 0)
        rc = ms_env_printf(e, "MUSTER_ADDRESS=%s", at[0]);
    if (rc == 0)
        rc = ms_env_printf(e, MS_SECRET_FILE_ENV "=%s", j->secret_file);
    return rc;
}

/* By a process of ours that ends it, and all that it started, when this one ends. */
static int spawn_driver(struct job_run *j, struct ms_error *err)
{
    MS_CLEANUP(ms_env_finish) struct ms_env env = {0};
    MS_CLEANUP(ms_cleanup_free) const char **argv = NULL;
    char *const *words = j->run->job->driver;
    char pid[16];
    size_t count = 0;

    while (words[count])
        count++;
    argv = calloc(count + 5, sizeof *argv);
    if (!argv || fill_env(j, &env) < 0)
        return ms_error_set(err, -ENOMEM, "out of memory");
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    argv[0] = "muster";
    argv[1] = "hold";
    argv[2] = pid;
    argv[3] = ms_head_session(j->head)->dir;
    for (size_t i = 0; i < count; i++)
        argv[4 + i] = words[i];
    return ms_spawn(
        &(struct ms_spawn){
            .path = j->muster,
            .argv = argv,
            .env = (const char *const *)env.entries,
            .fds = (struct ms_spawn_fd[]){{0, 0}, {1, 1}, {2, 2}},
            .fd_count = 3,
        },
        &j->driver,
        err);
}

static void start_driver(struct job_run *j)
{
    struct ms_error err = {0};
    int rc = spawn_driver(j, &err);

    if (rc == 0) {
        ms_run_say(j->run,
                   json_pack("{s:s, s:s}",
                             "event",
                             "driver_started",
                             "command",
                             j->run->job->driver[0]),
                   "the driver starts: %s",
                   j->run->job->driver[0]);
        rc = ms_watch_init(
            &j->ended, j->loop, j->driver.pidfd, MS_READ, on_driver_ended, j);
        if (rc == 0)
            return;
        ms_process_signal(j->driver.pidfd, SIGKILL);
        ms_error_sys(&err, rc, "cannot watch the driver");
    }
    fail(j, err.text);
    release(j);
}

static void on_force(void *arg)
{
    struct job_run *j = arg;

    ms_process_signal(j->driver.pidfd, SIGUSR1); /* to its holder: by force */
}

static void on_signal(void *arg, unsigned events)
{
    struct job_run *j = arg;
    struct signalfd_siginfo info;

    (void)events;
    if (read(j->signal_fd, &info, sizeof info) != sizeof info || j->is_over)
        return;
    if (!j->stop_signal)
        ms_run_say(j->run,
                   json_pack("{s:s}", "event", "stopping"),
                   "stopping; once more: by force");
    if (j->driver.pidfd >= 0 && j->stop_signal) {
        on_force(j);
    } else if (j->driver.pidfd >= 0) {
        ms_process_signal(j->driver.pidfd, SIGTERM);
        ms_timer_set(&j->force, DRIVER_GRACE_NS);
    } else if (j->reserving) {
        j->o->ops->cancel(j->reserving);
    }
    j->stop_signal = (int)info.ssi_signo;
}

/* ---- the machines ------------------------------------------------------------------ */

/* While the driver runs: it decides what that means. */
static void on_event(void *arg, int rc, const struct ms_orch_event *e)
{
    struct job_run *j = arg;

    if (rc < 0 || e->gone || j->is_over || e->piece->phase != MS_PHASE_ENDED)
        return;
    ms_run_say_piece(j->run, e->piece, -1);
    if (e->piece->detail && !ms_cli_has(j->run->cli, MS_OPT_JSON))
        fprintf(j->run->out, "  %s\n", e->piece->detail);
}

static void on_reserved(void *arg,
                        int rc,
                        const struct ms_error *why,
                        const struct ms_orch_answer *answer)
{
    struct job_run *j = arg;

    j->reserving = NULL;
    if (rc == 0) {
        ms_run_say_reserved(j->run, &answer->reservations[0]);
        if (j->stop_signal) {
            j->code = (enum ms_exit)(SIGNALED + j->stop_signal);
            release(j);
        } else {
            start_driver(j);
        }
        return;
    }
    if (rc == -ECANCELED)
        j->code = (enum ms_exit)(SIGNALED + j->stop_signal);
    else
        fail(j, why->text);
    j->is_over = true;
    ms_loop_stop(j->loop);
}

/* Its cursor is where the watch begins: nothing is missed. */
static void on_listed(void *arg,
                      int rc,
                      const struct ms_error *why,
                      const struct ms_orch_answer *answer)
{
    struct job_run *j = arg;
    const struct ms_agent_start start = {.head = ms_head_addresses(j->head)[0],
                                         .secret_file = j->secret_file};
    const struct ms_reserve request = {.key = j->run->key,
                                       .pieces = j->run->nodes->pieces,
                                       .agent = &start,
                                       .timeout_ns = RESERVE_NS};

    if (rc == 0 && j->o->ops->watch(j->o, answer->cursor, on_event, j))
        j->reserving = j->o->ops->reserve(j->o, &request, on_reserved, j);
    if (j->reserving)
        return;
    fail(j, rc < 0 ? why->text : "out of memory");
    ms_loop_stop(j->loop);
}

/* ---- the whole --------------------------------------------------------------------- */

static void on_stop_asked(void *arg)
{
    (void)arg;
    kill(getpid(), SIGTERM);
}

static int open_signals(struct job_run *j, struct ms_error *err)
{
    sigset_t ends;
    int rc;

    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGHUP);
    sigprocmask(SIG_BLOCK, &ends, NULL); /* before there are threads */
    signal(SIGPIPE, SIG_IGN);
    j->signal_fd = signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK);
    rc = j->signal_fd < 0 ? -errno : 0;
    if (rc == 0)
        rc = ms_watch_init(&j->signals, j->loop, j->signal_fd, MS_READ, on_signal, j);
    if (rc == 0)
        rc = ms_timer_init(&j->force, j->loop, on_force, j);
    return rc < 0 ? ms_error_sys(err, rc, "cannot watch signals") : 0;
}

static int open_head(struct job_run *j, struct ms_error *err)
{
    const char *where = j->run->cli->values[MS_OPT_LISTEN];
    const char *const listen[] = {where ? where : "127.0.0.1:0", NULL};
    const char *dir;

    j->head = ms_head_serve(
        &(struct ms_head_serve_options){
            .is_of_job = true, .listen = listen, .on_stop_asked = on_stop_asked},
        err);
    if (!j->head)
        return -EIO;
    dir = ms_head_session(j->head)->dir;
    snprintf(j->log_dir, sizeof j->log_dir, "%s/logs", dir);
    snprintf(j->secret_file, sizeof j->secret_file, "%s/secret", dir);
    ms_run_say(j->run,
               json_pack("{s:s, s:s, s:s, s:s, s:i}",
                         "event",
                         "begun",
                         "session",
                         ms_head_session(j->head)->name,
                         "address",
                         ms_head_addresses(j->head)[0],
                         "orchestrator",
                         "local",
                         "nodes",
                         (int)j->run->nodes->count),
               "session %s, head at %s",
               ms_head_session(j->head)->name,
               ms_head_addresses(j->head)[0]);
    return 0;
}

/* What an agent of a node in a network namespace is started by. */
struct prefix {
    const char *words[5];
};

static int open_orchestrator(struct job_run *j, struct ms_error *err)
{
    const struct ms_run_nodes *n = j->run->nodes;
    MS_CLEANUP(ms_cleanup_free)
    struct prefix *made = calloc(n->count, sizeof *made);
    MS_CLEANUP(ms_cleanup_free)
    const char *const **prefixes = calloc(n->count, sizeof *prefixes);

    if (!made || !prefixes)
        return ms_error_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < j->run->job->node_count; i++)
        if (j->run->job->netns[i]) {
            made[i] =
                (struct prefix){{"ip", "netns", "exec", j->run->job->netns[i], NULL}};
            prefixes[i] = made[i].words;
        }

    j->o = ms_orchestrator_local(
        &(struct ms_local_options){.loop = j->loop,
                                   .agent_path = j->muster,
                                   .nodes = (const Muster__NodeShape *const *)n->shapes,
                                   .node_count = n->count,
                                   .prefixes = prefixes,
                                   .log_dir = j->log_dir},
        err);
    if (!j->o)
        return -EIO;
    if (!j->o->ops->list(j->o, NULL, on_listed, j))
        return ms_error_set(err, -ENOMEM, "out of memory");
    return 0;
}

static void close_all(struct job_run *j)
{
    if (j->o)
        j->o->ops->destroy(j->o);
    ms_fd_close(&j->driver.pidfd); /* its holder ends it with us */
    if (j->head)
        ms_head_stop(j->head, MS_STOP_GRACE_NS);
    ms_watch_finish(&j->ended);
    ms_watch_finish(&j->signals);
    ms_timer_finish(&j->force);
    ms_fd_close(&j->signal_fd);
    ms_loop_destroy(j->loop);
}

enum ms_exit ms_run_local(const struct ms_run *r)
{
    struct job_run j = {
        .run = r, .driver.pidfd = -1, .signal_fd = -1, .loop = ms_loop_create()};
    struct ms_error err = {0};
    int rc = 0;

    if (!j.loop)
        return ms_out_fail(r->cli, MS_EXIT_FAILED, "out of memory");
    if (readlink("/proc/self/exe", j.muster, sizeof j.muster - 1) < 0)
        rc = ms_error_sys(&err, -errno, "cannot find this program");
    if (rc == 0)
        rc = open_signals(&j, &err);
    if (rc == 0)
        rc = open_head(&j, &err);
    if (rc == 0)
        rc = open_orchestrator(&j, &err);
    if (rc == 0 && ms_loop_run(j.loop) < 0)
        rc = ms_error_set(&err, -EIO, "the loop has failed");
    if (rc < 0)
        fail(&j, err.text);
    close_all(&j);
    return j.code;
}
