/* scheduler.c - the step of the generation scheduler: an event changes the state, then
 * waiting requests are sent to replicas with room and finished groups are handed out */
#include "generate/scheduler_impl.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "generate/choose.h"
#include "generate/choose_sim.h"

#include <assert.h>
#include <errno.h>
#include <math.h>

#define PROBE_NS        (10 * MS_NS_PER_S)
#define POISON_REPLICAS 3
#define PRIME           (UINT64_C(1) << 32)
#define PREFILL_NS      20000.0
#define BIAS_MAX        0.05
#define SLICE_NS        ((int64_t)MS_CHOOSE_TICK_NS) /* as in the simulation of the choice */
#define SEED            UINT64_C(0x9E3779B97F4A7C15)

/* ---- life -------------------------------------------------------------------------- */

struct ms_scheduler *ms_scheduler_create(const struct ms_scheduler_options *o,
                                         struct ms_lengths *lengths,
                                         struct ms_error *err)
{
    struct ms_scheduler *s;

    if (!o->policy || !o->policy->place || !lengths) {
        ms_error_set(err, -EINVAL, "a scheduler needs a policy and lengths");
        return NULL;
    }
    s = calloc(1, sizeof *s);
    if (!s) {
        ms_error_set(err, -ENOMEM, "no memory for a scheduler");
        return NULL;
    }
    s->o = *o;
    s->o.probe_ns = o->probe_ns ? o->probe_ns : PROBE_NS;
    s->o.poison_replicas = o->poison_replicas ? o->poison_replicas : POISON_REPLICAS;
    s->o.prefill_ns = o->prefill_ns > 0 ? o->prefill_ns : PREFILL_NS;
    s->o.bias_max = o->bias_max > 0 ? o->bias_max : BIAS_MAX;
    s->surplus_share = 1;
    s->lengths = lengths;
    s->seed = o->seed ? o->seed : SEED;
    s->free_request = s->free_group = MS_NONE;
    s->held = s->ready = s->leased = (struct ms_gen_list){MS_NONE, MS_NONE, 0};
    s->admission = (struct ms_staleness){.concurrent_max = INT64_MAX / 4,
                                         .batch = o->batch,
                                         .staleness_max = o->staleness_max};
    s->last_plan_ns = s->last_guess_ns = INT64_MIN / 2;
    s->last_slice_ns = s->choose_ns = INT64_MIN / 2;
    ms_map_init(&s->by_id);
    return s;
}

void ms_scheduler_destroy(struct ms_scheduler *s)
{
    if (!s)
        return;
    ms_map_finish(&s->by_id);
    free(s->requests);
    free(s->groups);
    free(s->replicas);
    free(s->queue.at);
    free(s->deadlines.at);
    free(s->out);
    free(s->scratch);
    free(s);
}

/* ---- decisions --------------------------------------------------------------------- */

struct ms_generate_decision *ms_decide(struct ms_scheduler *s, uint16_t what)
{
    struct ms_generate_decision *d = &s->out[s->out_count];

    assert(s->out_count < s->out_room);
    s->out_count++;
    *d = (struct ms_generate_decision){.what = what, .replica = MS_NOWHERE};
    return d;
}

/* One event decides at most twice of a group, decides a few times of a replica, and sends and
 * aborts no more requests than replicas have places for. */
static int reserve_decisions(struct ms_scheduler *s, const struct ms_generate_event *e)
{
    size_t new = e->what == MS_SUBMIT ? (size_t)e->samples + e->surplus : 0;
    size_t requests = s->request_count, slots = 2 * (size_t)s->slots;

    if (new > MS_GROUP_SAMPLES_MAX)
        return -EINVAL;
    if (e->what == MS_REPLICA_UP)
        slots += e->samples;
    requests = (requests < slots ? requests : slots) + new;
    return ms_array_reserve(&s->out,
                            &s->out_room,
                            requests + 2 * (size_t)s->stats.groups +
                                4 * s->replica_count + 16,
                            sizeof *s->out);
}

/* Suspects that run there; a prime one counts more than all others can. */
static uint64_t suspects_on(const struct ms_scheduler *s,
                            const struct ms_gen_replica *r)
{
    uint64_t n = 0;

    for (uint32_t i = r->first; i != MS_NONE; i = s->requests[i].after)
        n += !s->requests[i].suspect                       ? 0
             : ms_gen_request_is_prime(s, &s->requests[i]) ? PRIME
                                                           : 1;
    return n;
}

