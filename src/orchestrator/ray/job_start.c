#include "base/cleanup.h"
#include "orchestrator/ray/job_impl.h"
#include "orchestrator/ray/token.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Every completion begins with this. False: it was stopped before it was there. */
static bool goes_on(struct ms_ray_job *j)
{
    struct ms_error why = {0};

    j->fetch = NULL;
    if (!j->is_stopping)
        return true;
    ms_error_set(&why, -ECANCELED, "the job was stopped before it began");
    ms_ray_job_over(j, -ECANCELED, -1, &why);
    return false;
}

static void fail(struct ms_ray_job *j, const struct ms_error *why)
{
    ms_ray_job_over(j, why->code, -1, why);
}

/* ---- the job itself ---------------------------------------------------------------- */

static void submitted(struct ms_ray_job *j)
{
    j->is_on_cluster = true;
    j->is_unsure = false;
    ms_package_finish(&j->package);
    if (j->events && j->events->on_submitted)
        j->events->on_submitted(j->arg);
    ms_ray_job_soon(j, MS_RAY_LOOK_NS, ms_ray_job_begin_looking);
}

static void submit(struct ms_ray_job *j);

/* The answer to the submission was lost: is it there? */
static void on_looked(void *arg, const struct ms_fetch_answer *a)
{
    struct ms_ray_job *j = arg;
    struct ms_ray_details details;
    struct ms_error err = {0};
    int rc;

    j->fetch = NULL;
    if (j->is_stopping) { /* if it is there it is ended, as any other */
        ms_ray_job_begin_looking(j);
        return;
    }
    rc = ms_ray_read_job(a, ms_ray_job_address(j), &details, &err);
    if (rc == 0)
        submitted(j);
    else if (j->tries < MS_RAY_TRIES)
        ms_ray_job_soon(j, MS_NS_PER_S, submit);
    else
        fail(j, &err);
}

static void look_for_it(struct ms_ray_job *j)
{
    char path[256];

    snprintf(path, sizeof path, "/api/jobs/%s", j->id);
    ms_ray_job_ask(j, &(struct ms_fetch_spec){.method = "GET"}, path, on_looked);
}

static void on_submitted(void *arg, const struct ms_fetch_answer *a)
{
    struct ms_ray_job *j = arg;
    struct ms_error err = {0};

    j->fetch = NULL;
    if (a->rc == 0 && a->status == 200) {
        submitted(j); /* also if it is to be stopped now */
        return;
    }
    if (a->rc < 0 && j->is_stopping) {
        ms_ray_job_begin_looking(j);
        return;
    }
    if (a->rc == 0)
        j->is_on_cluster = j->is_unsure = false; /* Ray has said no */
    if (!goes_on(j))
        return;
    ms_ray_read_plain(a, ms_ray_job_address(j), "start the job", &err);
    if (a->rc < 0)
        ms_ray_job_soon(j, MS_NS_PER_S, look_for_it);
    else
        fail(j, &err);
}

static void submit(struct ms_ray_job *j)
{
    MS_CLEANUP(ms_cleanup_free)
    char *body = ms_ray_submission(
        j->id, j->entrypoint, j->package.name, (const char *const *)j->env);
    struct ms_error err = {0};

    j->tries++;
    if (body) {
        /* from here on it may be there, whoever stops to wait for the answer */
        j->is_on_cluster = j->is_unsure = true;
        j->unsure_until_ns = ms_now_ns() + MS_RAY_UNSURE_NS;
        ms_ray_job_ask(j,
                       &(struct ms_fetch_spec){.method = "POST",
                                               .type = "application/json",
                                               .body = body,
                                               .len = strlen(body)},
                       "/api/jobs/",
                       on_submitted);
        return;
    }
    ms_error_set(&err, -ENOMEM, "out of memory");
    fail(j, &err);
}

/* The package is there. */
static void first_submit(struct ms_ray_job *j, const char *local)
{
    j->tries = 0;
    if (j->events && j->events->on_submitting)
        j->events->on_submitting(j->arg, local);
    submit(j);
}

/* ---- the package ------------------------------------------------------------------- */

static void check_package(struct ms_ray_job *j);

static void on_uploaded(void *arg, const struct ms_fetch_answer *a)
{
    struct ms_ray_job *j = arg;
    struct ms_error err = {0};
    int rc;

    if (!goes_on(j))
        return;
    rc = ms_ray_read_plain(a, ms_ray_job_address(j), "take Muster's package", &err);
    if (rc == 0) {
        first_submit(j, a->local);
    } else if ((a->rc < 0 || a->status >= 500) && j->tries < MS_RAY_TRIES) {
        ms_ray_job_soon(j, MS_NS_PER_S, check_package); /* it may be there after all */
    } else {
        ms_error_wrap(
            &err, "the upload of %s failed %u times", j->package.name, j->tries);
        fail(j, &err);
    }
}

