/* replica.c - replicas: up, down, silent, drained; how long their steps take */
#include "generate/scheduler_impl.h"

#include "base/clock.h"

#include <errno.h>
#include <math.h>

#define PARK_NS    (30 * MS_NS_PER_S) /* that a request waits for its warm replica */
#define KV_FULL    0.95 /* of the cache: engines preempt then; reports are a bit behind */
#define FIT_KEEP   0.999  /* of what was measured before, at each report */
#define FIT_SPREAD 0.0025 /* relative variance of batches that shows the slope */

struct ms_gen_replica *ms_replica_of(struct ms_scheduler *s,
                                     const struct ms_generate_event *e)
{
    struct ms_gen_replica *r;

    if (e->replica >= s->replica_count)
        return NULL;
    r = &s->replicas[e->replica];
    return r->state != MS_REPLICA_GONE && r->epoch == e->epoch ? r : NULL;
}

/* All that it had resumes elsewhere, from the tokens that were heard of. */
static void lose(struct ms_scheduler *s, uint32_t replica)
{
    struct ms_gen_replica *r = &s->replicas[replica];

    s->disturbed++;
    r->state = MS_REPLICA_GONE;
    s->slots -= r->slots;
    r->update = 0;
    ms_replica_unpark_all(s, replica);
    while (r->first != MS_NONE) {
        uint32_t i = r->first, group = s->requests[i].group;
        bool ends = s->requests[i].ends;

        ms_request_leave(s, i);
        s->requests[i].why = MS_WHY_LOST;
        if (ends) {
            s->requests[i].state = MS_REQUEST_DONE;
            s->stats.live--;
            s->groups[group].pending--;
            ms_group_request_over(s, group);
        } else {
            ms_request_lost(s, i);
        }
    }
    ms_weights_go_on(s);
}

static int grow(struct ms_scheduler *s, uint32_t replica)
{
    size_t count = (size_t)replica + 1;

    if (replica >= MS_GENERATE_REPLICAS_MAX)
        return -EINVAL;
    if (ms_array_reserve(&s->replicas, &s->replica_room, count, sizeof *s->replicas) <
        0)
        return -ENOMEM;
    for (; s->replica_count < count; s->replica_count++)
        s->replicas[s->replica_count] = (struct ms_gen_replica){.first = MS_NONE,
                                                                .last = MS_NONE,
                                                                .parked_first = MS_NONE,
                                                                .parked_last = MS_NONE};
    return 0;
}

int ms_replica_up(struct ms_scheduler *s, const struct ms_generate_event *e)
{
    struct ms_gen_replica *r;
    int rc;

    if (e->samples == 0)
        return -EINVAL;
    rc = grow(s, e->replica);
    if (rc < 0)
        return rc;
    r = &s->replicas[e->replica];
    if (r->epoch != 0 && e->epoch <= r->epoch)
        return -EINVAL;
    if (r->state != MS_REPLICA_GONE)
        lose(s, e->replica);
    *r = (struct ms_gen_replica){.state = MS_REPLICA_OPEN,
                                 .epoch = e->epoch,
                                 .version = e->version,
                                 .slots = e->samples,
                                 .kv_max = e->tokens,
                                 .first = MS_NONE,
                                 .last = MS_NONE,
                                 .parked_first = MS_NONE,
                                 .parked_last = MS_NONE,
                                 .heard_ns = s->now_ns};
    s->slots += e->samples;
    s->disturbed++;
    ms_weights_go_on(s);
    return 0;
}

int ms_replica_down(struct ms_scheduler *s, const struct ms_generate_event *e)
{
    if (!ms_replica_of(s, e))
        return -ENOENT;
    lose(s, e->replica);
    return 0;
}

void ms_replica_abort_all(struct ms_scheduler *s, uint32_t replica, uint8_t why)
{
    uint32_t last = s->replicas[replica].last;

    for (uint32_t i = s->replicas[replica].first, next; i != MS_NONE; i = next) {
        next = i == last ? MS_NONE : s->requests[i].after; /* aborted ones go behind */
        ms_request_abort(s, i, why, false);
    }
}

void ms_replica_unpark_all(struct ms_scheduler *s, uint32_t replica)
{
    while (s->replicas[replica].parked_first != MS_NONE)
        ms_request_unpark(s, s->replicas[replica].parked_first);
}