/* Not again where it has failed, while there is another replica, if only later. Suspects
 * are spread, and of those that are prime no replica gets two: if it goes again, it is known
 * which of them it was. */
static uint32_t
elsewhere(const struct ms_scheduler *s, const struct ms_gen_request *q, uint32_t here)
{
    uint64_t least = ms_gen_request_is_prime(s, q) ? PRIME : UINT64_MAX, n;
    uint32_t best = MS_NOWHERE;
    bool is_any = false;

    for (uint32_t pass = 0; pass < (q->suspect ? 2 : 1) && !is_any; pass++)
        for (uint32_t i = 0; i < s->replica_count; i++) {
            const struct ms_gen_replica *r = &s->replicas[i];

            if (r->state != MS_REPLICA_OPEN ||
                (pass == 0 && ms_gen_request_failed_on(q, i)))
                continue;
            is_any = true;
            if (!ms_gen_replica_has_room(r, (uint64_t)q->prompt + q->generated))
                continue;
            n = q->suspect ? suspects_on(s, r) : 0;
            if (n < least || (n == least && best != MS_NOWHERE &&
                              r->in_flight < s->replicas[best].in_flight)) {
                best = i;
                least = n;
            }
        }
    return is_any ? best : here;
}

/* Where the first of the queue goes: as it was planned if there is room, or as the policy
 * says. Neither knows where it has failed: a plan that named such a replica each time would
 * send it there without end, since only failures on different replicas count. */
static uint32_t place(struct ms_scheduler *s, struct ms_gen_request *q)
{
    uint32_t to = q->target, on;

    if (to != MS_NOWHERE && !q->suspect && !ms_gen_request_failed_on(q, to) &&
        ms_gen_replica_has_room(&s->replicas[to], (uint64_t)q->prompt + q->generated))
        return to;
    q->target = MS_NOWHERE;
    to = s->o.policy->place(s, q);
    on = to == MS_PARK ? q->replica : to;
    return q->suspect || ms_gen_request_failed_on(q, on) ? elsewhere(s, q, to) : to;
}

/* The first of those that wait for a replica with room, if it goes before the queue. */
static uint32_t parked_next(const struct ms_scheduler *s)
{
    float rank = s->queue.count > 0 ? s->requests[s->queue.at[0].index].rank : INFINITY;
    uint32_t best = MS_NONE;

    for (size_t k = 0; s->parked > 0 && k < s->replica_count; k++) {
        const struct ms_gen_replica *r = &s->replicas[k];
        uint32_t i = r->parked_first;

        if (i == MS_NONE || s->requests[i].rank > rank ||
            !ms_gen_replica_has_room(r, s->requests[i].prompt))
            continue;
        rank = s->requests[i].rank;
        best = i;
    }
    return best;
}

/* Nothing else waits: what is parked goes where there is room, if that is sooner. */
static void unpark_idle(struct ms_scheduler *s)
{
    uint32_t to;

    for (size_t k = 0; s->parked > 0 && k < s->replica_count; k++)
        while (s->replicas[k].parked > 0) {
            uint32_t i = s->replicas[k].parked_last;

            to = s->o.policy->unpark ? s->o.policy->unpark(s, &s->requests[i])
                                     : MS_NOWHERE;
            if (to == MS_NOWHERE || ms_gen_request_failed_on(&s->requests[i], to))
                break;
            ms_gen_request_send(s, i, to);
        }
}

/* What the policy says of a step that begins may change the order of all. */
static void begin(struct ms_scheduler *s)
{
    s->o.policy->begin(s);
    for (size_t i = 0; i < s->queue.count; i++)
        ms_gen_request_order(s, s->queue.at[i].index);
    ms_queue_sort(s);
}

static void pump(struct ms_scheduler *s)
{
    if (s->paused)
        return;
    if (s->o.policy->begin && s->queue.count > 0 && s->parked == 0 &&
        s->stats.running + s->stats.aborting == 0)
        begin(s);
    for (;;) {
        uint32_t i = parked_next(s), to;

        if (i != MS_NONE) {
            ms_gen_request_send(s, i, s->requests[i].replica);
            continue;
        }
        if (s->queue.count == 0)
            break;
        i = s->queue.at[0].index;
        to = place(s, &s->requests[i]);
        if (to == MS_NOWHERE)
            return;
        if (to == MS_PARK)
            ms_gen_request_park(s, i);
        else
            ms_gen_request_send(s, i, to);
    }
    unpark_idle(s);
}

