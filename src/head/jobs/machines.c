/* machines.c - what is reserved for a job, and kept whole */
#include "base/cleanup.h"
#include "head/fleet/fleet.h"
#include "head/head_impl.h"
#include "head/jobs/jobs_impl.h"
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
    return job->fleet ? 0 : err->code;
}

/* ---- asking ----------------------------------------------------------------------- */

static void fill_reserve(const struct ms_hosted *job,
                         Muster__PlaceGroup *pieces,
                         Muster__Reserve *reserve,
                         Muster__DriverToHead *m)
{
    pieces->name = (char *)(uintptr_t)job->key;
    pieces->timeout_ns = job->file.timeout_s
                             ? job->file.timeout_s * (uint64_t)MS_NS_PER_S
                             : (uint64_t)RESERVE_NS;
    reserve->pieces = pieces;
    reserve->whole = true;
    m->body_case = MUSTER__DRIVER_TO_HEAD__BODY_RESERVE;
    m->reserve = reserve;
}

/* ---- keeping it whole -------------------------------------------------------------- */

/* Nodes that were lost are asked for again: on this machine their agents are started anew.
 * One question after the other: the piece that has ended is given back, then another is
 * asked for. */
struct mend {
    struct ms_jobs *jobs;
    char name[MS_NAME_MAX + 1];
    uint32_t node;
};

static struct ms_hosted *job_of(const struct mend *m)
{
    return m->jobs->is_ending ? NULL : ms_hosted_find(m->jobs, m->name);
}

static struct mend *mend_create(struct ms_hosted *job, uint32_t node)
{
    struct mend *m = calloc(1, sizeof *m);

    if (!m)
        return NULL;
    m->jobs = job->jobs;
    m->node = node;
    memcpy(m->name, job->name, sizeof m->name);
    return m;
}

/* It is to have all of its machines. */
static bool is_wanted(const struct ms_hosted *job)
{
    struct ms_job_view v = ms_job_core_view(job->core);

    return v.is_held && !ms_job_stage_is_over(v.stage) &&
           v.stage != MS_JOB_STAGE_STOPPING && v.stage != MS_JOB_STAGE_SUSPENDING;
}

/* Look again soon; after a failure later each time, and the first one is said. That the
 * orchestrator cannot be asked is a matter of its own (on_silence). */
static void look_again(struct ms_hosted *job, int rc, const struct ms_error *why)
{
    int64_t wait_ns = MS_JOB_MEND_NS;

    if (rc == 0 || rc == -EAGAIN || rc == -EACCES)
        job->mend_failures = 0;
    else if (job->mend_failures++ == 0)
        ms_hosted_note(job, MS_JOB_WARNING, "its machines: %s", why->text);
    for (unsigned i = 1; i < job->mend_failures && wait_ns < MS_JOB_MEND_MAX_NS; i++)
        wait_ns *= 2;
    ms_timer_set(&job->mend, wait_ns);
}

static void on_again(struct ms_head_op *op, void *arg)
{
    struct mend *m = arg;
    struct ms_hosted *job = job_of(m);
    struct ms_error why = {0};
    int rc = ms_head_op_result(op, &why);

    if (job) {
        job->is_mending = false;
        ms_timer_set(&job->jobs->recover, 0);
        if (is_wanted(job))
            look_again(job, rc, &why);
    }
    ms_head_op_unref(op);
    free(m);
}

/* All of what the head before had: it is the same, or if none of its nodes is left they are
 * asked for anew. */
static void begin_again(struct ms_hosted *job)
{
    Muster__PlaceGroup pieces = MUSTER__PLACE_GROUP__INIT;
    Muster__Reserve reserve = MUSTER__RESERVE__INIT;
    Muster__DriverToHead r = MUSTER__DRIVER_TO_HEAD__INIT;
    struct mend *m = mend_create(job, 0);

    fill_reserve(job, &pieces, &reserve, &r);
    job->is_mending = m && ms_head_request_then(head_of(job), &r, on_again, m) != NULL;
    if (!job->is_mending)
        free(m);
}

/* Without any piece that lives there may be no reservation that one could be added to. */
static void on_mended(struct ms_head_op *op, void *arg)
{
    struct mend *m = arg;
    struct ms_hosted *job = job_of(m);
    struct ms_error why = {0};
    int rc = ms_head_op_result(op, &why);

    if (job) {
        job->is_mending = false;
        if (rc == 0) {
            ms_hosted_note(job,
                           MS_JOB_INFO,
                           "node %s is there again",
                           job->file.has_nodes ? job->file.nodes[m->node]->name
                                               : "localhost");
            ms_hosted_feed(job, &(struct ms_job_event){.what = MS_JOB_ROOM});
        }
        if (is_wanted(job)) {
            look_again(job, rc == -ENOENT ? 0 : rc, &why);
            if (rc == -ENOENT)
                begin_again(job);
        }
    }
    ms_head_op_unref(op);
    free(m);
}

