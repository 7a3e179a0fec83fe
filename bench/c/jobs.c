/* The job controller, in five measurements; prints one number for each, in this order:
 *
 *   events   events per second of one core by the pure core, at 1,000 instances
 *   decision seconds from the report of a death, through the journal on disk, to the
 *            action that replaces it, at 1,000 instances; median and 99th percentile
 *   lost     1,000 of 1,000 instances are lost at once on a simulated engine: seconds of its
 *            time until all run again, those that their first start took, and how often the
 *            engine was asked
 *   memory   bytes of the core for each of 100,000 instances, and those of the simulated
 *            engine and its orchestrator with them
 *   recovery seconds until a new controller has read a journal of 10,000 instances and knows
 *            which of them run
 */
#include "base/cleanup.h"
#include "base/clock.h"
#include "head/state/journal.h"
#include "job/core/core.h"
#include "orchestrator/sim/sim.h"

#include <assert.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    INSTANCES = 1000,
    MANY = 10000,
    MOST = 100000,
    DEATHS = 200,
    ROUNDS = 200000,
    TAIL = 255, /* events after a snapshot; the host takes one every 256 */
    SPACE_EVENTS = 1,
    SPACE_CORE,
    SPACE_LINES,
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

/* ---- the journal ------------------------------------------------------------------- */

static struct ms_journal *journal;
static uint64_t number;
static char folder[] = "/tmp/mbXXXXXX";

static void ignore_record(
    void *arg, uint32_t space, const char *key, const uint8_t *data, size_t len)
{
    (void)arg, (void)space, (void)key, (void)data, (void)len;
}

static void ignore_rewrite(void *arg, struct ms_journal *d)
{
    (void)arg, (void)d;
}

static const struct ms_journal_ops journal_ops = {ignore_record, ignore_rewrite};

