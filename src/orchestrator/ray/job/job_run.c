/* job_run.c - the thread of a job: asks, uploads, submits, looks at it, deletes it */
#include "base/cleanup.h"
#include "orchestrator/ray/job/job_impl.h"
#include "orchestrator/ray/job/token.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define ANSWER_NS      (30 * MS_NS_PER_S)   /* for a small question */
#define UPLOAD_NS      (600 * MS_NS_PER_S)  /* for the package */
#define STALL_NS       (20 * MS_NS_PER_S)   /* of an upload that does not move */
#define LOOK_NS        (150 * MS_NS_PER_MS) /* between two looks, at first */
#define LOOK_MAX_NS    (1 * MS_NS_PER_S)
#define TRY_AGAIN_NS   (1 * MS_NS_PER_S)
#define UNSURE_NS      (5 * MS_NS_PER_S) /* what was asked for is there then, or never */
#define LOCAL_START_NS (120 * MS_NS_PER_S)
#define LOCAL_LOOK_NS  (200 * MS_NS_PER_MS)

/* Ray looks after a job a little longer than it runs, and if its record has gone then it
 * makes a new one. */
#define SETTLE_NS (2500 * MS_NS_PER_MS)

enum { TRIES = 3, PATH_ROOM = 256 };

static const char *address_of(const struct ms_ray_job *j)
{
    return j->base ? j->base : j->spec.site.address;
}

/* The last; NULL: it ended as it should. */
static void tell_over(struct ms_ray_job *j, int exit_code, const struct ms_error *why)
{
    struct ms_ray_news *news = ms_ray_job_lock_news(j);

    news->is_over = true;
    news->exit_code = exit_code;
    if (why)
        news->why = *why;
    ms_ray_job_tell_news(j);
}

/* ---- asking ------------------------------------------------------------------------ */

static void fetch(struct ms_ray_job *j,
                  const struct ms_fetch_spec *spec,
                  const char *path,
                  struct ms_fetch_answer *a)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf url = {0};
    struct ms_fetch_spec s = *spec;

    s.token = j->token;
    s.timeout_ns = s.timeout_ns ? s.timeout_ns : ANSWER_NS;
    if (ms_buf_printf(&url, "%s%s", j->base, path) == 0 && (s.url = ms_buf_str(&url))) {
        ms_fetch(j->fetcher, &s, a);
        return;
    }
    *a = (struct ms_fetch_answer){.type = "", .body = "", .local = ""};
    a->rc = ms_error_set(&a->why, -ENOMEM, "out of memory");
}

static void get(struct ms_ray_job *j, const char *path, struct ms_fetch_answer *a)
{
    fetch(j, &(struct ms_fetch_spec){.method = "GET"}, path, a);
}

/* Of the job itself; `what` is "" or begins with a slash. */
static void ask_of_job(struct ms_ray_job *j,
                       const char *method,
                       const char *what,
                       struct ms_fetch_answer *a)
{
    char path[PATH_ROOM];

    snprintf(path, sizeof path, "/api/jobs/%s%s", j->spec.id, what);
    fetch(j, &(struct ms_fetch_spec){.method = method}, path, a);
}

/* Between two steps: 0, or -ECANCELED: it was stopped before it was there. */
static int go_on(struct ms_ray_job *j, struct ms_error *err)
{
    return ms_ray_job_is_stopping(j)
               ? ms_error_set(err, -ECANCELED, "the job was stopped before it began")
               : 0;
}

/* ---- who is there ------------------------------------------------------------------ */

static int check_version(struct ms_ray_job *j, struct ms_error *err)
{
    char version[MS_RAY_VERSION_MAX];
    struct ms_fetch_answer a;

    get(j, "/api/version", &a);
    return ms_ray_read_version(&a, address_of(j), version, err);
}

/* A Ray of our own: until it answers. */
static int start_local(struct ms_ray_job *j, struct ms_error *err)
{
    int64_t until_ns = ms_now_ns() + LOCAL_START_NS;
    int rc;

    j->local_ray = ms_local_ray_start(&j->spec.site, &j->base, err);
    if (!j->local_ray)
        return err->code;
    while ((rc = go_on(j, err)) == 0) {
        ms_ray_job_wait(j, LOCAL_LOOK_NS);
        if (ms_local_ray_has_ended(j->local_ray, err))
            return err->code;
        rc = check_version(j, err);
        if (rc == 0 || rc == -ENOTSUP)
            return rc;
        if (ms_now_ns() >= until_ns)
            return ms_local_ray_failed(
                j->local_ray, -ETIMEDOUT, "does not answer", err);
    }
    return rc;
}

