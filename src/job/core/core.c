/* core.c - life, events, the step, what there is */
#include "job/core/core_impl.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    ACTIONS_OF_JOB = 32,
    ACTIONS_OF_ROLE = 8,
    SAID_OF_JOB = 32 << 10,
    SAID_OF_ROLE = 2 << 10,
    SAID_MAX = 1 << 20,
};

/* ---- life -------------------------------------------------------------------------- */

struct ms_job_core *ms_job_core_create(void)
{
    struct ms_job_core *c = calloc(1, sizeof *c);

    if (!c)
        return NULL;
    c->pending_ns = c->unknown_ns = MS_NEVER;
    return c;
}

static void release(struct ms_job_core *c)
{
    free(c->spec.roles);
    free(c->roles);
    free(c->slots);
    free(c->busy);
    free(c->nodes);
    free(c->actions);
    free(c->ranks);
    free(c->said);
    free(c->suspects);
}

void ms_job_core_destroy(struct ms_job_core *c)
{
    if (!c)
        return;
    release(c);
    free(c);
}

static void init_role(struct ms_core_role *r)
{
    r->size = r->wanted = r->spec->count;
    r->memory = 100;
    r->slot_retry_ns = r->pending_ns = MS_NEVER;
    r->counts[MS_JOB_SLOT_ABSENT] = r->spec->max;
}

static int allocate_out(struct ms_job_core *c)
{
    size_t roles = c->spec.role_count;
    size_t actions = ACTIONS_OF_JOB + ACTIONS_OF_ROLE * roles + MS_CORE_NODES_MAX;
    size_t said = SAID_OF_JOB + SAID_OF_ROLE * roles;

    c->said_room = said < SAID_MAX ? said : SAID_MAX;
    c->said = malloc(c->said_room);
    if (!c->said)
        return -ENOMEM;
    /* the other half is for what is said */
    if (ms_array_reserve(&c->actions, &c->action_room, 2 * actions, sizeof *c->actions))
        return -ENOMEM;
    return ms_array_reserve(
        &c->ranks, &c->rank_room, 2 * c->slot_count, sizeof *c->ranks);
}

static size_t word_count(uint32_t slots)
{
    return ((size_t)slots + 63) / 64;
}

int ms_core_allocate(struct ms_job_core *c)
{
    struct ms_core_slot *at;
    uint64_t *bits;
    size_t words = 0;

    c->slot_count = 0;
    for (uint32_t i = 0; i < c->spec.role_count; i++) {
        c->slot_count += c->spec.roles[i].max;
        words += word_count(c->spec.roles[i].max);
    }
    c->busy = bits = calloc(words + 1, sizeof *c->busy);
    c->roles = calloc(c->spec.role_count + 1, sizeof *c->roles);
    c->slots = at = calloc(c->slot_count + 1, sizeof *c->slots);
    c->nodes = calloc(MS_CORE_NODES_MAX, sizeof *c->nodes);
    if (!c->roles || !c->slots || !c->busy || !c->nodes || allocate_out(c) < 0)
        return -ENOMEM;
    for (uint32_t i = 0; i < c->spec.role_count; i++) {
        c->roles[i].spec = &c->spec.roles[i];
        c->roles[i].slots = at;
        c->roles[i].busy = bits;
        at += c->spec.roles[i].max;
        bits += word_count(c->spec.roles[i].max);
        init_role(&c->roles[i]);
    }
    return 0;
}

/* The same without what it owns. */
static struct ms_job_core without_memory(const struct ms_job_core *c)
{
    struct ms_job_core bare = *c;

    bare.roles = NULL;
    bare.slots = NULL;
    bare.busy = NULL;
    bare.nodes = NULL;
    bare.actions = NULL;
    bare.ranks = NULL;
    bare.said = NULL;
    bare.suspects = NULL;
    bare.action_room = bare.rank_room = 0;
    return bare;
}

/* Into a core without a job; one that was decoded has memory for no role. */
static int submit(struct ms_job_core *c, const struct ms_job_spec *spec)
{
    struct ms_job_core new = without_memory(c);
    size_t size = (size_t)spec->role_count * sizeof *spec->roles;

    new.spec = *spec;
    new.spec.roles = calloc(1, size + 1);
    if (!new.spec.roles)
        return -ENOMEM;
    if (size)
        memcpy(new.spec.roles, spec->roles, size);
    if (ms_core_allocate(&new) < 0) {
        release(&new);
        return -ENOMEM;
    }
    release(c);
    *c = new;
    return 0;
}

