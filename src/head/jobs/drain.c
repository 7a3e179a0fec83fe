/* drain.c - ranks that are to go get no new work, and end what they have
 *
 * All handles of the cluster lose these ranks (ResizeCluster.drain): generation schedulers
 * move their requests to other replicas, and nobody makes new calls. Then it is awaited that
 * no call is open, up to a deadline: after that they go with what they have.
 */
#include "head/head_impl.h"
#include "head/jobs/act.h"
#include "head/jobs/feed.h"
#include "head/jobs/hosted.h"
#include "head/jobs/signs.h"
#include "head/ops/op.h"

#include <errno.h>
#include <string.h>

#define DRAIN_NS (30 * MS_NS_PER_S)
#define LOOK_NS  (200 * MS_NS_PER_MS)

static void look(void *arg);

static bool has_rank(const struct ms_job_doing *d, uint32_t rank)
{
    for (size_t i = 0; i < d->rank_count; i++)
        if (d->ranks[i] == rank)
            return true;
    return false;
}

/* Of one that cannot say it, or is no worker, nobody waits for the end of a call. */
static bool has_work(const Muster__WorkerStatus *w)
{
    const Muster__Activity *a = w->activity;

    return a && w->state != MUSTER__WORKER_STATE__WORKER_EXITED &&
           (a->calls_running > 0 || a->calls_queued > 0);
}

static uint32_t count_busy(const struct ms_job_doing *d, const Muster__Status *s)
{
    uint32_t count = 0;

    for (size_t i = 0; i < s->n_clusters; i++)
        if (ms_hosted_role(d->job, s->clusters[i]->name) == d->role)
            for (size_t k = 0; k < s->clusters[i]->n_workers; k++)
                count += has_rank(d, s->clusters[i]->workers[k]->rank) &&
                         has_work(s->clusters[i]->workers[k]);
    return count;
}

static void on_looked(struct ms_job_doing *d, int rc, const struct ms_error *why)
{
    const Muster__Status *s = rc == 0 ? (const Muster__Status *)d->op->message : NULL;
    uint32_t busy = s ? count_busy(d, s) : 0;

    (void)why;
    if (s && busy == 0) {
        ms_doing_done(d);
    } else if (ms_now_ns() < d->deadline_ns) {
        ms_timer_set(&d->timer, LOOK_NS);
    } else {
        ms_hosted_note(d->job,
                       MS_JOB_WARNING,
                       "%u ranks of role %s that are to go still have calls after %d s",
                       busy,
                       ms_hosted_role_name(d->job, d->role),
                       (int)(DRAIN_NS / MS_NS_PER_S));
        ms_doing_done(d);
    }
}

static void look(void *arg)
{
    ms_doing_ask_activity(arg, on_looked);
}

/* One that cannot be drained has nothing to lose by going. */
static void on_told(struct ms_job_doing *d, int rc, const struct ms_error *why)
{
    if (rc == 0)
        look(d);
    else
        ms_doing_failed_with(d, rc, why);
}

void ms_act_drain(struct ms_job_doing *d)
{
    Muster__ResizeCluster resize = MUSTER__RESIZE_CLUSTER__INIT;
    char name[MS_NAME_MAX + 1];

    if (ms_timer_init(&d->timer, d->job->jobs->head->loop, look, d) < 0) {
        ms_doing_failed(d, MS_JOB_NOT_ASKED, NULL, 0, "out of memory");
        return;
    }
    d->deadline_ns = ms_now_ns() + DRAIN_NS;
    resize.cluster = (char *)(uintptr_t)ms_hosted_cluster(d->job, d->role, name);
    resize.world_size = d->count;
    resize.drain = true;
    ms_doing_ask(d, MUSTER__DRIVER_TO_HEAD__BODY_RESIZE, &resize, on_told);
}
