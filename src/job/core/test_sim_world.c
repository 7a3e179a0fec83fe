/* test_sim_world.c - what an action does in the simulated world */
#include "job/core/test_sim.h"

#include <string.h>

enum { ENDS_REFUSED_MAX = 4 };

/* ---- a job by chance --------------------------------------------------------------- */

static void random_role(struct sim *s, struct ms_job_role_spec *r, uint32_t i)
{
    uint32_t unit = 1 + sim_roll(s, 2), units = 1 + sim_roll(s, 4);

    ms_job_role_spec_init(r);
    r->name[0] = (char)('a' + i);
    r->unit = unit;
    r->max = unit * (units + sim_roll(s, 3));
    r->count = unit * units;
    r->min = unit * (1 + sim_roll(s, units));
    r->restart = (uint8_t)sim_roll(s, 3);
    r->on_hang = sim_roll(s, 4) == 0;
    r->critical = sim_roll(s, 4) != 0;
    r->hang_ns = sim_roll(s, 2) ? 30 * MS_NS_PER_S : 0;
    if (sim_roll(s, 2)) {
        r->memory_raise = 150;
        r->memory_raise_max = 400;
    }
    for (int c = MS_JOB_APPLICATION; c < MS_JOB_BUDGETS; c++)
        if (c != MS_JOB_PREEMPTED && sim_roll(s, 2))
            r->budget[c] = (uint16_t)sim_roll(s, 5);
}

void sim_spec(struct sim *s)
{
    ms_job_spec_init(&s->spec);
    memcpy(s->spec.name, "sim", 4);
    s->spec.roles = s->roles;
    s->spec.role_count = 1 + sim_roll(s, SIM_ROLES_MAX);
    s->spec.has_driver = sim_roll(s, 3) != 0;
    s->spec.driver_hang_ns = sim_roll(s, 3) ? 0 : 40 * MS_NS_PER_S;
    s->spec.check_nodes = sim_roll(s, 4) == 0;
    s->spec.role_restarts_max = (uint16_t)sim_roll(s, 3);
    s->spec.job_restarts_max = (uint16_t)sim_roll(s, 4);
    s->spec.same_error_max = (uint16_t)sim_roll(s, 6);
    s->spec.pending_timeout_ns = sim_roll(s, 3) ? 900 * MS_NS_PER_S : 0;
    for (uint32_t i = 0; i < s->spec.role_count; i++)
        random_role(s, &s->roles[i], i);
}

/* ---- processes --------------------------------------------------------------------- */

static void remove_proc(struct sim *s, size_t i)
{
    s->procs[i] = s->procs[--s->proc_count];
}

/* They end because somebody asked for it: the host does not report these. */
static void end_older(struct sim *s, uint32_t role, uint32_t rank, uint32_t incarnation)
{
    for (size_t i = s->proc_count; i-- > 0;)
        if (s->procs[i].role == role &&
            (rank == MS_JOB_ALL_RANKS || s->procs[i].rank == rank) &&
            s->procs[i].incarnation <= incarnation)
            remove_proc(s, i);
}

static void end_from(struct sim *s, uint32_t role, uint32_t count)
{
    for (size_t i = s->proc_count; i-- > 0;)
        if (s->procs[i].role == role && s->procs[i].rank >= count)
            remove_proc(s, i);
}

static bool
has_proc(const struct sim *s, uint32_t role, uint32_t rank, uint32_t incarnation)
{
    for (size_t i = 0; i < s->proc_count; i++)
        if (s->procs[i].role == role && s->procs[i].rank == rank &&
            s->procs[i].incarnation == incarnation)
            return true;
    return false;
}

/* A host that has told of its end, or is about to. */
static bool
has_ended(const struct sim *s, uint32_t role, uint32_t rank, uint32_t incarnation)
{
    for (size_t i = 0; i < s->note_count; i++)
        if (s->notes[i].report.role == role && s->notes[i].report.rank == rank &&
            s->notes[i].report.incarnation == incarnation)
            return true;
    return role != MS_JOB_DRIVER && incarnation <= s->told[role][rank];
}

