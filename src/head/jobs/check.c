/* check.c - the check of a job's nodes: a command on two of them at a time, in two rounds
 *
 * Who is checked with whom, and what follows from the results, is job/node_check.h. Here each
 * pair is a cluster of two ranks, one a node, that runs the check's command: Muster's own
 * (`muster node-check`), or that of the job's file. Both ranks must end with 0 within the
 * time limit of the round; the time of a node is how long its rank ran. All pairs of a round
 * run at once. Nodes that the job avoids already are left out.
 */
#include "head/jobs/check.h"
#include "base/cleanup.h"
#include "base/name.h"
#include "head/head_impl.h"
#include "head/jobs/act.h"
#include "head/jobs/feed.h"
#include "head/jobs/hosted.h"
#include "head/jobs/machines.h"
#include "head/jobs/spec.h"
#include "head/ops/op.h"
#include "job/node_check.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define GRACE_NS ((uint64_t)MS_NS_PER_S) /* SIGTERM until SIGKILL */
/* Starting a process takes longer or shorter by so much: that alone makes no node slow. */
#define SLOW_MIN_NS (200 * MS_NS_PER_MS)
#define NOTES_MAX   16u /* lines about runs that failed, of one check */

/* One pair in one round. */
struct run {
    char cluster[MS_NAME_MAX + 1];
    struct ms_node_pair pair;
    int64_t asked_ns;
    int64_t time_ns[2]; /* of the ranks that have ended well; -1: not yet */
    bool is_over;
};

struct ms_job_checking {
    struct ms_hosted *job;
    struct ms_job_doing *doing;
    struct ms_node_check check;
    char **names; /* of the nodes */
    unsigned round, notes;
    struct run *runs; /* of this round */
    size_t run_count, open;
    int64_t began_ns;
    struct ms_timer timer; /* the deadline of the round; at once when it is over */
};

/* ---- clusters ---------------------------------------------------------------------- */

static void print_prefix(const struct ms_hosted *job, char out[MS_NAME_MAX + 1])
{
    snprintf(out, MS_NAME_MAX + 1, "check-%016" PRIx64 "-", job->id);
}

static void on_ended(struct ms_head_op *op, void *arg)
{
    (void)arg;
    ms_head_op_unref(op);
}

/* Nobody waits for it: the next round has clusters of other names. */
static void end_cluster(const struct ms_hosted *job, const char *name)
{
    Muster__DestroyCluster destroy = MUSTER__DESTROY_CLUSTER__INIT;

    destroy.name = (char *)(uintptr_t)name;
    destroy.grace_ns = GRACE_NS;
    ms_head_request_then(job->jobs->head,
                         MUSTER__DRIVER_TO_HEAD__BODY_DESTROY,
                         &destroy,
                         on_ended,
                         NULL);
}

/* What the head before had begun. */
static void end_strays(const struct ms_hosted *job)
{
    char prefix[MS_NAME_MAX + 1];

    print_prefix(job, prefix);
    ms_list_each (c, &job->jobs->head->registry.clusters, struct ms_cluster, link)
        if (strncmp(c->name, prefix, strlen(prefix)) == 0)
            end_cluster(job, c->name);
}

/* ---- one pair ---------------------------------------------------------------------- */

static struct run *find_run(const struct ms_hosted *job, const char *cluster)
{
    const struct ms_job_checking *c = job->checking;

    for (size_t i = 0; c && i < c->run_count; i++)
        if (strcmp(c->runs[i].cluster, cluster) == 0)
            return &c->runs[i];
    return NULL;
}

static uint32_t rank_count(const struct run *r)
{
    return r->pair.a == r->pair.b ? 1 : 2;
}

static uint32_t node_of(const struct run *r, uint32_t rank)
{
    return rank == 0 ? r->pair.a : r->pair.b;
}

static void end_run(struct ms_job_checking *c, struct run *r)
{
    r->is_over = true;
    end_cluster(c->job, r->cluster);
    if (--c->open == 0)
        ms_timer_set(&c->timer, 0); /* not from inside of the end of a worker */
}

