/* test_sim.c - one simulated run: chaos, then calm, then an end */
#include "job/core/test_sim.h"

#include "base/test_random.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum {
    CHAOS_STEPS = 60,
    CALM_STEPS = 3000,
    RECORDS_MAX = 64,
    DEPTH_MAX = 4,
    IDLE_TICKS = 150
};

uint32_t sim_roll(struct sim *s, uint32_t sides)
{
    return test_roll(&s->seed, sides);
}

void sim_fail(struct sim *s, const char *fmt, ...)
{
    va_list args;

    if (s->why[0])
        return;
    va_start(args, fmt);
    vsnprintf(s->why, sizeof s->why, fmt, args);
    va_end(args);
}

/* ---- the controller ---------------------------------------------------------------- */

static void write_snapshot(struct sim *s)
{
    s->snapshot.len = s->journal.len = 0;
    s->record_count = 0;
    if (ms_job_core_encode(s->core, &s->snapshot) < 0)
        sim_fail(s, "no memory");
}

static void write_record(struct sim *s, const struct ms_job_event *e, int64_t at_ns)
{
    size_t from;

    if (s->record_count == RECORDS_MAX)
        write_snapshot(s);
    from = s->journal.len;
    if (ms_job_event_encode(e, &s->journal) < 0)
        sim_fail(s, "no memory");
    s->record_sizes[s->record_count] = s->journal.len - from;
    s->record_times[s->record_count++] = at_ns;
}

static void tell(const struct sim *s, const struct ms_job_action *a)
{
    if (!s->is_told)
        return;
    if (a->what == MS_JOB_DO_SAY)
        fprintf(stderr, "    \"%s\"\n", a->text);
    else
        fprintf(stderr,
                "  %s id %llu role %u count %u incarnation %u ranks %zu\n",
                ms_job_action_name(a->what),
                (unsigned long long)a->id,
                a->role,
                a->count,
                a->incarnation,
                a->rank_count);
}

static void begin_all(struct sim *s,
                      const struct ms_job_event *e,
                      const struct ms_job_action *actions,
                      size_t count,
                      size_t begun)
{
    for (size_t i = 0; i < count; i++) {
        const struct ms_job_action *a = &actions[i];

        tell(s, a);
        sim_check_action(s, e, a);
        if (i >= begun)
            continue;
        s->is_finished |= a->what == MS_JOB_DO_FINISH;
        s->is_forgotten |= a->what == MS_JOB_DO_FORGET;
        sim_begin(s, a);
    }
}

/* A clock that is wrong, now and then, is believed only if it goes on. */
static int64_t clock_ns(struct sim *s)
{
    return sim_roll(s, 50) == 0 ? s->now_ns - (int64_t)sim_roll(s, 3600) * MS_NS_PER_S
                                : s->now_ns;
}

void sim_event(struct sim *s, const struct ms_job_event *e)
{
    uint32_t killed = s->is_calm ? 99 : sim_roll(s, 60);
    const struct ms_job_action *actions;
    struct ms_error err = {0};
    int64_t at_ns;
    size_t count;

    if (s->why[0] || ms_job_core_check(s->core, e, &err) < 0)
        return;
    if (s->is_told)
        fprintf(stderr,
                "%.3f %s id %llu reports %zu [%s]\n",
                (double)s->now_ns / 1e9,
                ms_job_event_name(e->what),
                (unsigned long long)e->id,
                e->report_count,
                ms_job_stage_name(ms_job_core_view(s->core).stage));
    if (killed == 0 && s->crashes < DEPTH_MAX) { /* before it is written */
        sim_crash(s);
        return;
    }
    at_ns = clock_ns(s);
    write_record(s, e, at_ns);
    s->steps++;
    sim_model_begin(s);
    if (ms_job_core_step(s->core, e, at_ns, &actions, &count, &err) < 0) {
        sim_fail(s,
                 "%s was checked and not taken: %s",
                 ms_job_event_name(e->what),
                 err.text);
        return;
    }
    if (killed == 1 && s->crashes < DEPTH_MAX) { /* some of its actions are begun */
        begin_all(s, e, actions, count, sim_roll(s, (uint32_t)count + 1));
        sim_check(s, e);
        sim_crash(s);
        return;
    }
    begin_all(s, e, actions, count, count);
    sim_check(s, e);
}

static struct ms_job_core *replay(struct sim *s)
{
    struct ms_error err = {0};
    struct ms_job_core *c = ms_job_core_decode(s->snapshot.data, s->snapshot.len, &err);
    const uint8_t *at = s->journal.data;

