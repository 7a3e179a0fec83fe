/* check.c - refuses events that make no sense in the job's present state, with the reason */
#include "job/core/core_impl.h"

#include <errno.h>
#include <string.h>

static int check_submitted(const struct ms_job_core *c,
                           const struct ms_job_event *e,
                           struct ms_error *err)
{
    if (c->stage != MS_JOB_STAGE_NEW)
        return ms_error_set(err, -EEXIST, "the job was submitted before");
    if (!e->spec)
        return ms_error_set(err, -EINVAL, "a job needs a spec");
    return ms_job_spec_check(e->spec, err);
}

static int check_admitted(const struct ms_job_core *c,
                          const struct ms_job_event *e,
                          struct ms_error *err)
{
    (void)e;
    if (c->stage != MS_JOB_STAGE_QUEUED)
        return ms_error_set(
            err, -EALREADY, "the job is %s", ms_job_stage_name(c->stage));
    return 0;
}

static int check_answer(const struct ms_job_core *c,
                        const struct ms_job_event *e,
                        struct ms_error *err)
{
    if (e->id == 0 || e->id > c->last_id)
        return ms_error_set(
            err, -EINVAL, "there is no action %llu", (unsigned long long)e->id);
    if (e->failure >= MS_JOB_FAILURES)
        return ms_error_set(err, -EINVAL, "no such failure: %u", e->failure);
    return 0;
}

static int check_report(const struct ms_job_core *c,
                        const struct ms_job_report *p,
                        struct ms_error *err)
{
    if (p->role == MS_JOB_DRIVER)
        return 0;
    if (p->role >= c->spec.role_count)
        return ms_error_set(err, -ENOENT, "there is no role %u", p->role);
    if (p->rank >= c->spec.roles[p->role].max)
        return ms_error_set(err,
                            -ENOENT,
                            "role %s has no rank %u",
                            c->spec.roles[p->role].name,
                            p->rank);
    return 0;
}

static int check_ends(const struct ms_job_core *c,
                      const struct ms_job_event *e,
                      struct ms_error *err)
{
    int rc = 0;

    for (size_t i = 0; i < e->report_count && rc == 0; i++) {
        const struct ms_job_report *p = &e->reports[i];

        rc = check_report(c, p, err);
        if (rc == 0 && p->seen == MS_JOB_SEEN_ENDED &&
            (p->cause == MS_JOB_CAUSE_NONE || p->cause >= MS_JOB_BUDGETS))
            rc = ms_error_set(err, -EINVAL, "an end needs a cause");
    }
    return rc;
}

/* Reports by node have no role. */
static int check_done(const struct ms_job_core *c,
                      const struct ms_job_event *e,
                      struct ms_error *err)
{
    int rc = check_answer(c, e, err);

    if (rc < 0 || e->what == MS_JOB_DONE)
        return rc;
    return check_ends(c, e, err);
}

static int check_found(const struct ms_job_core *c,
                       const struct ms_job_event *e,
                       struct ms_error *err)
{
    (void)c;
    for (size_t i = 0; i < e->report_count; i++)
        if (e->reports[i].seen == MS_JOB_SEEN_ENDED &&
            (e->reports[i].cause == MS_JOB_CAUSE_NONE ||
             e->reports[i].cause >= MS_JOB_BUDGETS))
            return ms_error_set(err, -EINVAL, "an end needs a cause");
    return 0;
}

static int check_role(const struct ms_job_core *c,
                      const struct ms_job_event *e,
                      struct ms_error *err)
{
    if (e->role >= c->spec.role_count)
        return ms_error_set(err, -ENOENT, "there is no role %u", e->role);
    return 0;
}

static int check_hang(const struct ms_job_core *c,
                      const struct ms_job_event *e,
                      struct ms_error *err)
{
    int rc = e->role == MS_JOB_DRIVER && c->spec.has_driver ? 0 : check_role(c, e, err);

    for (size_t i = 0; i < e->report_count && rc == 0; i++)
        rc = check_report(c, &e->reports[i], err);
    return rc;
}

/* ---- what people want -------------------------------------------------------------- */

static int check_lives(const struct ms_job_core *c, struct ms_error *err)
{
    if (c->stage == MS_JOB_STAGE_STOPPING || ms_job_stage_is_over(c->stage))
        return ms_error_set(
            err, -EALREADY, "job %s is %s", c->spec.name, ms_job_stage_name(c->stage));
    return 0;
}

static int check_stop(const struct ms_job_core *c,
                      const struct ms_job_event *e,
                      struct ms_error *err)
{
    (void)e;
    return check_lives(c, err);
}

static int check_suspend(const struct ms_job_core *c,
                         const struct ms_job_event *e,
                         struct ms_error *err)
{
    int rc = check_lives(c, err);

    (void)e;
    if (rc == 0 &&
        (c->stage == MS_JOB_STAGE_SUSPENDING || c->stage == MS_JOB_STAGE_SUSPENDED))
        rc = ms_error_set(
            err, -EALREADY, "job %s is %s", c->spec.name, ms_job_stage_name(c->stage));
    return rc;
}

