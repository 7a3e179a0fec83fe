/* file_spec.c - what the controller needs to know of a job, from its description */
#include "base/clock.h"
#include "job/file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The most that `memory` may grow to, in percent of the first request. */
enum { GROWTH_MAX_PERCENT = 400 };

static void set_amount(uint16_t *to, uint32_t from)
{
    if (from == MS_JOB_BUDGET_UNLIMITED)
        *to = MS_JOB_UNLIMITED;
    else if (from != MS_JOB_BUDGET_UNSET)
        *to = (uint16_t)from;
}

static void set_budget(uint16_t *to, const uint32_t *from)
{
    for (size_t i = 0; i < MS_JOB_BUDGETS; i++)
        set_amount(&to[i], from[i]);
}

/* Ranks that meet in a collective cannot be replaced one by one. */
static enum ms_job_restart restart_of(const struct ms_job_role *r)
{
    if (r->policy.has_restart)
        return r->policy.restart;
    return json_object_get(r->told, "mesh") || r->device_count ? MS_JOB_RESTART_ROLE
                                                               : MS_JOB_RESTART_RANK;
}

static void make_role(const struct ms_job_role *r, struct ms_job_role_spec *out)
{
    uint32_t ranks = ms_job_role_ranks(r);

    ms_job_role_spec_init(out);
    snprintf(out->name, sizeof out->name, "%s", r->name);
    out->count = out->min = out->max = ranks;
    out->unit = 1;
    if (r->size.max > r->size.min) {
        out->count = out->max = r->size.max;
        out->min = r->size.min;
        out->unit = r->size.unit;
    }
    out->restart = (uint8_t)restart_of(r);
    out->critical = !r->policy.is_not_critical;
    out->on_hang = (uint8_t)r->policy.on_hang;
    out->hang_ns = r->policy.hang_s * MS_NS_PER_S;
    set_budget(out->budget, r->policy.budget);
    if (r->policy.memory_growth_milli > 1000) {
        out->memory_raise = r->policy.memory_growth_milli / 10;
        out->memory_raise_max = GROWTH_MAX_PERCENT;
    }
}

static void set_time(int64_t *to, uint64_t milli)
{
    if (milli != UINT64_MAX)
        *to = (int64_t)milli * MS_NS_PER_MS;
}

static void set_rules(struct ms_job_spec *out, const struct ms_job_rules *r)
{
    set_time(&out->backoff_ns, r->backoff_milli);
    set_time(&out->backoff_max_ns, r->backoff_max_milli);
    if (r->backoff_milli == UINT64_MAX && out->backoff_max_ns < out->backoff_ns)
        out->backoff_ns = out->backoff_max_ns;
    if (out->backoff_max_ns < out->backoff_ns)
        out->backoff_max_ns = out->backoff_ns;
    set_time(&out->stable_ns, r->stable_milli);
    set_amount(&out->same_error_max, r->same_error);
    set_amount(&out->node_strikes_max, r->node_failures);
    set_amount(&out->role_restarts_max, r->role_restarts);
}

int ms_job_make_spec(const struct ms_job *job,
                     struct ms_job_spec *out,
                     struct ms_error *err)
{
    int rc;

    *out = (struct ms_job_spec){0};
    ms_job_spec_init(out);
    snprintf(out->name, sizeof out->name, "%s", job->name ? job->name : "job");
    out->has_driver = job->driver != NULL;
    out->check_nodes = job->check.is_on;
    set_budget(out->driver_budget, job->driver_policy.budget);
    out->driver_hang_ns = job->driver_policy.hang_s * MS_NS_PER_S;
    set_amount(&out->driver_budget[MS_JOB_CHECK_FAILED],
               job->policy.budget[MS_JOB_CHECK_FAILED]);
    set_amount(&out->job_restarts_max, job->policy.budget[MS_JOB_APPLICATION]);
    set_rules(out, &job->rules);
    if (job->timeout_s)
        out->pending_timeout_ns = job->timeout_s * MS_NS_PER_S;
    out->roles = calloc(job->role_count + 1, sizeof *out->roles);
    if (!out->roles)
        return ms_error_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < job->role_count; i++)
        if (ms_job_role_is_ours(&job->roles[i]))
            make_role(&job->roles[i], &out->roles[out->role_count++]);
    rc = ms_job_spec_check(out, err);
    if (rc < 0)
        ms_job_made_spec_finish(out);
    return rc;
}

void ms_job_made_spec_finish(struct ms_job_spec *s)
{
    free(s->roles);
    *s = (struct ms_job_spec){0};
}
