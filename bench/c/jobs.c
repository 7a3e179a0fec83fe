/* The job controller, in five measurements; prints one line for each, in this order:
 *
 *   events   events per second of one core by the pure core, at 1,000 instances
 *   decision seconds from the report of a death to a head until it has asked for what replaces
 *            it, and noted that it runs, at 1,000 instances; median and 99th percentile
 *   lost     1,000 of 1,000 instances are lost at once: seconds until all run again, those
 *            that their first start took, and how often replacements were asked for
 *   memory   bytes of the core for each of 100,000 instances, and of the head's heap
 *   recovery seconds until a head that is started again has read the journal of 10,000
 *            instances, and knows that they run
 *
 * All but the first are of a head as `muster head` is one, with its journal on disk and a job
 * `on: sim`, whose instances are placed and counted as running.
 */
#include "base/cleanup.h"
#include "base/clock.h"
#include "head/head_impl.h"
#include "head/jobs/feed.h"
#include "head/ops/op.h"
#include "io/tree.h"
#include "job/core/core.h"

#include <assert.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum {
    INSTANCES = 1000,
    MANY = 10000,
    MOST = 100000,
    DEATHS = 200,
    ROUNDS = 200000,
    TAIL = 255, /* events after a snapshot; the head takes one every 256 */
    PER_NODE = 1000,
};

static struct ms_job_core *core;
static const struct ms_job_action *actions;
static size_t action_count;
static int64_t job_ns = MS_NS_PER_S;

static void step(const struct ms_job_event *e)
{
    struct ms_error err = {0};

    if (ms_job_core_step(core, e, job_ns, &actions, &action_count, &err) < 0) {
        fprintf(stderr, "%s: %s\n", ms_job_event_name(e->what), err.text);
        exit(1);
    }
}

/* The action that wants an answer; there is one. */
static const struct ms_job_action *asked(void)
{
    for (size_t i = 0; i < action_count; i++)
        if (actions[i].id)
            return &actions[i];
    return NULL;
}

static void answer(void)
{
    const struct ms_job_action *a;

    while ((a = asked()))
        step(&(struct ms_job_event){.what = MS_JOB_DONE, .id = a->id});
}

static void submit(uint32_t count)
{
    struct ms_job_role_spec role;
    struct ms_job_spec spec;

    ms_job_role_spec_init(&role);
    memcpy(role.name, "actor", 6);
    role.count = role.min = role.max = count;
    ms_job_spec_init(&spec);
    memcpy(spec.name, "job", 4);
    spec.roles = &role;
    spec.role_count = 1;
    core = ms_job_core_create();
    step(&(struct ms_job_event){.what = MS_JOB_SUBMITTED, .spec = &spec});
    step(&(struct ms_job_event){.what = MS_JOB_ADMITTED});
}

static void run(uint32_t count)
{
    submit(count);
    answer();
    assert(ms_job_core_role(core, 0).counts[MS_JOB_SLOT_RUNNING] == count);
}

static struct ms_job_report death(uint32_t rank)
{
    return (struct ms_job_report){.rank = rank,
                                  .incarnation =
                                      ms_job_core_slot(core, 0, rank).incarnation,
                                  .cause = MS_JOB_PREEMPTED,
                                  .signaled = 1,
                                  .code = 9,
                                  .node = "n1"};
}

static double seconds(int64_t ns)
{
    return (double)ns / (double)MS_NS_PER_S;
}

/* ---- events ------------------------------------------------------------------------ */

static void measure_events(void)
{
    clock_t began;

    run(INSTANCES);
    began = clock();
    for (uint32_t i = 0; i < ROUNDS; i++) {
        struct ms_job_report p = death(i * 7 % INSTANCES);

        job_ns += 3600 * MS_NS_PER_S; /* each has run well before */
        step(&(struct ms_job_event){
            .what = MS_JOB_EXITED, .reports = &p, .report_count = 1});
        assert(asked() && asked()->what == MS_JOB_DO_REPLACE);
        step(&(struct ms_job_event){.what = MS_JOB_DONE, .id = asked()->id});
    }
    printf("%.0f\n", 2.0 * ROUNDS / ((double)(clock() - began) / CLOCKS_PER_SEC));
    ms_job_core_destroy(core);
}

/* ---- a head ------------------------------------------------------------------------ */

static char folder[] = "/tmp/mbXXXXXX";
static struct ms_head *head;

