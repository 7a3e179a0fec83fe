/* queue.c - jobs that wait for the machine: which may start, and what the others are told
 *
 * What is decided is in job/queue.h. A job with described nodes wants what these say, of
 * CPUs, memory and devices; one whose nodes do not say their CPUs, and one without `nodes`,
 * wants all CPUs of the machine. Jobs on sim, and on nodes that have joined the head by
 * themselves, want nothing of it.
 */
#include "head/jobs/queue.h"
#include "agent/machine/machine.h"
#include "base/cleanup.h"
#include "head/head_impl.h"
#include "head/jobs/feed.h"
#include "head/jobs/hosted.h"
#include "head/jobs/machines.h"
#include "head/jobs/simulated.h"
#include "resource/shape.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static enum ms_job_stage stage_of(const struct ms_hosted *job)
{
    return ms_job_core_view(job->core).stage;
}

static bool is_holding(enum ms_job_stage s)
{
    return s != MS_JOB_STAGE_NEW && s != MS_JOB_STAGE_QUEUED &&
           s != MS_JOB_STAGE_SUSPENDED && !ms_job_stage_is_over(s);
}

/* ---- what there is, and what is wanted --------------------------------------------- */

/* Looked for once: devices do not come and go. */
static const struct ms_job_demand *machine_of(struct ms_jobs *j)
{
    MS_CLEANUP(ms_shape_cleanup) Muster__NodeShape *s = NULL;

    if (j->machine.cpu_milli)
        return &j->machine;
    s = ms_machine_shape("localhost", NULL, NULL);
    j->machine = (struct ms_job_demand){.cpu_milli = ms_machine_cpus() * UINT64_C(1000),
                                        .memory = ms_machine_memory(),
                                        .devices = s ? (uint32_t)s->n_devices : 0};
    return &j->machine;
}

struct ms_job_demand ms_hosted_node_demand(const struct ms_hosted *job, uint32_t node)
{
    const Muster__NodeShape *n = job->file.nodes[node];

    return (struct ms_job_demand){.cpu_milli = n->cpus < 0
                                                   ? machine_of(job->jobs)->cpu_milli
                                                   : n->cpus * UINT64_C(1000),
                                  .memory = n->memory,
                                  .devices = (uint32_t)n->n_devices};
}

/* What it needs, and of those that run what they have beyond that; after a restart of the head
 * this is not known at first. */
static struct ms_job_demand wants_of(const struct ms_hosted *job, bool is_holding)
{
    struct ms_job_demand sum = {0}, one;
    bool is_on_ours = is_holding ? job->is_on_ours : ms_machines_are_there(job);

    if (is_on_ours || ms_hosted_is_simulated(job))
        return sum;
    if (!job->file.has_nodes)
        return *machine_of(job->jobs);
    for (size_t i = 0; i < job->least_count; i++) {
        one = ms_hosted_node_demand(job, job->least[i]);
        ms_job_demand_add(&sum, &one);
    }
    for (size_t i = 0; is_holding && i < job->file.node_range_count; i++) {
        const struct ms_job_node_range *r = &job->file.node_ranges[i];
        uint32_t count = job->knows_nodes
                             ? ms_job_nodes_held(&job->file, i, job->node_is)
                             : r->count.max;

        one = ms_hosted_node_demand(job, (uint32_t)r->first);
        for (uint32_t k = r->count.min; k < count; k++)
            ms_job_demand_add(&sum, &one);
    }
    return sum;
}

/* ---- what is said ------------------------------------------------------------------ */

static void add_holders(struct ms_hosted *const *jobs,
                        const struct ms_job_claim *claims,
                        size_t count,
                        struct ms_buf *out)
{
    const char *before = "; held by ";

    for (size_t i = 0; i < count; i++)
        if (claims[i].is_holding && !ms_job_demand_is_nothing(&claims[i].wants)) {
            ms_buf_printf(out, "%s%s", before, jobs[i]->name);
            before = ", ";
        }
}

static void print_amount(enum ms_job_lack lacks, uint64_t amount, char out[32])
{
    if (lacks == MS_JOB_LACKS_MEMORY)
        snprintf(out, 32, "%.1f GiB", (double)amount / (double)(1 << 30));
    else
        snprintf(
            out, 32, "%g", (double)amount / (lacks == MS_JOB_LACKS_CPUS ? 1e3 : 1));
}