/* ---- small changes ----------------------------------------------------------------- */

static bool is_busy(uint8_t state)
{
    return state == MS_JOB_SLOT_STARTING || state == MS_JOB_SLOT_UNKNOWN ||
           state == MS_JOB_SLOT_DEAD || state == MS_JOB_SLOT_WAITING;
}

void ms_core_slot_set(struct ms_core_role *r, struct ms_core_slot *s, uint8_t state)
{
    size_t i = (size_t)(s - r->slots);

    assert(r->counts[s->state] > 0 && s >= r->slots && s < r->slots + r->spec->max);
    r->counts[s->state]--;
    r->counts[state]++;
    s->state = state;
    if (is_busy(state))
        r->busy[i / 64] |= UINT64_C(1) << i % 64;
    else
        r->busy[i / 64] &= ~(UINT64_C(1) << i % 64);
}

uint32_t ms_core_role_next_busy(const struct ms_core_role *r, uint32_t from)
{
    uint32_t max = r->spec->max;
    size_t word = from / 64;
    uint64_t bits;

    if (from >= max)
        return max;
    bits = r->busy[word] & (UINT64_MAX << from % 64);
    while (bits == 0)
        if (++word == word_count(max))
            return max;
        else
            bits = r->busy[word];
    return (uint32_t)(word * 64) + (uint32_t)__builtin_ctzll(bits);
}

void ms_stage_set(struct ms_job_core *c, uint8_t stage)
{
    if (c->stage == stage)
        return;
    c->stage = stage;
    c->since_ns = c->now_ns;
}

/* ---- events ------------------------------------------------------------------------ */

static void take_submitted(struct ms_job_core *c, const struct ms_job_event *e)
{
    (void)e; /* it was copied already */
    ms_stage_set(c, MS_JOB_STAGE_QUEUED);
    c->since_ns = c->now_ns;
    ms_say(c, MS_JOB_INFO, MS_JOB_NO_ROLE, 0, MS_JOB_CAUSE_NONE, "submitted");
}

static void take_admitted(struct ms_job_core *c, const struct ms_job_event *e)
{
    (void)e;
    c->is_admitted = true;
    ms_stage_set(c, MS_JOB_STAGE_STARTING);
    ms_say(c, MS_JOB_INFO, MS_JOB_NO_ROLE, 0, MS_JOB_CAUSE_NONE, "starting");
}

/* Of an action that nobody waits for any more: it is late, and changes nothing. */
static void take_answer(struct ms_job_core *c, const struct ms_job_event *e)
{
    if (ms_capacity_answer(c, e))
        return;
    if (c->driver.op == e->id || c->driver.dump_op == e->id) {
        ms_core_driver_answer(c, e);
        return;
    }
    for (uint32_t i = 0; i < c->spec.role_count; i++)
        if (c->roles[i].op == e->id || c->roles[i].dump_op == e->id ||
            c->roles[i].drain_op == e->id || c->roles[i].stray_op == e->id) {
            ms_core_role_answer(c, &c->roles[i], e);
            return;
        }
}

static void take_exited(struct ms_job_core *c, const struct ms_job_event *e)
{
    const char *text = e->text;

    for (size_t i = 0; i < e->report_count; i++) {
        const struct ms_job_report *p = &e->reports[i];

        if (p->role == MS_JOB_DRIVER)
            ms_core_driver_ended(c, p, text);
        else
            ms_core_slot_ended(c, &c->roles[p->role], p, text);
        text = NULL; /* it is the first one's */
    }
}

static void take_cannot_ask(struct ms_job_core *c, const struct ms_job_event *e)
{
    if (c->cannot_ask)
        return;
    c->cannot_ask = true;
    c->cannot_ask_ns = c->now_ns;
    ms_say(c,
           MS_JOB_WARNING,
           MS_JOB_NO_ROLE,
           0,
           MS_JOB_CAUSE_NONE,
           "the orchestrator cannot be asked: %s; nothing is started until it can",
           e->text ? e->text : "no reason given");
}

/* Time in which no process could be asked does not count as silence. `since_ns` is when it
 * began to count. */
static void shift(const struct ms_job_core *c, int64_t *at_ns, int64_t since_ns)
{
    int64_t from_ns = since_ns > c->cannot_ask_ns ? since_ns : c->cannot_ask_ns;

    if (*at_ns != MS_NEVER)
        *at_ns = ms_deadline_ns(*at_ns, c->now_ns - from_ns);
}

