/* silence.c - who was not heard of for too long: replicas, their requests, those that wait for
 * a warm prefix
 *
 * How long is too long follows from how long the replica's own steps take: one that needs
 * seconds for a token is not hung. The option is the floor.
 */
#include "generate/scheduler_impl.h"

#include "base/clock.h"

#include <math.h>

#define STEPS    20.0                  /* of its own that a replica may be silent for */
#define STEPS_NS (600.0 * MS_NS_PER_S) /* what these come to at most */
#define PARK_NS  (30 * MS_NS_PER_S)    /* that a request waits for its warm replica */
#define KV_FULL  0.95 /* of the cache: engines preempt then; reports are a bit behind */

/* A replica that was not measured yet is as the others are. */
int64_t ms_gen_replica_silence_ns(const struct ms_scheduler *s,
                                  const struct ms_gen_replica *r)
{
    double step_ns = r->step_ns > 0 ? r->step_ns : s->a_ns + s->b_ns * r->in_flight;

    return (int64_t)fmax((double)s->o.silence_ns, fmin(STEPS * step_ns, STEPS_NS));
}

static void evict(struct ms_scheduler *s, uint32_t replica)
{
    struct ms_generate_decision *d = ms_decide(s, MS_EVICT);

    d->replica = replica;
    d->epoch = s->replicas[replica].epoch;
    ms_gen_replica_lose(s, replica);
}

static void probe(struct ms_scheduler *s, uint32_t replica)
{
    struct ms_gen_replica *r = &s->replicas[replica];
    struct ms_generate_decision *d;

    if (r->probed) {
        if (s->now_ns - r->probe_ns >= s->o.probe_ns)
            evict(s, replica);
        return;
    }
    r->probed = 1;
    r->probe_ns = s->now_ns;
    d = ms_decide(s, MS_PROBE);
    d->replica = replica;
    d->epoch = r->epoch;
}

/* Do its requests have more tokens than its cache holds? Then some of them wait. */
static bool is_full(const struct ms_scheduler *s, const struct ms_gen_replica *r)
{
    uint64_t tokens = 0;

    if (r->kv_max == 0 || (double)r->kv < KV_FULL * (double)r->kv_max)
        return false;
    for (uint32_t i = r->first; i != MS_NONE; i = s->requests[i].after)
        tokens += (uint64_t)s->requests[i].prompt + s->requests[i].generated;
    return (double)tokens >= KV_FULL * (double)r->kv_max;
}

/* The replica is heard of; which of its requests are not? */
static void listen_to_requests(struct ms_scheduler *s, uint32_t replica)
{
    struct ms_gen_replica *r = &s->replicas[replica];
    int64_t silence_ns = ms_gen_replica_silence_ns(s, r);
    uint8_t why = MS_WHY_NONE;

    while (r->first != MS_NONE &&
           s->now_ns - s->requests[r->first].since_ns >= silence_ns) {
        if (s->requests[r->first].state == MS_REQUEST_ABORTING) {
            evict(s, replica); /* it does not even end what it was told to */
            return;
        }
        if (why == MS_WHY_NONE)
            why = is_full(s, r) ? MS_WHY_PREEMPTED : MS_WHY_SILENT;
        ms_gen_request_abort(s, r->first, why, false);
    }
}

/* What has waited too long for its prefix goes where there is room. */
static void unpark_old(struct ms_scheduler *s)
{
    for (uint32_t k = 0; s->parked > 0 && k < s->replica_count; k++)
        for (uint32_t i = s->replicas[k].parked_first, next; i != MS_NONE; i = next) {
            next = s->requests[i].after;
            if (s->now_ns - s->requests[i].since_ns >= PARK_NS)
                ms_gen_request_unpark(s, i);
        }
}

void ms_gen_replicas_listen(struct ms_scheduler *s)
{
    unpark_old(s);
    if (s->o.silence_ns <= 0 || s->paused)
        return;
    for (uint32_t i = 0; i < s->replica_count; i++) {
        struct ms_gen_replica *r = &s->replicas[i];

        if (r->state == MS_REPLICA_GONE || r->in_flight == 0 || r->update)
            continue; /* an update of weights may take long */
        if (r->probed || s->now_ns - r->heard_ns >= ms_gen_replica_silence_ns(s, r))
            probe(s, i);
        else
            listen_to_requests(s, i);
    }
}

int64_t ms_gen_replicas_wake_ns(const struct ms_scheduler *s)
{
    int64_t wake_ns = MS_NEVER;

    for (uint32_t i = 0; i < s->replica_count; i++) {
        const struct ms_gen_replica *r = &s->replicas[i];
        int64_t at_ns;

        for (uint32_t k = r->parked_first; k != MS_NONE; k = s->requests[k].after) {
            at_ns = s->requests[k].since_ns + PARK_NS;
            wake_ns = at_ns < wake_ns ? at_ns : wake_ns;
        }
        if (s->o.silence_ns <= 0 || s->paused)
            continue;
        if (r->state == MS_REPLICA_GONE || r->in_flight == 0 || r->update)
            continue;
        at_ns = r->probed
                    ? r->probe_ns + s->o.probe_ns
                    : s->requests[r->first].since_ns + ms_gen_replica_silence_ns(s, r);
        wake_ns = at_ns < wake_ns ? at_ns : wake_ns;
    }
    return wake_ns;
}
