/* grow.c - nodes of a job that it can do without: asked for at first, and as they come
 *
 * Each unit is a question of its own, so that none waits for another. What they lend comes
 * beside what the job has; what is not lent in time is asked for again.
 */
#include "base/cleanup.h"
#include "head/fleet/fleet.h"
#include "head/head_impl.h"
#include "head/jobs/act.h"
#include "head/jobs/feed.h"
#include "head/jobs/hosted.h"
#include "head/jobs/machines.h"
#include "head/jobs/queue.h"
#include "head/ops/op.h"

#include <stdlib.h>
#include <string.h>

/* One question, about nodes of one range. */
struct more {
    struct ms_jobs *jobs;
    uint64_t job;
    uint32_t *nodes;
    size_t count;
};

static void more_destroy(struct more *m)
{
    free(m->nodes);
    free(m);
}

static struct more *more_create(const struct ms_hosted *job, size_t room)
{
    struct more *m = calloc(1, sizeof *m);

    if (!m)
        return NULL;
    m->jobs = job->jobs;
    m->job = job->id;
    m->nodes = calloc(room, sizeof *m->nodes);
    if (m->nodes)
        return m;
    free(m);
    return NULL;
}

static void mark(struct ms_hosted *job, const struct more *m, uint8_t is)
{
    for (size_t i = 0; i < m->count; i++)
        job->node_is[m->nodes[i]] = is;
}

/* ---- what there is ----------------------------------------------------------------- */

void ms_grow_forget(struct ms_hosted *job)
{
    memset(job->node_is, MS_JOB_NODE_ABSENT, ms_job_nodes_count(&job->file));
    job->knows_nodes = true;
    job->more_again_ns = 0;
}

/* NULL: it is not known. To be freed. */
static struct ms_fleet_node *nodes_of(const struct ms_hosted *job)
{
    struct ms_fleet_node *all = calloc(ms_job_nodes_count(&job->file), sizeof *all);

    if (all && ms_fleet_look(job->fleet, job->key, all))
        return all;
    free(all);
    return NULL;
}

bool ms_grow_look(struct ms_hosted *job)
{
    MS_CLEANUP(ms_cleanup_free) struct ms_fleet_node *all = nodes_of(job);

    for (size_t i = 0; all && i < ms_job_nodes_count(&job->file); i++)
        job->node_is[i] = all[i].is_lent     ? MS_JOB_NODE_LENT
                          : all[i].has_ended ? MS_JOB_NODE_ENDED
                                             : MS_JOB_NODE_ABSENT;
    job->knows_nodes = job->knows_nodes || all;
    return all != NULL;
}

bool ms_grow_find_lost(const struct ms_hosted *job, uint32_t *node, uint32_t *number)
{
    MS_CLEANUP(ms_cleanup_free) struct ms_fleet_node *all = nodes_of(job);

    if (!all || !ms_job_nodes_find_lost(&job->file, job->node_is, node))
        return false;
    *number = all[*node].has_ended ? all[*node].number : MS_FLEET_NO_PIECE;
    return true;
}

static void say_what_there_is(struct ms_hosted *job)
{
    for (size_t i = 0; i < job->file.node_range_count; i++) {
        const struct ms_job_node_range *r = &job->file.node_ranges[i];
        uint32_t held = ms_job_nodes_held(&job->file, i, job->node_is);

        if (r->count.max > r->count.min)
            ms_hosted_note(job,
                           MS_JOB_INFO,
                           "has %u of %u nodes like %s%s",
                           held,
                           r->count.max,
                           job->file.nodes[r->first]->name,
                           held < r->count.max ? "; the others may come later" : "");
    }
}

/* ---- the answers ------------------------------------------------------------------- */

static struct ms_job_doing *waiting_reserve(const struct ms_hosted *job)
{
    ms_list_each (d, &job->actions, struct ms_job_doing, link)
        if (d->id == job->more_of)
            return d;
    return NULL;
}