static void take_can_ask(struct ms_job_core *c, const struct ms_job_event *e)
{
    int64_t away_ns = c->now_ns - c->cannot_ask_ns;

    (void)e;
    if (!c->cannot_ask)
        return;
    c->cannot_ask = false;
    shift(c, &c->pending_ns, c->pending_ns);
    shift(c, &c->unknown_ns, c->unknown_ns - c->spec.unknown_ns);
    for (uint32_t i = 0; i < c->spec.role_count; i++)
        shift(c, &c->roles[i].pending_ns, c->roles[i].pending_ns);
    ms_say(c,
           MS_JOB_INFO,
           MS_JOB_NO_ROLE,
           0,
           MS_JOB_CAUSE_NONE,
           "the orchestrator can be asked again, after %lld s",
           (long long)(away_ns / MS_NS_PER_S));
}

static void take_room(struct ms_job_core *c, const struct ms_job_event *e)
{
    (void)e;
    for (uint32_t i = 0; i < c->spec.role_count; i++)
        ms_core_role_try_now(c, &c->roles[i]);
}

static void take_tick(struct ms_job_core *c, const struct ms_job_event *e)
{
    (void)c;
    (void)e;
}

static void (*const takes[MS_JOB_EVENT_WHATS])(struct ms_job_core *,
                                               const struct ms_job_event *) = {
    [MS_JOB_SUBMITTED] = take_submitted,
    [MS_JOB_ADMITTED] = take_admitted,
    [MS_JOB_DONE] = take_answer,
    [MS_JOB_NOT_DONE] = take_answer,
    [MS_JOB_EXITED] = take_exited,

    [MS_JOB_SUSPECTED] = ms_take_suspected,
    [MS_JOB_HUNG] = ms_take_hung,
    [MS_JOB_CANNOT_ASK] = take_cannot_ask,
    [MS_JOB_CAN_ASK] = take_can_ask,
    [MS_JOB_RECOVERED] = ms_take_recovered,
    [MS_JOB_FOUND] = ms_take_found,
    [MS_JOB_ROOM] = take_room,
    [MS_JOB_TICK] = take_tick,
    [MS_JOB_STOP] = ms_take_stop,
    [MS_JOB_SUSPEND] = ms_take_suspend,
    [MS_JOB_RESUME] = ms_take_resume,
    [MS_JOB_SCALE] = ms_take_scale,
    [MS_JOB_RESTART] = ms_take_restart,
    [MS_JOB_DELETE] = ms_take_delete,
};

/* What an event needs before anything changes. */
static int prepare(struct ms_job_core *c, const struct ms_job_event *e)
{
    if (e->what == MS_JOB_SUBMITTED)
        return submit(c, e->spec);
    if (e->what == MS_JOB_RECOVERED || e->what == MS_JOB_FOUND)
        return ms_array_reserve(&c->ranks,
                                &c->rank_room,
                                2 * c->slot_count + e->report_count,
                                sizeof *c->ranks);
    return 0;
}

int ms_job_core_step(struct ms_job_core *c,
                     const struct ms_job_event *e,
                     int64_t now_ns,
                     const struct ms_job_action **actions,
                     size_t *count,
                     struct ms_error *err)
{
    int rc = ms_job_core_check(c, e, err);

    if (rc < 0)
        return rc;
    if (prepare(c, e) < 0)
        return ms_error_set(err, -ENOMEM, "no memory for a job");
    c->action_count = c->rank_count = c->said_len = 0;
    if (e->what ==
        MS_JOB_PROGRESS) { /* not in the journal: not even the time changes */
        ms_take_progress(c, e, now_ns > c->now_ns ? now_ns : c->now_ns);
    } else {
        if (now_ns > c->now_ns)
            c->now_ns = now_ns;
        takes[e->what](c, e);
        ms_stage_run(c);
    }
    *actions = c->actions;
    *count = c->action_count;
    return 0;
}

/* ---- what there is ----------------------------------------------------------------- */

const char *ms_job_stage_name(enum ms_job_stage s)
{
    static const char *const names[MS_JOB_STAGES] = {
        [MS_JOB_STAGE_NEW] = "new",
        [MS_JOB_STAGE_QUEUED] = "queued",
        [MS_JOB_STAGE_STARTING] = "starting",
        [MS_JOB_STAGE_RUNNING] = "running",
        [MS_JOB_STAGE_SUSPENDING] = "suspending",
        [MS_JOB_STAGE_SUSPENDED] = "suspended",
        [MS_JOB_STAGE_RESUMING] = "resuming",
        [MS_JOB_STAGE_RESTARTING] = "restarting",
        [MS_JOB_STAGE_STOPPING] = "stopping",
        [MS_JOB_STAGE_SUCCEEDED] = "succeeded",
        [MS_JOB_STAGE_FAILED] = "failed",
        [MS_JOB_STAGE_STOPPED] = "stopped",
    };

    return (unsigned)s < MS_JOB_STAGES ? names[s] : "?";
}

