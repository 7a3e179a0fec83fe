/* user.c - what a person asks of a job: stop, delete, suspend, resume, scale, restart */
#include "job/core/core_impl.h"

#include <string.h>

static const char *asked_by(const struct ms_job_event *e)
{
    return e->text ? e->text : "asked for";
}

void ms_take_stop(struct ms_job_core *c, const struct ms_job_event *e)
{
    ms_job_end(c,
               MS_JOB_STAGE_STOPPED,
               MS_JOB_STOPPED,
               MS_CORE_STOPPED_CODE,
               "stopped: %s",
               asked_by(e));
}

void ms_take_delete(struct ms_job_core *c, const struct ms_job_event *e)
{
    c->is_deleted = true;
    if (ms_job_stage_is_over(c->stage))
        ms_act_again(c, MS_JOB_DO_FORGET, 0);
    else
        ms_job_end(c,
                   MS_JOB_STAGE_STOPPED,
                   MS_JOB_STOPPED,
                   MS_CORE_STOPPED_CODE,
                   "deleted: %s",
                   asked_by(e));
}

void ms_take_suspend(struct ms_job_core *c, const struct ms_job_event *e)
{
    c->is_down_first = false;
    ms_stage_set(c, c->is_admitted ? MS_JOB_STAGE_SUSPENDING : MS_JOB_STAGE_SUSPENDED);
    ms_say(c,
           MS_JOB_INFO,
           MS_JOB_NO_ROLE,
           0,
           MS_JOB_CAUSE_NONE,
           "suspend: %s; all processes end and the machines are given back",
           asked_by(e));
}

void ms_take_resume(struct ms_job_core *c, const struct ms_job_event *e)
{
    if (e->flags & MS_JOB_REQUEUE)
        c->is_admitted = false;
    ms_stage_set(c, c->is_admitted ? MS_JOB_STAGE_RESUMING : MS_JOB_STAGE_QUEUED);
    ms_say(c,
           MS_JOB_INFO,
           MS_JOB_NO_ROLE,
           0,
           MS_JOB_CAUSE_NONE,
           "resume: %s",
           asked_by(e));
}

void ms_take_scale(struct ms_job_core *c, const struct ms_job_event *e)
{
    struct ms_core_role *r = &c->roles[e->role];

    ms_say(c,
           MS_JOB_INFO,
           e->role,
           MS_JOB_ALL_RANKS,
           MS_JOB_CAUSE_NONE,
           "role %s scales from %u to %u",
           r->spec->name,
           r->wanted,
           e->count);
    r->wanted = e->count;
    r->is_scaling = r->is_up || r->doing;
    r->scale_retry_ns = 0;
    r->scale_tries = 0;
    r->room = 0;
}

/* ---- restart ----------------------------------------------------------------------- */

static void restart_job(struct ms_job_core *c)
{
    ms_say(c,
           MS_JOB_INFO,
           MS_JOB_NO_ROLE,
           0,
           MS_JOB_CAUSE_NONE,
           "the job restarts: asked for");
    for (uint32_t i = 0; i < c->spec.role_count; i++) {
        c->roles[i].is_given_up = false;
        c->roles[i].retry_ns = 0;
    }
    ms_job_restart_all(c);
}

static void restart_driver(struct ms_job_core *c)
{
    ms_say(c,
           MS_JOB_INFO,
           MS_JOB_DRIVER,
           0,
           MS_JOB_CAUSE_NONE,
           "the driver restarts: asked for");
    c->driver.retry_ns = 0;
    c->driver.is_restart_due = c->driver.state != MS_CORE_DRIVER_IDLE;
}

static void restart_role(struct ms_job_core *c, struct ms_core_role *r)
{
    ms_say(c,
           MS_JOB_INFO,
           ms_core_role_index(c, r),
           MS_JOB_ALL_RANKS,
           MS_JOB_CAUSE_NONE,
           "role %s restarts: asked for",
           r->spec->name);
    if (r->is_given_up && !r->is_up && !r->doing)
        ms_core_role_clear(c, r);
    r->is_given_up = false;
    r->error_count = 0;
    r->retry_ns = 0;
    if (r->is_up && r->doing != MS_JOB_DO_DESTROY)
        ms_core_role_restart(c, r, 0);
}

static void restart_rank(struct ms_job_core *c, struct ms_core_role *r, uint32_t rank)
{
    struct ms_core_slot *s = &r->slots[rank];

    if (s->state == MS_JOB_SLOT_STARTING || s->state == MS_JOB_SLOT_ABSENT || !r->is_up)
        return; /* it is about to start */
    ms_say(c,
           MS_JOB_INFO,
           ms_core_role_index(c, r),
           rank,
           MS_JOB_CAUSE_NONE,
           "%s/%u restarts: asked for",
           r->spec->name,
           rank);
    s->flags |= MS_CORE_FREE;
    s->retry_ns = c->now_ns;
    r->slot_retry_ns = c->now_ns;
    ms_core_slot_set(r, s, MS_JOB_SLOT_WAITING);
}

void ms_take_restart(struct ms_job_core *c, const struct ms_job_event *e)
{
    struct ms_core_role *r;

    if (e->role == MS_JOB_NO_ROLE) {
        restart_job(c);
        return;
    }
    if (e->role == MS_JOB_DRIVER) {
        restart_driver(c);
        return;
    }
    r = &c->roles[e->role];
    if (e->rank == MS_JOB_ALL_RANKS || r->spec->restart != MS_JOB_RESTART_RANK ||
        r->is_given_up)
        restart_role(c, r);
    else
        restart_rank(c, r, e->rank);
}