/* It fails for both. */
static void fail_run(struct ms_job_checking *c, struct run *r, const char *why)
{
    bool is_pair = rank_count(r) == 2;

    for (uint32_t k = 0; k < rank_count(r); k++)
        ms_node_check_report(&c->check, c->round, node_of(r, k), false, 0);
    if (c->notes++ < NOTES_MAX)
        ms_hosted_note(c->job,
                       MS_JOB_WARNING,
                       "node check, round %u: %s%s%s failed: %.300s",
                       c->round + 1,
                       c->names[r->pair.a],
                       is_pair ? " with " : " alone",
                       is_pair ? c->names[r->pair.b] : "",
                       why);
    end_run(c, r);
}

static void pass_run(struct ms_job_checking *c, struct run *r)
{
    for (uint32_t k = 0; k < rank_count(r); k++)
        ms_node_check_report(&c->check, c->round, node_of(r, k), true, r->time_ns[k]);
    end_run(c, r);
}

static void print_end(const Muster__Exit *exit, const char *node, struct ms_buf *out)
{
    size_t lines = exit->n_last_lines;

    ms_buf_init(out);
    if (exit->unreachable)
        ms_buf_printf(out, "%s: the node was lost", node);
    else
        ms_buf_printf(out,
                      "%s: %s %d",
                      node,
                      exit->signaled ? "signal" : "exit code",
                      exit->code);
    if (exit->detail[0])
        ms_buf_printf(out, ": %s", exit->detail);
    if (lines)
        ms_buf_printf(out, ": %s", exit->last_lines[lines - 1]);
}

bool ms_check_exited(struct ms_hosted *job,
                     const struct ms_slot *slot,
                     const Muster__Exit *exit)
{
    struct run *r = find_run(job, slot->cluster->name);
    MS_CLEANUP(ms_buf_finish) struct ms_buf text = {0};
    int64_t from_ns;

    if (!r)
        return false;
    if (r->is_over || slot->rank >= rank_count(r))
        return true;
    if (exit->signaled || exit->code != 0) {
        print_end(exit, job->checking->names[node_of(r, slot->rank)], &text);
        fail_run(
            job->checking, r, ms_buf_str(&text) ? ms_buf_str(&text) : "out of memory");
        return true;
    }
    from_ns = slot->now.started_ns ? slot->now.started_ns : r->asked_ns;
    r->time_ns[slot->rank] = ms_now_ns() - from_ns;
    if (r->time_ns[0] >= 0 && (rank_count(r) == 1 || r->time_ns[1] >= 0))
        pass_run(job->checking, r);
    return true;
}

/* ---- rounds ------------------------------------------------------------------------ */

struct question {
    struct ms_jobs *jobs;
    uint64_t id; /* of the job, which may be gone */
    char cluster[MS_NAME_MAX + 1];
};

static void on_created(struct ms_head_op *op, void *arg)
{
    struct question *q = arg;
    struct ms_hosted *job =
        q->jobs->is_ending ? NULL : ms_hosted_find_id(q->jobs, q->id);
    struct run *r = job ? find_run(job, q->cluster) : NULL;
    struct ms_error why = {0};

    if (ms_head_op_result(op, &why) < 0 && r && !r->is_over)
        fail_run(job->checking, r, why.text);
    ms_head_op_unref(op);
    free(q);
}

static int ask_create(struct ms_job_checking *c, struct run *r, struct ms_error *err)
{
    const char *nodes[] = {c->names[r->pair.a], c->names[r->pair.b]};
    Muster__CreateCluster create = MUSTER__CREATE_CLUSTER__INIT;
    struct question *q = calloc(1, sizeof *q);
    int rc = 0;

    if (!q)
        return ms_error_set(err, -ENOMEM, "out of memory");
    create.spec = ms_spec_of_check(c->job, r->cluster, nodes, rank_count(r), err);
    if (!create.spec) {
        free(q);
        return err->code;
    }
    *q = (struct question){.jobs = c->job->jobs, .id = c->job->id};
    memcpy(q->cluster, r->cluster, sizeof q->cluster);
    r->asked_ns = ms_now_ns();
    if (!ms_head_request_then(c->job->jobs->head,
                              MUSTER__DRIVER_TO_HEAD__BODY_CREATE,
                              &create,
                              on_created,
                              q)) {
        free(q);
        rc = ms_error_set(err, -ENOMEM, "out of memory");
    }
    muster__cluster_spec__free_unpacked(create.spec, NULL);
    return rc;
}

