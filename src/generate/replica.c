/* replica.c - replicas: up, down, drained; how long their steps take */
#include "generate/scheduler_impl.h"

#include <errno.h>
#include <math.h>

#define FIT_KEEP   0.999  /* of what was measured before, at each report */
#define FIT_SPREAD 0.0025 /* relative variance of batches that shows the slope */
#define STEP_SHARE 0.125 /* of the newest measure, in what a replica's own steps take */

struct ms_gen_replica *ms_gen_replica_of(struct ms_scheduler *s,
                                         const struct ms_generate_event *e)
{
    struct ms_gen_replica *r;

    if (e->replica >= s->replica_count)
        return NULL;
    r = &s->replicas[e->replica];
    return r->state != MS_REPLICA_GONE && r->epoch == e->epoch ? r : NULL;
}

/* All that it had resumes elsewhere, from the tokens that were heard of. */
void ms_gen_replica_lose(struct ms_scheduler *s, uint32_t replica)
{
    struct ms_gen_replica *r = &s->replicas[replica];

    s->disturbed++;
    r->state = MS_REPLICA_GONE;
    s->slots -= r->slots;
    r->update = 0;
    ms_gen_replica_unpark_all(s, replica);
    while (r->first != MS_NONE) {
        uint32_t i = r->first, group = s->requests[i].group;
        bool ends = s->requests[i].ends;

        ms_gen_request_leave(s, i);
        s->requests[i].why = MS_WHY_LOST;
        if (ends) {
            s->requests[i].state = MS_REQUEST_DONE;
            s->stats.live--;
            s->groups[group].pending--;
            ms_gen_group_request_over(s, group);
        } else {
            ms_gen_request_lost(s, i);
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

int ms_gen_replica_up(struct ms_scheduler *s, const struct ms_generate_event *e)
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
        ms_gen_replica_lose(s, e->replica);
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

int ms_gen_replica_down(struct ms_scheduler *s, const struct ms_generate_event *e)
{
    if (!ms_gen_replica_of(s, e))
        return -ENOENT;
    ms_gen_replica_lose(s, e->replica);
    return 0;
}

void ms_gen_replica_abort_all(struct ms_scheduler *s, uint32_t replica, uint8_t why)
{
    uint32_t last = s->replicas[replica].last;

    for (uint32_t i = s->replicas[replica].first, next; i != MS_NONE; i = next) {
        next = i == last ? MS_NONE : s->requests[i].after; /* aborted ones go behind */
        ms_gen_request_abort(s, i, why, false);
    }
}

void ms_gen_replica_unpark_all(struct ms_scheduler *s, uint32_t replica)
{
    while (s->replicas[replica].parked_first != MS_NONE)
        ms_gen_request_unpark(s, s->replicas[replica].parked_first);
}

int ms_gen_replica_drain(struct ms_scheduler *s, const struct ms_generate_event *e)
{
    struct ms_gen_replica *r =
        e->replica < s->replica_count ? &s->replicas[e->replica] : NULL;

    if (!r || r->state == MS_REPLICA_GONE)
        return -ENOENT;
    s->disturbed++;
    r->state = MS_REPLICA_DRAINING;
    r->update = 0;
    ms_gen_replica_unpark_all(s, e->replica);
    ms_gen_replica_abort_all(s, e->replica, MS_WHY_DRAINED);
    if (r->in_flight == 0)
        ms_gen_replica_idle(s, e->replica);
    ms_weights_go_on(s);
    return 0;
}

void ms_gen_replica_idle(struct ms_scheduler *s, uint32_t replica)
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

int ms_gen_replica_load(struct ms_scheduler *s, const struct ms_generate_event *e)
{
    struct ms_gen_replica *r = ms_gen_replica_of(s, e);

    if (!r)
        return 0; /* late */
    r->heard_ns = s->now_ns;
    r->probed = 0;
    if (e->samples > 0 && e->step_ns > 0) {
        double share = r->step_ns > 0 ? STEP_SHARE : 1;

        r->step_ns += share * ((double)e->step_ns - r->step_ns);
        fit(s, e->samples, (double)e->step_ns);
    }
    return 0;
}

int ms_gen_replica_alive(struct ms_scheduler *s, const struct ms_generate_event *e)
{
    struct ms_gen_replica *r = ms_gen_replica_of(s, e);

    if (r) {
        r->heard_ns = s->now_ns;
        r->probed = 0;
    }
    return 0;
}
