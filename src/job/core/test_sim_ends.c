/* test_sim_ends.c - the model: which ends an event brings */
#include "job/core/test_sim_model.h"

/* ---- the driver -------------------------------------------------------------------- */

static void
driver_failed(struct sim_model *m, const struct ms_job_report *p, const char *text)
{
    const struct ms_core_driver *d = &m->core.driver;
    uint16_t budget = m->core.spec.driver_budget[p->cause];
    uint16_t *spent = &m->driver_spent[p->cause];
    bool is_error = p->cause == MS_JOB_APPLICATION;
    bool was_stable =
        d->started_ns && m->now_ns - d->started_ns >= m->core.spec.stable_ns;

    if (is_error && m->pardoned_ns && m->now_ns <= m->pardoned_ns) {
        m->pardoned_ns = 0; /* once */
    } else if ((is_error &&
                sim_model_is_same_too_often(
                    m, &m->driver_error, ms_error_mark(text, p->code), was_stable)) ||
               (budget != MS_JOB_UNLIMITED && *spent >= budget)) {
        sim_model_end(m, p->cause);
    } else {
        ++*spent;
        m->pardoned_ns = 0;
    }
}

static void
end_driver(struct sim_model *m, const struct ms_job_report *p, const char *text)
{
    struct ms_core_driver *d = &m->core.driver;

    if (p->incarnation != d->attempt || d->state == MS_CORE_DRIVER_IDLE ||
        d->state == MS_CORE_DRIVER_DONE)
        return;
    if (p->cause == MS_JOB_SUCCEEDED)
        m->is_up = false;
    else if (m->is_up && d->state != MS_CORE_DRIVER_STOPPING)
        driver_failed(m, p, text);
    d->state = MS_CORE_DRIVER_IDLE;
}

static void driver_answered(struct sim_model *m, const struct ms_job_event *e)
{
    struct ms_job_report p = {.role = MS_JOB_DRIVER,
                              .incarnation = m->core.driver.attempt,
                              .cause = MS_JOB_START_FAILED};

    if (e->what != MS_JOB_NOT_DONE || m->core.driver.state != MS_CORE_DRIVER_STARTING)
        return;
    if (e->failure == MS_JOB_FAILED)
        end_driver(m, &p, e->text);
    else if (e->failure == MS_JOB_REFUSED && m->is_up)
        sim_model_end(m, MS_JOB_START_FAILED);
}

/* ---- ranks ------------------------------------------------------------------------- */

static void
end_slot(struct sim_model *m, const struct ms_job_report *p, const char *text)
{
    struct ms_core_slot *k = &m->roles[p->role].slots[p->rank];

    if (p->incarnation != k->incarnation || !ms_core_slot_is_live(k))
        return;
    k->cause = p->cause;
    k->ended_ns = m->now_ns;
    k->mark = ms_error_mark(text, p->code);
    k->state = MS_JOB_SLOT_SUCCEEDED;
    if (p->cause == MS_JOB_SUCCEEDED)
        return;
    k->state = MS_JOB_SLOT_DEAD;
    m->pardoned_ns = m->now_ns + MS_CORE_PARDON_NS;
}

static void end_all(struct sim_model *m, const struct ms_job_event *e)
{
    for (size_t i = 0; i < e->report_count; i++) {
        const char *text = i == 0 ? e->text : NULL; /* it is the first one's */

        if (e->reports[i].role == MS_JOB_DRIVER)
            end_driver(m, &e->reports[i], text);
        else
            end_slot(m, &e->reports[i], text);
    }
}

static void take_hung(struct sim_model *m, const struct ms_job_event *e)
{
    bool is_driver = e->role == MS_JOB_DRIVER;
    uint8_t hang = is_driver ? m->core.driver.hang : m->roles[e->role].hang;

    for (size_t i = 0; i < e->report_count && hang == MS_CORE_DUMPED; i++) {
        struct ms_job_report p = e->reports[i];

        p.cause = MS_JOB_HANG;
        p.code = 0;
        if (is_driver) {
            end_driver(m, &p, NULL);
        } else if (m->roles[e->role].spec->on_hang == MS_JOB_HANG_RESTART &&
                   m->roles[e->role].slots[p.rank].state == MS_JOB_SLOT_RUNNING) {
            end_slot(m, &p, NULL);
        }
    }
}

