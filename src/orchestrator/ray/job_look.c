#include "base/cleanup.h"
#include "orchestrator/ray/job_impl.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void look(struct ms_ray_job *j);

static void
ask_of_job(struct ms_ray_job *j, const char *method, const char *what, ms_fetched *done)
{
    char path[256];

    snprintf(path, sizeof path, "/api/jobs/%s%s", j->id, what);
    j->asked_ns = ms_now_ns();
    ms_ray_job_ask(j, &(struct ms_fetch_spec){.method = method}, path, done);
}

/* ---- its end ----------------------------------------------------------------------- */

static void conclude(struct ms_ray_job *j)
{
    const struct ms_ray_details *d = &j->details;
    struct ms_error why = {0};

    if (d->status == MS_RAY_SUCCEEDED) {
        ms_ray_job_over(j, 0, 0, NULL);
        return;
    }
    if (d->status == MS_RAY_STOPPED) {
        ms_error_set(&why, -ECANCELED, "the job %s was stopped", j->id);
    } else {
        ms_error_set(&why, -ECHILD, "the job %s on Ray has failed", j->id);
        if (d->exit_code >= 0)
            ms_error_set(&why,
                         -ECHILD,
                         "the job %s on Ray has failed with exit code %d",
                         j->id,
                         d->exit_code);
        else if (d->message[0])
            ms_error_set(
                &why, -ECHILD, "the job %s on Ray has failed: %s", j->id, d->message);
        ms_ray_add_log(&why, j->last_log, j->last_log_len);
    }
    ms_ray_job_over(j, why.code, d->exit_code, &why);
}

static void on_deleted(void *arg, const struct ms_fetch_answer *a)
{
    struct ms_ray_job *j = arg;

    (void)a; /* a record that stays is no harm */
    j->fetch = NULL;
    j->is_on_cluster = false;
}

static void delete_it(struct ms_ray_job *j)
{
    ask_of_job(j, "DELETE", "", on_deleted);
}

/* ---- its log ----------------------------------------------------------------------- */

static void keep_end(struct ms_ray_job *j, const char *log, size_t len)
{
    j->last_log_len = len < sizeof j->last_log ? len : sizeof j->last_log;
    memcpy(j->last_log, log + len - j->last_log_len, j->last_log_len);
}

static void rest_after(struct ms_ray_job *j, bool is_news)
{
    int64_t took_ns = ms_now_ns() - j->asked_ns;

    /* a long log takes long to send, and it is sent as a whole */
    j->pause_ns = is_news ? MS_RAY_LOOK_NS : 2 * j->pause_ns;
    if (j->pause_ns > MS_RAY_LOOK_MAX_NS)
        j->pause_ns = MS_RAY_LOOK_MAX_NS;
    if (j->pause_ns < 10 * took_ns)
        j->pause_ns = 10 * took_ns;
    ms_ray_job_soon(j, j->pause_ns, look);
}

static bool is_ended(const struct ms_ray_job *j)
{
    return j->details.status >= MS_RAY_STOPPED;
}

static void on_log(void *arg, const struct ms_fetch_answer *a)
{
    struct ms_ray_job *j = arg;
    size_t len = 0, known = j->log_len;
    MS_CLEANUP(ms_cleanup_free) char *log = ms_ray_read_logs(a, &len);

    j->fetch = NULL;
    if (log && len != known)
        keep_end(j, log, len);
    if (log && len > known) {
        j->log_len = len;
        if (j->events && j->events->on_log)
            j->events->on_log(j->arg, log + known, len - known);
    }
    if (!is_ended(j)) {
        rest_after(j, len > known);
        return;
    }
    ms_ray_job_soon(j, MS_RAY_SETTLE_NS, delete_it);
    conclude(j);
}

/* ---- what it does ------------------------------------------------------------------ */

static void set_silent(struct ms_ray_job *j, const struct ms_error *why)
{
    if (j->is_silent == (why != NULL))
        return;
    j->is_silent = why != NULL;
    if (j->events && j->events->on_silent)
        j->events->on_silent(j->arg, why);
}

static void on_stopped(void *arg, const struct ms_fetch_answer *a)
{
    struct ms_ray_job *j = arg;

    j->fetch = NULL;
    j->is_stop_asked = ms_ray_read_stopped(a); /* not yet: asked again */
    ms_ray_job_soon(j, MS_RAY_LOOK_NS, look);
}

/* Ray does not answer. */
static void unheard(struct ms_ray_job *j, const struct ms_error *why)
{
    struct ms_error said = *why;

    if (j->is_stopping && ms_now_ns() >= j->stop_until_ns) {
        ms_error_wrap(&said, "the job %s could not be ended", j->id);
        j->is_on_cluster = false;
        ms_ray_job_over(j, said.code, -1, &said);
        return;
    }
    set_silent(j, &said);
    ms_ray_job_soon(j, MS_RAY_LOOK_MAX_NS, look);
}

static void unknown(struct ms_ray_job *j)
{
    struct ms_error why = {0};

    if (j->is_unsure && ms_now_ns() < j->unsure_until_ns) {
        ms_ray_job_soon(j, MS_RAY_LOOK_NS, look);
        return;
    }
    j->is_on_cluster = false;
    if (j->is_unsure) {
        ms_error_set(&why, -ECANCELED, "the job was stopped before it began");
        ms_ray_job_over(j, -ECANCELED, -1, &why);
        return;
    }
    ms_error_set(&why,
                 -ECHILD,
                 "Ray at %s does not know the job %s any more: it was started anew, or "
                 "somebody has deleted the job",
                 ms_ray_job_address(j),
                 j->id);
    ms_ray_job_over(j, -ECHILD, -1, &why);
}

static void heard(struct ms_ray_job *j)
{
    struct ms_error why = {0};

    set_silent(j, NULL);
    if (!is_ended(j) && j->is_stopping && ms_now_ns() >= j->stop_until_ns) {
        ms_error_set(&why, -ETIMEDOUT, "the job %s does not end", j->id);
        j->is_on_cluster = false;
        ms_ray_job_over(j, why.code, -1, &why);
    } else if (!is_ended(j) && j->is_stopping && !j->is_stop_asked &&
               ms_now_ns() >= j->polite_until_ns) {
        ask_of_job(j, "POST", "/stop", on_stopped);
    } else {
        ask_of_job(j, "GET", "/logs", on_log);
    }
}

static void on_details(void *arg, const struct ms_fetch_answer *a)
{
    struct ms_ray_job *j = arg;
    struct ms_ray_details details;
    struct ms_error err = {0};
    int rc = ms_ray_read_job(a, ms_ray_job_address(j), &details, &err);

    j->fetch = NULL;
    if (rc == -ENOENT) {
        unknown(j);
    } else if (rc < 0) {
        unheard(j, &err);
    } else {
        j->details = details;
        j->is_unsure = false;
        heard(j);
    }
}

static void look(struct ms_ray_job *j)
{
    if (!j->fetch)
        ask_of_job(j, "GET", "", on_details);
}

void ms_ray_job_begin_looking(struct ms_ray_job *j)
{
    look(j);
}
