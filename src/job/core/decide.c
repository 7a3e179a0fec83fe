/* decide.c - ends: budgets, back-off, escalation
 *
 * What is done about an end, in this order, as far as the budgets allow:
 *
 *   the rank again, where it was
 *   the rank again, elsewhere        after MS_CORE_IN_PLACE_MAX quick ends, or at once if
 *                                    the machine is to blame
 *   the node is avoided              capacity.c, by strikes
 *   the role again                   role_restarts_max, if the rank's budget is spent
 *   the job again                    job_restarts_max, if the role's budget is spent
 *   the end of the job               with the reason
 *
 * An error of the application, and a process that cannot be started, are not tried further
 * up: the same would happen there. A role that is not critical is given up instead.
 */
#include "job/core/core_impl.h"

#include <stdio.h>
#include <string.h>

enum { SAID_ONE_BY_ONE = 8 };

/* Which of several ends is to blame: the last of these that is among them. When one rank
 * of a collective is lost, the others report errors. */
static uint8_t blame(enum ms_job_cause cause)
{
    static const uint8_t order[MS_JOB_BUDGETS] = {
        [MS_JOB_START_FAILED] = 1,
        [MS_JOB_APPLICATION] = 2,
        [MS_JOB_HANG] = 3,
        [MS_JOB_PREEMPTED] = 4,
        [MS_JOB_NO_HEARTBEAT] = 5,
        [MS_JOB_NODE_LOST] = 6,
        [MS_JOB_OUT_OF_MEMORY] = 7,
        [MS_JOB_CHECK_FAILED] = 8,
        [MS_JOB_HARDWARE] = 9,
    };

    return order[cause];
}

static bool is_of_machine(enum ms_job_cause cause)
{
    return cause == MS_JOB_HARDWARE || cause == MS_JOB_CHECK_FAILED ||
           cause == MS_JOB_NODE_LOST || cause == MS_JOB_NO_HEARTBEAT;
}

static bool is_final(enum ms_job_cause cause)
{
    return cause == MS_JOB_APPLICATION || cause == MS_JOB_START_FAILED;
}

static bool
is_spent(const uint16_t *spent, const uint16_t *budget, enum ms_job_cause cause)
{
    return budget[cause] != MS_JOB_UNLIMITED && spent[cause] >= budget[cause];
}

static void spend(uint16_t *spent, enum ms_job_cause cause)
{
    if (spent[cause] < UINT16_MAX)
        spent[cause]++;
}

/* "restart 2 of 3" */
static const char *counted(char out[48],
                           const uint16_t *spent,
                           const uint16_t *budget,
                           enum ms_job_cause cause)
{
    if (budget[cause] == MS_JOB_UNLIMITED)
        snprintf(out, 48, "restart %u, not counted", spent[cause]);
    else
        snprintf(out, 48, "restart %u of %u", spent[cause], budget[cause]);
    return out;
}

const char *ms_text_after(char out[32], int64_t ns)
{
    if (ns <= 0)
        snprintf(out, 32, "now");
    else
        snprintf(out, 32, "in %.1f s", (double)ns / (double)MS_NS_PER_S);
    return out;
}

/* ---- a process has ended ----------------------------------------------------------- */

static void say_ended(struct ms_job_core *c,
                      const struct ms_core_role *r,
                      const struct ms_job_report *p,
                      const char *text)
{
    char how[32] = "";

    if (p->cause == MS_JOB_APPLICATION || p->code)
        snprintf(
            how, sizeof how, ", %s %d", p->signaled ? "signal" : "exit code", p->code);
    ms_say(c,
           p->cause == MS_JOB_SUCCEEDED ? MS_JOB_INFO : MS_JOB_WARNING,
           ms_core_role_index(c, r),
           p->rank,
           p->cause,
           "%s/%u ended: %s%s%s%s%s%s",
           r->spec->name,
           p->rank,
           ms_job_cause_name(p->cause),
           how,
           p->node ? " on " : "",
           p->node ? p->node : "",
           text && text[0] ? ": " : "",
           text ? text : "");
}

/* Where nothing is started any more, nothing is decided either. */
static uint8_t ended_state(const struct ms_job_core *c, const struct ms_job_report *p)
{
    if (p->cause == MS_JOB_SUCCEEDED)
        return MS_JOB_SLOT_SUCCEEDED;
    return ms_core_goes_up(c) ? MS_JOB_SLOT_DEAD : MS_JOB_SLOT_ABSENT;
}