/* All have been answered. */
static void end(struct ms_hosted *job)
{
    struct ms_job_doing *d = job->more_of ? waiting_reserve(job) : NULL;

    job->is_mending = false;
    job->more_of = 0;
    job->more_again_ns = ms_now_ns() + (job->more_came ? 0 : MS_JOB_MORE_AGAIN_NS);
    ms_timer_set(&job->mend, MS_JOB_MEND_NS);
    if (d || job->more_came)
        say_what_there_is(job);
    if (d)
        ms_doing_done(d);
    else if (job->more_came)
        ms_hosted_feed(job, &(struct ms_job_event){.what = MS_JOB_ROOM});
}

static void on_more(struct ms_head_op *op, void *arg)
{
    struct more *m = arg;
    struct ms_hosted *job =
        m->jobs->is_ending ? NULL : ms_hosted_find_id(m->jobs, m->job);
    bool is_lent = ms_head_op_result(op, NULL) == 0;

    if (job) {
        mark(job, m, is_lent ? MS_JOB_NODE_LENT : MS_JOB_NODE_ABSENT);
        job->more_came += is_lent ? (uint32_t)m->count : 0;
        if (is_lent)
            ms_hosted_keep(job, NULL);
        if (--job->more_asks == 0)
            end(job);
    }
    ms_head_op_unref(op);
    more_destroy(m);
}

/* ---- asking ------------------------------------------------------------------------ */

static bool ask(struct ms_hosted *job, struct more *m)
{
    struct ms_job_reserve r;

    ms_reserve_fill(job, &r);
    r.pieces.timeout_ns = MS_JOB_MORE_NS;
    r.reserve.more = true;
    r.reserve.nodes = m->nodes;
    r.reserve.n_nodes = m->count;
    return ms_head_request_then(job->jobs->head,
                                MUSTER__DRIVER_TO_HEAD__BODY_RESERVE,
                                &r.reserve,
                                on_more,
                                m) != NULL;
}

/* Take that much of what is left. False: there is less. */
static bool
take(const struct ms_hosted *job, const struct more *m, struct ms_job_demand *left)
{
    struct ms_job_demand sum = {0};

    for (size_t i = 0; i < m->count; i++) {
        struct ms_job_demand one = ms_hosted_node_demand(job, m->nodes[i]);

        ms_job_demand_add(&sum, &one);
    }
    return ms_jobs_take(job->jobs, &sum, left);
}

/* One unit of a range. False: it has all, or there is no room for it. `left` is NULL if that
 * is for the orchestrator to say. */
static bool ask_unit(struct ms_hosted *job, size_t range, struct ms_job_demand *left)
{
    struct more *m = more_create(job, job->file.node_ranges[range].count.unit);

    if (!m)
        return false;
    m->count = ms_job_nodes_more(&job->file, range, job->node_is, m->nodes);
    if (m->count > 0 && (!left || take(job, m, left)) && ask(job, m)) {
        job->more_asks++;
        return true;
    }
    mark(job, m, MS_JOB_NODE_ABSENT);
    more_destroy(m);
    return false;
}

/* True: there will be answers. */
static bool begin(struct ms_hosted *job)
{
    struct ms_job_demand left;
    bool is_counted;

    if (job->more_asks > 0 || !ms_grow_look(job))
        return false;
    is_counted = ms_jobs_left(job, &left);
    job->more_came = 0;
    for (size_t i = 0; i < job->file.node_range_count; i++)
        while (job->more_asks < MS_JOB_MORE_ASKS_MAX &&
               ask_unit(job, i, is_counted ? &left : NULL))
            ;
    job->is_mending = job->is_mending || job->more_asks > 0;
    return job->more_asks > 0;
}

void ms_grow_reserved(struct ms_job_doing *d)
{
    struct ms_hosted *job = d->job;

    if (begin(job)) {
        job->more_of = d->id;
        return;
    }
    say_what_there_is(job);
    ms_doing_done(d);
}

void ms_grow_try(struct ms_hosted *job)
{
    if (ms_now_ns() >= job->more_again_ns)
        begin(job);
}