/* One that is there already, or was, is not started again. */
static void start(struct sim *s, uint32_t role, uint32_t rank, uint32_t incarnation)
{
    if (has_proc(s, role, rank, incarnation) || has_ended(s, role, rank, incarnation))
        return;
    for (size_t i = 0; i < s->proc_count; i++)
        if (s->procs[i].role == role && s->procs[i].rank == rank)
            sim_fail(s, "two processes of role %u rank %u", role, rank);
    if (s->proc_count == SIM_PROCS_MAX) {
        sim_fail(s, "too many processes");
        return;
    }
    s->procs[s->proc_count++] =
        (struct sim_proc){.role = role, .rank = rank, .incarnation = incarnation};
}

static void add_note(struct sim *s, const struct sim_proc *p, enum ms_job_cause cause)
{
    bool is_killed = cause == MS_JOB_PREEMPTED;

    if (s->note_count == SIM_NOTES_MAX)
        return;
    s->notes[s->note_count++] = (struct sim_note){
        .at_ns = s->now_ns + (int64_t)sim_roll(s, 2000) * MS_NS_PER_MS,
        .report = {.role = p->role,
                   .rank = p->rank,
                   .incarnation = p->incarnation,
                   .cause = (uint8_t)cause,
                   .signaled = is_killed,
                   .code = is_killed ? 9 : cause != MS_JOB_SUCCEEDED,
                   .node = sim_roll(s, 2) ? "n1" : NULL}};
}

void sim_kill(struct sim *s, size_t i, enum ms_job_cause cause)
{
    add_note(s, &s->procs[i], cause);
    remove_proc(s, i);
}

/* Unless the controller was killed before it wrote it down. */
static void note_told(struct sim *s, const struct ms_job_report *p)
{
    struct ms_job_slot_view v;

    if (p->role == MS_JOB_DRIVER)
        return;
    v = ms_job_core_slot(s->core, p->role, p->rank);
    if (v.incarnation == p->incarnation && v.state != MS_JOB_SLOT_STARTING &&
        v.state != MS_JOB_SLOT_RUNNING && v.state != MS_JOB_SLOT_UNKNOWN)
        s->told[p->role][p->rank] = p->incarnation;
}

void sim_hear(struct sim *s, size_t i)
{
    struct ms_job_report p = s->notes[i].report;
    static const char *const texts[] = {NULL, "ValueError: a", "KeyError: b"};

    s->notes[i] = s->notes[--s->note_count];
    sim_event(s,
              &(struct ms_job_event){.what = MS_JOB_EXITED,
                                     .reports = &p,
                                     .report_count = 1,
                                     .text = texts[sim_roll(s, 3)]});
    note_told(s, &p);
}

/* ---- what a host does -------------------------------------------------------------- */

void sim_begin(struct sim *s, const struct ms_job_action *a)
{
    struct sim_todo *t = &s->todos[s->todo_count];

    if (a->id == 0)
        return;
    if (s->todo_count == SIM_TODOS_MAX || a->rank_count > SIM_SLOTS_MAX) {
        sim_fail(s, "too many actions");
        return;
    }
    s->todo_count++;
    t->action = *a;
    t->action.text = t->action.node = NULL;
    t->at_ns = s->now_ns + (int64_t)sim_roll(s, 3000) * MS_NS_PER_MS;
    for (size_t i = 0; i < a->rank_count; i++)
        t->ranks[i] = a->ranks[i];
    for (size_t i = 0; i + 1 < s->todo_count; i++) /* one after the other, of a role */
        if (s->todos[i].action.role == a->role && s->todos[i].at_ns > t->at_ns)
            t->at_ns = s->todos[i].at_ns;
}

