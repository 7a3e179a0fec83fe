/* request.c - one request: queued, sent, aborted, over */
#include "generate/explain.h"
#include "generate/scheduler_impl.h"

#include <assert.h>

#define FAILED_ON_MAX 2 /* replicas remembered; the next one makes three */
#define COUNTED_MAX   15
#define LAST_CHANCE   (-1e20F) /* rank: before all others */
#define CLEARED_BY    32 /* tokens after a loss: it was another that ended the replica */
#define LOSSES_MAX                                                                     \
    12 /* whatever tokens come between: one that ends each replica late */

uint64_t ms_gen_request_id(const struct ms_scheduler *s, uint32_t i)
{
    return (uint64_t)s->requests[i].generation << 32 | i;
}

uint32_t ms_gen_request_find(const struct ms_scheduler *s, uint64_t id)
{
    uint32_t i = (uint32_t)id;

    if (i >= s->request_count || s->requests[i].state == MS_REQUEST_FREE ||
        s->requests[i].generation != id >> 32)
        return MS_NONE;
    return i;
}

uint32_t ms_gen_request_new(struct ms_scheduler *s)
{
    uint32_t i = s->free_request, generation;

    if (i == MS_NONE) {
        i = (uint32_t)s->request_count++;
        assert(i < s->request_room);
    } else {
        s->free_request = s->requests[i].next;
    }
    generation = s->requests[i].generation + 1;
    s->requests[i] = (struct ms_gen_request){.generation = generation,
                                             .state = MS_REQUEST_HELD,
                                             .replica = MS_NOWHERE,
                                             .target = MS_NOWHERE,
                                             .next = MS_NONE,
                                             .before = MS_NONE,
                                             .after = MS_NONE,
                                             .queue_at = MS_NONE};
    return i;
}

void ms_gen_request_free(struct ms_scheduler *s, uint32_t i)
{
    s->requests[i].state = MS_REQUEST_FREE;
    s->requests[i].next = s->free_request;
    s->free_request = i;
}

/* ---- in the queue ------------------------------------------------------------------ */

static void rank(struct ms_scheduler *s, struct ms_gen_request *q)
{
    if (ms_gen_request_is_last_chance(s, q)) {
        q->rank = LAST_CHANCE;
        return;
    }
    q->rank = s->o.policy->rank ? s->o.policy->rank(s, q) : 0;
    if (s->o.ageing > 0) /* all age alike, so the time of arrival says it all */
        q->rank += (float)(s->o.ageing * (double)q->since_ns / 1e9);
}

void ms_gen_request_order(struct ms_scheduler *s, uint32_t i)
{
    rank(s, &s->requests[i]);
}

void ms_gen_request_rank(struct ms_scheduler *s, uint32_t i)
{
    rank(s, &s->requests[i]);
    ms_queue_moved(s, i);
}

void ms_gen_request_queue(struct ms_scheduler *s, uint32_t i)
{
    struct ms_gen_request *q = &s->requests[i];

    q->state = MS_REQUEST_QUEUED;
    q->since_ns = s->now_ns;
    rank(s, q);
    ms_queue_add(s, i);
    s->stats.queued++;
}

/* ---- parked ------------------------------------------------------------------------ */

void ms_gen_request_park(struct ms_scheduler *s, uint32_t i)
{
    struct ms_gen_request *q = &s->requests[i];
    struct ms_gen_replica *r = &s->replicas[q->replica];

    uint32_t before = r->parked_last;

    ms_queue_remove(s, i);
    q->state = MS_REQUEST_PARKED;
    while (before != MS_NONE && s->requests[before].rank > q->rank)
        before = s->requests[before].before;
    q->before = before;
    q->after = before == MS_NONE ? r->parked_first : s->requests[before].after;
    *(before == MS_NONE ? &r->parked_first : &s->requests[before].after) = i;
    *(q->after == MS_NONE ? &r->parked_last : &s->requests[q->after].before) = i;
    r->parked++;
    s->parked++;
}

static void unlink_parked(struct ms_scheduler *s, uint32_t i)
{
    struct ms_gen_request *q = &s->requests[i];
    struct ms_gen_replica *r = &s->replicas[q->replica];

    *(q->before == MS_NONE ? &r->parked_first : &s->requests[q->before].after) =
        q->after;
    *(q->after == MS_NONE ? &r->parked_last : &s->requests[q->after].before) =
        q->before;
    q->before = q->after = MS_NONE;
    r->parked--;
    s->parked--;
}

