/* ray.c - `muster run --on ray`: the job on a Ray cluster, its output shown here */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/name.h"
#include "cli/out.h"
#include "cli/run/run.h"
#include "io/loop.h"
#include "orchestrator/ray/job/job.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <sys/signalfd.h>

/* In the package, below job/. */
#define FILE_NAME   "job.yaml"
#define FOLDER_NAME "work"

/* How long the job may take to end after the command was interrupted twice. */
#define LAST_NS (20 * MS_NS_PER_S)

enum { SIGNALED = 128, LINE_MAX_BYTES = 1024 };

/* What the job prints is the driver's output and, marked, what `muster run` says there. All
 * that comes before our first line is Ray's, and not shown. */
struct shown {
    bool is_begun;  /* our first line has come */
    bool is_inline; /* a line has begun: `to` is where it goes */
    FILE *to;
};

struct ray_run {
    const struct ms_run_spec *run;
    struct ms_loop *loop;
    struct ms_ray_job *job;
    struct ms_watch signals;
    int signal_fd, stop_signal;
    struct shown shown;
    char folder[PATH_MAX], id[MS_NAME_MAX + 32], line[LINE_MAX_BYTES]; /* of the job */
    const char *files[5];
    enum ms_exit code;
};

/* ---- what it prints ---------------------------------------------------------------- */

static void begin_line(struct ray_run *y, const char **text, size_t *len)
{
    bool is_ours = **text == MS_RUN_MARK;

    y->shown.is_inline = true;
    y->shown.is_begun = y->shown.is_begun || is_ours;
    y->shown.to = is_ours ? stderr : y->shown.is_begun ? stdout : NULL;
    *text += is_ours;
    *len -= is_ours;
}

static void on_log(void *arg, const char *text, size_t len)
{
    struct ray_run *y = arg;

    while (len > 0) {
        const char *end;
        size_t part;

        if (!y->shown.is_inline)
            begin_line(y, &text, &len);
        end = len > 0 ? memchr(text, '\n', len) : NULL;
        part = end ? (size_t)(end - text) + 1 : len;
        if (y->shown.to)
            fwrite(text, 1, part, y->shown.to);
        y->shown.is_inline = !end;
        text += part;
        len -= part;
    }
    fflush(stdout);
    fflush(stderr);
}

/* ---- what happens to it ------------------------------------------------------------ */

static void on_submitted(void *arg)
{
    struct ray_run *y = arg;

    ms_run_report(
        y->run,
        json_pack("{s:s, s:s}", "event", "submitted", "address", y->run->address),
        "submitted to Ray at %s",
        y->run->address);
}

static void on_silent(void *arg, const struct ms_error *why)
{
    struct ray_run *y = arg;

    ms_run_report(y->run,
                  json_pack("{s:s}", "event", why ? "silent" : "heard"),
                  why ? "Ray does not answer: %.300s" : "Ray answers again%s",
                  why ? why->text : "");
}

/* What the command in the job has said is said; the rest is ours. */
static void on_ended(void *arg, int rc, int exit_code, const struct ms_error *why)
{
    struct ray_run *y = arg;

    if (rc == 0)
        y->code = MS_EXIT_OK;
    else if (y->stop_signal)
        y->code = (enum ms_exit)(SIGNALED + y->stop_signal);
    else if (rc == -ECHILD && exit_code > 0 && y->shown.is_begun)
        y->code = (enum ms_exit)exit_code;
    else
        y->code = ms_out_fail(y->run->cli, MS_EXIT_FAILED, "%s", why->text);
    ms_loop_stop(y->loop);
}

static void on_signal(void *arg, unsigned events)
{
    struct ray_run *y = arg;
    struct signalfd_siginfo info;

    (void)events;
    if (read(y->signal_fd, &info, sizeof info) != sizeof info)
        return;
    if (y->stop_signal) { /* destroying it stops it too, in a shorter time */
        ms_loop_stop(y->loop);
        return;
    }
    y->stop_signal = (int)info.ssi_signo;
    y->code = (enum ms_exit)(SIGNALED + y->stop_signal);
    ms_run_report(y->run,
                  json_pack("{s:s}", "event", "stopping"),
                  "stopping; once more: by force");
    ms_ray_job_stop(y->job);
}

/* ---- the whole --------------------------------------------------------------------- */

static int open_job(struct ray_run *y, struct ms_error *err)
{
    static const struct ms_ray_job_events events = {.on_submitted = on_submitted,
                                                    .on_log = on_log,
                                                    .on_silent = on_silent,
                                                    .on_ended = on_ended};
    const struct ms_run_spec *r = y->run;
    const char *const files[] = {
        FILE_NAME, r->cli->operands[0], FOLDER_NAME, y->folder, NULL};

    memcpy(y->files, files, sizeof files);
    if (!getcwd(y->folder, sizeof y->folder))
        return ms_error_sys(err, -errno, "which folder is this?");
    snprintf(y->id,
             sizeof y->id,
             "muster-%s-%08llx",
             r->key,
             (unsigned long long)ms_random_id() & 0xffffffffU);
    snprintf(y->line,
             sizeof y->line,
             "cd job/" FOLDER_NAME
             " && exec ../../bin/muster run --on ray --address inside --timeout %lld%s "
             "../" FILE_NAME,
             (long long)(r->timeout_ns / MS_NS_PER_S),
             ms_cli_has(r->cli, MS_OPT_JSON) ? " --json" : "");
    y->job =
        ms_ray_job_create(&(struct ms_ray_job_spec){.loop = y->loop,
                                                    .site = {.address = r->address},
                                                    .id = y->id,
                                                    .entrypoint = y->line,
                                                    .files = y->files},
                          &events,
                          y,
                          err);
    return y->job ? 0 : -EIO;
}

static int open_all(struct ray_run *y, struct ms_error *err)
{
    int rc;

    if (!y->loop)
        return ms_error_set(err, -ENOMEM, "out of memory");
    rc = ms_run_signals(&y->signal_fd);
    if (rc == 0)
        rc = ms_watch_init(&y->signals, y->loop, y->signal_fd, MS_READ, on_signal, y);
    if (rc < 0)
        return ms_error_sys(err, rc, "cannot watch signals");
    return open_job(y, err);
}

enum ms_exit ms_run_ray(const struct ms_run_spec *r)
{
    struct ray_run y = {.run = r, .signal_fd = -1, .loop = ms_loop_create()};
    struct ms_error err = {0};

    if (open_all(&y, &err) < 0)
        y.code = ms_out_fail(r->cli, MS_EXIT_FAILED, "%s", err.text);
    else if (ms_loop_run(y.loop) < 0)
        y.code = ms_out_fail(r->cli, MS_EXIT_FAILED, "the loop has failed");
    if (y.job)
        ms_ray_job_destroy(y.job, ms_now_ns() + LAST_NS);
    ms_watch_finish(&y.signals);
    ms_fd_close(&y.signal_fd);
    ms_loop_destroy(y.loop);
    return y.code;
}
