/* on_ray.c - `muster submit --on ray`: a job whose head lives in a job of a Ray cluster */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/name.h"
#include "cli/jobs/jobs.h"
#include "cli/out.h"
#include "cli/run/run.h"
#include "io/loop.h"
#include "orchestrator/ray/bridge/offer.h"
#include "orchestrator/ray/job/job.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

/* In the package, below job/. */
#define FILE_NAME   "job.yaml"
#define FOLDER_NAME "work"

/* For Ray to take the package and start the head, if --timeout does not say it. */
#define START_S 120
#define LAST_NS (20 * MS_NS_PER_S) /* to end a job that is not wanted any more */

enum { LOG_MAX = 1 << 16, SIGNALED = 128 };

struct sending {
    const struct ms_cli *cli;
    const char *address; /* of Ray's dashboard */
    struct ms_loop *loop;
    struct ms_ray_job *job;
    struct ms_watch signals;
    struct ms_timer late;
    int signal_fd;
    struct ms_offer_keys keys;
    struct ms_job_elsewhere record;
    struct ms_buf log;
    char id[MS_NAME_MAX + 32], folder[PATH_MAX], line[1024];
    char *env[2];
    const char *files[5];
    bool is_there; /* its head has said where it is */
    enum ms_exit code;
};

static void fail(struct sending *s, const char *why)
{
    s->code = ms_out_fail(s->cli, MS_EXIT_FAILED, "%s", why);
    ms_loop_stop(s->loop);
}

/* ---- what happens ------------------------------------------------------------------ */

/* The head's first line: its public key, and where it listens. */
static void on_log(void *arg, const char *text, size_t len)
{
    struct sending *s = arg;
    struct ms_offer answer;

    if (s->is_there || s->log.len > LOG_MAX || ms_buf_append(&s->log, text, len) < 0 ||
        ms_offer_find(ms_buf_str(&s->log), &answer) < 0)
        return;
    if (strlen(answer.addresses) >= sizeof s->record.head.address ||
        ms_offer_secret(&s->keys, answer.public_key, s->record.head.secret) < 0) {
        fail(s, "the head in the Ray job has answered with something else");
        return;
    }
    strcpy(s->record.head.address, answer.addresses);
    s->is_there = true;
    ms_loop_stop(s->loop);
}

static void on_ended(void *arg, int rc, int exit_code, const struct ms_error *why)
{
    struct sending *s = arg;

    (void)exit_code;
    if (!s->code)
        fail(s, rc < 0 ? why->text : "the Ray job has ended at once");
    ms_loop_stop(s->loop);
}

static void on_late(void *arg)
{
    fail(arg, "the head in the Ray job has not said in time where it listens");
}

static void on_signal(void *arg, unsigned events)
{
    struct sending *s = arg;
    struct signalfd_siginfo info;

    (void)events;
    if (read(s->signal_fd, &info, sizeof info) != sizeof info)
        return;
    s->code = (enum ms_exit)(SIGNALED + (int)info.ssi_signo);
    ms_loop_stop(s->loop);
}

/* ---- the Ray job ------------------------------------------------------------------- */

/* A head that was killed is started again, and finds its journal. By its full path: several
 * raylets on one machine have one folder for the package, which each of them makes anew. */
static int write_line(struct sending *s)
{
    int len = snprintf(s->line,
                       sizeof s->line,
                       "d=$PWD/job/" FOLDER_NAME "; while :; do cd $d && "
                       "../../bin/muster host %s ../" FILE_NAME " %s; c=$?; "
                       "[ $c -lt 128 ] && exit $c; sleep 1; done",
                       strrchr(s->id, '-') + 1,
                       s->record.job);

    return len < (int)sizeof s->line ? 0 : -ENAMETOOLONG;
}

static int open_job(struct sending *s, struct ms_error *err)
{
    static const struct ms_ray_job_events events = {.on_log = on_log,
                                                    .on_ended = on_ended};
    const char *const files[] = {
        FILE_NAME, s->cli->operands[0], FOLDER_NAME, s->folder, NULL};
    MS_CLEANUP(ms_cleanup_free) char *offer = NULL;

    memcpy(s->files, files, sizeof files);
    if (!getcwd(s->folder, sizeof s->folder))
        return ms_error_sys(err, -errno, "which folder is this?");
    if (ms_offer_keys_make(&s->keys) < 0)
        return ms_error_set(err, -EIO, "cannot make a key");
    offer = ms_offer_print(s->keys.public_key, "");
    if (!offer || asprintf(&s->env[0], MS_JOB_OFFER_ENV "=%s", offer) < 0) {
        s->env[0] = NULL;
        return ms_error_set(err, -ENOMEM, "out of memory");
    }
    snprintf(s->id,
             sizeof s->id,
             "muster-%s-%08llx",
             s->record.job,
             (unsigned long long)ms_random_id() & 0xffffffffU);
    snprintf(s->record.where,
             sizeof s->record.where,
             "job %.100s of Ray at %.120s",
             s->id,
             s->address);
    if (write_line(s) < 0)
        return ms_error_set(err, -ENAMETOOLONG, "the job's name is too long");
    s->job =
        ms_ray_job_create(&(struct ms_ray_job_spec){.loop = s->loop,
                                                    .site = {.address = s->address},
                                                    .id = s->id,
                                                    .entrypoint = s->line,
                                                    .env = (const char *const *)s->env,
                                                    .files = s->files},
                          &events,
                          s,
                          err);
    return s->job ? 0 : -EIO;
}

