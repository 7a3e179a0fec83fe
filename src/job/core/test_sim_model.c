/* test_sim_model.c - the model: what the ends of a step must spend */
#include "job/core/test_sim_model.h"

#include "job/core/test_sim.h"

#include <string.h>

/* ---- before ------------------------------------------------------------------------ */

void sim_model_begin(struct sim *s)
{
    struct sim_model *m = &s->model;
    struct ms_core_slot *at = m->slots;

    m->core = *s->core;
    for (uint32_t i = 0; i < s->core->spec.role_count; i++) {
        const struct ms_core_role *r = &s->core->roles[i];

        m->roles[i] = *r;
        m->roles[i].slots = at;
        memcpy(at, r->slots, r->spec->max * sizeof *at);
        at += r->spec->max;
    }
    m->is_up = ms_core_goes_up(s->core);
    m->is_over = false;
    m->cause = MS_JOB_CAUSE_NONE;
}

/* ---- what an end leads to ---------------------------------------------------------- */

static uint16_t *slot_spent(struct sim_model *m, uint32_t role, uint32_t rank)
{
    return m->slots_spent[m->roles[role].slots - m->slots + rank];
}

static bool is_spent(uint16_t spent, uint16_t budget)
{
    return budget != MS_JOB_UNLIMITED && spent >= budget;
}

static bool is_final(uint8_t cause)
{
    return cause == MS_JOB_APPLICATION || cause == MS_JOB_START_FAILED;
}

void sim_model_end(struct sim_model *m, uint8_t cause)
{
    m->is_up = false;
    m->is_over = true;
    m->cause = cause;
}

/* Ranks begin anew. */
void sim_model_restart_job(struct sim_model *m)
{
    m->is_up = false;
    m->restarts++;
    memset(m->slots_spent, 0, sizeof m->slots_spent);
}

static void give_up(struct sim_model *m, uint32_t role, uint8_t cause)
{
    if (m->roles[role].spec->critical)
        sim_model_end(m, cause);
    else
        m->roles[role].is_given_up = true;
}

/* The role has nothing left for this cause. */
static void go_to_job(struct sim_model *m, uint32_t role, uint8_t cause)
{
    if (!m->roles[role].spec->critical || is_final(cause) ||
        is_spent((uint16_t)m->escalations, m->core.spec.job_restarts_max)) {
        give_up(m, role, cause);
        return;
    }
    m->escalations++;
    sim_model_restart_job(m);
}

/* The rank has nothing left for this cause. */
static void go_to_role(struct sim_model *m, uint32_t role, uint32_t rank)
{
    struct ms_core_role *r = &m->roles[role];
    uint8_t cause = r->slots[rank].cause;

    if (!r->spec->critical) {
        r->slots[rank].state = MS_JOB_SLOT_GIVEN_UP;
    } else if (is_final(cause) ||
               m->role_restarts[role] >= m->core.spec.role_restarts_max) {
        go_to_job(m, role, cause);
    } else {
        m->role_restarts[role]++;
        r->is_restart_due = true;
        for (uint32_t i = 0; i < r->spec->max; i++)
            memset(slot_spent(m, role, i), 0, sizeof m->slots_spent[0]);
    }
}

bool sim_model_is_same_too_often(const struct sim_model *m,
                                 struct sim_error *error,
                                 uint32_t mark,
                                 bool was_stable)
{
    if (error->mark != mark || was_stable)
        error->count = 0;
    error->mark = mark;
    error->count++;
    return m->core.spec.same_error_max && error->count >= m->core.spec.same_error_max;
}

static bool is_same_too_often(struct sim_model *m, uint32_t role, uint32_t rank)
{
    const struct ms_core_slot *k = &m->roles[role].slots[rank];
    bool was_stable =
        k->started_ns && k->ended_ns - k->started_ns >= m->core.spec.stable_ns;

    return k->cause == MS_JOB_APPLICATION &&
           sim_model_is_same_too_often(m, &m->role_errors[role], k->mark, was_stable);
}

/* One restart of the role. */
static void spend_role(struct sim_model *m, uint32_t role, uint32_t rank)
{
    const struct ms_core_role *r = &m->roles[role];
    uint8_t cause = r->slots[rank].cause;

    if (is_same_too_often(m, role, rank))
        give_up(m, role, cause);
    else if (is_spent(m->roles_spent[role][cause], r->spec->budget[cause]))
        go_to_job(m, role, cause);
    else
        m->roles_spent[role][cause]++;
}

void sim_model_role_failed(struct sim_model *m, uint32_t role, uint32_t rank)
{
    spend_role(m, role, rank);
}

/* ---- ends that are decided of in this step ----------------------------------------- */

/* The causes from the one that is most to blame to the least. */
static const uint8_t blamed_first[] = {
    MS_JOB_HARDWARE,
    MS_JOB_CHECK_FAILED,
    MS_JOB_OUT_OF_MEMORY,
    MS_JOB_NODE_LOST,
    MS_JOB_NO_HEARTBEAT,
    MS_JOB_PREEMPTED,
    MS_JOB_HANG,
    MS_JOB_APPLICATION,
    MS_JOB_START_FAILED,
};

/* The first dead rank of that cause; spec->max: there is none. */
static uint32_t find_dead(const struct ms_core_role *r, uint32_t size, uint8_t cause)
{
    for (uint32_t rank = 0; rank < size; rank++)
        if (r->slots[rank].state == MS_JOB_SLOT_DEAD && r->slots[rank].cause == cause)
            return rank;
    return r->spec->max;
}