static void effect(struct sim *s, const struct sim_todo *t)
{
    const struct ms_job_action *a = &t->action;

    switch (a->what) {
    case MS_JOB_DO_RESERVE:
        s->is_held = true;
        break;
    case MS_JOB_DO_RELEASE:
        s->is_held = false;
        break;
    case MS_JOB_DO_CREATE:
    case MS_JOB_DO_RESTART:
        end_older(s, a->role, MS_JOB_ALL_RANKS, a->incarnation - 1);
        for (uint32_t i = 0; i < a->count; i++)
            start(s, a->role, i, a->incarnation);
        break;
    case MS_JOB_DO_REPLACE:
    case MS_JOB_DO_END_STRAYS:
        for (size_t i = 0; i < a->rank_count; i++) {
            end_older(s, a->role, t->ranks[i].rank, t->ranks[i].incarnation);
            if (a->what == MS_JOB_DO_REPLACE)
                start(s, a->role, t->ranks[i].rank, a->incarnation);
        }
        break;
    case MS_JOB_DO_RESIZE:
        end_from(s, a->role, a->count);
        for (size_t i = 0; i < a->rank_count; i++) {
            end_older(s, a->role, t->ranks[i].rank, t->ranks[i].incarnation);
            start(s, a->role, t->ranks[i].rank, a->incarnation);
        }
        break;
    case MS_JOB_DO_DESTROY:
    case MS_JOB_DO_STOP_DRIVER:
        end_older(s, a->role, MS_JOB_ALL_RANKS, UINT32_MAX);
        break;
    case MS_JOB_DO_START_DRIVER:
        end_older(s, MS_JOB_DRIVER, 0, a->incarnation - 1);
        start(s, MS_JOB_DRIVER, 0, a->incarnation);
        break;
    default:
        break;
    }
}

static bool is_starting(uint32_t what)
{
    return what == MS_JOB_DO_RESERVE || what == MS_JOB_DO_CREATE ||
           what == MS_JOB_DO_REPLACE || what == MS_JOB_DO_RESTART ||
           what == MS_JOB_DO_RESIZE || what == MS_JOB_DO_START_DRIVER;
}

/* All or none: none of its processes is left. */
static void fail(struct sim *s, const struct sim_todo *t, uint8_t failure)
{
    const struct ms_job_action *a = &t->action;
    struct ms_job_report reports[SIM_SLOTS_MAX];
    struct ms_job_event e = {.what = MS_JOB_NOT_DONE,
                             .id = a->id,
                             .failure = failure,
                             .text = "the world said no",
                             .reports = reports};

    if (failure == MS_JOB_FAILED && is_starting(a->what) && a->role < SIM_ROLES_MAX)
        for (uint32_t i = 0; i < a->count && i < SIM_SLOTS_MAX; i++)
            if (sim_roll(s, 3) == 0)
                reports[e.report_count++] = (struct ms_job_report){
                    .role = a->role,
                    .rank = i,
                    .incarnation = a->incarnation,
                    .cause =
                        (uint8_t)(MS_JOB_APPLICATION +
                                  sim_roll(s, MS_JOB_BUDGETS - MS_JOB_APPLICATION)),
                    .code = 1};
    if (failure == MS_JOB_NO_ROOM)
        e.fits = sim_roll(s, a->count + 1);
    if (failure == MS_JOB_FAILED &&
        (a->what == MS_JOB_DO_REPLACE || a->what == MS_JOB_DO_RESTART)) {
        for (size_t i = 0; i < a->rank_count; i++)
            end_older(s, a->role, t->ranks[i].rank, t->ranks[i].incarnation);
        if (a->what == MS_JOB_DO_RESTART)
            end_older(s, a->role, MS_JOB_ALL_RANKS, a->incarnation - 1);
    }
    sim_event(s, &e);
}

static void check_nodes(struct sim *s, const struct ms_job_action *a)
{
    struct ms_job_report p = {.node = "bad", .cause = MS_JOB_CHECK_FAILED};

    sim_event(
        s,
        &(struct ms_job_event){.what = MS_JOB_DONE,
                               .id = a->id,
                               .reports = &p,
                               .report_count = !s->is_calm && sim_roll(s, 8) == 0});
}