static int plan_round(struct ms_job_checking *c)
{
    size_t count;
    const struct ms_node_pair *pairs = ms_node_check_plan(&c->check, c->round, &count);
    struct run *runs = calloc(count + 1, sizeof *runs);
    char prefix[MS_NAME_MAX + 1];

    if (!runs)
        return -ENOMEM;
    print_prefix(c->job, prefix);
    for (size_t i = 0; i < count; i++) {
        runs[i] = (struct run){.pair = pairs[i], .time_ns = {-1, -1}};
        snprintf(runs[i].cluster,
                 sizeof runs[i].cluster,
                 "%.22s-%" PRIx64 "-%u-%zu",
                 prefix,
                 c->doing->id,
                 c->round,
                 i);
    }
    free(c->runs);
    c->runs = runs;
    c->run_count = c->open = count;
    return 0;
}

static void begin_round(struct ms_job_checking *c)
{
    ms_timer_set(&c->timer, c->job->file.check.timeout_s * MS_NS_PER_S);
    for (size_t i = 0; i < c->run_count; i++) {
        struct ms_error why = {0};

        if (ask_create(c, &c->runs[i], &why) < 0 && !c->runs[i].is_over)
            fail_run(c, &c->runs[i], why.text);
    }
}

/* ---- the end ----------------------------------------------------------------------- */

static void destroy(struct ms_job_checking *c)
{
    for (uint32_t i = 0; c->names && i < c->check.count; i++)
        free(c->names[i]);
    free(c->names);
    free(c->runs);
    ms_timer_finish(&c->timer);
    ms_node_check_finish(&c->check);
    free(c);
}

void ms_check_drop(struct ms_hosted *job)
{
    if (job->checking)
        destroy(MS_TAKE(job->checking));
}

void ms_check_cancel(struct ms_hosted *job)
{
    struct ms_job_checking *c = MS_TAKE(job->checking);

    if (!c)
        return;
    for (size_t i = 0; i < c->run_count; i++)
        if (!c->runs[i].is_over)
            end_cluster(job, c->runs[i].cluster);
    ms_doing_failed(
        c->doing, MS_JOB_NOT_ASKED, NULL, 0, "the machines are given back meanwhile");
    destroy(c);
}

static bool is_slow(const struct ms_job_checking *c, uint32_t node)
{
    return ms_node_check_time_ns(&c->check, node) -
               ms_node_check_median_ns(&c->check) >=
           SLOW_MIN_NS;
}

/* A report of each node that is not good; how many. */
static size_t judge(struct ms_job_checking *c, struct ms_job_report *reports)
{
    size_t count = 0;

    for (uint32_t i = 0; i < c->check.count; i++) {
        enum ms_node_verdict v = ms_node_check_verdict(&c->check, i);

        if (v == MS_NODE_GOOD || (v == MS_NODE_STRAGGLER && !is_slow(c, i)))
            continue;
        if (v == MS_NODE_STRAGGLER && c->job->file.check.avoids_slow)
            ms_hosted_note(c->job,
                           MS_JOB_WARNING,
                           "node %s is slow: it counts as if it had failed the check",
                           c->names[i]);
        if (v == MS_NODE_SUSPECT)
            ms_hosted_note(c->job,
                           MS_JOB_WARNING,
                           "node %s is suspect: it passed with no other node, and "
                           "nobody can tell which of them it was",
                           c->names[i]);
        reports[count++] = (struct ms_job_report){
            .role = MS_JOB_NO_ROLE,
            .node = c->names[i],
            .cause = v == MS_NODE_STRAGGLER && !c->job->file.check.avoids_slow
                         ? MS_JOB_CAUSE_NONE
                         : MS_JOB_CHECK_FAILED};
    }
    return count;
}