static int find_token(struct ms_ray_job *j, struct ms_error *err)
{
    struct ms_fetch_answer a;

    get(j, "/api/authentication_mode", &a);
    if (a.rc < 0)
        return ms_ray_read_plain(&a, address_of(j), "", err);
    if (!ms_ray_wants_token(&a) || ms_ray_find_token(&j->token, err) == 0)
        return 0;
    ms_error_wrap(err, "the Ray cluster at %s", address_of(j));
    err->code = -EACCES;
    return -EACCES;
}

/* ---- the package ------------------------------------------------------------------- */

/* The question also keeps it there for ten minutes, by Ray's rules: until the job holds
 * it. 0: it is there; 1: it has been uploaded; -EAGAIN: not, but it may be tried again. */
static int
upload_once(struct ms_ray_job *j, struct ms_fetch_answer *a, struct ms_error *err)
{
    char path[PATH_ROOM];
    int rc;

    snprintf(path, sizeof path, "/api/packages/gcs/%s", j->package.name);
    get(j, path, a);
    if (a->rc != 0 || a->status != 404)
        return ms_ray_read_plain(a, address_of(j), "look for a package", err);
    rc = go_on(j, err);
    if (rc < 0)
        return rc;
    fetch(j,
          &(struct ms_fetch_spec){.method = "PUT",
                                  .type = "application/octet-stream",
                                  .body = j->package.data,
                                  .len = j->package.len,
                                  .timeout_ns = UPLOAD_NS,
                                  .stall_ns = STALL_NS},
          path,
          a);
    rc = ms_ray_read_plain(a, address_of(j), "take Muster's package", err);
    return rc < 0 && (a->rc < 0 || a->status >= 500) ? -EAGAIN : rc;
}

/* `local` is our address, as the cluster saw it. */
static int upload(struct ms_ray_job *j, char *local, size_t room, struct ms_error *err)
{
    int rc = ms_package_make(&j->package, &j->spec.site, j->spec.files, err);
    struct ms_fetch_answer a;
    unsigned tries = 0;

    while (rc == 0 && (rc = go_on(j, err)) == 0) {
        rc = upload_once(j, &a, err);
        if (rc == 0) {
            snprintf(local, room, "%s", a.local);
            return 0;
        }
        if (rc == -EAGAIN && ++tries < TRIES) {
            ms_ray_job_wait(j, TRY_AGAIN_NS); /* it may be there after all */
            rc = 0;
        } else if (rc == -EAGAIN) {
            ms_error_wrap(
                err, "the upload of %s failed %u times", j->package.name, tries);
            return err->code;
        }
    }
    return rc;
}

/* ---- submitting -------------------------------------------------------------------- */

/* 0: it is there; 1: its answer was lost; < 0: Ray has said no. */
static int submit_once(struct ms_ray_job *j, struct ms_error *err)
{
    MS_CLEANUP(ms_cleanup_free)
    char *body =
        ms_ray_submission(j->spec.id, j->spec.entrypoint, j->package.name, j->spec.env);
    struct ms_fetch_answer a;
    int rc;

    if (!body)
        return ms_error_set(err, -ENOMEM, "out of memory");
    if (!ms_ray_job_may_submit(j))
        return go_on(j, err);
    /* from here on it may be there, whoever stops to wait for the answer */
    j->is_unsure = true;
    j->unsure_until_ns = ms_now_ns() + UNSURE_NS;
    fetch(j,
          &(struct ms_fetch_spec){.method = "POST",
                                  .type = "application/json",
                                  .body = body,
                                  .len = strlen(body)},
          "/api/jobs/",
          &a);
    if (a.rc < 0)
        return 1;
    j->is_unsure = false;
    rc = ms_ray_read_plain(&a, address_of(j), "start the job", err);
    if (rc < 0)
        ms_ray_job_set_gone(j);
    return rc < 0 && go_on(j, NULL) < 0 ? go_on(j, err) : rc;
}