static uint8_t random_failure(struct sim *s, uint32_t what)
{
    uint32_t roll = sim_roll(s, 100);

    if (s->is_down && (is_starting(what) || what == MS_JOB_DO_RELEASE))
        return MS_JOB_NOT_ASKED;
    if (s->is_calm || roll >= 20)
        return MS_JOB_FAILURES;
    if (!is_starting(what) && roll < 15 && s->ends_refused++ >= ENDS_REFUSED_MAX)
        return MS_JOB_FAILURES; /* all that ends does so before it is given up */
    if (roll == 0)
        return MS_JOB_REFUSED;
    return roll < 8 ? MS_JOB_NO_ROOM : roll < 15 ? MS_JOB_FAILED : MS_JOB_NOT_ASKED;
}

/* They have done their work before anybody could say that they run. False: the controller
 * was killed meanwhile. */
static bool succeed_at_once(struct sim *s, const struct sim_todo *t)
{
    uint32_t crashes = s->crashes;

    effect(s, t);
    for (size_t i = s->proc_count; i-- > 0 && s->crashes == crashes;)
        if (s->procs[i].role == t->action.role) {
            sim_kill(s, i, MS_JOB_SUCCEEDED);
            sim_hear(s, s->note_count - 1);
        }
    return s->crashes == crashes;
}

void sim_do(struct sim *s, size_t i)
{
    struct sim_todo t = s->todos[i];
    uint8_t failure = random_failure(s, t.action.what);
    uint32_t crashes = s->crashes;

    memmove(&s->todos[i], &s->todos[i + 1], (--s->todo_count - i) * sizeof t);
    if (failure != MS_JOB_FAILURES) {
        if (failure == MS_JOB_NOT_ASKED && sim_roll(s, 2))
            effect(s, &t); /* it was asked, and the answer was lost */
        if (failure == MS_JOB_FAILED && t.action.what == MS_JOB_DO_CREATE &&
            sim_roll(s, 8) == 0 && !succeed_at_once(s, &t))
            return;
        fail(s, &t, failure);
        return;
    }
    effect(s, &t);
    for (size_t p = s->proc_count; p-- > 0 && !s->is_calm;)
        if (s->procs[p].role == t.action.role && s->procs[p].role != MS_JOB_DRIVER &&
            s->procs[p].incarnation == t.action.incarnation && sim_roll(s, 40) == 0) {
            sim_kill(
                s, p, MS_JOB_APPLICATION); /* at once, and heard before the answer */
            sim_hear(s, s->note_count - 1);
            if (s->crashes != crashes)
                return; /* there is nobody to answer to */
            break;
        }
    if (t.action.what == MS_JOB_DO_CHECK_NODES)
        check_nodes(s, &t.action);
    else
        sim_event(s, &(struct ms_job_event){.what = MS_JOB_DONE, .id = t.action.id});
}

/* ---- after a crash ----------------------------------------------------------------- */

void sim_lose_todos(struct sim *s)
{
    for (size_t i = 0; i < s->todo_count; i++)
        if (sim_roll(s, 2))
            effect(s, &s->todos[i]);
    s->todo_count = 0;
}

void sim_found(struct sim *s, uint32_t what, bool is_complete)
{
    struct ms_job_report reports[SIM_PROCS_MAX];
    struct ms_job_event e = {.what = what, .reports = reports};

    e.flags = is_complete ? MS_JOB_COMPLETE : 0;
    for (size_t i = 0; i < s->proc_count; i++)
        if (is_complete || what == MS_JOB_FOUND || sim_roll(s, 2))
            reports[e.report_count++] =
                (struct ms_job_report){.role = s->procs[i].role,
                                       .rank = s->procs[i].rank,
                                       .incarnation = s->procs[i].incarnation,
                                       .seen = MS_JOB_SEEN_RUNNING};
    s->found_ns = is_complete || what == MS_JOB_FOUND
                      ? MS_NEVER
                      : s->now_ns + (int64_t)sim_roll(s, 90) * MS_NS_PER_S;
    sim_event(s, &e);
}
