/* role.c - a role: created, replaced, restarted, resized, destroyed */
#include "job/core/core_impl.h"

#include <string.h>

bool ms_core_role_has_succeeded(const struct ms_core_role *r)
{
    uint32_t ended = r->counts[MS_JOB_SLOT_SUCCEEDED] + r->counts[MS_JOB_SLOT_GIVEN_UP];

    return r->counts[MS_JOB_SLOT_SUCCEEDED] > 0 && ended == r->size;
}

static uint32_t there(const struct ms_core_role *r)
{
    return r->counts[MS_JOB_SLOT_RUNNING] + r->counts[MS_JOB_SLOT_UNKNOWN] +
           r->counts[MS_JOB_SLOT_SUCCEEDED];
}

bool ms_core_role_is_ready(const struct ms_core_role *r)
{
    if (r->is_given_up || ms_core_role_has_succeeded(r))
        return true;
    if (!r->spec->critical && r->has_failed)
        return true;
    return r->is_up && there(r) + r->counts[MS_JOB_SLOT_GIVEN_UP] >= r->spec->min;
}

uint32_t ms_core_role_kept(const struct ms_core_role *r)
{
    return r->next_size ? r->next_size : r->size;
}

/* No more of it in the next action than there is room for, a multiple of its unit. */
static uint32_t next_count(const struct ms_core_role *r)
{
    uint32_t room = r->room - r->room % r->spec->unit;

    return r->room && room >= r->spec->min && room < r->wanted ? room : r->wanted;
}

void ms_core_role_clear(struct ms_job_core *c, struct ms_core_role *r)
{
    bool has_succeeded = ms_core_role_has_succeeded(r);

    (void)c;
    for (uint32_t i = 0; i < r->spec->max; i++)
        if (!has_succeeded)
            ms_core_slot_set(r, &r->slots[i], MS_JOB_SLOT_ABSENT);
    r->doing = 0;
    r->op = r->dump_op = r->drain_op = r->stray_op = 0;
    r->has_strays = false;
    r->is_up = r->is_restart_due = r->is_drained = r->is_scaling = r->is_unsure = false;
    r->next_size = r->room = 0;
    r->hang = MS_CORE_WORKS;
    r->tries = 0;
    r->slot_retry_ns = r->pending_ns = MS_NEVER;
}

void ms_core_role_restart(struct ms_job_core *c,
                          struct ms_core_role *r,
                          int64_t retry_ns)
{
    (void)c;
    r->is_restart_due = true;
    r->retry_ns = retry_ns;
}

/* ---- actions ----------------------------------------------------------------------- */

static struct ms_job_action *
fill(const struct ms_job_core *c, const struct ms_core_role *r, struct ms_job_action *a)
{
    a->role = ms_core_role_index(c, r);
    a->count = r->op_count;
    a->incarnation = r->op_incarnation;
    a->memory = r->memory;
    return a;
}

static struct ms_job_action *
begin(struct ms_job_core *c, struct ms_core_role *r, uint32_t what, uint32_t count)
{
    struct ms_job_action *a = ms_act(c, what);

    r->doing = (uint8_t)what;
    r->op = a->id;
    r->op_count = count;
    r->op_size = r->size;
    r->op_incarnation = what == MS_JOB_DO_DESTROY ? r->incarnation : ++r->incarnation;
    return fill(c, r, a);
}

/* Else its last start came to nothing. */
static bool had_process(const struct ms_core_slot *s)
{
    return s->started_ns || (s->ended_ns && s->cause != MS_JOB_START_FAILED);
}

static void start_slot(struct ms_core_role *r, struct ms_core_slot *s)
{
    if (had_process(s))
        s->restarts++;
    s->incarnation = r->op_incarnation;
    s->started_ns = s->ended_ns = 0;
    s->flags &= MS_CORE_ELSEWHERE; /* until it runs */
    ms_core_slot_set(r, s, MS_JOB_SLOT_STARTING);
}

/* All ranks below `count`; there are no others then. */
static void start_all(struct ms_core_role *r, uint32_t count)
{
    for (uint32_t i = 0; i < r->spec->max; i++)
        if (i < count)
            start_slot(r, &r->slots[i]);
        else
            ms_core_slot_set(r, &r->slots[i], MS_JOB_SLOT_ABSENT);
    r->size = count;
    r->slot_retry_ns = MS_NEVER;
    r->next_size = 0;
    r->drain_op = r->dump_op = 0;
    r->is_drained = r->is_scaling = r->is_restart_due = false;
    r->hang = MS_CORE_WORKS;
}

static void create(struct ms_job_core *c, struct ms_core_role *r)
{
    uint32_t count = next_count(r);

    begin(c, r, MS_JOB_DO_CREATE, count);
    start_all(r, count);
}