static void decide_together(struct sim_model *m, uint32_t role)
{
    const struct ms_core_role *r = &m->roles[role];
    uint32_t rank = r->spec->max;
    uint16_t before;

    for (size_t i = 0; i < sizeof blamed_first && rank == r->spec->max; i++)
        rank = find_dead(r, r->spec->max, blamed_first[i]);
    if (rank == r->spec->max || r->is_restart_due || r->is_given_up)
        return; /* they start with the others, or not at all */
    before = m->roles_spent[role][r->slots[rank].cause];
    spend_role(m, role, rank);
    if (r->spec->restart == MS_JOB_RESTART_JOB &&
        m->roles_spent[role][r->slots[rank].cause] > before)
        sim_model_restart_job(m);
}

static void decide_each(struct sim_model *m, uint32_t role)
{
    struct ms_core_role *r = &m->roles[role];
    uint32_t kept = r->next_size ? r->next_size : r->size;
    uint32_t error = find_dead(r, kept, MS_JOB_APPLICATION);

    if (error < kept && is_same_too_often(m, role, error)) {
        give_up(m, role, MS_JOB_APPLICATION);
        return;
    }
    for (uint32_t rank = 0; rank < kept && m->is_up && !r->is_restart_due; rank++) {
        uint8_t cause = r->slots[rank].cause;

        if (r->slots[rank].state != MS_JOB_SLOT_DEAD)
            continue;
        if (is_spent(slot_spent(m, role, rank)[cause], r->spec->budget[cause]))
            go_to_role(m, role, rank);
        else
            slot_spent(m, role, rank)[cause]++;
    }
}

/* One with an action under way is decided of when that has been answered. */
static void decide(struct sim_model *m)
{
    for (uint32_t role = 0; role < m->core.spec.role_count && m->is_up; role++) {
        const struct ms_core_role *r = &m->roles[role];

        if (r->doing)
            continue;
        if (r->spec->restart != MS_JOB_RESTART_RANK || r->is_restart_due ||
            r->is_given_up)
            decide_together(m, role);
        else
            decide_each(m, role);
    }
}

/* ---- after ------------------------------------------------------------------------- */

static void check_account(struct sim *s,
                          const char *whose,
                          uint32_t rank,
                          const uint16_t *is,
                          const uint16_t *must)
{
    if (memcmp(is, must, MS_JOB_BUDGETS * sizeof *is) == 0)
        return;
    for (int c = 0; c < MS_JOB_BUDGETS; c++)
        if (is[c] != must[c])
            sim_fail(s,
                     "%s/%u has spent %u for %s, and must have spent %u",
                     whose,
                     rank,
                     is[c],
                     ms_job_cause_name(c),
                     must[c]);
}

static void check_count(struct sim *s, const char *what, uint32_t is, uint32_t must)
{
    if (is != must)
        sim_fail(s, "%s: %u, and must be %u", what, is, must);
}

static void check_role(struct sim *s, uint32_t role)
{
    struct sim_model *m = &s->model;
    const struct ms_core_role *r = &s->core->roles[role];

    for (uint32_t rank = 0; rank < r->spec->max; rank++)
        check_account(
            s, r->spec->name, rank, r->slots[rank].spent, slot_spent(m, role, rank));
    check_account(s, r->spec->name, MS_JOB_ALL_RANKS, r->spent, m->roles_spent[role]);
    check_count(s, "restarts for a rank", r->restarts, m->role_restarts[role]);
    check_count(s, "is given up", r->is_given_up, m->roles[role].is_given_up);
}

/* The job ends by what has ended if and only if its budgets say so. */
static void check_over(struct sim *s, const struct ms_job_event *e)
{
    const struct sim_model *m = &s->model;
    const struct ms_job_core *c = s->core;
    bool is_over = c->stage == MS_JOB_STAGE_STOPPING || ms_job_stage_is_over(c->stage);
    bool is_failed = is_over && c->end_stage == MS_JOB_STAGE_FAILED;

    if (m->is_over && (!is_failed || c->cause != m->cause))
        sim_fail(s, "%s must end the job", ms_job_cause_name(m->cause));
    if (m->is_up && is_failed && c->cause != MS_JOB_NO_CAPACITY &&
        e->id != m->core.check_op)
        sim_fail(s, "%s may not end the job", ms_job_cause_name(c->cause));
}

/* Before anything was decided: no room for too long, or never, or a check of nodes. */
static bool ended_before(const struct sim_model *m,
                         const struct ms_job_core *after,
                         const struct ms_job_event *e)
{
    return m->is_up && !ms_core_goes_up(after) &&
           after->end_stage == MS_JOB_STAGE_FAILED &&
           (after->cause == MS_JOB_NO_CAPACITY || (e->id && e->id == m->core.check_op));
}

void sim_model_check(struct sim *s, const struct ms_job_event *e)
{
    struct sim_model *m = &s->model;
    const struct ms_job_core *c = s->core;

    m->now_ns = c->now_ns;
    if (e->what == MS_JOB_SUBMITTED)
        sim_model_begin(s); /* there were no roles before */
    sim_model_take(m, e, c);
    if (!ended_before(m, c, e))
        decide(m);
    for (uint32_t role = 0; role < c->spec.role_count; role++)
        check_role(s, role);
    check_account(s, "driver", 0, c->driver.spent, m->driver_spent);
    check_count(s, "restarts of the job for a role", c->escalations, m->escalations);
    check_count(s, "restarts of the job", c->restarts, m->restarts);
    check_over(s, e);
}