    if (!c)
        sim_fail(s, "snapshot: %s", err.text);
    for (size_t i = 0; i < s->record_count && c; i++) {
        struct ms_job_event_read e;
        const struct ms_job_action *actions;
        size_t count;

        if (ms_job_event_decode(&e, at, s->record_sizes[i], &err) < 0) {
            sim_fail(s, "record: %s", err.text);
            break;
        }
        if (ms_job_core_step(c, &e.event, s->record_times[i], &actions, &count, &err) <
            0)
            sim_fail(s, "replay of %s: %s", ms_job_event_name(e.event.what), err.text);
        at += s->record_sizes[i];
        ms_job_event_read_finish(&e);
    }
    return c;
}

static void
check_same(struct sim *s, const struct ms_job_core *a, const struct ms_job_core *b)
{
    struct ms_buf one = {0}, two = {0};

    if (ms_job_core_encode(a, &one) < 0 || ms_job_core_encode(b, &two) < 0 ||
        one.len != two.len || memcmp(one.data, two.data, one.len) != 0)
        sim_fail(s, "a replay of the journal gives another state");
    ms_buf_finish(&one);
    ms_buf_finish(&two);
}

void sim_crash(struct sim *s)
{
    struct ms_job_core *c = replay(s);

    s->crashes++;
    if (!c)
        return;
    check_same(s, s->core, c);
    if (s->is_told)
        fprintf(stderr, "-- the controller is killed\n");
    ms_job_core_destroy(s->core);
    s->core = c;
    sim_lose_todos(s);
    for (size_t i = s->note_count; i-- > 0;)
        if (sim_roll(s, 2))
            s->notes[i] = s->notes[--s->note_count];
    s->now_ns += (int64_t)sim_roll(s, 20) * MS_NS_PER_S;
    sim_found(s, MS_JOB_RECOVERED, sim_roll(s, 2));
    if (ms_job_core_view(s->core).can_ask == s->is_down) /* a host says how it is now */
        sim_event(s,
                  &(struct ms_job_event){.what = s->is_down ? MS_JOB_CANNOT_ASK
                                                            : MS_JOB_CAN_ASK});
}

/* ---- faults ------------------------------------------------------------------------ */

static enum ms_job_cause random_cause(struct sim *s)
{
    return MS_JOB_APPLICATION + sim_roll(s, MS_JOB_HANG - MS_JOB_APPLICATION);
}

/* Now and then one has done its work. */
static void lose_one(struct sim *s)
{
    size_t i;

    if (s->proc_count == 0)
        return;
    i = sim_roll(s, (uint32_t)s->proc_count);
    sim_kill(s,
             i,
             s->procs[i].role != MS_JOB_DRIVER && sim_roll(s, 16) == 0
                 ? MS_JOB_SUCCEEDED
                 : random_cause(s));
}

/* One event for all of them, which have ended by one cause or by several. */
static void lose_all(struct sim *s)
{
    struct ms_job_report reports[SIM_PROCS_MAX];
    enum ms_job_cause cause = random_cause(s);
    bool is_mixed = sim_roll(s, 2) == 0;
    size_t count = 0;

    for (; s->proc_count && count < SIM_PROCS_MAX; s->proc_count--)
        reports[count++] = (struct ms_job_report){
            .role = s->procs[s->proc_count - 1].role,
            .rank = s->procs[s->proc_count - 1].rank,
            .incarnation = s->procs[s->proc_count - 1].incarnation,
            .cause = (uint8_t)(is_mixed ? random_cause(s) : cause),
            .node = "n2"};
    sim_event(s,
              &(struct ms_job_event){
                  .what = MS_JOB_EXITED, .reports = reports, .report_count = count});
}

static void say_late(struct sim *s)
{
    uint32_t role = sim_roll(s, s->spec.role_count);
    uint32_t rank = sim_roll(s, s->roles[role].max);
    struct ms_job_report p = {.role = role, .rank = rank, .cause = MS_JOB_APPLICATION};
    struct ms_job_slot_view before = ms_job_core_slot(s->core, role, rank), after;

    if (before.incarnation == 0)
        return;
    p.incarnation = before.incarnation - 1;
    sim_event(
        s,
        &(struct ms_job_event){
            .what = MS_JOB_EXITED, .reports = &p, .report_count = 1, .text = "late"});
    after = ms_job_core_slot(s->core, role, rank);
    if (s->crashes == 0 && after.cause != before.cause)
        sim_fail(s, "a late event of %u/%u was believed", role, rank);
}

static void flip_orchestrator(struct sim *s)
{
    s->is_down = !s->is_down;
    sim_event(
        s,
        &(struct ms_job_event){.what = s->is_down ? MS_JOB_CANNOT_ASK : MS_JOB_CAN_ASK,
                               .text = "connection refused"});
}