bool ms_job_stage_is_over(enum ms_job_stage s)
{
    return s >= MS_JOB_STAGE_SUCCEEDED && s <= MS_JOB_STAGE_STOPPED;
}

const char *ms_job_slot_state_name(enum ms_job_slot_state s)
{
    static const char *const names[MS_JOB_SLOT_STATES] = {
        [MS_JOB_SLOT_ABSENT] = "absent",
        [MS_JOB_SLOT_STARTING] = "starting",
        [MS_JOB_SLOT_RUNNING] = "running",
        [MS_JOB_SLOT_UNKNOWN] = "unknown",
        [MS_JOB_SLOT_DEAD] = "dead",
        [MS_JOB_SLOT_WAITING] = "waiting",
        [MS_JOB_SLOT_SUCCEEDED] = "succeeded",
        [MS_JOB_SLOT_GIVEN_UP] = "given up",
    };

    return (unsigned)s < MS_JOB_SLOT_STATES ? names[s] : "?";
}

struct ms_job_view ms_job_core_view(const struct ms_job_core *c)
{
    return (struct ms_job_view){
        .stage = c->stage,
        .cause = c->cause,
        .code = c->code,
        .text = c->text[0] ? c->text : NULL,
        .attempt = c->driver.attempt,
        .driver_runs = c->driver.state == MS_CORE_DRIVER_RUNNING,
        .driver_hang_ns = c->spec.has_driver ? c->spec.driver_hang_ns : 0,
        .can_ask = !c->cannot_ask,
        .is_held = c->held == MS_CORE_HELD,
        .is_deleted = c->is_deleted,
        .restarts = c->restarts,
        .since_ns = c->since_ns,
    };
}

uint32_t ms_job_core_role_count(const struct ms_job_core *c)
{
    return c->spec.role_count;
}

uint32_t ms_job_core_find_role(const struct ms_job_core *c, const char *name)
{
    for (uint32_t i = 0; i < c->spec.role_count; i++)
        if (strcmp(c->spec.roles[i].name, name) == 0)
            return i;
    return MS_JOB_NO_ROLE;
}

struct ms_job_role_view ms_job_core_role(const struct ms_job_core *c, uint32_t role)
{
    const struct ms_core_role *r = &c->roles[role];
    struct ms_job_role_view v = {
        .spec = r->spec,
        .size = r->size,
        .wanted = r->wanted,
        .incarnation = r->incarnation,
        .memory = r->memory,
        .doing = r->doing,
        .retry_ns = r->slot_retry_ns,
        .text = r->text[0] ? r->text : NULL,
    };

    assert(role < c->spec.role_count);
    if (r->retry_ns > c->now_ns && (!r->is_up || r->is_restart_due))
        v.retry_ns = r->retry_ns;
    memcpy(v.counts, r->counts, sizeof v.counts);
    memcpy(v.spent, r->spent, sizeof v.spent);
    return v;
}

struct ms_job_slot_view
ms_job_core_slot(const struct ms_job_core *c, uint32_t role, uint32_t rank)
{
    const struct ms_core_slot *s = &c->roles[role].slots[rank];
    struct ms_job_slot_view v = {
        .state = s->state,
        .incarnation = s->incarnation,
        .restarts = s->restarts,
        .cause = s->cause,
        .code = s->code,
        .signaled = s->signaled,
        .started_ns = s->started_ns,
        .ended_ns = s->ended_ns,
    };

    assert(role < c->spec.role_count && rank < c->roles[role].spec->max);
    memcpy(v.spent, s->spent, sizeof v.spent);
    return v;
}

size_t ms_job_core_memory(const struct ms_job_core *c)
{
    return sizeof *c + c->spec.role_count * (sizeof *c->spec.roles + sizeof *c->roles) +
           c->slot_count * sizeof *c->slots + c->slot_count / 8 +
           MS_CORE_NODES_MAX * sizeof *c->nodes + c->action_room * sizeof *c->actions +
           c->rank_room * sizeof *c->ranks + c->said_room +
           c->suspect_room * sizeof *c->suspects;
}