static void restart(struct ms_job_core *c, struct ms_core_role *r)
{
    uint32_t count = next_count(r);

    begin(c, r, MS_JOB_DO_RESTART, count);
    start_all(r, count);
}

static bool is_due(const struct ms_job_core *c, const struct ms_core_slot *s)
{
    return s->state == MS_JOB_SLOT_WAITING && s->retry_ns <= c->now_ns;
}

static bool has_due(const struct ms_job_core *c, const struct ms_core_role *r)
{
    return r->slot_retry_ns <= c->now_ns && r->counts[MS_JOB_SLOT_WAITING] > 0;
}

void ms_core_role_look_for_retry(struct ms_core_role *r)
{
    uint32_t kept = ms_core_role_kept(r);

    r->slot_retry_ns = MS_NEVER;
    MS_EACH_BUSY(r, i)
    if (i < kept && r->slots[i].state == MS_JOB_SLOT_WAITING &&
        r->slots[i].retry_ns < r->slot_retry_ns)
        r->slot_retry_ns = r->slots[i].retry_ns;
}

void ms_core_role_try_now(const struct ms_job_core *c, struct ms_core_role *r)
{
    if (r->waits == 0 && r->size >= r->wanted)
        return;
    if (r->retry_ns > c->now_ns)
        r->retry_ns = c->now_ns;
    if (r->scale_retry_ns > c->now_ns)
        r->scale_retry_ns = c->now_ns;
    MS_EACH_BUSY(r, i)
    if (r->slots[i].state == MS_JOB_SLOT_WAITING && r->slots[i].flags & MS_CORE_FREE &&
        r->slots[i].retry_ns > c->now_ns)
        r->slots[i].retry_ns = c->now_ns;
    ms_core_role_look_for_retry(r);
}

/* All that are due, by one action. */
static void replace(struct ms_job_core *c, struct ms_core_role *r)
{
    uint32_t kept = ms_core_role_kept(r), room = r->room ? r->room : UINT32_MAX;
    struct ms_job_action *a = NULL;

    MS_EACH_BUSY(r, i)
    {
        struct ms_core_slot *s = &r->slots[i];
        struct ms_job_action_rank rank = {.rank = i};

        if (i >= kept || !is_due(c, s) || (a && a->rank_count >= room))
            continue;
        if (!a)
            a = begin(c, r, MS_JOB_DO_REPLACE, r->size);
        rank.incarnation = r->op_incarnation - 1;
        rank.flags = s->flags & MS_CORE_ELSEWHERE ? MS_JOB_ELSEWHERE : 0;
        ms_act_rank(c, a, &rank);
        start_slot(r, s);
    }
    ms_core_role_look_for_retry(r);
}

/* ---- another size ------------------------------------------------------------------ */

static void drain(struct ms_job_core *c, struct ms_core_role *r)
{
    struct ms_job_action *a = NULL;

    for (uint32_t i = r->next_size; i < r->size; i++) {
        struct ms_job_action_rank rank = {.rank = i,
                                          .incarnation = r->slots[i].incarnation};

        if (r->slots[i].state != MS_JOB_SLOT_RUNNING)
            continue;
        if (!a) {
            a = ms_act(c, MS_JOB_DO_DRAIN);
            a->role = ms_core_role_index(c, r);
            a->count = r->next_size;
            r->drain_op = a->id;
        }
        ms_act_rank(c, a, &rank);
    }
    r->is_drained = !a;
}

static void shrink(struct ms_job_core *c, struct ms_core_role *r)
{
    if (r->next_size == 0) {
        r->next_size = r->wanted;
        ms_core_role_look_for_retry(r);
    }
    if (!r->is_drained && r->drain_op == 0)
        drain(c, r);
    if (r->is_drained)
        begin(c, r, MS_JOB_DO_RESIZE, r->next_size);
}

static void grow(struct ms_job_core *c, struct ms_core_role *r)
{
    uint32_t count = r->wanted, room = r->room - r->room % r->spec->unit;
    struct ms_job_action *a;

    if (room && room < count - r->size)
        count = r->size + room;
    a = begin(c, r, MS_JOB_DO_RESIZE, count);
    for (uint32_t i = r->size; i < count; i++) {
        struct ms_job_action_rank rank = {.rank = i,
                                          .incarnation = r->op_incarnation - 1};

        ms_act_rank(c, a, &rank);
        start_slot(r, &r->slots[i]);
    }
    r->size = count;
}