/* 0: it is there, or (is_unsure) it is to be stopped and may be. */
static int submit(struct ms_ray_job *j, struct ms_error *err)
{
    int rc = 1;

    for (unsigned tries = 0; tries < TRIES; tries++) {
        struct ms_ray_details details;
        struct ms_fetch_answer a;

        rc = submit_once(j, err);
        if (rc <= 0 || ms_ray_job_is_stopping(j))
            break;
        ms_ray_job_wait(j, TRY_AGAIN_NS);
        ask_of_job(j, "GET", "", &a); /* is it there? */
        rc = ms_ray_read_job(&a, address_of(j), &details, err);
        if (rc == 0 || ms_ray_job_is_stopping(j))
            break;
        ms_ray_job_wait(j, TRY_AGAIN_NS);
    }
    if (rc == 0) {
        j->is_unsure = false;
        ms_package_finish(&j->package);
        ms_ray_job_lock_news(j)->is_submitted = true;
        ms_ray_job_tell_news(j);
    }
    return j->is_unsure && ms_ray_job_is_stopping(j) ? 0 : rc;
}

/* Until it is on the cluster. */
static int start(struct ms_ray_job *j, struct ms_error *err)
{
    char local[64] = "";
    int rc = go_on(j, err);

    if (rc == 0 && !j->base)
        rc = start_local(j, err);
    if (rc == 0)
        rc = find_token(j, err);
    if (rc == 0 && (rc = go_on(j, err)) == 0)
        rc = check_version(j, err);
    if (rc == 0)
        rc = go_on(j, err);
    if (rc < 0 || j->spec.is_there)
        return rc;
    rc = upload(j, local, sizeof local, err);
    if (rc == 0)
        rc = go_on(j, err);
    if (rc < 0)
        return rc;
    if (j->events->on_submitting)
        j->events->on_submitting(j->arg, local);
    return submit(j, err);
}

/* ---- its end ----------------------------------------------------------------------- */

static void
over(struct ms_ray_job *j, int code, const struct ms_ray_details *d, const char *how)
{
    struct ms_error why = {0};

    ms_error_set(&why, code, "the job %s %s", j->spec.id, how);
    if (code == -ECHILD && d)
        ms_ray_add_log(&why, j->last_log, j->last_log_len);
    tell_over(j, d ? d->exit_code : -1, &why);
}

static void delete_record(struct ms_ray_job *j)
{
    struct ms_fetch_answer a; /* a record that stays is no harm */
    int64_t until_ns = ms_now_ns() + SETTLE_NS;

    while (ms_now_ns() < until_ns && !ms_ray_job_is_left(j))
        ms_ray_job_wait(j, until_ns - ms_now_ns());
    if (!ms_ray_job_is_left(j))
        ask_of_job(j, "DELETE", "", &a);
    ms_ray_job_set_gone(j);
}

/* It has ended: that is told, and its record deleted. */
static void conclude(struct ms_ray_job *j, const struct ms_ray_details *d)
{
    char how[MS_RAY_MESSAGE_MAX + 64] = "on Ray has failed";

    if (d->status == MS_RAY_SUCCEEDED) {
        tell_over(j, 0, NULL);
    } else if (d->status == MS_RAY_STOPPED) {
        over(j, -ECANCELED, d, "was stopped");
    } else {
        if (d->exit_code >= 0)
            snprintf(
                how, sizeof how, "on Ray has failed with exit code %d", d->exit_code);
        else if (d->message[0])
            snprintf(how, sizeof how, "on Ray has failed: %s", d->message);
        over(j, -ECHILD, d, how);
    }
    delete_record(j);
}

/* ---- looking ----------------------------------------------------------------------- */

/* Is its log longer? What is new in it is told. */
static bool look_at_log(struct ms_ray_job *j)
{
    struct ms_fetch_answer a;
    size_t len = 0, known = j->log_len;
    MS_CLEANUP(ms_cleanup_free) char *log = NULL;

    ask_of_job(j, "GET", "/logs", &a);
    log = ms_ray_read_logs(&a, &len);
    if (!log || len == known)
        return false;
    j->last_log_len = len < sizeof j->last_log ? len : sizeof j->last_log;
    memcpy(j->last_log, log + len - j->last_log_len, j->last_log_len);
    if (len < known)
        return false;
    j->log_len = len;
    ms_buf_append(&ms_ray_job_lock_news(j)->log, log + known, len - known);
    ms_ray_job_tell_news(j);
    return true;
}

