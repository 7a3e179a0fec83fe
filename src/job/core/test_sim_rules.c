/* test_sim_rules.c - what must be true of a job after every step */
#include "job/core/test_sim.h"

#include <string.h>

static size_t slot_index(const struct sim *s, uint32_t role, uint32_t rank)
{
    size_t index = rank;

    for (uint32_t i = 0; i < role; i++)
        index += s->roles[i].max;
    return index;
}

/* ---- actions ----------------------------------------------------------------------- */

static bool is_start(uint32_t what)
{
    return what == MS_JOB_DO_RESERVE || what == MS_JOB_DO_CREATE ||
           what == MS_JOB_DO_REPLACE || what == MS_JOB_DO_RESTART ||
           what == MS_JOB_DO_RESIZE || what == MS_JOB_DO_START_DRIVER;
}

void sim_check_action(struct sim *s,
                      const struct ms_job_event *e,
                      const struct ms_job_action *a)
{
    bool is_again = e->what == MS_JOB_RECOVERED && a->id <= s->last_id;
    struct ms_job_view v = ms_job_core_view(s->core);

    if (!is_again && !v.can_ask && is_start(a->what))
        sim_fail(s, "%s while nobody can be asked", ms_job_action_name(a->what));
    if (!is_again && a->id && a->id <= s->last_id)
        sim_fail(s, "the id of %s was used before", ms_job_action_name(a->what));
    if (a->id > s->last_id)
        s->last_id = a->id;
    if (!is_again && is_start(a->what) &&
        (v.stage == MS_JOB_STAGE_STOPPING || ms_job_stage_is_over(v.stage)))
        sim_fail(s, "%s when the job ends", ms_job_action_name(a->what));
}

/* ---- budgets ----------------------------------------------------------------------- */

/* Whatever the model says. */
static void check_limit(struct sim *s, const uint16_t *spent, const uint16_t *budget)
{
    for (int c = 0; c < MS_JOB_BUDGETS; c++)
        if (budget[c] != MS_JOB_UNLIMITED && spent[c] > budget[c])
            sim_fail(s, "more spent than there is for %s", ms_job_cause_name(c));
}

/* ---- slots ------------------------------------------------------------------------- */

static void check_slot(struct sim *s, uint32_t role, uint32_t rank, uint32_t size)
{
    struct ms_job_slot_view v = ms_job_core_slot(s->core, role, rank);
    size_t i = slot_index(s, role, rank);

    if (rank >= size && v.state != MS_JOB_SLOT_ABSENT)
        sim_fail(s,
                 "%u/%u is %s beyond the size",
                 role,
                 rank,
                 ms_job_slot_state_name(v.state));
    if (v.incarnation < s->incarnations[i])
        sim_fail(s, "%u/%u has an older incarnation than before", role, rank);
    check_limit(s, v.spent, s->roles[role].budget);
    s->incarnations[i] = v.incarnation;
}

static void check_role(struct sim *s, uint32_t role)
{
    struct ms_job_role_view v = ms_job_core_role(s->core, role);
    uint32_t sum = 0, counts[MS_JOB_SLOT_STATES] = {0};

    for (uint32_t rank = 0; rank < v.spec->max; rank++) {
        check_slot(s, role, rank, v.size);
        counts[ms_job_core_slot(s->core, role, rank).state]++;
    }
    for (int i = 0; i < MS_JOB_SLOT_STATES; i++)
        sum += v.counts[i];
    if (sum != v.spec->max || memcmp(counts, v.counts, sizeof counts) != 0)
        sim_fail(s, "role %u: a slot is lost", role);
    if (v.counts[MS_JOB_SLOT_STARTING] && !v.doing)
        sim_fail(s, "role %u: a rank starts and nothing is under way", role);
    if (v.memory > 100 && v.memory > v.spec->memory_raise_max)
        sim_fail(s, "role %u: too much memory", role);
    check_limit(s, v.spent, v.spec->budget);
}

/* A late event changes nothing: no process that is not current is believed. */
void sim_check(struct sim *s, const struct ms_job_event *e)
{
    sim_model_check(s, e);
    for (uint32_t i = 0; i < ms_job_core_role_count(s->core); i++)
        check_role(s, i);
}

/* ---- at rest ----------------------------------------------------------------------- */

static bool
is_there(const struct sim *s, uint32_t role, uint32_t rank, uint32_t incarnation)
{
    for (size_t i = 0; i < s->proc_count; i++)
        if (s->procs[i].role == role && s->procs[i].rank == rank &&
            s->procs[i].incarnation == incarnation)
            return true;
    return false;
}

static void check_known(struct sim *s, const struct sim_proc *p)
{
    struct ms_job_slot_view v;

    if (p->role == MS_JOB_DRIVER) {
        if (!ms_job_core_view(s->core).driver_runs)
            sim_fail(s, "a driver that nobody knows");
        return;
    }
    v = ms_job_core_slot(s->core, p->role, p->rank);
    if (v.state != MS_JOB_SLOT_RUNNING || v.incarnation != p->incarnation)
        sim_fail(s,
                 "%u/%u.%u runs, and the job has .%u, %s",
                 p->role,
                 p->rank,
                 p->incarnation,
                 v.incarnation,
                 ms_job_slot_state_name(v.state));
}

static void check_rank_rests(struct sim *s, uint32_t role, uint32_t rank)
{
    struct ms_job_slot_view v = ms_job_core_slot(s->core, role, rank);

    if (v.state == MS_JOB_SLOT_RUNNING) {
        if (!is_there(s, role, rank, v.incarnation))
            sim_fail(s, "%u/%u.%u is not there", role, rank, v.incarnation);
    } else if (v.state != MS_JOB_SLOT_ABSENT && v.state != MS_JOB_SLOT_SUCCEEDED &&
               v.state != MS_JOB_SLOT_GIVEN_UP) {
        sim_fail(
            s, "%u/%u stays %s for ever", role, rank, ms_job_slot_state_name(v.state));
    }
}

void sim_check_rest(struct sim *s)
{
    enum ms_job_stage stage = ms_job_core_view(s->core).stage;

    if (stage != MS_JOB_STAGE_RUNNING)
        sim_fail(s, "the job stays %s for ever", ms_job_stage_name(stage));
    for (uint32_t i = 0; i < ms_job_core_role_count(s->core); i++)
        for (uint32_t rank = 0; rank < s->roles[i].max; rank++)
            check_rank_rests(s, i, rank);
    for (size_t i = 0; i < s->proc_count; i++)
        check_known(s, &s->procs[i]);
}

void sim_check_end(struct sim *s)
{
    struct ms_job_view v = ms_job_core_view(s->core);

    if (!ms_job_stage_is_over(v.stage) || !s->is_finished)
        sim_fail(s, "the job is %s, and did not end", ms_job_stage_name(v.stage));
    if (v.stage == MS_JOB_STAGE_FAILED && !v.text)
        sim_fail(s, "it failed without a reason");
    if (s->proc_count)
        sim_fail(s, "%zu processes are left", s->proc_count);
    if (s->is_held)
        sim_fail(s, "the machines were not given back");
    if (v.is_deleted && !s->is_forgotten)
        sim_fail(s, "deleted, and not forgotten");
}
