/* act.c - actions of a job's core: begun by a table, answered once */
#include "head/jobs/act.h"
#include "base/cleanup.h"
#include "head/head_impl.h"
#include "head/jobs/check.h"
#include "head/jobs/feed.h"
#include "head/jobs/hosted.h"
#include "head/jobs/machines.h"
#include "head/jobs/signs.h"
#include "head/jobs/simulated.h"
#include "head/ops/op.h"
#include "head/shards/shards.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- answers ----------------------------------------------------------------------- */

static void doing_destroy(struct ms_job_doing *d)
{
    ms_list_remove(&d->link);
    ms_timer_finish(&d->timer);
    free(d->ranks); /* and the others, behind them */
    free(d);
}

void ms_doing_done(struct ms_job_doing *d)
{
    ms_doing_done_with(d, NULL);
}

void ms_doing_done_with(struct ms_job_doing *d, const char *text)
{
    ms_doing_done_of(d, NULL, 0, text);
}

void ms_doing_done_of(struct ms_job_doing *d,
                      const struct ms_job_report *reports,
                      size_t report_count,
                      const char *text)
{
    struct ms_hosted *job = d->job;
    struct ms_job_event e = {.what = MS_JOB_DONE,
                             .id = d->id,
                             .reports = reports,
                             .report_count = report_count,
                             .text = text};

    doing_destroy(d);
    ms_hosted_feed(job, &e);
}

void ms_doing_failed(struct ms_job_doing *d,
                     enum ms_job_failure failure,
                     const struct ms_job_report *reports,
                     size_t report_count,
                     const char *text)
{
    struct ms_hosted *job = d->job;
    struct ms_job_event e = {.what = MS_JOB_NOT_DONE,
                             .id = d->id,
                             .failure = (uint8_t)failure,
                             .fits = d->fits,
                             .reports = reports,
                             .report_count = report_count,
                             .text = text};

    doing_destroy(d);
    ms_hosted_feed(job, &e);
}

static enum ms_job_failure failure_of(int rc)
{
    switch (rc) {
    case -ENOSPC:
    case -EBUSY: /* held by others */
    case -ENODEV:
        return MS_JOB_NO_ROOM;
    case -EAGAIN:
    case -EPIPE:
    case -EACCES:
    case -ECANCELED:
        return MS_JOB_NOT_ASKED;
    case -EINVAL:
    case -ENOTSUP:
    case -E2BIG:
    case -EEXIST:
        return MS_JOB_REFUSED;
    default:
        return MS_JOB_FAILED;
    }
}

void ms_doing_failed_with(struct ms_job_doing *d, int rc, const struct ms_error *why)
{
    ms_doing_failed(d, failure_of(rc), NULL, 0, why->text);
}

/* ---- asking the head --------------------------------------------------------------- */

/* The answer of one that was given up is dropped. */
static void on_answer(struct ms_head_op *op, void *arg)
{
    struct ms_job_doing *d = arg;
    struct ms_error why = {0};
    int rc = ms_head_op_result(op, &why);

    d->op = op;
    d->is_asked = false;
    if (d->job && !d->job->jobs->is_ending)
        d->next(d, rc, &why);
    else
        doing_destroy(d);
    ms_head_op_unref(op);
}

void ms_doing_ask(struct ms_job_doing *d,
                  Muster__DriverToHead__BodyCase what,
                  const void *body,
                  void (*next)(struct ms_job_doing *d,
                               int rc,
                               const struct ms_error *why))
{
    struct ms_error why = {-ENOMEM, "out of memory"};

    d->next = next;
    d->op = NULL;
    d->is_asked = true;
    if (ms_head_request_then(d->job->jobs->head, what, body, on_answer, d))
        return;
    d->is_asked = false;
    next(d, -ENOMEM, &why);
}

/* Their answers find nobody. */
void ms_doings_drop(struct ms_hosted *job)
{
    ms_list_each (d, &job->actions, struct ms_job_doing, link) {
        if (!d->is_asked) {
            doing_destroy(d);
            continue;
        }
        ms_list_remove(&d->link);
        free(d->ranks);
        d->ranks = NULL;
        d->job = NULL;
    }
}

/* ---- the table --------------------------------------------------------------------- */

