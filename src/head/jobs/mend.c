/* mend.c - what is reserved for a job is kept whole */
#include "head/fleet/fleet.h"
#include "head/head_impl.h"
#include "head/jobs/feed.h"
#include "head/jobs/hosted.h"
#include "head/jobs/machines.h"
#include "head/ops/op.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct ms_head *head_of(const struct ms_hosted *job)
{
    return job->jobs->head;
}

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
void ms_mend_begin_again(struct ms_hosted *job)
{
    struct ms_job_reserve r;
    struct mend *m = mend_create(job, 0);

    ms_reserve_fill_least(job, &r);
    job->is_mending = m && ms_head_request_then(head_of(job),
                                                MUSTER__DRIVER_TO_HEAD__BODY_RESERVE,
                                                &r.reserve,
                                                on_again,
                                                m) != NULL;
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
            ms_hosted_keep(job, NULL);
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
                ms_mend_begin_again(job);
        }
    }
    ms_head_op_unref(op);
    free(m);
}

static bool ask_mend(struct ms_hosted *job, struct mend *m)
{
    struct ms_job_reserve r;

    ms_reserve_fill(job, &r);
    r.reserve.more = true;
    r.reserve.nodes = &m->node;
    r.reserve.n_nodes = 1;
    return ms_head_request_then(head_of(job),
                                MUSTER__DRIVER_TO_HEAD__BODY_RESERVE,
                                &r.reserve,
                                on_mended,
                                m) != NULL;
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

    release.key = job->key;
    release.numbers = &number;
    release.n_numbers = 1;
    return ms_head_request_then(head_of(job),
                                MUSTER__DRIVER_TO_HEAD__BODY_RELEASE_PIECES,
                                &release,
                                on_given_back,
                                m) != NULL;
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

/* What has ended is asked for again, then what was never there. */
static void look(struct ms_hosted *job)
{
    uint32_t number, node;

    if (!ms_grow_look(job))
        return;
    if (ms_grow_find_lost(job, &node, &number))
        begin_mend(job, number, node);
    else
        ms_grow_try(job);
}

static void on_mend(void *arg)
{
    struct ms_hosted *job = arg;
    struct ms_job_view v = ms_job_core_view(job->core);

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
        ms_mend_begin_again(job);
    else if (!job->is_recovering && v.can_ask)
        look(job);
    ms_timer_set(&job->mend, MS_JOB_MEND_NS);
}

int ms_mend_init(struct ms_hosted *job)
{
    return ms_timer_init(&job->mend, head_of(job)->loop, on_mend, job);
}