static void print_why(struct ms_hosted *const *jobs,
                      const struct ms_job_claim *claims,
                      size_t count,
                      const struct ms_job_claim *c,
                      struct ms_buf *out)
{
    static const char *const what[] = {[MS_JOB_LACKS_CPUS] = "CPUs",
                                       [MS_JOB_LACKS_MEMORY] = "memory",
                                       [MS_JOB_LACKS_DEVICES] = "devices"};
    char want[32], free[32];

    if (c->lacks == MS_JOB_LACKS_TURN) {
        ms_buf_printf(out,
                      "waits behind job %s, whose priority is %d",
                      jobs[c->behind]->name,
                      claims[c->behind].place.priority);
        return;
    }
    print_amount(c->lacks, c->want, want);
    print_amount(c->lacks, c->free, free);
    ms_buf_printf(out, "waits for %s of %s, free are %s", want, what[c->lacks], free);
    add_holders(jobs, claims, count, out);
}

/* A line of the events when it is another reason than before. */
static void say_why(struct ms_hosted *job, const char *why)
{
    if (strcmp(job->queued_why, why) == 0)
        return;
    snprintf(job->queued_why, sizeof job->queued_why, "%s", why);
    if (why[0])
        ms_hosted_note(job, MS_JOB_INFO, "%s", why);
}

/* ---- going through ----------------------------------------------------------------- */

static void tell(struct ms_hosted *const *jobs,
                 const struct ms_job_claim *claims,
                 size_t count,
                 size_t i)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf why = {0};

    if (jobs[i]->is_recovering || jobs[i]->is_feeding ||
        stage_of(jobs[i]) != MS_JOB_STAGE_QUEUED)
        return;
    ms_buf_init(&why);
    if (claims[i].lacks) {
        print_why(jobs, claims, count, &claims[i], &why);
        say_why(jobs[i], ms_buf_str(&why) ? ms_buf_str(&why) : "waits");
    } else {
        jobs[i]->queued_why[0] = 0;
        ms_hosted_feed(jobs[i], &(struct ms_job_event){.what = MS_JOB_ADMITTED});
    }
}

/* All that hold something or wait for it, and what they want. 0, -ENOMEM; both are to be
 * freed. */
static int gather(struct ms_jobs *j,
                  struct ms_hosted ***jobs,
                  struct ms_job_claim **claims,
                  size_t *count)
{
    *claims = calloc(j->count + 1, sizeof **claims);
    *jobs = calloc(j->count + 1, sizeof(struct ms_hosted *));
    *count = 0;
    if (!*claims || !*jobs)
        return -ENOMEM;
    ms_list_each (job, &j->all, struct ms_hosted, link) {
        enum ms_job_stage s = stage_of(job);

        if (*count == j->count)
            break;
        if (s != MS_JOB_STAGE_QUEUED && !is_holding(s))
            continue;
        (*jobs)[*count] = job;
        (*claims)[(*count)++] = (struct ms_job_claim){
            .place = {job->file.priority, job->submitted_ns, job->id},
            .wants = wants_of(job, is_holding(s)),
            .is_holding = is_holding(s)};
    }
    return 0;
}

void ms_jobs_admit(struct ms_jobs *j)
{
    MS_CLEANUP(ms_cleanup_free) struct ms_job_claim *claims = NULL;
    MS_CLEANUP(ms_cleanup_free) struct ms_hosted **jobs = NULL;
    size_t count = 0;

    if (gather(j, &jobs, &claims, &count) < 0 || count == 0 ||
        ms_job_queue_decide(claims, count, machine_of(j), NULL) < 0)
        return;
    for (size_t i = 0; i < count; i++)
        tell(jobs, claims, count, i);
}

bool ms_jobs_left(struct ms_hosted *job, struct ms_job_demand *left)
{
    struct ms_jobs *j = job->jobs;
    MS_CLEANUP(ms_cleanup_free) struct ms_job_claim *claims = NULL;
    MS_CLEANUP(ms_cleanup_free) struct ms_hosted **jobs = NULL;
    size_t count = 0;

    if (ms_hosted_is_on_ray(job))
        return false;
    if (gather(j, &jobs, &claims, &count) < 0 ||
        ms_job_queue_decide(claims, count, machine_of(j), left) < 0)
        *left = (struct ms_job_demand){0};
    return true;
}

bool ms_jobs_take(struct ms_jobs *j,
                  const struct ms_job_demand *wants,
                  struct ms_job_demand *left)
{
    if (ms_job_demand_lacks(wants, machine_of(j), left))
        return false;
    ms_job_demand_take(left, wants);
    return true;
}
