/* spec.c - defaults and rules of specs */
#include "job/core/core_impl.h"

#include <errno.h>
#include <string.h>

#define DAY_NS (86400 * MS_NS_PER_S)

static void budget_init(uint16_t *budget)
{
    for (int i = 0; i < MS_JOB_BUDGETS; i++)
        budget[i] = 3;
    budget[MS_JOB_CAUSE_NONE] = budget[MS_JOB_SUCCEEDED] = 0;
    budget[MS_JOB_PREEMPTED] = MS_JOB_UNLIMITED;
    budget[MS_JOB_NODE_LOST] = 10;
}

void ms_job_role_spec_init(struct ms_job_role_spec *r)
{
    *r = (struct ms_job_role_spec){.unit = 1, .critical = true};
    budget_init(r->budget);
}

void ms_job_spec_init(struct ms_job_spec *s)
{
    *s = (struct ms_job_spec){
        .role_restarts_max = 1,
        .job_restarts_max = 3,
        .same_error_max = 3,
        .node_strikes_max = 3,
        .stable_ns = 600 * MS_NS_PER_S,
        .backoff_ns = MS_NS_PER_S,
        .backoff_max_ns = 60 * MS_NS_PER_S,
        .pending_timeout_ns = 900 * MS_NS_PER_S,
        .unknown_ns = 60 * MS_NS_PER_S,
    };
    budget_init(s->driver_budget);
}

static bool is_time(int64_t ns)
{
    return ns >= 0 && ns <= 1000 * DAY_NS;
}

static bool is_name(const char *name)
{
    size_t len = strnlen(name, MS_NAME_MAX + 1);

    if (len == 0 || len > MS_NAME_MAX)
        return false;
    for (size_t i = 0; i < len; i++)
        if ((uint8_t)name[i] < ' ' || name[i] == '/')
            return false;
    return true;
}

static int check_size(const struct ms_job_role_spec *r, struct ms_error *err)
{
    if (r->unit == 0 || r->min == 0 || r->min > r->max)
        return ms_error_set(err,
                            -EINVAL,
                            "role %s: %u:%u:%u is no min:max:unit",
                            r->name,
                            r->min,
                            r->max,
                            r->unit);
    if (r->min % r->unit || r->max % r->unit || r->count % r->unit)
        return ms_error_set(err,
                            -EINVAL,
                            "role %s: min %u, max %u and count %u must be multiples of "
                            "unit %u",
                            r->name,
                            r->min,
                            r->max,
                            r->count,
                            r->unit);
    if (r->count < r->min || r->count > r->max)
        return ms_error_set(err,
                            -EINVAL,
                            "role %s: count %u is not within %u to %u",
                            r->name,
                            r->count,
                            r->min,
                            r->max);
    return 0;
}

static int check_role(const struct ms_job_role_spec *r, struct ms_error *err)
{
    if (!is_name(r->name))
        return ms_error_set(err, -EINVAL, "a role needs a name");
    if (r->restart > MS_JOB_RESTART_JOB || r->on_hang > MS_JOB_HANG_SAY)
        return ms_error_set(err, -EINVAL, "role %s: no such policy", r->name);
    if (!is_time(r->hang_ns))
        return ms_error_set(err, -EINVAL, "role %s: no such time of a hang", r->name);
    if (r->memory_raise && (r->memory_raise <= 100 || r->memory_raise > 1000 ||
                            r->memory_raise_max < 100 || r->memory_raise_max > 10000))
        return ms_error_set(
            err,
            -EINVAL,
            "role %s: memory can be raised to 101 to 1000 percent, and to "
            "100 to 10000 in all",
            r->name);
    return check_size(r, err);
}

static int check_roles(const struct ms_job_spec *s, struct ms_error *err)
{
    uint64_t slots = 0;
    int rc = 0;

    for (uint32_t i = 0; i < s->role_count && rc == 0; i++) {
        rc = check_role(&s->roles[i], err);
        slots += s->roles[i].max;
        for (uint32_t j = 0; j < i && rc == 0; j++)
            if (strcmp(s->roles[i].name, s->roles[j].name) == 0)
                rc = ms_error_set(
                    err, -EINVAL, "two roles are called %s", s->roles[i].name);
    }
    if (rc == 0 && slots > MS_JOB_CORE_SLOTS_MAX)
        rc = ms_error_set(err,
                          -E2BIG,
                          "%llu processes are more than %u",
                          (unsigned long long)slots,
                          MS_JOB_CORE_SLOTS_MAX);
    return rc;
}

int ms_job_spec_check(const struct ms_job_spec *s, struct ms_error *err)
{
    if (!is_name(s->name))
        return ms_error_set(err, -EINVAL, "a job needs a name");
    if (s->role_count > MS_JOB_CORE_ROLES_MAX)
        return ms_error_set(err, -E2BIG, "more than %u roles", MS_JOB_CORE_ROLES_MAX);
    if (s->role_count == 0 && !s->has_driver)
        return ms_error_set(err, -EINVAL, "a job needs a driver or a role");
    if (!is_time(s->stable_ns) || !is_time(s->backoff_ns) ||
        !is_time(s->backoff_max_ns) || !is_time(s->pending_timeout_ns) ||
        !is_time(s->unknown_ns) || !is_time(s->driver_hang_ns))
        return ms_error_set(
            err, -EINVAL, "a time is negative or longer than 1000 days");
    return check_roles(s, err);
}
