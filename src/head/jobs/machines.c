/* machines.c - what is reserved for a job */
#include "head/jobs/machines.h"
#include "base/cleanup.h"
#include "head/fleet/fleet.h"
#include "head/head_impl.h"
#include "head/jobs/act.h"
#include "head/jobs/check.h"
#include "head/jobs/feed.h"
#include "head/jobs/hosted.h"
#include "head/jobs/simulated.h"
#include "head/nodes/node.h"
#include "head/ops/op.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* For machines to be lent and to join. */
#define RESERVE_NS (120 * MS_NS_PER_S)

static const char *on_of(const struct ms_hosted *job)
{
    return job->file.on ? job->file.on : "local";
}

bool ms_hosted_is_on_ray(const struct ms_hosted *job)
{
    return strcmp(on_of(job), "ray") == 0;
}

static struct ms_head *head_of(const struct ms_hosted *job)
{
    return job->jobs->head;
}

/* ---- which nodes ------------------------------------------------------------------- */

static bool is_ours(const struct ms_hosted *job, const struct ms_node *n)
{
    if (n->state != MS_NODE_READY)
        return false;
    if (job->is_on_ours)
        return !ms_jobs_lend(job->jobs, n->name);
    return ms_fleet_lends(job->fleet, n->name);
}

const char **ms_machines_nodes(const struct ms_hosted *job)
{
    const char **names;
    size_t count = 0;

    ms_list_each (n, &head_of(job)->nodes, struct ms_node, link)
        count += is_ours(job, n);
    names = calloc(count + 1, sizeof *names);
    count = 0;
    ms_list_each (n, &head_of(job)->nodes, struct ms_node, link)
        if (names && is_ours(job, n))
            names[count++] = n->name;
    return names;
}

const char **ms_machines_trusted(const struct ms_hosted *job)
{
    const char **names = ms_machines_nodes(job);
    size_t count = 0;

    for (size_t i = 0; names && names[i]; i++)
        count += !ms_job_core_avoids(job->core, names[i]);
    if (count == 0)
        return names;
    count = 0;
    for (size_t i = 0; names[i]; i++)
        if (!ms_job_core_avoids(job->core, names[i]))
            names[count++] = names[i];
    names[count] = NULL;
    return names;
}

static bool has_own_nodes(const struct ms_hosted *job)
{
    ms_list_each (n, &head_of(job)->nodes, struct ms_node, link)
        if (!ms_jobs_lend(job->jobs, n->name))
            return true;
    return false;
}

bool ms_machines_are_there(const struct ms_hosted *job)
{
    return !job->file.has_nodes && !job->file.on && has_own_nodes(job);
}

/* ---- its orchestrator -------------------------------------------------------------- */

/* What an agent of a node in a network namespace is started by. */
struct prefix {
    const char *words[5];
};

/* Nothing new is begun until it can. */
static void on_silence(void *arg, const char *why)
{
    struct ms_hosted *job = arg;

    if (ms_job_core_view(job->core).can_ask != !why)
        ms_hosted_feed(
            job,
            &(struct ms_job_event){.what = why ? MS_JOB_CANNOT_ASK : MS_JOB_CAN_ASK,
                                   .text = why});
}

static int open_fleet(struct ms_hosted *job, struct ms_error *err)
{
    const struct ms_job *file = &job->file;
    MS_CLEANUP(ms_cleanup_free)
    struct prefix *made = calloc(file->node_count + 1, sizeof *made);
    MS_CLEANUP(ms_cleanup_free)
    const char *const **prefixes = calloc(file->node_count + 1, sizeof *prefixes);
    char before[MS_NAME_MAX + 2];

    if (!made || !prefixes)
        return ms_error_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < file->node_count; i++)
        if (file->netns[i]) {
            made[i] = (struct prefix){{"ip", "netns", "exec", file->netns[i], NULL}};
            prefixes[i] = made[i].words;
        }
    snprintf(before, sizeof before, "%s.", job->name);
    job->fleet =
        ms_fleet_create(head_of(job),
                        &(struct ms_head_lender){
                            .name = on_of(job),
                            .address = ms_hosted_is_on_ray(job) ? job->jobs->ray : NULL,
                            .agent_path = job->jobs->agent_path,
                            .nodes = (const Muster__NodeShape *const *)file->nodes,
                            .node_count = file->node_count,
                            .prefixes = prefixes,
                            .agent_prefix = before,
                            .on_silence = on_silence,
                            .arg = job,
                            .is_durable = true},
                        err);
    if (job->fleet && ms_fleet_know(job->fleet, job->known, job->known_count) < 0) {
        ms_fleet_destroy(MS_TAKE(job->fleet));
        return ms_error_set(err, -ENOMEM, "out of memory");
    }
    return job->fleet ? 0 : err->code;
}

/* ---- asking ----------------------------------------------------------------------- */

void ms_reserve_fill(const struct ms_hosted *job, struct ms_job_reserve *r)
{
    muster__place_group__init(&r->pieces);
    muster__reserve__init(&r->reserve);
    r->pieces.name = (char *)(uintptr_t)job->key;
    r->pieces.timeout_ns = job->file.timeout_s
                               ? job->file.timeout_s * (uint64_t)MS_NS_PER_S
                               : (uint64_t)RESERVE_NS;
    r->reserve.pieces = &r->pieces;
    r->reserve.whole = true;
}