static void ask_for_something(struct sim *s)
{
    struct ms_job_event e = {.role = sim_roll(s, s->spec.role_count)};
    const struct ms_job_role_spec *r = &s->roles[e.role];

    switch (sim_roll(s, 13)) {
    case 0:
        e.what = sim_roll(s, 8) ? MS_JOB_SUSPEND : MS_JOB_STOP;
        break;
    case 1:
    case 2:
    case 3:
        e.what = MS_JOB_RESUME;
        e.flags = sim_roll(s, 2) ? MS_JOB_REQUEUE : 0;
        break;
    case 4:
        e.what = sim_roll(s, 2)    ? MS_JOB_ROOM
                 : sim_roll(s, 16) ? MS_JOB_TICK
                                   : MS_JOB_DELETE;
        break;
    case 5:
        e.what = MS_JOB_RESTART;
        e.role = sim_roll(s, 2) ? MS_JOB_NO_ROLE : MS_JOB_DRIVER;
        break;
    case 6:
    case 7:
        e.what = MS_JOB_RESTART;
        e.rank = sim_roll(s, 2) ? MS_JOB_ALL_RANKS : sim_roll(s, r->max);
        break;
    default:
        e.what = MS_JOB_SCALE;
        e.count = r->unit * (1 + sim_roll(s, r->max / r->unit));
    }
    sim_event(s, &e);
}

/* A look at one process: its node may answer too late for it. */
static bool look_at(struct sim *s, struct sim_proc *p, struct ms_job_report *out)
{
    bool is_silent = p->hangs_ns && p->hangs_ns <= p->marked_ns;

    if (!s->is_calm && sim_roll(s, 3) == 0)
        return false;
    if (!is_silent)
        p->marked_ns = s->now_ns;
    *out = (struct ms_job_report){.role = p->role,
                                  .rank = p->rank,
                                  .incarnation = p->incarnation,
                                  .seen = is_silent ? MS_JOB_SEEN_SILENT
                                                    : MS_JOB_SEEN_RUNNING};
    return true;
}

static void progress(struct sim *s)
{
    struct ms_job_report reports[SIM_PROCS_MAX];
    struct ms_job_event e = {.what = MS_JOB_PROGRESS, .reports = reports};
    const struct ms_job_action *actions;
    size_t count;

    for (size_t i = 0; i < s->proc_count; i++)
        e.report_count += look_at(s, &s->procs[i], &reports[e.report_count]);
    if (ms_job_core_step(s->core, &e, s->now_ns, &actions, &count, NULL) < 0 || count)
        sim_fail(s, "progress does something");
}

/* Some processes hang from now on, and are looked at meanwhile. */
static void hang(struct sim *s)
{
    uint32_t looks = sim_roll(s, 8);

    for (size_t i = 0; i < s->proc_count; i++)
        if (!s->procs[i].hangs_ns && sim_roll(s, 4) == 0)
            s->procs[i].hangs_ns = s->now_ns;
    for (uint32_t i = 0; i < looks; i++) {
        s->now_ns += (int64_t)sim_roll(s, 40) * MS_NS_PER_S;
        sim_event(s, &(struct ms_job_event){.what = MS_JOB_TICK});
        progress(s);
    }
}

static const struct sim_proc *find_suspect(const struct sim *s,
                                           const struct ms_job_report *p)
{
    for (size_t i = 0; i < s->proc_count; i++)
        if (s->procs[i].role == p->role && s->procs[i].rank == p->rank &&
            s->procs[i].incarnation == p->incarnation)
            return &s->procs[i];
    return NULL;
}

/* Only who has hung for so long may be suspected, however late anybody looks. */
static void check_suspects(struct sim *s, const struct ms_job_event *e)
{
    int64_t limit_ns =
        e->role == MS_JOB_DRIVER ? s->spec.driver_hang_ns : s->roles[e->role].hang_ns;

    for (size_t i = 0; i < e->report_count; i++) {
        const struct sim_proc *p = find_suspect(s, &e->reports[i]);

        s->suspects++;
        if (p && (!p->hangs_ns || s->now_ns - p->hangs_ns < limit_ns))
            sim_fail(s, "a process that works is suspected");
    }
}

static void fault(struct sim *s)
{
    s->faults++;
    switch (sim_roll(s, 12)) {
    case 0:
        lose_all(s);
        break;
    case 1:
        flip_orchestrator(s);
        break;
    case 2:
        ask_for_something(s);
        break;
    case 3:
        say_late(s);
        break;
    case 4:
        s->now_ns += (int64_t)sim_roll(s, 1000) * MS_NS_PER_S;
        sim_event(s, &(struct ms_job_event){.what = MS_JOB_TICK});
        break;
    case 5:
        progress(s);
        break;
    case 6:
        hang(s);
        break;
    default:
        lose_one(s);
    }
}