void ms_scheduler_move(struct ms_scheduler *s, uint32_t request, uint32_t replica)
{
    struct ms_gen_request *q = &s->requests[request];

    if (q->state != MS_REQUEST_RUNNING || q->replica == replica || q->suspect ||
        ms_gen_request_failed_on(q, replica))
        return;
    q->target = replica;
    s->stats.moved++;
    ms_gen_request_abort(s, request, MS_WHY_MOVED, false);
}

void ms_scheduler_yield(struct ms_scheduler *s, uint32_t request)
{
    s->stats.yielded++;
    ms_gen_request_abort(s, request, MS_WHY_YIELDED, false);
}

/* ---- events ------------------------------------------------------------------------ */

static int cancel_group(struct ms_scheduler *s, const struct ms_generate_event *e)
{
    uint32_t i = ms_gen_group_find(s, e->id);

    if (i == MS_NONE)
        return -ENOENT;
    ms_gen_group_drop(s, i, MS_WHY_CANCELLED);
    return 0;
}

static int cancel_request(struct ms_scheduler *s, const struct ms_generate_event *e)
{
    uint32_t i = ms_gen_request_find(s, e->id);

    if (i == MS_NONE)
        return -ENOENT;
    ms_gen_group_shrink(s, i);
    return 0;
}

static int cancel_all(struct ms_scheduler *s, const struct ms_generate_event *e)
{
    (void)e;
    for (uint32_t i = 0; i < s->group_count; i++)
        if (s->groups[i].state != MS_GROUP_FREE &&
            s->groups[i].state != MS_GROUP_LEASED)
            ms_gen_group_drop(s, i, MS_WHY_CANCELLED);
    return 0;
}

/* Nothing is lost or counted twice. */
static void audit(const struct ms_scheduler *s)
{
    uint64_t in_flight = 0;

    for (size_t i = 0; i < s->replica_count; i++)
        in_flight += s->replicas[i].in_flight;
    assert(in_flight == s->stats.running + s->stats.aborting);
    assert(s->stats.live == s->stats.queued + in_flight);
    assert(s->stats.queued == s->queue.count + s->parked);
}

/* What waits is put into order by what has been heard of the rest of its group. */
static bool may_rank(const struct ms_scheduler *s)
{
    return s->o.rebalance_ns > 0 && s->o.policy->rank && s->queue.count > 0 &&
           s->stats.running > 0;
}

static bool may_slice(const struct ms_scheduler *s)
{
    return s->o.rebalance_ns > 0 && s->o.policy->slice && s->queue.count > 0 &&
           s->stats.running > 0 && s->stats.aborting == 0 && !s->weights &&
           !s->paused && s->choice.slice > 0 && ms_choice_holds(s);
}

static bool may_begin_again(const struct ms_scheduler *s)
{
    return s->o.rebalance_ns > 0 && s->o.policy->is_due && s->queue.count > 0 &&
           s->stats.running > 0 && !s->weights && !s->paused && s->o.policy->is_due(s);
}

static void look_at_queue(struct ms_scheduler *s)
{
    if (may_begin_again(s))
        begin(s);
    if (may_rank(s) && s->now_ns - s->last_guess_ns >= s->o.rebalance_ns) {
        s->last_guess_ns = s->now_ns;
        ms_gen_groups_rank(s);
    }
    if (may_slice(s) && s->now_ns - s->last_slice_ns >= SLICE_NS) {
        s->last_slice_ns = s->now_ns;
        s->o.policy->slice(s);
    }
}

static int tick(struct ms_scheduler *s, const struct ms_generate_event *e)
{
    (void)e;
    while (s->deadlines.count > 0 &&
           s->groups[s->deadlines.at[0].index].deadline_ns <= s->now_ns)
        ms_gen_group_drop(s, s->deadlines.at[0].index, MS_WHY_DEADLINE);
    ms_weights_tick(s);
    ms_gen_replicas_listen(s);
    look_at_queue(s);
    audit(s);
    return 0;
}