/* ---- what the controller did not know after a crash -------------------------------- */

static void forget_runs(struct sim_model *m)
{
    for (size_t i = 0; i < m->core.slot_count; i++)
        if (m->slots[i].state == MS_JOB_SLOT_RUNNING)
            m->slots[i].state = MS_JOB_SLOT_UNKNOWN;
    if (m->core.driver.state == MS_CORE_DRIVER_RUNNING)
        m->core.driver.state = MS_CORE_DRIVER_UNKNOWN;
}

static void find(struct sim_model *m, const struct ms_job_event *e)
{
    for (size_t i = 0; i < e->report_count; i++) {
        const struct ms_job_report *p = &e->reports[i];

        if (p->role == MS_JOB_DRIVER) {
            if (m->core.driver.state == MS_CORE_DRIVER_UNKNOWN &&
                p->incarnation == m->core.driver.attempt)
                m->core.driver.state = MS_CORE_DRIVER_RUNNING;
        } else {
            struct ms_core_slot *k = &m->roles[p->role].slots[p->rank];

            if (k->state == MS_JOB_SLOT_UNKNOWN && p->incarnation == k->incarnation)
                k->state = MS_JOB_SLOT_RUNNING;
        }
    }
}

static void lose_unknown(struct sim_model *m)
{
    for (uint32_t role = 0; role < m->core.spec.role_count; role++)
        for (uint32_t rank = 0; rank < m->roles[role].spec->max; rank++) {
            struct ms_core_slot *k = &m->roles[role].slots[rank];
            struct ms_job_report p = {.role = role,
                                      .rank = rank,
                                      .incarnation = k->incarnation,
                                      .cause = MS_JOB_NODE_LOST};

            if (k->state == MS_JOB_SLOT_UNKNOWN)
                end_slot(m, &p, NULL);
        }
    if (m->core.driver.state == MS_CORE_DRIVER_UNKNOWN)
        end_driver(m,
                   &(struct ms_job_report){.role = MS_JOB_DRIVER,
                                           .incarnation = m->core.driver.attempt,
                                           .cause = MS_JOB_NODE_LOST},
                   NULL);
}

/* ---- answers ----------------------------------------------------------------------- */

static void set_all(struct ms_core_role *r, uint32_t from, uint8_t state)
{
    for (uint32_t rank = from; rank < r->spec->max; rank++)
        if (r->slots[rank].state != MS_JOB_SLOT_SUCCEEDED)
            r->slots[rank].state = state;
}

/* What the action would have started does not run. */
static void undo(struct ms_core_role *r, uint8_t doing)
{
    if (doing == MS_JOB_DO_CREATE)
        set_all(r, 0, MS_JOB_SLOT_ABSENT);
    else if (doing == MS_JOB_DO_RESIZE && r->op_count > r->op_size)
        set_all(r, r->op_size, MS_JOB_SLOT_ABSENT);
    for (uint32_t rank = 0; rank < r->spec->max; rank++)
        if (r->slots[rank].state == MS_JOB_SLOT_STARTING)
            r->slots[rank].state = MS_JOB_SLOT_WAITING;
}

static uint32_t first_dead(const struct ms_core_role *r)
{
    uint32_t rank = 0;

    while (rank < r->spec->max && r->slots[rank].state != MS_JOB_SLOT_DEAD)
        rank++;
    return rank;
}

/* Those that the report blames, else all that were started. */
static uint32_t blame(struct sim_model *m, uint32_t role, const struct ms_job_event *e)
{
    struct ms_core_role *r = &m->roles[role];

    end_all(m, e);
    if (first_dead(r) < r->spec->max)
        return first_dead(r);
    for (uint32_t rank = 0; rank < r->spec->max; rank++)
        if (r->slots[rank].state == MS_JOB_SLOT_STARTING) {
            r->slots[rank].state = MS_JOB_SLOT_DEAD;
            r->slots[rank].cause = MS_JOB_START_FAILED;
        }
    return first_dead(r);
}

/* A shrink whose answer was lost is tried until one comes. */
static void not_resized(struct ms_core_role *r, const struct ms_job_event *e)
{
    undo(r, MS_JOB_DO_RESIZE);
    if (r->op_count < r->op_size && r->is_unsure)
        return;
    if (e->failure == MS_JOB_REFUSED || r->scale_tries + 1u >= MS_CORE_TRIES_MAX)
        r->next_size = 0; /* it stays as large as it is */
}