static int check_resume(const struct ms_job_core *c,
                        const struct ms_job_event *e,
                        struct ms_error *err)
{
    (void)e;
    if (c->stage == MS_JOB_STAGE_SUSPENDED)
        return 0;
    return ms_error_set(err,
                        c->stage == MS_JOB_STAGE_SUSPENDING ? -EBUSY : -EALREADY,
                        "job %s is %s, not suspended",
                        c->spec.name,
                        ms_job_stage_name(c->stage));
}

static int check_scale(const struct ms_job_core *c,
                       const struct ms_job_event *e,
                       struct ms_error *err)
{
    int rc = check_lives(c, err);
    const struct ms_job_role_spec *s;

    if (rc == 0)
        rc = check_role(c, e, err);
    if (rc < 0)
        return rc;
    s = &c->spec.roles[e->role];
    if (e->count < s->min || e->count > s->max || e->count % s->unit)
        return ms_error_set(
            err,
            -ERANGE,
            "role %s can have %u to %u processes in units of %u, not %u",
            s->name,
            s->min,
            s->max,
            s->unit,
            e->count);
    if (c->roles[e->role].is_given_up)
        return ms_error_set(err, -EBUSY, "role %s was given up: restart it", s->name);
    if (e->count == c->roles[e->role].wanted)
        return ms_error_set(err, -EALREADY, "role %s has %u", s->name, e->count);
    return 0;
}

static int check_restart(const struct ms_job_core *c,
                         const struct ms_job_event *e,
                         struct ms_error *err)
{
    const struct ms_core_role *r;

    if (c->stage != MS_JOB_STAGE_RUNNING && c->stage != MS_JOB_STAGE_STARTING &&
        c->stage != MS_JOB_STAGE_RESUMING)
        return ms_error_set(
            err, -EBUSY, "job %s is %s", c->spec.name, ms_job_stage_name(c->stage));
    if (e->role == MS_JOB_DRIVER && !c->spec.has_driver)
        return ms_error_set(err, -ENOENT, "job %s has no driver", c->spec.name);
    if (e->role == MS_JOB_DRIVER || e->role == MS_JOB_NO_ROLE)
        return 0;
    if (check_role(c, e, err) < 0)
        return -ENOENT;
    r = &c->roles[e->role];
    if (e->rank != MS_JOB_ALL_RANKS && e->rank >= r->size)
        return ms_error_set(err,
                            -ENOENT,
                            "role %s has no rank %u, only %u",
                            r->spec->name,
                            e->rank,
                            r->size);
    return 0;
}

static int check_delete(const struct ms_job_core *c,
                        const struct ms_job_event *e,
                        struct ms_error *err)
{
    (void)e;
    if (c->is_deleted)
        return ms_error_set(err, -EALREADY, "job %s was deleted", c->spec.name);
    return 0;
}

static int (*const checks[MS_JOB_EVENT_WHATS])(const struct ms_job_core *,
                                               const struct ms_job_event *,
                                               struct ms_error *) = {
    [MS_JOB_SUBMITTED] = check_submitted,
    [MS_JOB_ADMITTED] = check_admitted,
    [MS_JOB_DONE] = check_done,
    [MS_JOB_NOT_DONE] = check_done,
    [MS_JOB_EXITED] = check_ends,
    [MS_JOB_PROGRESS] = check_ends,
    [MS_JOB_SUSPECTED] = check_hang,
    [MS_JOB_HUNG] = check_hang,
    [MS_JOB_RECOVERED] = check_found,
    [MS_JOB_FOUND] = check_found,
    [MS_JOB_STOP] = check_stop,
    [MS_JOB_SUSPEND] = check_suspend,
    [MS_JOB_RESUME] = check_resume,
    [MS_JOB_SCALE] = check_scale,
    [MS_JOB_RESTART] = check_restart,
    [MS_JOB_DELETE] = check_delete,
};

/* Seen, and of an exit: ended. */
static int check_seen(const struct ms_job_event *e, struct ms_error *err)
{
    for (size_t i = 0; i < e->report_count; i++)
        if (e->reports[i].seen >= MS_JOB_SEENS ||
            (e->what == MS_JOB_EXITED && e->reports[i].seen != MS_JOB_SEEN_ENDED))
            return ms_error_set(err, -EINVAL, "a report says nothing");
    return 0;
}

int ms_job_core_check(const struct ms_job_core *c,
                      const struct ms_job_event *e,
                      struct ms_error *err)
{
    if (e->what == 0 || e->what >= MS_JOB_EVENT_WHATS)
        return ms_error_set(err, -EINVAL, "no such event: %u", e->what);
    if (c->stage == MS_JOB_STAGE_NEW && e->what != MS_JOB_SUBMITTED)
        return ms_error_set(err, -EINVAL, "the job was not submitted yet");
    if (e->report_count > MS_JOB_REPORTS_MAX)
        return ms_error_set(err, -EINVAL, "%zu reports", e->report_count);
    if (check_seen(e, err) < 0)
        return -EINVAL;
    return checks[e->what] ? checks[e->what](c, e, err) : 0;
}