static void open_journal(bool is_kept)
{
    struct ms_error err = {0};

    if (ms_journal_open(
            &journal, folder, "jobs.db", is_kept, 0, &journal_ops, NULL, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
}

static void keep(uint32_t space, const char *key, const void *data, size_t len)
{
    struct ms_error err = {0};

    if (ms_journal_write(journal, space, key, data, len, &err) < 0) {
        fprintf(stderr, "%s\n", err.text);
        exit(1);
    }
}

/* As a host takes an event: into the journal, then into the core. */
static void take_kept(const struct ms_job_event *e)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf data = {0};
    struct ms_job_event_read read;
    char key[32];

    snprintf(key, sizeof key, "job/%020" PRIu64, ++number);
    assert(ms_job_event_encode(e, &data) == 0);
    assert(ms_job_event_decode(&read, data.data, data.len, NULL) == 0);
    keep(SPACE_EVENTS, key, data.data, data.len);
    step(&read.event);
    for (size_t i = 0; i < action_count; i++)
        if (actions[i].what == MS_JOB_DO_SAY) {
            snprintf(key, sizeof key, "job/%020" PRIu64, number * 16 + i);
            keep(SPACE_LINES, key, actions[i].text, strlen(actions[i].text));
        }
    ms_job_event_read_finish(&read);
}

static int compare(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static void measure_decision(void)
{
    int64_t times[DEATHS];

    run(INSTANCES);
    open_journal(false);
    for (uint32_t i = 0; i < DEATHS; i++) {
        struct ms_job_report p = death(i * 7 % INSTANCES);
        int64_t began_ns = ms_now_ns();

        job_ns += 3600 * MS_NS_PER_S;
        take_kept(&(struct ms_job_event){
            .what = MS_JOB_EXITED, .reports = &p, .report_count = 1, .text = "killed"});
        assert(asked() && asked()->what == MS_JOB_DO_REPLACE);
        times[i] = ms_now_ns() - began_ns;
        take_kept(&(struct ms_job_event){.what = MS_JOB_DONE, .id = asked()->id});
    }
    qsort(times, DEATHS, sizeof *times, compare);
    printf(
        "%.9f %.9f\n", seconds(times[DEATHS / 2]), seconds(times[DEATHS * 99 / 100]));
    ms_journal_close(journal);
    ms_job_core_destroy(core);
}

/* ---- recovery ---------------------------------------------------------------------- */

static void on_core(void *arg, const char *key, const uint8_t *data, size_t len)
{
    (void)arg, (void)key;
    core = ms_job_core_decode(data, len, NULL);
    assert(core);
}

static void on_event(void *arg, const char *key, const uint8_t *data, size_t len)
{
    struct ms_job_event_read read;

    (void)arg, (void)key;
    assert(ms_job_event_decode(&read, data, len, NULL) == 0);
    step(&read.event);
    ms_job_event_read_finish(&read);
}

/* Of all that runs, as its nodes tell it. */
static void recover(uint32_t count)
{
    struct ms_job_report *found = calloc(count, sizeof *found);

    assert(found);
    for (uint32_t i = 0; i < count; i++)
        found[i] = (struct ms_job_report){.rank = i,
                                          .incarnation =
                                              ms_job_core_slot(core, 0, i).incarnation,
                                          .seen = MS_JOB_SEEN_RUNNING};
    take_kept(&(struct ms_job_event){.what = MS_JOB_RECOVERED,
                                     .reports = found,
                                     .report_count = count,
                                     .flags = MS_JOB_COMPLETE});
    free(found);
}

static void measure_recovery(void)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf snapshot = {0};
    int64_t began_ns;

    run(MANY);
    open_journal(false);
    assert(ms_job_core_encode(core, &snapshot) == 0);
    keep(SPACE_CORE, "job", snapshot.data, snapshot.len);
    for (uint32_t i = 0; i < TAIL; i++) {
        struct ms_job_report p = death(i);

        take_kept(asked()
                      ? &(struct ms_job_event){.what = MS_JOB_DONE, .id = asked()->id}
                      : &(struct ms_job_event){
                            .what = MS_JOB_EXITED, .reports = &p, .report_count = 1});
    }
    ms_journal_close(journal);
    ms_job_core_destroy(core);
    began_ns = ms_now_ns();
    open_journal(true);
    assert(ms_journal_read(journal, SPACE_CORE, "job", on_core, NULL, NULL) == 0);
    assert(ms_journal_read(journal, SPACE_EVENTS, "job/", on_event, NULL, NULL) == 0);
    recover(MANY);
    printf("%.6f\n", seconds(ms_now_ns() - began_ns));
    assert(ms_job_core_role(core, 0).counts[MS_JOB_SLOT_UNKNOWN] == 0);
    assert(ms_job_core_role(core, 0).counts[MS_JOB_SLOT_RUNNING] > MANY - TAIL);
    ms_journal_close(journal);
    ms_job_core_destroy(core);
}

/* ---- on a simulated engine --------------------------------------------------------- */

static struct ms_sim *sim;
static struct ms_orchestrator *engine;
static struct ms_bundle *bundles;
static uint32_t *rank_of;           /* by the number of a piece */
static struct ms_job_report *ended; /* told at this moment */
static uint8_t *phases;             /* of each piece, as last told */
static size_t ended_count, next_piece, starting, asks;

static void on_reserved(void *arg,
                        int rc,
                        const struct ms_error *why,
                        const struct ms_orch_answer *a)
{
    (void)arg, (void)a;
    if (rc < 0) {
        fprintf(stderr, "%s\n", why->text);
        exit(1);
    }
}

/* News, or what a list has: the latter may be known already. */
static void take_piece(const struct ms_lent_piece *p)
{
    if (p->phase <= phases[p->number])
        return;
    phases[p->number] = (uint8_t)p->phase;
    if (p->phase == MS_PHASE_RUNNING)
        starting--;
    else if (p->phase == MS_PHASE_ENDED)
        ended[ended_count++] = death(rank_of[p->number]);
}

static void on_piece(void *arg, int rc, const struct ms_orch_event *e);

static void
on_list(void *arg, int rc, const struct ms_error *why, const struct ms_orch_answer *a)
{
    (void)arg, (void)why;
    if (rc < 0)
        return; /* the end */
    for (size_t i = 0; i < a->count; i++)
        for (size_t k = 0; k < a->reservations[i].count; k++)
            take_piece(a->reservations[i].pieces[k]);
    assert(engine->ops->watch(engine, a->cursor, on_piece, NULL));
}

static void on_piece(void *arg, int rc, const struct ms_orch_event *e)
{
    (void)arg;
    if (rc < 0) /* too much has happened since: look at the whole */
        assert(engine->ops->list(engine, NULL, on_list, NULL));
    else if (!e->gone)
        take_piece(e->piece);
}

/* What the core asks for, in one request to the engine. */
static void carry_out(void)
{
    const struct ms_job_action *a = asked();
    size_t count = a->what == MS_JOB_DO_CREATE ? a->count : a->rank_count;
    struct ms_reserve r = {
        .key = "job",
        .is_more = a->what != MS_JOB_DO_CREATE,
        .pieces = {.name = "job", .bundles = bundles, .count = count},
        .timeout_ns = 3600 * MS_NS_PER_S};

    for (size_t i = 0; i < count; i++)
        rank_of[next_piece++] = r.is_more ? a->ranks[i].rank : (uint32_t)i;
    starting = count;
    asks++;
    assert(engine->ops->reserve(engine, &r, on_reserved, NULL));
}

/* Until all that was asked for runs. */
static void wait_running(void)
{
    uint64_t id = asked()->id;

    while (starting && ms_sim_step(sim, MS_NEVER))
        ;
    assert(!starting);
    job_ns = ms_sim_now_ns(sim) + MS_NS_PER_S;
    step(&(struct ms_job_event){.what = MS_JOB_DONE, .id = id});
}

/* What this program itself notes of each piece. */
static void prepare(uint32_t count)
{
    bundles = calloc(count, sizeof *bundles);
    rank_of = calloc(2 * (size_t)count, sizeof *rank_of);
    phases = calloc(2 * (size_t)count, sizeof *phases);
    ended = calloc(count, sizeof *ended);
    assert(bundles && rank_of && phases && ended);
    for (uint32_t i = 0; i < count; i++)
        bundles[i].cpu_milli = 8000;
}

static void start_on_sim(uint32_t count, uint32_t nodes)
{
    const struct ms_sim_options options = {.seed = 3,
                                           .nodes = nodes,
                                           .cpu_milli = 8000,
                                           .memory = UINT64_C(1) << 30,
                                           .faults = {.start_ns = 10 * MS_NS_PER_S}};

    sim = ms_sim_create(&options);
    engine = sim ? ms_orchestrator_sim(sim) : NULL;
    assert(engine);
    assert(engine->ops->watch(engine, UINT64_C(1) << 32, on_piece, NULL));
    submit(count);
    step(&(struct ms_job_event){.what = MS_JOB_DONE, .id = asked()->id});
    carry_out();
    wait_running();
    assert(ms_job_core_role(core, 0).counts[MS_JOB_SLOT_RUNNING] == count);
}

static void stop_sim(void)
{
    engine->ops->destroy(engine);
    ms_sim_destroy(sim);
    ms_job_core_destroy(core);
    free(bundles);
    free(rank_of);
    free(phases);
    free(ended);
    next_piece = ended_count = 0;
}

static void measure_lost(void)
{
    int64_t start_ns, lost_ns;

    prepare(INSTANCES);
    start_on_sim(INSTANCES, 2 * INSTANCES);
    start_ns = ms_sim_now_ns(sim);
    lost_ns = start_ns;
    asks = 0;
    for (uint32_t i = 0; i < INSTANCES; i++)
        assert(ms_sim_end_piece(sim, "job", i, MS_CAUSE_NODE_LOST, 0) == 0);
    while (ms_job_core_role(core, 0).counts[MS_JOB_SLOT_RUNNING] < INSTANCES ||
           ended_count || asks == 0) {
        int64_t at_ns = ms_sim_now_ns(sim);

        while (ms_sim_step(sim, at_ns + 1))
            ; /* all that is told at this moment */
        if (!ended_count) {
            assert(ms_sim_step(sim, MS_NEVER));
            continue;
        }
        job_ns = at_ns + MS_NS_PER_S;
        step(&(struct ms_job_event){
            .what = MS_JOB_EXITED, .reports = ended, .report_count = ended_count});
        ended_count = 0;
        if (asked()) {
            carry_out();
            wait_running();
        }
    }
    printf("%.3f %.3f %zu\n",
           seconds(ms_sim_now_ns(sim) - lost_ns),
           seconds(start_ns),
           asks);
    stop_sim();
}

static size_t heap_bytes(void)
{
    struct mallinfo2 m = mallinfo2();

    return m.uordblks + m.hblkhd;
}

static void measure_memory(void)
{
    size_t before, all;

    prepare(MOST);
    before = heap_bytes();
    start_on_sim(MOST, MOST);
    all = heap_bytes() - before;
    printf("%zu %zu\n", ms_job_core_memory(core) / MOST, all / MOST);
    stop_sim();
}

int main(void)
{
    char path[64];

    if (!mkdtemp(folder))
        return 1;
    measure_events();
    measure_decision();
    measure_lost();
    measure_memory();
    measure_recovery();
    for (int i = 0; i < 3; i++) {
        static const char *const names[] = {"jobs.db", "jobs.db-wal", "jobs.db-shm"};

        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        remove(path);
    }
    remove(folder);
    return 0;
}