static void stop(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static void serve(void)
{
    struct ms_error err = {0};

    head = ms_head_serve(
        &(struct ms_head_serve_options){.name = "bench", .agent_path = "/bin/false"},
        &err);
    if (!head)
        stop("head", err.text);
}

/* On its thread. */
static void on_head(ms_verb_run *run)
{
    struct ms_error err = {0};

    if (ms_head_op_call(head, run, MS_NEVER, &err) < 0)
        stop("head", err.text);
}

static struct ms_hosted *job_of(const struct ms_head_op *op)
{
    return ms_hosted_find(op->head->jobs, "job");
}

static uint32_t running;
static size_t core_bytes;

static int look(struct ms_head_op *op)
{
    const struct ms_hosted *job = job_of(op);

    running = job->is_recovering
                  ? 0
                  : ms_job_core_role(job->core, 0).counts[MS_JOB_SLOT_RUNNING];
    core_bytes = ms_job_core_memory(job->core);
    ms_head_op_succeed(op, NULL);
    return 0;
}

static void wait_running(uint32_t count)
{
    do
        on_head(look);
    while (running < count);
}

/* Submitted, placed and running. */
static void start_job(uint32_t count)
{
    Muster__SubmitJob submit = MUSTER__SUBMIT_JOB__INIT;
    char text[256];
    struct ms_error err = {0};
    struct ms_head_op *op;

    snprintf(text,
             sizeof text,
             "name: job\non: sim\nnodes: [{name: \"n[0-%u]\", cpus: %d}]\n"
             "roles: {a: {command: [sh], world_size: %u, num_cpus: 1}}\n",
             (count - 1) / PER_NODE,
             PER_NODE,
             count);
    submit.folder = folder;
    submit.text = text;
    op = ms_head_request(head, MUSTER__DRIVER_TO_HEAD__BODY_SUBMIT_JOB, &submit);
    ms_head_op_wait(op, MS_NEVER);
    if (ms_head_op_result(op, &err) < 0)
        stop("submit", err.text);
    ms_head_op_unref(op);
    wait_running(count);
}

/* The folder is empty again. */
static void end_head(void)
{
    ms_head_stop(head, 0);
    ms_tree_remove(AT_FDCWD, folder);
    if (mkdir(folder, 0700) < 0)
        stop(folder, "cannot be made");
}

static void add_end(struct ms_hosted *job, uint32_t rank, enum ms_job_cause cause)
{
    struct ms_job_report p = {.rank = rank,
                              .incarnation =
                                  ms_job_core_slot(job->core, 0, rank).incarnation,
                              .cause = (uint8_t)cause,
                              .signaled = 1,
                              .code = 9,
                              .node = "n0"};

    ms_ends_add(job, &p, "killed by signal 9");
}

/* ---- decisions --------------------------------------------------------------------- */

static uint32_t dying;
static int64_t took_ns;

static int lose_one(struct ms_head_op *op)
{
    struct ms_hosted *job = job_of(op);
    int64_t began_ns = ms_now_ns();

    add_end(job, dying, MS_JOB_PREEMPTED);
    ms_ends_tell(job);
    took_ns = ms_now_ns() - began_ns;
    assert(ms_job_core_slot(job->core, 0, dying).incarnation > 1);
    ms_head_op_succeed(op, NULL);
    return 0;
}

static int compare(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static void measure_decision(void)
{
    int64_t times[DEATHS];

    serve();
    start_job(INSTANCES);
    for (uint32_t i = 0; i < DEATHS; i++) {
        dying = i * 7 % INSTANCES;
        on_head(lose_one);
        times[i] = took_ns;
    }
    wait_running(INSTANCES);
    qsort(times, DEATHS, sizeof *times, compare);
    printf(
        "%.9f %.9f\n", seconds(times[DEATHS / 2]), seconds(times[DEATHS * 99 / 100]));
    end_head();
}

/* ---- all at once ------------------------------------------------------------------- */

static uint64_t events;

static int lose_all(struct ms_head_op *op)
{
    struct ms_hosted *job = job_of(op);

    events = job->event_number;
    for (uint32_t i = 0; i < INSTANCES; i++)
        add_end(job, i, MS_JOB_NODE_LOST);
    ms_head_op_succeed(op, NULL);
    return 0;
}

/* The report, and an answer to each request. */
static int count_requests(struct ms_head_op *op)
{
    events = job_of(op)->event_number - events - 1;
    ms_head_op_succeed(op, NULL);
    return 0;
}

static int is_new(struct ms_head_op *op)
{
    running = 0;
    for (uint32_t i = 0; i < INSTANCES; i++)
        running +=
            ms_job_core_slot(job_of(op)->core, 0, i).state == MS_JOB_SLOT_RUNNING &&
            ms_job_core_slot(job_of(op)->core, 0, i).incarnation > 1;
    ms_head_op_succeed(op, NULL);
    return 0;
}

static void measure_lost(void)
{
    int64_t began_ns, started_ns, lost_ns;

    serve();
    began_ns = ms_now_ns();
    start_job(INSTANCES);
    started_ns = ms_now_ns() - began_ns;
    began_ns = ms_now_ns();
    on_head(lose_all);
    do
        on_head(is_new);
    while (running < INSTANCES);
    lost_ns = ms_now_ns() - began_ns;
    on_head(count_requests);
    printf("%.6f %.6f %llu\n",
           seconds(lost_ns),
           seconds(started_ns),
           (unsigned long long)events);
    end_head();
}

/* ---- many -------------------------------------------------------------------------- */

static size_t heap_bytes(void)
{
    struct mallinfo2 m = mallinfo2();

    return m.uordblks + m.hblkhd;
}

static void measure_memory(void)
{
    size_t before;

    serve();
    before = heap_bytes();
    start_job(MOST);
    printf("%zu %zu\n", core_bytes / MOST, (heap_bytes() - before) / MOST);
    end_head();
}

static void measure_recovery(void)
{
    int64_t began_ns;

    serve();
    start_job(MANY);
    for (uint32_t i = 0; i < TAIL / 2; i++) {
        dying = i;
        on_head(lose_one);
    }
    wait_running(MANY);
    ms_head_crash(head);
    began_ns = ms_now_ns();
    serve();
    wait_running(MANY);
    printf("%.6f\n", seconds(ms_now_ns() - began_ns));
    end_head();
}

int main(void)
{
    if (!mkdtemp(folder) || setenv("MUSTER_HOME", folder, 1) < 0)
        return 1;
    measure_events();
    measure_decision();
    measure_lost();
    measure_memory();
    measure_recovery();
    ms_tree_remove(AT_FDCWD, folder);
    return 0;
}