void ms_reserve_fill_least(const struct ms_hosted *job, struct ms_job_reserve *r)
{
    ms_reserve_fill(job, r);
    r->reserve.nodes = job->least;
    r->reserve.n_nodes = job->file.node_range_count ? job->least_count : 0;
}

/* ---- life -------------------------------------------------------------------------- */

int ms_machines_init(struct ms_hosted *job, struct ms_error *err)
{
    size_t count = ms_job_nodes_count(&job->file);

    job->node_is = calloc(count, sizeof *job->node_is);
    job->least = calloc(count, sizeof *job->least);
    if (!job->node_is || !job->least || ms_mend_init(job) < 0)
        return ms_error_set(err, -ENOMEM, "out of memory");
    job->least_count = ms_job_nodes_least(&job->file, job->least);
    return 0;
}

void ms_machines_finish(struct ms_hosted *job)
{
    ms_timer_finish(&job->mend);
    ms_fleet_destroy(MS_TAKE(job->fleet));
    free(job->node_is);
    free(job->least);
    free(job->known);
}

/* ---- actions ----------------------------------------------------------------------- */

static void on_reserved(struct ms_job_doing *d, int rc, const struct ms_error *why)
{
    if (rc == 0) {
        ms_hosted_keep(d->job, NULL); /* what is lent is, for the next head */
        ms_timer_set(&d->job->mend, MS_JOB_MEND_NS);
        ms_grow_reserved(d);
    } else if (rc == -ETIMEDOUT) {
        ms_doing_failed(d, MS_JOB_NO_ROOM, NULL, 0, why->text);
    } else {
        ms_doing_failed_with(d, rc, why);
    }
}

void ms_act_reserve(struct ms_job_doing *d)
{
    struct ms_hosted *job = d->job;
    struct ms_job_reserve r;
    struct ms_error why = {0};

    job->is_on_ours = ms_machines_are_there(job);
    if (job->is_on_ours) {
        ms_hosted_keep(job, NULL); /* for the next head */
        ms_doing_done(d);
        return;
    }
    if (!job->fleet && open_fleet(job, &why) < 0) {
        ms_doing_failed_with(d, why.code ? why.code : -EIO, &why);
        return;
    }
    ms_grow_forget(job);
    ms_reserve_fill_least(job, &r);
    ms_doing_ask(d, MUSTER__DRIVER_TO_HEAD__BODY_RESERVE, &r.reserve, on_reserved);
}

static void on_released(struct ms_job_doing *d, int rc, const struct ms_error *why)
{
    if (rc < 0) {
        ms_doing_failed_with(d, rc, why);
        return;
    }
    ms_doing_done(d);
}

void ms_act_release(struct ms_job_doing *d)
{
    Muster__ReleasePieces release = MUSTER__RELEASE_PIECES__INIT;
    struct ms_error why = {0};

    ms_timer_cancel(&d->job->mend);
    ms_check_cancel(d->job);
    if (d->job->is_on_ours) {
        ms_doing_done(d);
        return;
    }
    /* none: the head before was killed while it gave them back */
    if (!d->job->fleet && open_fleet(d->job, &why) < 0) {
        ms_doing_failed_with(d, why.code ? why.code : -EIO, &why);
        return;
    }
    release.key = d->job->key;
    ms_doing_ask(d, MUSTER__DRIVER_TO_HEAD__BODY_RELEASE_PIECES, &release, on_released);
}

/* Nothing new is placed there (ms_machines_trusted). Who lends other machines is told; the
 * nodes of `local` are all of this one. */
void ms_act_avoid(struct ms_job_doing *d, const char *node, const char *reason)
{
    if (d->job->fleet && node && strcmp(on_of(d->job), "local") != 0)
        ms_fleet_avoid(d->job->fleet, node, reason ? reason : "");
    ms_doing_done(d);
}

/* ---- after a restart of the head --------------------------------------------------- */

void ms_machines_recover(struct ms_hosted *job)
{
    struct ms_error why = {0};

    if (!ms_job_core_view(job->core).is_held || job->is_on_ours ||
        ms_hosted_is_simulated(job))
        return;
    if (open_fleet(job, &why) < 0) {
        on_silence(job, why.text);
        ms_timer_set(&job->mend, MS_JOB_MEND_NS); /* and try again */
        return;
    }
    ms_mend_begin_again(job);
    ms_timer_set(&job->mend, MS_JOB_MEND_NS);
}

/* A process of the head before of which its node has not told yet. */
static bool is_awaited(const struct ms_hosted *job, const struct ms_slot *s)
{
    const struct ms_cluster *c = s->cluster;
    const struct ms_node *n;

    if (s->now.uid || !s->expected_uid || !c->placed)
        return false;
    n = ms_node_find(head_of(job), c->placed->ranks[s->rank]->pieces[0]->node);
    return !n || n->state != MS_NODE_READY;
}

static bool has_awaited(const struct ms_hosted *job)
{
    ms_list_each (c, &head_of(job)->registry.clusters, struct ms_cluster, link)
        for (size_t i = 0; c->driver == job->id && i < c->count; i++)
            if (is_awaited(job, &c->slots[i]))
                return true;
    return false;
}

bool ms_machines_are_back(const struct ms_hosted *job)
{
    if (job->is_on_ours || job->refused.code)
        return !has_awaited(job);
    if (!job->fleet)
        return !ms_job_core_view(job->core).is_held;
    return ms_fleet_is_back(job->fleet, job->key);
}
