/* stage.c - a job from stage to stage: what it lacks is started, what must go is ended, and
 * deadlines are kept; ms_stage_run does it after every event */
#include "job/core/core_impl.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int64_t ms_backoff_ns(const struct ms_job_core *c, uint32_t failures)
{
    int64_t ns = c->spec.backoff_ns;

    if (failures == 0)
        return 0;
    while (--failures > 0 && ns < c->spec.backoff_max_ns)
        ns *= 2;
    return ns < c->spec.backoff_max_ns ? ns : c->spec.backoff_max_ns;
}

void ms_job_end(struct ms_job_core *c,
                uint8_t end_stage,
                enum ms_job_cause cause,
                int32_t code,
                const char *fmt,
                ...)
{
    char text[sizeof c->text];
    va_list args;

    if (c->stage == MS_JOB_STAGE_STOPPING || ms_job_stage_is_over(c->stage))
        return;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args); /* its arguments may be in c->text */
    va_end(args);
    memcpy(c->text, text, sizeof c->text);
    c->end_stage = end_stage;
    c->cause = (uint8_t)cause;
    c->code = code;
    ms_stage_set(c, MS_JOB_STAGE_STOPPING);
    ms_say(c,
           end_stage == MS_JOB_STAGE_FAILED ? MS_JOB_ERROR : MS_JOB_INFO,
           MS_JOB_NO_ROLE,
           0,
           cause,
           "stopping: %s",
           c->text);
}

/* Ranks begin anew, with all of their budgets. */
static void forget_ranks(struct ms_core_role *r)
{
    for (uint32_t i = 0; i < r->spec->max; i++) {
        memset(r->slots[i].spent, 0, sizeof r->slots[i].spent);
        r->slots[i].quick = 0;
    }
}

void ms_job_restart_all(struct ms_job_core *c)
{
    c->restarts++;
    c->is_down_first = true;
    ms_stage_set(c, MS_JOB_STAGE_RESTARTING);
    for (uint32_t i = 0; i < c->spec.role_count; i++)
        forget_ranks(&c->roles[i]);
}

/* ---- up ---------------------------------------------------------------------------- */

/* Without a driver: all roles that are critical, or all if none is. */
static bool has_succeeded(const struct ms_job_core *c)
{
    bool has_critical = false;

    for (uint32_t i = 0; i < c->spec.role_count; i++)
        has_critical |= c->spec.roles[i].critical;
    for (uint32_t i = 0; i < c->spec.role_count; i++)
        if ((c->spec.roles[i].critical || !has_critical) &&
            !ms_core_role_has_succeeded(&c->roles[i]))
            return false;
    return true;
}

static bool is_driver_there(const struct ms_job_core *c)
{
    return !c->spec.has_driver || c->driver.state == MS_CORE_DRIVER_RUNNING ||
           c->driver.state == MS_CORE_DRIVER_UNKNOWN;
}

static void arrive(struct ms_job_core *c)
{
    if (c->stage == MS_JOB_STAGE_RUNNING)
        return;
    ms_stage_set(c, MS_JOB_STAGE_RUNNING);
    c->text[0] = 0;
    ms_say(c, MS_JOB_INFO, MS_JOB_NO_ROLE, 0, MS_JOB_CAUSE_NONE, "running");
}

/* What has ended is decided of first: nothing is asked for that is not wanted any more. */
static void decide_all(struct ms_job_core *c)
{
    for (uint32_t i = 0; i < c->spec.role_count && ms_core_goes_up(c); i++)
        if (!c->roles[i].doing && c->roles[i].counts[MS_JOB_SLOT_DEAD])
            ms_core_role_decide(c, &c->roles[i]);
    if (ms_core_goes_up(c) && !c->spec.has_driver && has_succeeded(c))
        ms_job_end(c,
                   MS_JOB_STAGE_SUCCEEDED,
                   MS_JOB_SUCCEEDED,
                   0,
                   "all critical roles have succeeded");
}

static void run_up(struct ms_job_core *c)
{
    bool is_ready = true;

    decide_all(c);
    if (!ms_core_goes_up(c))
        return;
    ms_capacity_avoid(c);
    if (!ms_capacity_up(c))
        return;
    for (uint32_t i = 0; i < c->spec.role_count; i++) {
        ms_core_role_up(c, &c->roles[i]);
        is_ready &= ms_core_role_is_ready(&c->roles[i]);
    }
    if (c->spec.has_driver)
        ms_core_driver_up(c, is_ready);
    if (is_ready && is_driver_there(c))
        arrive(c);
}

/* ---- down -------------------------------------------------------------------------- */

static void tell_end(struct ms_job_core *c)
{
    struct ms_job_action *a = ms_act_again(c, MS_JOB_DO_FINISH, 0);

    a->stage = c->stage;
    a->code = c->code;
    a->cause = c->cause;
    a->text = c->text;
    if (c->is_deleted)
        ms_act_again(c, MS_JOB_DO_FORGET, 0);
}

static void finish(struct ms_job_core *c)
{
    ms_stage_set(c, c->end_stage);
    ms_say(c,
           c->end_stage == MS_JOB_STAGE_FAILED ? MS_JOB_ERROR : MS_JOB_INFO,
           MS_JOB_NO_ROLE,
           0,
           c->cause,
           "%s: %s",
           ms_job_stage_name(c->stage),
           c->text);
    tell_end(c);
}

void ms_finish_again(struct ms_job_core *c)
{
    if (ms_job_stage_is_over(c->stage))
        tell_end(c);
}