int ms_replica_drain(struct ms_scheduler *s, const struct ms_generate_event *e)
{
    struct ms_gen_replica *r =
        e->replica < s->replica_count ? &s->replicas[e->replica] : NULL;

    if (!r || r->state == MS_REPLICA_GONE)
        return -ENOENT;
    s->disturbed++;
    r->state = MS_REPLICA_DRAINING;
    r->update = 0;
    ms_replica_unpark_all(s, e->replica);
    ms_replica_abort_all(s, e->replica, MS_WHY_DRAINED);
    if (r->in_flight == 0)
        ms_replica_idle(s, e->replica);
    ms_weights_go_on(s);
    return 0;
}

void ms_replica_idle(struct ms_scheduler *s, uint32_t replica)
{
    struct ms_gen_replica *r = &s->replicas[replica];
    struct ms_generate_decision *d;

    if (r->state == MS_REPLICA_DRAINING) {
        r->state = MS_REPLICA_GONE;
        s->slots -= r->slots;
        d = ms_decide(s, MS_RELEASED);
        d->replica = replica;
        d->epoch = r->epoch;
    } else if (r->state == MS_REPLICA_PAUSED) {
        ms_weights_go_on(s);
    }
}

/* ---- how long a step takes --------------------------------------------------------- */

/* Least squares over decayed sums, of all replicas together: they differ in their batches,
 * and are taken to be alike. With one batch size the slope stays as it was. */
static void fit(struct ms_scheduler *s, double batch, double step_ns)
{
    const double now[5] = {1, batch, step_ns, batch * batch, batch * step_ns};
    double *f = s->fit, spread;

    for (int i = 0; i < 5; i++)
        f[i] = f[i] * FIT_KEEP + now[i];
    spread = f[3] * f[0] - f[1] * f[1];
    if (spread > FIT_SPREAD * f[1] * f[1])
        s->b_ns = fmax((f[4] * f[0] - f[1] * f[2]) / spread, 0);
    s->a_ns = fmax((f[2] - s->b_ns * f[1]) / f[0], 0);
}

int ms_replica_load(struct ms_scheduler *s, const struct ms_generate_event *e)
{
    struct ms_gen_replica *r = ms_replica_of(s, e);

    if (!r)
        return 0; /* late */
    r->heard_ns = s->now_ns;
    r->probed = 0;
    if (e->samples > 0 && e->step_ns > 0)
        fit(s, e->samples, (double)e->step_ns);
    return 0;
}

int ms_replica_alive(struct ms_scheduler *s, const struct ms_generate_event *e)
{
    struct ms_gen_replica *r = ms_replica_of(s, e);

    if (r) {
        r->heard_ns = s->now_ns;
        r->probed = 0;
    }
    return 0;
}

/* ---- silence ----------------------------------------------------------------------- */

static void evict(struct ms_scheduler *s, uint32_t replica)
{
    struct ms_generate_decision *d = ms_decide(s, MS_EVICT);

    d->replica = replica;
    d->epoch = s->replicas[replica].epoch;
    lose(s, replica);
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
    uint8_t why = MS_WHY_NONE;

    while (r->first != MS_NONE &&
           s->now_ns - s->requests[r->first].since_ns >= s->o.silence_ns) {
        if (s->requests[r->first].state == MS_REQUEST_ABORTING) {
            evict(s, replica); /* it does not even end what it was told to */
            return;
        }
        if (why == MS_WHY_NONE)
            why = is_full(s, r) ? MS_WHY_PREEMPTED : MS_WHY_SILENT;
        ms_request_abort(s, r->first, why, false);
    }
}

/* What has waited too long for its prefix goes where there is room. */
static void unpark_old(struct ms_scheduler *s)
{
    for (uint32_t k = 0; s->parked > 0 && k < s->replica_count; k++)
        for (uint32_t i = s->replicas[k].parked_first, next; i != MS_NONE; i = next) {
            next = s->requests[i].after;
            if (s->now_ns - s->requests[i].since_ns >= PARK_NS)
                ms_request_unpark(s, i);
        }
}

void ms_replicas_listen(struct ms_scheduler *s)
{
    unpark_old(s);
    if (s->o.silence_ns <= 0 || s->paused)
        return;
    for (uint32_t i = 0; i < s->replica_count; i++) {
        struct ms_gen_replica *r = &s->replicas[i];

        if (r->state == MS_REPLICA_GONE || r->in_flight == 0 || r->update)
            continue; /* an update of weights may take long */
        if (r->probed || s->now_ns - r->heard_ns >= s->o.silence_ns)
            probe(s, i);
        else
            listen_to_requests(s, i);
    }
}

int64_t ms_replicas_wake_ns(const struct ms_scheduler *s)
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
        at_ns = r->probed ? r->probe_ns + s->o.probe_ns
                          : s->requests[r->first].since_ns + s->o.silence_ns;
        wake_ns = at_ns < wake_ns ? at_ns : wake_ns;
    }
    return wake_ns;
}