/* Ray does not know it. True: it may yet. */
static bool is_to_come(struct ms_ray_job *j)
{
    struct ms_error why = {0};

    if (j->is_unsure && ms_now_ns() < j->unsure_until_ns)
        return true;
    ms_ray_job_set_gone(j);
    if (j->is_unsure)
        go_on(j, &why);
    else
        ms_error_set(&why,
                     -ECHILD,
                     "Ray at %s does not know the job %s any more: it was started "
                     "anew, or somebody has deleted the job",
                     address_of(j),
                     j->spec.id);
    tell_over(j, -1, &why);
    return false;
}

/* It is to be stopped, and has not ended. True: that goes on. */
static bool stop(struct ms_ray_job *j, const struct ms_error *unheard)
{
    struct ms_fetch_answer a;
    struct ms_error why = {0};
    int64_t until_ns, polite_until_ns, now_ns = ms_now_ns();

    pthread_mutex_lock(&j->lock);
    until_ns = j->stop_until_ns;
    polite_until_ns = j->polite_until_ns;
    pthread_mutex_unlock(&j->lock);
    if (now_ns < until_ns && !unheard && !j->is_stop_asked &&
        now_ns >= polite_until_ns) {
        ask_of_job(j, "POST", "/stop", &a);
        j->is_stop_asked = ms_ray_read_stopped(&a); /* not yet: asked again */
    }
    if (now_ns < until_ns)
        return true;
    ms_ray_job_set_gone(j);
    if (unheard) {
        why = *unheard;
        ms_error_wrap(&why, "the job %s could not be ended", j->spec.id);
        tell_over(j, -1, &why);
    } else {
        over(j, -ETIMEDOUT, NULL, "does not end");
    }
    return false;
}

/* A local Ray has ended, and the job with it. */
static bool is_lost(struct ms_ray_job *j)
{
    struct ms_error why = {0};

    if (!j->local_ray || !ms_local_ray_has_ended(j->local_ray, &why))
        return false;
    why.code = -ECHILD;
    tell_over(j, -1, &why);
    return true;
}

/* A long log takes long to send, and it is sent as a whole. */
static int64_t next_pause_ns(int64_t pause_ns, bool is_news, int64_t took_ns)
{
    pause_ns = is_news ? LOOK_NS : 2 * pause_ns;
    pause_ns = pause_ns < LOOK_MAX_NS ? pause_ns : LOOK_MAX_NS;
    return pause_ns > 10 * took_ns ? pause_ns : 10 * took_ns;
}

static void set_silent(struct ms_ray_job *j, const struct ms_error *why)
{
    struct ms_ray_news *news;

    if (j->is_silent == (why != NULL))
        return;
    j->is_silent = why != NULL;
    news = ms_ray_job_lock_news(j);
    news->has_silence = true;
    news->is_silent = j->is_silent;
    if (why)
        news->silence = *why;
    ms_ray_job_tell_news(j);
}

/* What it does, once. False: its end is told. */
static bool look(struct ms_ray_job *j, int64_t *pause_ns)
{
    struct ms_ray_details d = {0};
    struct ms_error err = {0};
    struct ms_fetch_answer a;
    int64_t asked_ns;
    bool has_ended, is_news;
    int rc;

    ask_of_job(j, "GET", "", &a);
    rc = ms_ray_read_job(&a, address_of(j), &d, &err);
    if (rc == -ENOENT)
        return is_to_come(j);
    has_ended = rc == 0 && d.status >= MS_RAY_STOPPED;
    if (!has_ended && ms_ray_job_is_stopping(j) && !stop(j, rc < 0 ? &err : NULL))
        return false;
    set_silent(j, rc < 0 ? &err : NULL);
    if (rc < 0) {
        *pause_ns = LOOK_MAX_NS;
        return true;
    }
    j->is_unsure = false;
    asked_ns = ms_now_ns();
    is_news = look_at_log(j);
    *pause_ns = next_pause_ns(*pause_ns, is_news, ms_now_ns() - asked_ns);
    if (has_ended)
        conclude(j, &d);
    return !has_ended;
}

void *ms_ray_job_run(void *job)
{
    struct ms_ray_job *j = job;
    struct ms_error why = {0};

    int64_t pause_ns = LOOK_NS;

    if (start(j, &why) < 0) {
        tell_over(j, -1, &why);
        return NULL;
    }
    while (!ms_ray_job_is_left(j) && !is_lost(j) && look(j, &pause_ns))
        ms_ray_job_wait(j, ms_ray_job_is_stopping(j) ? LOOK_NS : pause_ns);
    return NULL;
}