/* Roles that restart together do so for a new size if a user asked for it. */
static void scale(struct ms_job_core *c, struct ms_core_role *r)
{
    if (r->spec->restart != MS_JOB_RESTART_RANK) {
        if (r->is_scaling && r->size != r->wanted)
            restart(c, r);
        r->is_scaling = false;
        return;
    }
    if (c->now_ns < r->scale_retry_ns)
        return;
    if (r->next_size || r->wanted < r->size)
        shrink(c, r);
    else if (r->wanted > r->size)
        grow(c, r);
    else
        begin(c, r, MS_JOB_DO_RESIZE, r->size); /* what is there beyond it goes */
}

/* ---- up and down ------------------------------------------------------------------- */

/* Processes of ranks that were given up, because they hang or nobody can reach them. */
static void end_strays(struct ms_job_core *c, struct ms_core_role *r)
{
    struct ms_job_action *a = ms_act(c, MS_JOB_DO_END_STRAYS);

    a->role = ms_core_role_index(c, r);
    r->stray_op = a->id;
    r->has_strays = false;
    for (uint32_t i = 0; i < r->size; i++) {
        struct ms_job_action_rank rank = {.rank = i,
                                          .incarnation = r->slots[i].incarnation};

        if (r->slots[i].state == MS_JOB_SLOT_GIVEN_UP)
            ms_act_rank(c, a, &rank);
    }
}

static void watch_min(const struct ms_job_core *c, struct ms_core_role *r)
{
    bool is_short = r->spec->critical && there(r) < r->spec->min;

    if (!is_short)
        r->pending_ns = MS_NEVER;
    else if (r->pending_ns == MS_NEVER)
        r->pending_ns = c->now_ns;
}

static void ask(struct ms_job_core *c, struct ms_core_role *r)
{
    if (!r->is_up)
        create(c, r);
    else if (r->is_restart_due)
        restart(c, r);
    else if (has_due(c, r))
        replace(c, r);
    if (!r->doing && (r->wanted != r->size || r->next_size || r->is_unsure))
        scale(c, r);
}

void ms_core_role_up(struct ms_job_core *c, struct ms_core_role *r)
{
    if (r->is_given_up || r->doing == MS_JOB_DO_DESTROY) {
        ms_core_role_down(c, r);
        return;
    }
    watch_min(c, r);
    if (r->has_strays && !r->stray_op && c->now_ns >= r->stray_retry_ns)
        end_strays(c, r);
    if (!r->doing && !c->cannot_ask && c->now_ns >= r->retry_ns &&
        !ms_core_role_has_succeeded(r))
        ask(c, r);
}

bool ms_core_role_down(struct ms_job_core *c, struct ms_core_role *r)
{
    bool is_asked = r->doing == MS_JOB_DO_DESTROY;

    if (!r->is_up && !r->doing && !r->is_unsure)
        return true;
    if (is_asked && (r->op || c->now_ns < r->retry_ns))
        return false;
    r->pending_ns = MS_NEVER;
    r->drain_op = r->dump_op = 0;
    if (!is_asked)
        r->tries = 0;
    begin(c, r, MS_JOB_DO_DESTROY, 0);
    return false;
}

/* ---- after a recovery -------------------------------------------------------------- */

static void ranks_again(struct ms_job_core *c,
                        const struct ms_core_role *r,
                        struct ms_job_action *a)
{
    MS_EACH_BUSY(r, i)
    {
        const struct ms_core_slot *s = &r->slots[i];
        struct ms_job_action_rank rank = {.rank = i, .incarnation = s->incarnation - 1};

        rank.flags = s->flags & MS_CORE_ELSEWHERE ? MS_JOB_ELSEWHERE : 0;
        if (s->incarnation == r->op_incarnation && s->state != MS_JOB_SLOT_WAITING)
            ms_act_rank(c, a, &rank);
    }
}

void ms_core_role_act_again(struct ms_job_core *c, struct ms_core_role *r)
{
    struct ms_job_action *a;

    if (r->drain_op) { /* what was asked for is forgotten: another one is asked for */
        r->drain_op = 0;
        r->is_drained = false;
    }
    if (r->stray_op) {
        r->stray_op = 0;
        r->has_strays = true;
    }
    if (r->dump_op) {
        a = ms_act_again(c, MS_JOB_DO_DUMP_STACKS, r->dump_op);
        a->role = ms_core_role_index(c, r);
        a->count = r->size;
    }
    if (r->op == 0)
        return;
    r->is_unsure = true; /* it may have been done before, in part */
    a = fill(c, r, ms_act_again(c, r->doing, r->op));
    if (r->doing == MS_JOB_DO_REPLACE ||
        (r->doing == MS_JOB_DO_RESIZE && r->op_count > r->op_size))
        ranks_again(c, r, a);
}