static void (*const acts[MS_JOB_ACTION_WHATS])(struct ms_job_doing *d) = {
    [MS_JOB_DO_RESERVE] = ms_act_reserve,
    [MS_JOB_DO_RELEASE] = ms_act_release,
    [MS_JOB_DO_CHECK_NODES] = ms_act_check,
    [MS_JOB_DO_CREATE] = ms_act_create,
    [MS_JOB_DO_REPLACE] = ms_act_replace,
    [MS_JOB_DO_RESTART] = ms_act_restart,
    [MS_JOB_DO_RESIZE] = ms_act_resize,
    [MS_JOB_DO_DRAIN] = ms_act_drain,
    [MS_JOB_DO_DESTROY] = ms_act_destroy,
    [MS_JOB_DO_DUMP_STACKS] = ms_act_dump_stacks,
    [MS_JOB_DO_END_STRAYS] = ms_act_end_strays,
    [MS_JOB_DO_START_DRIVER] = ms_act_start_driver,
    [MS_JOB_DO_STOP_DRIVER] = ms_act_stop_driver,
};

static struct ms_job_doing *begin(struct ms_hosted *job, const struct ms_job_action *a)
{
    struct ms_job_doing *d = calloc(1, sizeof *d);

    if (!d)
        return NULL;
    *d = (struct ms_job_doing){.job = job,
                               .what = a->what,
                               .role = a->role,
                               .count = a->count,
                               .incarnation = a->incarnation,
                               .memory = a->memory,
                               .id = a->id};
    ms_list_init(&d->link);
    d->ranks = calloc(3 * a->rank_count + 1, sizeof *d->ranks);
    if (!d->ranks) {
        free(d);
        return NULL;
    }
    d->ends = d->ranks + a->rank_count;
    d->elsewhere = d->ends + a->rank_count;
    d->rank_count = a->rank_count;
    for (size_t i = 0; i < a->rank_count; i++) {
        d->ranks[i] = a->ranks[i].rank;
        d->ends[i] = a->ranks[i].incarnation;
        if (a->ranks[i].flags & MS_JOB_ELSEWHERE)
            d->elsewhere[d->elsewhere_count++] = a->ranks[i].rank;
    }
    ms_list_add_tail(&job->actions, &d->link);
    return d;
}

/* Its end is part of the record. */
static void finish(struct ms_hosted *job)
{
    job->ended_ns = ms_wall_ns();
    ms_head_shards_driver_gone(job->jobs->head, job->id);
    ms_hosted_keep(job, NULL);
}

/* Of a job whose file is refused: nothing is begun. */
static bool is_end(uint32_t what)
{
    return what == MS_JOB_DO_DESTROY || what == MS_JOB_DO_STOP_DRIVER ||
           what == MS_JOB_DO_RELEASE || what == MS_JOB_DO_END_STRAYS;
}

/* After a recovery what was not answered comes again. */
static bool is_under_way(const struct ms_hosted *job, uint64_t id)
{
    ms_list_each (d, &job->actions, struct ms_job_doing, link)
        if (d->id == id)
            return true;
    return false;
}

void ms_job_carry_out(struct ms_hosted *job, const struct ms_job_action *a)
{
    struct ms_job_doing *d;

    if (a->what == MS_JOB_DO_SAY)
        ms_hosted_say(job, a);
    else if (a->what == MS_JOB_DO_FINISH)
        finish(job);
    else if (a->what == MS_JOB_DO_FORGET)
        ms_hosted_forget(job);
    if (!a->id || is_under_way(job, a->id))
        return;
    d = begin(job, a);
    if (!d) {
        ms_hosted_feed(job,
                       &(struct ms_job_event){.what = MS_JOB_NOT_DONE,
                                              .id = a->id,
                                              .failure = MS_JOB_NOT_ASKED,
                                              .text = "out of memory"});
        return;
    }
    if (job->refused.code && !is_end(a->what))
        ms_doing_failed(d, MS_JOB_REFUSED, NULL, 0, job->refused.text);
    else if (ms_hosted_is_simulated(job))
        ms_act_simulated(d);
    else if (a->what == MS_JOB_DO_AVOID)
        ms_act_avoid(d, a->node, a->text);
    else if (a->what < MS_JOB_ACTION_WHATS && acts[a->what])
        acts[a->what](d);
    else
        ms_doing_failed(d, MS_JOB_REFUSED, NULL, 0, "the host knows no such action");
}