static void package_path(const struct ms_ray_job *j, char *out, size_t room)
{
    snprintf(out, room, "/api/packages/gcs/%s", j->package.name);
}

static void upload(struct ms_ray_job *j)
{
    char path[128];

    j->tries++;
    package_path(j, path, sizeof path);
    ms_ray_job_ask(j,
                   &(struct ms_fetch_spec){.method = "PUT",
                                           .type = "application/octet-stream",
                                           .body = j->package.data,
                                           .len = j->package.len,
                                           .is_borrowed = true,
                                           .timeout_ns = MS_RAY_UPLOAD_NS,
                                           .stall_ns = MS_RAY_STALL_NS},
                   path,
                   on_uploaded);
}

/* The question also keeps it there for ten minutes, by Ray's rules: until the job holds
 * it. */
static void on_checked(void *arg, const struct ms_fetch_answer *a)
{
    struct ms_ray_job *j = arg;
    struct ms_error err = {0};

    if (!goes_on(j))
        return;
    if (a->rc == 0 && a->status == 404) {
        upload(j);
    } else if (ms_ray_read_plain(
                   a, ms_ray_job_address(j), "look for a package", &err) == 0) {
        first_submit(j, a->local);
    } else {
        fail(j, &err);
    }
}

static void check_package(struct ms_ray_job *j)
{
    char path[128];

    package_path(j, path, sizeof path);
    ms_ray_job_ask(j, &(struct ms_fetch_spec){.method = "GET"}, path, on_checked);
}

static void
on_packed(void *arg, int rc, struct ms_package *p, const struct ms_error *why)
{
    struct ms_ray_job *j = arg;

    ms_packing_destroy(MS_TAKE(j->packing));
    j->package = *p;
    if (!goes_on(j))
        return;
    if (rc < 0)
        fail(j, why);
    else
        check_package(j);
}

static void begin_packing(struct ms_ray_job *j)
{
    struct ms_error err = {0};

    j->packing = ms_packing_start(
        j->loop, &j->site, (const char *const *)j->files, on_packed, j, &err);
    if (!j->packing)
        fail(j, &err);
}

/* ---- who is there ------------------------------------------------------------------ */

static void on_version(void *arg, const struct ms_fetch_answer *a)
{
    struct ms_ray_job *j = arg;
    char version[MS_RAY_VERSION_MAX];
    struct ms_error err = {0};

    if (!goes_on(j))
        return;
    if (ms_ray_read_version(a, ms_ray_job_address(j), version, &err) < 0)
        fail(j, &err);
    else if (j->is_there)
        ms_ray_job_begin_looking(j);
    else
        begin_packing(j);
}

static void ask_version(struct ms_ray_job *j)
{
    ms_ray_job_ask(
        j, &(struct ms_fetch_spec){.method = "GET"}, "/api/version", on_version);
}

static void on_mode(void *arg, const struct ms_fetch_answer *a)
{
    struct ms_ray_job *j = arg;
    struct ms_error err = {0};

    if (!goes_on(j))
        return;
    if (a->rc < 0) {
        ms_ray_read_plain(a, ms_ray_job_address(j), "", &err);
        fail(j, &err);
    } else if (ms_ray_wants_token(a) && !j->token &&
               ms_ray_find_token(&j->token, &err) < 0) {
        ms_error_wrap(&err, "the Ray cluster at %s", ms_ray_job_address(j));
        err.code = -EACCES;
        fail(j, &err);
    } else {
        ask_version(j);
    }
}

static void ask_mode(struct ms_ray_job *j)
{
    ms_ray_job_ask(j,
                   &(struct ms_fetch_spec){.method = "GET"},
                   "/api/authentication_mode",
                   on_mode);
}

/* ---- a Ray of our own -------------------------------------------------------------- */

static void on_local(void *arg, int rc, const char *base, const struct ms_error *why)
{
    struct ms_ray_job *j = arg;
    struct ms_error err = {0};

    if (!goes_on(j))
        return;
    if (rc == 0 && (j->base = strdup(base)))
        ask_mode(j);
    else if (rc == 0)
        fail(j, (ms_error_set(&err, -ENOMEM, "out of memory"), &err));
    else if (j->is_on_cluster) /* it has ended, and the job with it */
        ms_ray_job_over(j, -ECHILD, -1, why);
    else
        fail(j, why);
}

void ms_ray_job_begin(struct ms_ray_job *j)
{
    struct ms_error err = {0};

    if (!goes_on(j))
        return;
    if (j->base) {
        ask_mode(j);
        return;
    }
    j->local_ray = ms_local_ray_start(j->loop, &j->site, on_local, j, &err);
    if (!j->local_ray)
        fail(j, &err);
}