static void
role_failed(struct sim_model *m, uint32_t role, const struct ms_job_event *e)
{
    struct ms_core_role *r = &m->roles[role];
    uint8_t doing = r->doing;
    uint32_t rank;

    r->doing = 0;
    if (!m->is_up || e->failure == MS_JOB_NOT_ASKED || e->failure == MS_JOB_NO_ROOM) {
        undo(r, doing);
        r->is_restart_due |= doing == MS_JOB_DO_RESTART;
    } else if (doing == MS_JOB_DO_RESIZE) {
        not_resized(r, e);
    } else if (e->failure == MS_JOB_FAILED) {
        rank = blame(m, role, e);
        undo(r, doing);
        r->is_restart_due = false;
        if (doing == MS_JOB_DO_CREATE && rank < r->spec->max)
            sim_model_role_failed(m, role, rank);
    } else if (r->spec->critical) {
        sim_model_end(m, MS_JOB_START_FAILED);
    } else {
        undo(r, doing);
        r->is_given_up = true;
    }
}

static void role_done(struct ms_core_role *r)
{
    if (r->doing == MS_JOB_DO_RESIZE && r->op_count < r->size) {
        for (uint32_t rank = r->op_count; rank < r->size; rank++)
            r->slots[rank].state = MS_JOB_SLOT_ABSENT;
        r->size = r->op_count;
        r->next_size = 0;
    }
    r->doing = 0;
}

static void take_answer(struct sim_model *m, const struct ms_job_event *e)
{
    if (e->id == m->core.driver.op)
        driver_answered(m, e);
    for (uint32_t i = 0; i < m->core.spec.role_count; i++) {
        struct ms_core_role *r = &m->roles[i];

        if (r->op != e->id)
            continue;
        if (r->doing == MS_JOB_DO_DESTROY)
            set_all(r, 0, MS_JOB_SLOT_ABSENT);
        else if (e->what == MS_JOB_DONE)
            role_done(r);
        else
            role_failed(m, i, e);
    }
}

/* ---- what people want -------------------------------------------------------------- */

static void take_restart(struct sim_model *m, const struct ms_job_event *e)
{
    struct ms_core_role *r;

    if (e->role == MS_JOB_NO_ROLE) {
        for (uint32_t i = 0; i < m->core.spec.role_count; i++)
            m->roles[i].is_given_up = false;
        sim_model_restart_job(m);
        return;
    }
    if (e->role == MS_JOB_DRIVER)
        return;
    r = &m->roles[e->role];
    if (e->rank == MS_JOB_ALL_RANKS || r->spec->restart != MS_JOB_RESTART_RANK ||
        r->is_given_up) {
        r->is_given_up = false;
        m->role_errors[e->role].count = 0;
        r->is_restart_due |= r->is_up && r->doing != MS_JOB_DO_DESTROY;
    } else if (r->is_up && r->slots[e->rank].state != MS_JOB_SLOT_STARTING &&
               r->slots[e->rank].state != MS_JOB_SLOT_ABSENT) {
        r->slots[e->rank].state = MS_JOB_SLOT_WAITING; /* it spends nothing */
    }
}

void sim_model_take(struct sim_model *m,
                    const struct ms_job_event *e,
                    const struct ms_job_core *after)
{
    if (e->what == MS_JOB_STOP || e->what == MS_JOB_SUSPEND || e->what == MS_JOB_DELETE)
        m->is_up = false;
    else if (e->what == MS_JOB_ADMITTED || e->what == MS_JOB_RESUME)
        m->is_up = ms_core_goes_up(after) || after->stage == MS_JOB_STAGE_STOPPING;
    else if (e->what == MS_JOB_RESTART)
        take_restart(m, e);
    else if (e->what == MS_JOB_EXITED)
        end_all(m, e);
    else if (e->what == MS_JOB_HUNG)
        take_hung(m, e);
    else if (e->what == MS_JOB_DONE || e->what == MS_JOB_NOT_DONE)
        take_answer(m, e);
    if (e->what == MS_JOB_RECOVERED)
        forget_runs(m);
    if (e->what == MS_JOB_RECOVERED || e->what == MS_JOB_FOUND)
        find(m, e);
    if (after->unknown_ns == MS_NEVER) /* it waits for nobody any more */
        lose_unknown(m);
}