/* ---- time -------------------------------------------------------------------------- */

/* The next thing that happens by itself. */
static bool next(struct sim *s)
{
    int64_t wake_ns = ms_job_core_wake_ns(s->core), at_ns = wake_ns;
    size_t todo = SIM_TODOS_MAX, note = SIM_NOTES_MAX;
    struct ms_job_event e;

    if (s->found_ns < at_ns)
        at_ns = s->found_ns;
    for (size_t i = 0; i < s->todo_count; i++)
        if (s->todos[i].at_ns < at_ns) {
            at_ns = s->todos[i].at_ns;
            todo = i;
        }
    for (size_t i = 0; i < s->note_count; i++)
        if (s->notes[i].at_ns < at_ns) {
            at_ns = s->notes[i].at_ns;
            note = i;
        }
    if (at_ns == MS_NEVER)
        return false;
    if (at_ns > s->now_ns)
        s->now_ns = at_ns;
    if (s->todo_count || s->note_count)
        s->idle_ticks = 0;
    if (note < SIM_NOTES_MAX) {
        sim_hear(s, note);
    } else if (todo < SIM_TODOS_MAX) {
        sim_do(s, todo);
    } else if (at_ns == s->found_ns) {
        sim_found(s, MS_JOB_FOUND, false);
    } else {
        if (s->is_calm && s->idle_ticks++ >= IDLE_TICKS)
            return false; /* it only looks for hangs */
        if (s->is_calm)
            progress(s);
        sim_event(s, &(struct ms_job_event){.what = MS_JOB_TICK});
        for (int i = 0; i < 8 && ms_job_core_suspect(s->core, &e); i++) {
            check_suspects(s, &e);
            sim_event(s, &e);
        }
    }
    return true;
}

static void chaos(struct sim *s)
{
    for (int i = 0; i < CHAOS_STEPS && !s->why[0]; i++) {
        if (ms_job_core_view(s->core).stage == MS_JOB_STAGE_QUEUED && sim_roll(s, 2))
            sim_event(s, &(struct ms_job_event){.what = MS_JOB_ADMITTED});
        else if (sim_roll(s, 4) == 0 || !next(s))
            fault(s);
    }
}

/* The work is done: the driver, or all that runs, ends well. */
static void succeed(struct sim *s)
{
    for (size_t i = s->proc_count; i-- > 0;)
        if (!s->spec.has_driver || s->procs[i].role == MS_JOB_DRIVER)
            sim_kill(s, i, MS_JOB_SUCCEEDED);
}

/* Only what succeeded or was given up is left, and that is not enough for a success. */
static bool is_stalled(const struct sim *s)
{
    return s->proc_count == 0 ||
           (s->spec.has_driver && !ms_job_core_view(s->core).driver_runs);
}

static void calm(struct sim *s)
{
    s->is_calm = true;
    if (s->is_down)
        flip_orchestrator(s);
    for (int i = 0; i < CALM_STEPS && !s->why[0]; i++) {
        struct ms_job_view v = ms_job_core_view(s->core);

        if (ms_job_stage_is_over(v.stage) && s->todo_count == 0)
            return;
        if (next(s))
            continue;
        if (v.stage == MS_JOB_STAGE_QUEUED) {
            sim_event(s, &(struct ms_job_event){.what = MS_JOB_ADMITTED});
        } else if (v.stage == MS_JOB_STAGE_SUSPENDED) {
            sim_event(s, &(struct ms_job_event){.what = MS_JOB_RESUME});
        } else {
            sim_check_rest(s);
            if (is_stalled(s))
                sim_event(s, &(struct ms_job_event){.what = MS_JOB_STOP});
            else
                succeed(s);
        }
    }
}

const char *sim_run(uint64_t number, bool is_told)
{
    static struct sim s;

    s = (struct sim){.seed = test_seed(number),
                     .number = number,
                     .now_ns = MS_NS_PER_S,
                     .found_ns = MS_NEVER,
                     .is_told = is_told,
                     .core = ms_job_core_create()};
    sim_spec(&s);
    write_snapshot(&s);
    sim_event(&s, &(struct ms_job_event){.what = MS_JOB_SUBMITTED, .spec = &s.spec});
    while (ms_job_core_view(s.core).stage == MS_JOB_STAGE_NEW && !s.why[0])
        sim_event(&s,
                  &(struct ms_job_event){.what = MS_JOB_SUBMITTED, .spec = &s.spec});
    chaos(&s);
    calm(&s);
    sim_check_end(&s);
    ms_job_core_destroy(s.core);
    s.core = NULL;
    ms_buf_finish(&s.snapshot);
    ms_buf_finish(&s.journal);
    return s.why[0] ? s.why : NULL;
}
