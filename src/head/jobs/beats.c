/* beats.c - processes that are there and silent: stopped, or without an answer
 *
 * While a job runs, the agents are asked now and then what its processes do. An agent asks
 * its workers on a thread that answers while their engine computes, and sees which the
 * kernel has stopped. One that is silent at every look for `heartbeat` seconds counts as
 * ended, by "no heart-beat". Plain commands answer nobody: they are silent when they are
 * stopped. What is not known is no silence: of a node that does not answer the time begins
 * anew.
 */
#include "base/cleanup.h"
#include "head/jobs/ends.h"
#include "head/jobs/hosted.h"
#include "head/jobs/ranks.h"
#include "head/jobs/signs.h"

#include <stdlib.h>
#include <string.h>

#define LOOKS_PER_BEAT 8
#define LOOK_MAX_NS    (60 * MS_NS_PER_S)

static int64_t limit_ns(const struct ms_hosted *job, uint32_t role)
{
    const struct ms_job_policy *p = role == MS_JOB_DRIVER
                                        ? &job->file.driver_policy
                                        : &ms_hosted_file_role(job, role)->policy;

    return (p->heartbeat_s ? p->heartbeat_s : MS_JOB_HEARTBEAT_S) * MS_NS_PER_S;
}

int64_t ms_beats_look_ns(const struct ms_hosted *job)
{
    int64_t least_ns = LOOK_MAX_NS * LOOKS_PER_BEAT;

    if (job->file.driver && limit_ns(job, MS_JOB_DRIVER) < least_ns)
        least_ns = limit_ns(job, MS_JOB_DRIVER);
    for (uint32_t i = 0; i < ms_job_core_role_count(job->core); i++)
        if (limit_ns(job, i) < least_ns)
            least_ns = limit_ns(job, i);
    return least_ns / LOOKS_PER_BEAT;
}

/* ---- who is silent ------------------------------------------------------------------ */

/* What was silent at the last look, and what is now. Both come in the same order as a rule,
 * so that the next one is looked for behind the last. */
struct looking {
    struct ms_hosted *job;
    const struct ms_job_silence *old;
    size_t old_count, at;
    struct ms_job_silence *now;
    size_t count, room;
    int64_t now_ns;
};

static bool is_silent(const Muster__WorkerStatus *w)
{
    return w->state != MUSTER__WORKER_STATE__WORKER_EXITED && w->activity &&
           (w->activity->doing == MUSTER__DOING__DOING_STOPPED ||
            w->activity->doing == MUSTER__DOING__DOING_SILENT);
}

static int64_t since_ns(struct looking *l, uint64_t uid)
{
    for (size_t i = 0; i < l->old_count; i++) {
        size_t at = (l->at + i) % l->old_count;

        if (l->old[at].uid == uid) {
            l->at = at + 1;
            return l->old[at].since_ns;
        }
    }
    return l->now_ns;
}

static void
end(struct looking *l, uint32_t role, const Muster__WorkerStatus *w, int64_t silent_ns)
{
    struct ms_job_report report = {.role = role,
                                   .rank = role == MS_JOB_DRIVER ? 0 : w->rank,
                                   .incarnation =
                                       ms_hosted_incarnation(l->job, role, w->uid),
                                   .seen = MS_JOB_SEEN_ENDED,
                                   .cause = MS_JOB_NO_HEARTBEAT,
                                   .node = w->node};
    char text[64];

    snprintf(text,
             sizeof text,
             "%s for %lld s",
             w->activity->doing == MUSTER__DOING__DOING_STOPPED
                 ? "it was stopped, by a signal or a debugger,"
                 : "it did not answer",
             (long long)(silent_ns / MS_NS_PER_S));
    if (report.incarnation) /* else of an action under way */
        ms_ends_add(l->job, &report, text);
}

static void look_at(struct looking *l, uint32_t role, const Muster__WorkerStatus *w)
{
    struct ms_job_silence one = {.uid = w->uid, .since_ns = since_ns(l, w->uid)};
    int64_t silent_ns = l->now_ns - one.since_ns;

    /* one that answers late has answered since */
    if (w->activity->doing == MUSTER__DOING__DOING_SILENT &&
        silent_ns > (int64_t)w->activity->for_ns)
        silent_ns = (int64_t)w->activity->for_ns;
    if (silent_ns >= limit_ns(l->job, role))
        end(l, role, w, silent_ns);
    else if (ms_array_reserve(&l->now, &l->room, l->count + 1, sizeof *l->now) == 0)
        l->now[l->count++] = one;
}

void ms_beats_look(struct ms_hosted *job, const Muster__Status *status)
{
    struct looking l = {.job = job,
                        .old = job->silent,
                        .old_count = job->silent_count,
                        .now_ns = ms_now_ns()};

    for (size_t i = 0; i < status->n_clusters; i++) {
        const Muster__ClusterStatus *c = status->clusters[i];
        uint32_t role = ms_hosted_role(job, c->name);

        for (size_t k = 0; role != MS_JOB_NO_ROLE && k < c->n_workers; k++)
            if (is_silent(c->workers[k]))
                look_at(&l, role, c->workers[k]);
    }
    free(job->silent);
    job->silent = l.now;
    job->silent_count = l.count;
}

void ms_beats_finish(struct ms_hosted *job)
{
    free(job->silent);
}