void ms_core_slot_ended(struct ms_job_core *c,
                        struct ms_core_role *r,
                        const struct ms_job_report *p,
                        const char *text)
{
    struct ms_core_slot *s = &r->slots[p->rank];

    if (p->incarnation != s->incarnation || !ms_core_slot_is_live(s))
        return;
    s->ended_ns = c->now_ns;
    s->cause = p->cause;
    s->code = p->code;
    s->signaled = p->signaled != 0;
    s->mark = p->cause == MS_JOB_APPLICATION ? ms_error_mark(text, p->code) : 0;
    ms_core_slot_set(r, s, ended_state(c, p));
    if (text && p->cause != MS_JOB_SUCCEEDED)
        ms_text_keep(r->text, sizeof r->text, text);
    if (text || r->counts[MS_JOB_SLOT_DEAD] <= SAID_ONE_BY_ONE)
        say_ended(c, r, p, text);
    if (p->cause == MS_JOB_SUCCEEDED)
        return;
    c->driver.pardoned_ns = c->now_ns + MS_CORE_PARDON_NS;
    ms_capacity_strike(c, p->node, p->cause);
}

/* ---- no way out -------------------------------------------------------------------- */

static void give_up_role(struct ms_job_core *c,
                         struct ms_core_role *r,
                         enum ms_job_cause cause,
                         const char *why)
{
    r->is_given_up = true;
    ms_say(c,
           MS_JOB_ERROR,
           ms_core_role_index(c, r),
           MS_JOB_ALL_RANKS,
           cause,
           "role %s is given up: %s; it is not critical, the job goes on",
           r->spec->name,
           why);
}

void ms_core_role_give_up(struct ms_job_core *c,
                          struct ms_core_role *r,
                          uint32_t rank,
                          enum ms_job_cause cause,
                          const char *why)
{
    char who[MS_NAME_MAX + 16];
    int32_t code = 1;

    if (!r->spec->critical) {
        give_up_role(c, r, cause, why);
        return;
    }
    snprintf(who, sizeof who, "%s", r->spec->name);
    if (rank < r->spec->max) {
        snprintf(who, sizeof who, "%s/%u", r->spec->name, rank);
        code =
            r->slots[rank].signaled ? 128 + r->slots[rank].code : r->slots[rank].code;
    }
    ms_job_end(c,
               MS_JOB_STAGE_FAILED,
               cause,
               code ? code : 1,
               "%s: %s: %s%s%s",
               who,
               ms_job_cause_name(cause),
               why,
               r->text[0] ? ": " : "",
               r->text);
}

/* The role's budget is spent: the job again, or the end. */
static void escalate_job(struct ms_job_core *c,
                         struct ms_core_role *r,
                         uint32_t rank,
                         enum ms_job_cause cause)
{
    bool is_unlimited = c->spec.job_restarts_max == MS_JOB_UNLIMITED;
    char why[96], most[16] = "unlimited";

    if (!r->spec->critical || is_final(cause) ||
        (!is_unlimited && c->escalations >= c->spec.job_restarts_max)) {
        snprintf(why,
                 sizeof why,
                 "the budget of %u restarts for it is spent",
                 r->spec->budget[cause]);
        ms_core_role_give_up(c, r, rank, cause, why);
        return;
    }
    c->escalations++;
    if (!is_unlimited)
        snprintf(most, sizeof most, "%u", c->spec.job_restarts_max);
    ms_say(c,
           MS_JOB_WARNING,
           ms_core_role_index(c, r),
           MS_JOB_ALL_RANKS,
           cause,
           "role %s has spent its budget: the job restarts (%u of %s)",
           r->spec->name,
           c->escalations,
           most);
    ms_job_restart_all(c);
}

/* ---- the same error again ---------------------------------------------------------- */

static bool is_same_too_often(struct ms_job_core *c,
                              struct ms_core_role *r,
                              const struct ms_core_slot *s)
{
    bool was_stable = s->started_ns && s->ended_ns - s->started_ns >= c->spec.stable_ns;

    if (s->cause != MS_JOB_APPLICATION)
        return false;
    if (s->mark != r->error_mark || was_stable)
        r->error_count = 0;
    r->error_mark = s->mark;
    if (r->error_count < UINT16_MAX)
        r->error_count++;
    return c->spec.same_error_max && r->error_count >= c->spec.same_error_max;
}

static bool stop_early(struct ms_job_core *c, struct ms_core_role *r, uint32_t rank)
{
    char why[64];

    if (!is_same_too_often(c, r, &r->slots[rank]))
        return false;
    snprintf(why, sizeof why, "the same error came %u times", r->error_count);
    ms_core_role_give_up(c, r, rank, MS_JOB_APPLICATION, why);
    return true;
}