static bool ask_mend(struct ms_hosted *job, struct mend *m)
{
    Muster__PlaceGroup pieces = MUSTER__PLACE_GROUP__INIT;
    Muster__Reserve reserve = MUSTER__RESERVE__INIT;
    Muster__DriverToHead r = MUSTER__DRIVER_TO_HEAD__INIT;

    fill_reserve(job, &pieces, &reserve, &r);
    reserve.more = reserve.one_node = true;
    reserve.node = m->node;
    return ms_head_request_then(head_of(job), &r, on_mended, m) != NULL;
}

/* If it was not, the timer tries again; unless all is given back meanwhile. */
static void on_given_back(struct ms_head_op *op, void *arg)
{
    struct mend *m = arg;
    struct ms_hosted *job = job_of(m);
    struct ms_error why = {0};
    int rc = ms_head_op_result(op, &why);

    if (job) {
        job->is_mending = rc == 0 && is_wanted(job) && ask_mend(job, m);
        if (is_wanted(job) && rc < 0)
            look_again(job, rc, &why);
        else if (is_wanted(job))
            ms_timer_set(&job->mend, MS_JOB_MEND_NS);
    }
    if (!job || !job->is_mending)
        free(m);
    ms_head_op_unref(op);
}

static bool give_back(struct ms_hosted *job, uint32_t number, struct mend *m)
{
    Muster__ReleasePieces release = MUSTER__RELEASE_PIECES__INIT;
    Muster__DriverToHead r = MUSTER__DRIVER_TO_HEAD__INIT;

    release.key = job->key;
    release.numbers = &number;
    release.n_numbers = 1;
    r.body_case = MUSTER__DRIVER_TO_HEAD__BODY_RELEASE_PIECES;
    r.release_pieces = &release;
    return ms_head_request_then(head_of(job), &r, on_given_back, m) != NULL;
}

static void begin_mend(struct ms_hosted *job, uint32_t number, uint32_t node)
{
    struct mend *m = mend_create(job, node);

    if (!m)
        return;
    job->is_mending =
        number == MS_FLEET_NO_PIECE ? ask_mend(job, m) : give_back(job, number, m);
    if (!job->is_mending)
        free(m);
}

static void on_mend(void *arg)
{
    struct ms_hosted *job = arg;
    struct ms_job_view v = ms_job_core_view(job->core);
    uint32_t number, node;

    if (!v.is_held || ms_job_stage_is_over(v.stage) || job->is_mending)
        return;
    if (!job->fleet) {
        ms_machines_recover(job);
        return;
    }
    if (!is_wanted(job))
        return;
    ms_fleet_probe(job->fleet);
    if (!ms_fleet_is_held(job->fleet, job->key))
        begin_again(job);
    else if (!job->is_recovering && v.can_ask &&
             ms_fleet_find_lost(job->fleet, job->key, &number, &node))
        begin_mend(job, number, node);
    ms_timer_set(&job->mend, MS_JOB_MEND_NS);
}

int ms_machines_init(struct ms_hosted *job, struct ms_error *err)
{
    if (ms_timer_init(&job->mend, head_of(job)->loop, on_mend, job) < 0)
        return ms_error_set(err, -ENOMEM, "out of memory");
    return 0;
}

void ms_machines_finish(struct ms_hosted *job)
{
    ms_timer_finish(&job->mend);
    ms_fleet_destroy(MS_TAKE(job->fleet));
}

/* ---- actions ----------------------------------------------------------------------- */

static void on_reserved(struct ms_job_doing *d, int rc, const struct ms_error *why)
{
    if (rc == 0) {
        ms_timer_set(&d->job->mend, MS_JOB_MEND_NS);
        ms_doing_done(d);
    } else if (rc == -ETIMEDOUT) {
        ms_doing_failed(d, MS_JOB_NO_ROOM, NULL, 0, why->text);
    } else {
        ms_doing_failed_with(d, rc, why);
    }
}

void ms_act_reserve(struct ms_job_doing *d)
{
    Muster__PlaceGroup pieces = MUSTER__PLACE_GROUP__INIT;
    Muster__Reserve reserve = MUSTER__RESERVE__INIT;
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;
    struct ms_hosted *job = d->job;
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
    fill_reserve(job, &pieces, &reserve, &m);
    ms_doing_ask(d, &m, on_reserved);
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
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;
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
    m.body_case = MUSTER__DRIVER_TO_HEAD__BODY_RELEASE_PIECES;
    m.release_pieces = &release;
    ms_doing_ask(d, &m, on_released);
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
    begin_again(job);
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
    if (job->is_on_ours)
        return !has_awaited(job);
    if (!job->fleet)
        return !ms_job_core_view(job->core).is_held;
    return ms_fleet_is_back(job->fleet, job->key);
}