static void begin_again(struct ms_job_core *c)
{
    c->is_down_first = false;
    c->is_checked = false;
    c->driver.retry_ns = 0;
    c->driver.quick = 0;
}

static void run_down(struct ms_job_core *c)
{
    bool is_down = true;

    if (!ms_core_driver_down(c))
        return;
    for (uint32_t i = 0; i < c->spec.role_count; i++)
        is_down &= ms_core_role_down(c, &c->roles[i]);
    if (!is_down)
        return;
    if (c->stage == MS_JOB_STAGE_RESTARTING) {
        begin_again(c);
        return;
    }
    if (!ms_capacity_down(c))
        return;
    if (c->stage == MS_JOB_STAGE_STOPPING) {
        finish(c);
        return;
    }
    ms_stage_set(c, MS_JOB_STAGE_SUSPENDED);
    c->is_checked = false;
    ms_say(c,
           MS_JOB_INFO,
           MS_JOB_NO_ROLE,
           0,
           MS_JOB_CAUSE_NONE,
           "suspended: nothing runs and nothing is held");
}

/* ---- deadlines --------------------------------------------------------------------- */

static int64_t pending_end_ns(const struct ms_job_core *c, int64_t since_ns)
{
    return c->spec.pending_timeout_ns == 0 || since_ns == MS_NEVER
               ? MS_NEVER
               : ms_deadline_ns(since_ns, c->spec.pending_timeout_ns);
}

static void check_pending(struct ms_job_core *c)
{
    long long s = (long long)(c->spec.pending_timeout_ns / MS_NS_PER_S);

    if (c->now_ns >= pending_end_ns(c, c->pending_ns))
        ms_job_end(c,
                   MS_JOB_STAGE_FAILED,
                   MS_JOB_NO_CAPACITY,
                   1,
                   "no machines for %lld s: %s",
                   s,
                   c->text);
    for (uint32_t i = 0; i < c->spec.role_count && ms_core_goes_up(c); i++) {
        const struct ms_core_role *r = &c->roles[i];

        if (!r->doing && c->now_ns >= pending_end_ns(c, r->pending_ns))
            ms_job_end(c,
                       MS_JOB_STAGE_FAILED,
                       MS_JOB_NO_CAPACITY,
                       1,
                       "role %s had fewer than %u processes for %lld s: %s",
                       r->spec->name,
                       r->spec->min,
                       s,
                       r->text);
    }
}

static void check_deadlines(struct ms_job_core *c)
{
    if (c->cannot_ask)
        return;
    if (c->now_ns >= c->unknown_ns)
        ms_unknown_lost(c);
    if (ms_core_goes_up(c))
        check_pending(c);
}

void ms_stage_run(struct ms_job_core *c)
{
    uint8_t stage;
    bool was_down_first;

    do {
        stage = c->stage;
        was_down_first = c->is_down_first;
        check_deadlines(c);
        if (ms_core_goes_up(c))
            run_up(c);
        else if (ms_core_goes_down(c))
            run_down(c);
    } while (stage != c->stage || was_down_first != c->is_down_first);
}

/* ---- waking ------------------------------------------------------------------------ */

static void sooner(int64_t *wake_ns, int64_t at_ns)
{
    if (at_ns < *wake_ns)
        *wake_ns = at_ns;
}

/* When something of it is asked for that could not be before. */
static int64_t role_ask_ns(const struct ms_job_core *c, const struct ms_core_role *r)
{
    int64_t at_ns = MS_NEVER;

    if (r->retry_ns > c->now_ns)
        return r->retry_ns;
    if (!ms_core_goes_up(c) || !r->is_up || r->is_given_up || !ms_capacity_is_up(c))
        return MS_NEVER; /* or when the check of nodes has been answered */
    at_ns = r->slot_retry_ns;
    if (r->scale_retry_ns > c->now_ns)
        sooner(&at_ns, r->scale_retry_ns);
    return at_ns;
}

static int64_t role_wake_ns(const struct ms_job_core *c, const struct ms_core_role *r)
{
    int64_t wake_ns;

    if (r->op)
        return MS_NEVER;
    wake_ns = role_ask_ns(c, r);
    if (r->has_strays && r->stray_retry_ns > c->now_ns)
        sooner(&wake_ns, r->stray_retry_ns);
    if (ms_core_goes_up(c) && !r->is_given_up)
        sooner(&wake_ns, pending_end_ns(c, r->pending_ns));
    return wake_ns;
}

int64_t ms_job_core_wake_ns(const struct ms_job_core *c)
{
    bool goes_up = ms_core_goes_up(c);
    int64_t wake_ns = MS_NEVER;

    if (!goes_up && !ms_core_goes_down(c))
        return MS_NEVER;
    for (uint32_t i = 0; i < c->spec.role_count; i++)
        if (!c->cannot_ask || !goes_up)
            sooner(&wake_ns, role_wake_ns(c, &c->roles[i]));
    if (!c->cannot_ask) {
        sooner(&wake_ns, c->unknown_ns);
        if (goes_up)
            sooner(&wake_ns, pending_end_ns(c, c->pending_ns));
        if (c->held_op == 0 && c->held_retry_ns > c->now_ns)
            sooner(&wake_ns, c->held_retry_ns);
        if (c->check_op == 0 && c->check_retry_ns > c->now_ns)
            sooner(&wake_ns, c->check_retry_ns);
    }
    if (c->driver.op == 0 && c->driver.retry_ns > c->now_ns)
        sooner(&wake_ns, c->driver.retry_ns);
    sooner(&wake_ns, ms_hang_wake_ns(c));
    return wake_ns < c->now_ns ? c->now_ns : wake_ns;
}