static void raise_memory(struct ms_job_core *c, struct ms_core_role *r)
{
    uint64_t memory = (uint64_t)r->memory * r->spec->memory_raise / 100;

    if (r->spec->memory_raise == 0 || r->memory >= r->spec->memory_raise_max)
        return;
    if (memory > r->spec->memory_raise_max)
        memory = r->spec->memory_raise_max;
    r->memory = (uint32_t)memory;
    ms_say(c,
           MS_JOB_INFO,
           ms_core_role_index(c, r),
           MS_JOB_ALL_RANKS,
           MS_JOB_OUT_OF_MEMORY,
           "role %s asks for %u %% of its memory from now on",
           r->spec->name,
           r->memory);
}

/* ---- restart: role, restart: job --------------------------------------------------- */

/* No rank is looked at by itself any more: they start with the others. */
static uint32_t take_blamed(struct ms_core_role *r)
{
    uint32_t blamed = 0;
    int worst = -1;

    MS_EACH_BUSY(r, i)
    {
        struct ms_core_slot *s = &r->slots[i];

        if (s->state != MS_JOB_SLOT_DEAD)
            continue;
        if (blame(s->cause) > worst) {
            worst = blame(s->cause);
            blamed = i;
        }
        s->retry_ns = MS_NEVER;
        ms_core_slot_set(r, s, MS_JOB_SLOT_WAITING);
    }
    return blamed;
}

/* How long to wait, after a role's failure. */
static int64_t role_backoff(const struct ms_job_core *c, struct ms_core_role *r)
{
    int64_t ns;

    if (r->up_ns && c->now_ns - r->up_ns >= c->spec.stable_ns)
        r->quick = 0;
    ns = ms_backoff_ns(c, r->quick);
    if (r->quick < UINT8_MAX)
        r->quick++;
    r->up_ns = 0;
    return ns;
}

static void decide_role(struct ms_job_core *c, struct ms_core_role *r)
{
    uint32_t rank = take_blamed(r);
    enum ms_job_cause cause = r->slots[rank].cause;
    char count[48], when[32];
    int64_t wait_ns;
    bool is_job = r->spec->restart == MS_JOB_RESTART_JOB;

    if (r->is_restart_due || r->is_given_up || stop_early(c, r, rank))
        return;
    if (is_spent(r->spent, r->spec->budget, cause)) {
        escalate_job(c, r, rank, cause);
        return;
    }
    spend(r->spent, cause);
    if (cause == MS_JOB_OUT_OF_MEMORY)
        raise_memory(c, r);
    wait_ns = role_backoff(c, r);
    ms_say(c,
           MS_JOB_INFO,
           ms_core_role_index(c, r),
           MS_JOB_ALL_RANKS,
           cause,
           "%s %s restarts %s because of %s/%u: %s (%s)",
           is_job ? "job" : "role",
           is_job ? c->spec.name : r->spec->name,
           ms_text_after(when, wait_ns),
           r->spec->name,
           rank,
           ms_job_cause_name(cause),
           counted(count, r->spent, r->spec->budget, cause));
    ms_core_role_restart(c, r, c->now_ns + wait_ns);
    if (is_job)
        ms_job_restart_all(c);
}

/* ---- restart: rank ----------------------------------------------------------------- */

/* The rank's budget is spent. */
static void escalate_rank(struct ms_job_core *c, struct ms_core_role *r, uint32_t rank)
{
    struct ms_core_slot *s = &r->slots[rank];

    if (!r->spec->critical) {
        ms_core_slot_set(r, s, MS_JOB_SLOT_GIVEN_UP);
        r->has_strays = true; /* one that hangs may still be there */
        ms_say(c,
               MS_JOB_WARNING,
               ms_core_role_index(c, r),
               rank,
               s->cause,
               "%s/%u is given up: its %u restarts for %s are spent; the role goes on",
               r->spec->name,
               rank,
               r->spec->budget[s->cause],
               ms_job_cause_name(s->cause));
        return;
    }
    if (is_final(s->cause) || r->restarts >= c->spec.role_restarts_max) {
        escalate_job(c, r, rank, s->cause);
        return;
    }
    r->restarts++;
    ms_say(c,
           MS_JOB_WARNING,
           ms_core_role_index(c, r),
           rank,
           s->cause,
           "%s/%u has spent its budget for %s: role %s restarts (%u of %u)",
           r->spec->name,
           rank,
           ms_job_cause_name(s->cause),
           r->spec->name,
           r->restarts,
           c->spec.role_restarts_max);
    if (s->cause == MS_JOB_OUT_OF_MEMORY)
        raise_memory(c, r);
    for (uint32_t i = 0; i < r->spec->max; i++)
        memset(r->slots[i].spent, 0, sizeof r->slots[i].spent);
    ms_core_role_restart(c, r, c->now_ns);
}

