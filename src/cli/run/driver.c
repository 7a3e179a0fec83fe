/* driver.c - a job's driver: its environment, start and end */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/env.h"
#include "cli/run/job.h"
#include "io/session/secret.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

/* How long a driver that was told to end may take; inside of a Ray job, which Ray ends by
 * force after 3 s, less. */
#define GRACE_NS        (10 * MS_NS_PER_S)
#define INSIDE_GRACE_NS (1 * MS_NS_PER_S)

static void on_ended(void *arg, unsigned events)
{
    struct ms_job_run *j = arg;
    struct ms_process_end end = {0};

    (void)events;
    if (ms_process_reap(j->driver.pidfd, &end) == -EAGAIN)
        return;
    ms_watch_finish(&j->ended);
    ms_timer_cancel(&j->force);
    ms_fd_close(&j->driver.pidfd);
    j->code = (enum ms_exit)(end.signaled ? MS_RUN_SIGNALED + end.code : end.code);
    ms_run_report(
        j->run,
        json_pack("{s:s, s:i}", "event", "driver_ended", "exit_code", j->code),
        "the driver has ended with exit code %d",
        (int)j->code);
    ms_job_run_release(j);
}

static int fill_env(const struct ms_job_run *j, struct ms_env *e)
{
    const char *const *at = ms_head_addresses(j->head);
    int rc;

    ms_env_init(e);
    rc = ms_env_set_own(e);
    if (rc == 0 && j->run->is_inside)
        rc = ms_run_inside_env(j->muster, e);
    for (size_t i = 0; j->run->job->env && j->run->job->env[i] && rc == 0; i++)
        rc = ms_env_set(e, j->run->job->env[i]);
    if (rc == 0)
        rc = ms_env_printf(e, "MUSTER_ADDRESS=%s", at[0]);
    if (rc == 0)
        rc = ms_env_printf(e, MS_SECRET_FILE_ENV "=%s", j->secret_file);
    return rc;
}

/* By a process of ours that ends it, and all that it started, when this one ends. */
static int spawn(struct ms_job_run *j, struct ms_error *err)
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

/* Where this was started. Several raylets on one machine have one folder for the package,
 * which each of them makes anew: it may be another one than at the start. */
static int go_back(const struct ms_job_run *j, struct ms_error *err)
{
    if (!j->run->is_inside || chdir(j->folder) == 0)
        return 0;
    return ms_error_sys(err, -errno, "cannot run the driver in %s", j->folder);
}

void ms_job_run_drive(struct ms_job_run *j)
{
    struct ms_error err = {0};
    int rc = go_back(j, &err);

    if (rc == 0)
        rc = spawn(j, &err);
    if (rc == 0) {
        ms_run_report(j->run,
                      MS_JSON({"event", json_string("driver_started")},
                              {"command", json_string(j->run->job->driver[0])}),
                      "the driver starts: %s",
                      j->run->job->driver[0]);
        rc = ms_watch_init(&j->ended, j->loop, j->driver.pidfd, MS_READ, on_ended, j);
        if (rc == 0)
            return;
        ms_process_signal(j->driver.pidfd, SIGKILL);
        ms_error_sys(&err, rc, "cannot watch the driver");
    }
    ms_job_run_fail(j, err.text);
    ms_job_run_release(j);
}

void ms_job_run_force(void *arg)
{
    struct ms_job_run *j = arg;

    ms_process_signal(j->driver.pidfd, SIGUSR1); /* to its holder: by force */
}

bool ms_job_run_stop_driver(struct ms_job_run *j)
{
    if (j->driver.pidfd < 0)
        return false;
    if (j->stop_signal) {
        ms_job_run_force(j);
        return true;
    }
    ms_process_signal(j->driver.pidfd, SIGTERM);
    ms_timer_set(&j->force, j->run->is_inside ? INSIDE_GRACE_NS : GRACE_NS);
    return true;
}