static int open_all(struct sending *s, struct ms_error *err)
{
    int64_t seconds = ms_cli_number(s->cli, MS_OPT_TIMEOUT, START_S);
    int rc = s->loop ? ms_run_signals(&s->signal_fd) : -ENOMEM;

    if (rc == 0)
        rc = ms_watch_init(&s->signals, s->loop, s->signal_fd, MS_READ, on_signal, s);
    if (rc == 0)
        rc = ms_timer_init(&s->late, s->loop, on_late, s);
    if (rc < 0)
        return ms_error_sys(err, rc, "cannot submit it");
    ms_timer_set(&s->late, seconds * MS_NS_PER_S);
    return open_job(s, err);
}

static void close_all(struct sending *s)
{
    if (s->job && s->is_there && !s->code)
        ms_ray_job_leave(s->job);
    else if (s->job)
        ms_ray_job_destroy(s->job, ms_now_ns() + LAST_NS);
    ms_watch_finish(&s->signals);
    ms_timer_finish(&s->late);
    ms_fd_close(&s->signal_fd);
    ms_loop_destroy(s->loop);
    ms_buf_finish(&s->log);
    ms_offer_keys_wipe(&s->keys);
    free(s->env[0]);
}

/* ---- the command ------------------------------------------------------------------- */

/* As Ray's own commands find it. */
static const char *find_address(const struct ms_cli *cli)
{
    const char *address = cli->values[MS_OPT_ADDRESS];

    if (!address)
        address = getenv("RAY_API_SERVER_ADDRESS");
    if (!address || !*address)
        address = getenv("RAY_ADDRESS");
    return address && *address ? address : NULL;
}

/* The name is free? */
static enum ms_exit check(const struct ms_cli *cli,
                          const struct ms_job *job,
                          const struct sending *s,
                          struct ms_error *err)
{
    struct ms_job_elsewhere old;

    if (!s->address)
        return ms_out_fail(cli,
                           MS_EXIT_USAGE,
                           "on ray: which one? --address http://HEAD:8265, or "
                           "RAY_API_SERVER_ADDRESS");
    if (strcmp(s->address, MS_RAY_LOCAL) == 0)
        return ms_out_fail(cli,
                           MS_EXIT_USAGE,
                           "--address local is a Ray that ends with the command: "
                           "`muster run` can use it");
    if (!job->has_nodes)
        return ms_out_fail(cli,
                           MS_EXIT_USAGE,
                           "%s has no 'nodes': what is to be lent?",
                           cli->operands[0]);
    if (ms_name_check(s->record.job, "job", err) < 0)
        return ms_out_fail(cli, MS_EXIT_USAGE, "%s", err->text);
    if (ms_jobs_elsewhere_find(s->record.job, &old) < 0)
        return MS_EXIT_OK;
    explicit_bzero(&old.head, sizeof old.head);
    return ms_out_fail(cli,
                       MS_EXIT_FAILED,
                       "there is a job '%s' already, %s: `muster delete %s` frees the "
                       "name, or give this one another",
                       old.job,
                       old.where,
                       old.job);
}

enum ms_exit ms_jobs_submit_on_ray(const struct ms_cli *cli, const struct ms_job *job)
{
    const char *name = cli->values[MS_OPT_NAME] ? cli->values[MS_OPT_NAME] : job->name;
    struct sending s = {.cli = cli, .address = find_address(cli), .signal_fd = -1};
    struct ms_error err = {0};
    enum ms_exit code;

    snprintf(s.record.job, sizeof s.record.job, "%s", name ? name : "job");
    code = check(cli, job, &s, &err);
    if (code)
        return code;
    ms_buf_init(&s.log);
    s.loop = ms_loop_create();
    if (open_all(&s, &err) < 0)
        s.code = ms_out_fail(cli, MS_EXIT_FAILED, "%s", err.text);
    else if (ms_loop_run(s.loop) < 0)
        s.code = ms_out_fail(cli, MS_EXIT_FAILED, "the loop has failed");
    else if (!s.code && ms_jobs_elsewhere_add(&s.record, &err) < 0)
        s.code = ms_out_fail(cli, MS_EXIT_FAILED, "%s", err.text);
    close_all(&s);
    if (!s.code && !ms_cli_has(cli, MS_OPT_JSON))
        fprintf(stderr, "muster submit: its head is in %s\n", s.record.where);
    if (!s.code && ms_cli_has(cli, MS_OPT_JSON))
        s.code = ms_jobs_get(cli, s.record.job);
    else if (!s.code)
        printf("%s\n", s.record.job);
    explicit_bzero(&s.record, sizeof s.record);
    return s.code;
}
