/* file_submit.c - what a controller cannot do of a job, though `muster run` may */
#include "base/limits.h"
#include "job/file.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

/* With where it stands in the file; a mark of 0: nowhere. */
static int __attribute__((format(printf, 4, 5))) fail(const struct ms_job *job,
                                                      struct ms_yaml_mark at,
                                                      struct ms_error *err,
                                                      const char *fmt,
                                                      ...)
{
    const char *source = job->source ? job->source : "job.yaml";
    char text[400];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (at.line == 0)
        return ms_error_set(err, -EINVAL, "%s: %s", source, text);
    return ms_error_set(
        err, -EINVAL, "%s:%zu:%zu: %s", source, at.line, at.column, text);
}

/* Names of clusters, nodes and reservations are made of the job's and their own. */
static bool fits(const char *job, const char *name)
{
    return strlen(job) + 1 + strlen(name) <= MS_NAME_MAX;
}

static int check_names(const struct ms_job *job, const char *name, struct ms_error *err)
{
    if (strlen(name) > MS_JOB_NAME_LEN_MAX)
        return fail(job,
                    job->name_at,
                    err,
                    "the name '%s' has more than %zu characters",
                    name,
                    MS_JOB_NAME_LEN_MAX);
    for (size_t i = 0; i < job->role_count; i++) {
        const struct ms_job_role *r = &job->roles[i];

        if (strcmp(r->name, MS_JOB_DRIVER_NAME) == 0)
            return fail(
                job, r->at, err, "role '%s': that is the driver's name", r->name);
        if (!fits(name, r->name))
            return fail(job,
                        r->at,
                        err,
                        "job '%s' and role '%s': both names together have more than "
                        "%zu characters",
                        name,
                        r->name,
                        MS_NAME_MAX - 1);
    }
    for (size_t i = 0; i < job->node_count; i++)
        if (!fits(name, job->nodes[i]->name))
            return fail(job,
                        job->nodes_at,
                        err,
                        "job '%s' and node '%s': both names together have more than "
                        "%zu characters",
                        name,
                        job->nodes[i]->name,
                        MS_NAME_MAX - 1);
    return 0;
}

static bool has_role_of_ours(const struct ms_job *job)
{
    for (size_t i = 0; i < job->role_count; i++)
        if (ms_job_role_is_ours(&job->roles[i]))
            return true;
    return false;
}

int ms_job_check_submit(const struct ms_job *job,
                        const char *name,
                        const char *on,
                        struct ms_error *err)
{
    int rc = ms_job_check_on(job, on, err);

    if (rc < 0)
        return rc;
    if (!job->driver && job->role_count == 0)
        return fail(
            job, (struct ms_yaml_mark){0}, err, "it has no driver and no roles");
    if (!job->driver && !has_role_of_ours(job))
        return fail(job,
                    job->roles[0].at,
                    err,
                    "it has no driver, and no role with 'worker_cls' or 'command': "
                    "nothing would be started");
    if (strcmp(on, "ray") == 0 && !job->has_nodes)
        return fail(job, job->on_at, err, "on ray: it has no 'nodes' to be lent");
    if (strcmp(on, "sim") == 0 && !has_role_of_ours(job))
        return fail(job,
                    job->on_at,
                    err,
                    "on sim: it has no role with 'worker_cls' or 'command', and its "
                    "driver is not started there");
    return check_names(job, name, err);
}