static int (*const takes[MS_GENERATE_WHATS])(struct ms_scheduler *,
                                             const struct ms_generate_event *) = {
    [MS_SUBMIT] = ms_gen_group_submit,
    [MS_CANCEL_GROUP] = cancel_group,
    [MS_CANCEL] = cancel_request,
    [MS_CANCEL_ALL] = cancel_all,
    [MS_REPLICA_UP] = ms_gen_replica_up,
    [MS_REPLICA_DOWN] = ms_gen_replica_down,
    [MS_DRAIN] = ms_gen_replica_drain,
    [MS_PROGRESS] = ms_report_take,
    [MS_CHUNK] = ms_report_take,
    [MS_FINISHED] = ms_report_take,
    [MS_ABORTED] = ms_report_take,
    [MS_FAILED] = ms_report_take,
    [MS_LOAD] = ms_gen_replica_load,
    [MS_ALIVE] = ms_gen_replica_alive,
    [MS_WEIGHTS] = ms_weights_begin,
    [MS_WEIGHTS_READY] = ms_weights_ready,
    [MS_ADVANCE] = ms_deliver_advance,
    [MS_VERDICT] = ms_deliver_verdict,
    [MS_PULL] = ms_deliver_pull,
    [MS_CONSUMED] = ms_deliver_consumed,
    [MS_RETURNED] = ms_deliver_returned,
    [MS_TICK] = tick,
    [MS_WEIGHTS_FAILED] = ms_weights_failed,
    [MS_PAUSE] = ms_weights_pause,
    [MS_RESUME] = ms_weights_resume,
    [MS_TAKE] = ms_deliver_take,
    [MS_WAITING] = ms_report_take,
    [MS_FELL_BACK] = ms_report_fell_back,
    [MS_BEHIND] = ms_gen_group_behind,
};

/* What moves is decided when nothing waits: a queue keeps replicas full by itself. */
static bool may_rebalance(const struct ms_scheduler *s)
{
    return s->o.rebalance_ns > 0 && s->o.policy->rebalance && s->queue.count == 0 &&
           s->stats.aborting == 0 && s->stats.running > 0 && !s->weights && !s->paused;
}

static void decide_all(struct ms_scheduler *s)
{
    ms_gen_groups_admit(s);
    pump(s);
    ms_deliver(s);
}

int ms_scheduler_step(struct ms_scheduler *s,
                      const struct ms_generate_event *e,
                      int64_t now_ns,
                      const struct ms_generate_decision **decisions,
                      size_t *count)
{
    int rc;

    if (e->what == 0 || e->what >= MS_GENERATE_WHATS || now_ns < s->now_ns)
        return -EINVAL;
    rc = reserve_decisions(s, e);
    if (rc < 0)
        return rc;
    s->out_count = 0;
    s->now_ns = now_ns;
    rc = takes[e->what](s, e);
    if (rc < 0)
        return rc;
    if (e->what != MS_SUBMIT && e->what != MS_BEHIND)
        decide_all(s);
    if (s->stats.live == 0)
        ms_choice_ended(s);
    if (e->what == MS_TICK && s->out_count == 0 && may_rebalance(s) &&
        now_ns - s->last_plan_ns >= s->o.rebalance_ns) {
        s->last_plan_ns = now_ns;
        s->o.policy->rebalance(s);
    }
    *decisions = s->out;
    *count = s->out_count;
    return 0;
}

uint64_t
ms_scheduler_request(const struct ms_scheduler *s, uint64_t group, uint32_t seq)
{
    uint32_t i = ms_gen_group_find(s, group);
    uint32_t q = i == MS_NONE ? MS_NONE : s->groups[i].first;

    while (q != MS_NONE && s->requests[q].seq != seq)
        q = s->requests[q].next;
    return q == MS_NONE ? 0 : ms_gen_request_id(s, q);
}

static int64_t earlier(int64_t a_ns, int64_t b_ns)
{
    return a_ns < b_ns ? a_ns : b_ns;
}

int64_t ms_scheduler_wake_ns(const struct ms_scheduler *s)
{
    int64_t wake_ns = ms_gen_replicas_wake_ns(s);

    if (s->deadlines.count > 0)
        wake_ns = earlier(wake_ns, s->groups[s->deadlines.at[0].index].deadline_ns);
    if (s->weights)
        wake_ns = earlier(wake_ns, s->weights_deadline_ns);
    if (may_rebalance(s))
        wake_ns = earlier(wake_ns, s->last_plan_ns + s->o.rebalance_ns);
    if (may_rank(s))
        wake_ns = earlier(wake_ns, s->last_guess_ns + s->o.rebalance_ns);
    if (may_slice(s))
        wake_ns = earlier(wake_ns, s->last_slice_ns + SLICE_NS);
    return wake_ns < s->now_ns ? s->now_ns : wake_ns;
}

struct ms_scheduler_stats ms_scheduler_stats(const struct ms_scheduler *s)
{
    struct ms_scheduler_stats stats = s->stats;

    stats.held = s->held.count;
    stats.ready = s->ready.count;
    stats.leased = s->leased.count;
    stats.missed = s->predicted > 0 ? s->misses / s->predicted : 0;
    return stats;
}