static void finish(struct ms_job_checking *c)
{
    MS_CLEANUP(ms_cleanup_free)
    struct ms_job_report *reports = calloc(c->check.count + 1, sizeof *reports);
    size_t count = reports ? judge(c, reports) : 0;
    int64_t median_ns = ms_node_check_median_ns(&c->check);
    char text[160];

    snprintf(text,
             sizeof text,
             "node check: %u node%s in %.1f s, the median took %.2f s",
             c->check.count,
             c->check.count == 1 ? "" : "s",
             (double)(ms_now_ns() - c->began_ns) / 1e9,
             median_ns < 0 ? 0 : (double)median_ns / 1e9);
    c->job->checking = NULL;
    if (reports)
        ms_doing_done_of(c->doing, reports, count, text);
    else
        ms_doing_failed(c->doing, MS_JOB_NOT_ASKED, NULL, 0, "out of memory");
    destroy(c);
}

static void on_timer(void *arg)
{
    struct ms_job_checking *c = arg;
    char why[64];

    if (c->job->jobs->is_ending)
        return;
    if (c->open > 0) {
        snprintf(why, sizeof why, "no end after %u s", c->job->file.check.timeout_s);
        for (size_t i = 0; i < c->run_count; i++)
            if (!c->runs[i].is_over)
                fail_run(c, &c->runs[i], why);
    } else if (c->round + 1 < MS_NODE_CHECK_ROUNDS && ++c->round &&
               plan_round(c) == 0) {
        begin_round(c);
    } else {
        finish(c);
    }
}

/* ---- the beginning ----------------------------------------------------------------- */

/* Neighbours are so by name, not by who joined first. */
static int by_name(const void *a, const void *b)
{
    return ms_name_order(*(const char *const *)a, *(const char *const *)b);
}

static int init(struct ms_job_checking *c, struct ms_error *err)
{
    MS_CLEANUP(ms_cleanup_free) const char **nodes = ms_machines_trusted(c->job);
    uint32_t count = 0;
    int rc;

    while (nodes && nodes[count])
        count++;
    if (nodes)
        qsort(nodes, count, sizeof *nodes, by_name);
    if (nodes && count == 0)
        return ms_error_set(err, -EAGAIN, "none of its nodes is there");
    rc = nodes ? ms_node_check_init(&c->check, count, err) : -ENOMEM;
    if (rc == 0 && c->job->file.check.slow_milli)
        c->check.slow_milli = c->job->file.check.slow_milli;
    if (rc == 0)
        c->names = calloc(count, sizeof *c->names);
    if (rc == 0 &&
        (!c->names ||
         ms_timer_init(&c->timer, c->job->jobs->head->loop, on_timer, c) < 0))
        rc = -ENOMEM;
    for (uint32_t i = 0; rc == 0 && i < count; i++)
        if (!(c->names[i] = strdup(nodes[i])))
            rc = -ENOMEM;
    if (rc == 0)
        rc = plan_round(c);
    return rc == -ENOMEM ? ms_error_set(err, rc, "out of memory") : rc;
}

void ms_act_check(struct ms_job_doing *d)
{
    struct ms_job_checking *c = calloc(1, sizeof *c);
    struct ms_error why = {-ENOMEM, "out of memory"};

    ms_check_cancel(d->job);
    end_strays(d->job);
    if (!c) {
        ms_doing_failed(d, MS_JOB_NOT_ASKED, NULL, 0, why.text);
        return;
    }
    *c = (struct ms_job_checking){.job = d->job, .doing = d, .began_ns = ms_now_ns()};
    if (init(c, &why) < 0) {
        ms_doing_failed_with(d, why.code, &why);
        destroy(c);
        return;
    }
    d->job->checking = c;
    begin_round(c);
}