void ms_gen_request_unpark(struct ms_scheduler *s, uint32_t i)
{
    struct ms_gen_request *q = &s->requests[i];

    unlink_parked(s, i);
    q->state = MS_REQUEST_QUEUED;
    q->replica = MS_NOWHERE; /* it has waited enough */
    rank(s, q);
    ms_queue_add(s, i);
}

/* ---- on a replica ------------------------------------------------------------------ */

static void replica_add(struct ms_scheduler *s, uint32_t i)
{
    struct ms_gen_request *q = &s->requests[i];
    struct ms_gen_replica *r = &s->replicas[q->replica];

    q->before = r->last;
    q->after = MS_NONE;
    *(r->last == MS_NONE ? &r->first : &s->requests[r->last].after) = i;
    r->last = i;
}

static void replica_remove(struct ms_scheduler *s, uint32_t i)
{
    struct ms_gen_request *q = &s->requests[i];
    struct ms_gen_replica *r = &s->replicas[q->replica];

    *(q->before == MS_NONE ? &r->first : &s->requests[q->before].after) = q->after;
    *(q->after == MS_NONE ? &r->last : &s->requests[q->after].before) = q->before;
    q->before = q->after = MS_NONE;
}

static uint32_t max_tokens(const struct ms_scheduler *s, const struct ms_gen_request *q)
{
    uint32_t left = q->max_new - q->generated;

    return s->o.chunk > 0 && s->o.chunk < left ? s->o.chunk : left;
}

static uint32_t counted_kv(const struct ms_scheduler *s, const struct ms_gen_request *q)
{
    uint32_t more = s->o.policy->reserve ? s->o.policy->reserve(s, q) : 0;

    return q->prompt + q->generated + more;
}

static uint8_t placed_by(const struct ms_scheduler *s,
                         const struct ms_gen_request *q,
                         uint32_t replica)
{
    if (q->replica == replica && ms_gen_request_is_warm(s, q))
        return MS_PLACED_WARM;
    if (q->replica == replica && ms_gen_request_is_divided(q))
        return MS_PLACED_WARM;
    return q->target == replica ? MS_PLACED_PLANNED : MS_PLACED_LOAD;
}

void ms_gen_request_send(struct ms_scheduler *s, uint32_t i, uint32_t replica)
{
    struct ms_gen_request *q = &s->requests[i];
    struct ms_gen_replica *r = &s->replicas[replica];
    struct ms_generate_decision *d = ms_decide(s, MS_SEND);

    if (q->state == MS_REQUEST_PARKED)
        unlink_parked(s, i);
    else
        ms_queue_remove(s, i);
    s->stats.queued--;
    if (r->in_flight++ == 0)
        r->heard_ns = s->now_ns;
    q->state = MS_REQUEST_RUNNING;
    q->placed = placed_by(s, q, replica);
    q->replica = replica;
    q->target = MS_NOWHERE;
    q->attempt++;
    q->since_ns = s->now_ns;
    q->kv = counted_kv(s, q);
    r->kv += q->kv;
    if (q->generated == 0)
        q->oldest = r->version;
    replica_add(s, i);
    s->stats.running++;
    s->stats.sent++;
    s->stats.resumed += q->generated > 0;
    d->id = ms_gen_request_id(s, i);
    d->group = s->groups[q->group].id;
    d->seq = q->seq;
    d->replica = replica;
    d->epoch = r->epoch;
    d->attempt = q->attempt;
    d->tokens = q->generated;
    d->max_tokens = max_tokens(s, q);
    d->version = r->version;
}

void ms_gen_request_heard(struct ms_scheduler *s, uint32_t i)
{
    struct ms_gen_request *q = &s->requests[i];

    q->since_ns = s->now_ns;
    s->replicas[q->replica].heard_ns = s->now_ns;
    s->replicas[q->replica].probed = 0;
    if (q->after != MS_NONE) {
        replica_remove(s, i);
        replica_add(s, i);
    }
}

/* It got on since its replica went: that was another's fault. */
static void clear(struct ms_gen_request *q)
{
    q->suspect = 0;
    q->failures = q->tries = 0;
}