static int64_t slot_backoff(const struct ms_job_core *c, struct ms_core_slot *s)
{
    int64_t ns;

    if (s->started_ns && s->ended_ns - s->started_ns >= c->spec.stable_ns)
        s->quick = 0;
    ns = ms_backoff_ns(c, s->quick);
    if (s->quick < UINT8_MAX)
        s->quick++;
    if (is_of_machine(s->cause) || s->quick > MS_CORE_IN_PLACE_MAX)
        s->flags |= MS_CORE_ELSEWHERE;
    return ns;
}

static void
again(struct ms_job_core *c, struct ms_core_role *r, uint32_t rank, bool is_said)
{
    struct ms_core_slot *s = &r->slots[rank];
    int64_t wait_ns = slot_backoff(c, s);
    char count[48], when[32];

    spend(s->spent, s->cause);
    s->retry_ns = c->now_ns + wait_ns;
    if (s->retry_ns < r->slot_retry_ns)
        r->slot_retry_ns = s->retry_ns;
    ms_core_slot_set(r, s, MS_JOB_SLOT_WAITING);
    if (is_said)
        ms_say(c,
               MS_JOB_INFO,
               ms_core_role_index(c, r),
               rank,
               s->cause,
               "%s/%u starts again %s%s (%s)",
               r->spec->name,
               rank,
               s->flags & MS_CORE_ELSEWHERE ? "elsewhere " : "",
               ms_text_after(when, wait_ns),
               counted(count, s->spent, r->spec->budget, s->cause));
}

/* Errors that came together are one. */
static bool stop_early_rank(struct ms_job_core *c, struct ms_core_role *r)
{
    uint32_t kept = ms_core_role_kept(r);

    MS_EACH_BUSY(r, i)
    if (i < kept && r->slots[i].state == MS_JOB_SLOT_DEAD &&
        r->slots[i].cause == MS_JOB_APPLICATION)
        return stop_early(c, r, i);
    return false;
}

static void decide_ranks(struct ms_job_core *c, struct ms_core_role *r)
{
    uint32_t kept = ms_core_role_kept(r), count = r->counts[MS_JOB_SLOT_DEAD];
    bool is_oom = false;

    if (stop_early_rank(c, r))
        return;
    MS_EACH_BUSY(r, i)
    {
        struct ms_core_slot *s = &r->slots[i];

        if (i >= kept || s->state != MS_JOB_SLOT_DEAD)
            continue;
        is_oom |= s->cause == MS_JOB_OUT_OF_MEMORY;
        if (is_spent(s->spent, r->spec->budget, s->cause))
            escalate_rank(c, r, i);
        else
            again(c, r, i, count <= SAID_ONE_BY_ONE);
        if (!ms_core_goes_up(c) || r->is_restart_due)
            return;
    }
    if (is_oom)
        raise_memory(c, r);
    if (count > SAID_ONE_BY_ONE)
        ms_say(c,
               MS_JOB_INFO,
               ms_core_role_index(c, r),
               MS_JOB_ALL_RANKS,
               MS_JOB_CAUSE_NONE,
               "%u ranks of %s ended; %u start again together",
               count,
               r->spec->name,
               r->counts[MS_JOB_SLOT_WAITING]);
}

void ms_core_role_decide(struct ms_job_core *c, struct ms_core_role *r)
{
    if (r->spec->restart != MS_JOB_RESTART_RANK || r->is_restart_due || r->is_given_up)
        decide_role(c, r);
    else
        decide_ranks(c, r);
}

/* ---- a creation has failed --------------------------------------------------------- */

void ms_core_role_failed(struct ms_job_core *c,
                         struct ms_core_role *r,
                         uint32_t rank,
                         enum ms_job_cause cause,
                         bool is_said)
{
    char count[48], when[32];
    int64_t wait_ns;
    int len = (int)strlen(r->text);
    const char *what = is_said ? ms_job_last_line(r->text, &len) : r->text;

    r->has_failed = true;
    if (rank < r->spec->max && stop_early(c, r, rank))
        return;
    if (is_spent(r->spent, r->spec->budget, cause)) {
        escalate_job(c, r, rank, cause);
        return;
    }
    spend(r->spent, cause);
    if (cause == MS_JOB_OUT_OF_MEMORY)
        raise_memory(c, r);
    wait_ns = role_backoff(c, r);
    r->retry_ns = c->now_ns + wait_ns;
    ms_say(c,
           MS_JOB_WARNING,
           ms_core_role_index(c, r),
           MS_JOB_ALL_RANKS,
           cause,
           "role %s did not start: %s%s%.*s; it is tried again %s (%s)",
           r->spec->name,
           ms_job_cause_name(cause),
           len ? ": " : "",
           len,
           what,
           ms_text_after(when, wait_ns),
           counted(count, r->spent, r->spec->budget, cause));
}