void ms_gen_request_tokens(struct ms_scheduler *s, uint32_t i, uint32_t tokens)
{
    struct ms_gen_request *q = &s->requests[i];

    if (tokens > q->max_new)
        tokens = q->max_new;
    if (tokens > q->generated) {
        uint32_t gained = tokens - q->generated;

        q->generated = tokens;
        if (q->suspect && gained >= q->suspect)
            clear(q);
        else if (q->suspect)
            q->suspect -= (uint8_t)gained;
    }
    if (q->prompt + q->generated > q->kv) {
        s->replicas[q->replica].kv += q->prompt + q->generated - q->kv;
        q->kv = q->prompt + q->generated;
    }
}

void ms_gen_request_leave(struct ms_scheduler *s, uint32_t i)
{
    struct ms_gen_request *q = &s->requests[i];
    struct ms_gen_replica *r = &s->replicas[q->replica];

    assert(r->in_flight > 0 && r->kv >= q->kv);
    replica_remove(s, i);
    r->kv -= q->kv;
    q->kv = 0;
    if (q->state == MS_REQUEST_ABORTING)
        s->stats.aborting--;
    else
        s->stats.running--;
    if (--r->in_flight == 0)
        ms_gen_replica_idle(s, q->replica);
}

void ms_gen_request_abort(struct ms_scheduler *s, uint32_t i, uint8_t why, bool ends)
{
    struct ms_gen_request *q = &s->requests[i];
    struct ms_generate_decision *d;

    q->ends |= ends;
    if (q->state != MS_REQUEST_RUNNING)
        return;
    d = ms_decide(s, MS_ABORT);
    d->id = ms_gen_request_id(s, i);
    d->group = s->groups[q->group].id;
    d->replica = q->replica;
    d->epoch = s->replicas[q->replica].epoch;
    d->attempt = q->attempt;
    d->why = why;
    q->why = why;
    q->state = MS_REQUEST_ABORTING;
    s->stats.running--;
    s->stats.aborting++;
    q->since_ns = s->now_ns;
    replica_remove(s, i);
    replica_add(s, i);
}

/* ---- over -------------------------------------------------------------------------- */

/* No replica is left that has not failed it. */
static bool has_failed_everywhere(const struct ms_scheduler *s,
                                  const struct ms_gen_request *q)
{
    for (uint32_t i = 0; i < s->replica_count; i++)
        if (s->replicas[i].state != MS_REPLICA_GONE && !ms_gen_request_failed_on(q, i))
            return false;
    return true;
}

void ms_gen_request_failed(struct ms_scheduler *s, uint32_t i)
{
    struct ms_gen_request *q = &s->requests[i];
    uint32_t most = s->o.poison_replicas, on = q->replica;

    s->disturbed++;
    if (q->tries < COUNTED_MAX)
        q->tries++;
    if (!ms_gen_request_failed_on(q, on) && q->failures < COUNTED_MAX) {
        if (q->failures < FAILED_ON_MAX)
            q->failed_on[q->failures] = (uint16_t)on;
        q->failures++;
    }
    ms_gen_request_queue(s, i);
    if (q->failures >= most || (q->tries >= most && has_failed_everywhere(s, q)))
        ms_gen_group_drop(s, q->group, MS_WHY_POISON);
}

void ms_gen_request_lost(struct ms_scheduler *s, uint32_t i)
{
    struct ms_gen_request *q = &s->requests[i];

    q->suspect = CLEARED_BY;
    if (++q->losses < LOSSES_MAX) {
        ms_gen_request_failed(s, i);
        return;
    }
    ms_gen_request_queue(s, i);
    ms_gen_group_drop(s, q->group, MS_WHY_POISON);
}

bool ms_gen_request_is_prime(const struct ms_scheduler *s,
                             const struct ms_gen_request *q)
{
    return q->suspect && q->tries + 1U >= s->o.poison_replicas;
}

void ms_gen_request_end(struct ms_scheduler *s, uint32_t i, uint8_t why)
{
    struct ms_gen_request *q = &s->requests[i];

    switch (q->state) {
    case MS_REQUEST_PARKED:
    case MS_REQUEST_QUEUED:
        if (q->state == MS_REQUEST_PARKED)
            unlink_parked(s, i);
        else
            ms_queue_remove(s, i);
        s->stats.queued--;
        s->stats.live--;
        /* fallthrough */
    case MS_REQUEST_HELD:
        q->state = MS_REQUEST_DONE;
        q->ends = 1;
        s->groups[q->group].pending--;
        break;
    case MS_REQUEST_RUNNING:
    case MS_REQUEST_ABORTING:
        ms_gen_request_abort(s, i, why, true);
        break;
    default:
        break;
    }
}
