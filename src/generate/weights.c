/* weights.c - new weights: all replicas at one barrier, or one after the other */
#include "generate/scheduler_impl.h"

#include "base/clock.h"

#include <errno.h>

static bool needs(const struct ms_scheduler *s, const struct ms_gen_replica *r)
{
    return (r->state == MS_REPLICA_OPEN || r->state == MS_REPLICA_PAUSED) &&
           r->version != s->weights_version;
}

static void tell(struct ms_scheduler *s, uint32_t i)
{
    struct ms_gen_replica *r = &s->replicas[i];
    struct ms_generate_decision *d;

    if (r->update || (r->in_flight > 0 && s->weights_mode != MS_WEIGHTS_KEEP))
        return;
    r->update = 1;
    d = ms_decide(s, MS_UPDATE);
    d->replica = i;
    d->epoch = r->epoch;
    d->version = s->weights_version;
}

static void pause_one(struct ms_scheduler *s, uint32_t i)
{
    struct ms_gen_replica *r = &s->replicas[i];

    if (r->state == MS_REPLICA_OPEN) {
        r->state = MS_REPLICA_PAUSED;
        ms_gen_replica_unpark_all(s, i);
        if (s->weights_mode == MS_WEIGHTS_ABORT)
            ms_gen_replica_abort_all(s, i, MS_WHY_WEIGHTS);
    }
    tell(s, i);
}

static void open_all(struct ms_scheduler *s)
{
    s->weights = false;
    for (uint32_t i = 0; i < s->replica_count; i++) {
        s->replicas[i].update = 0;
        if (s->replicas[i].state == MS_REPLICA_PAUSED)
            s->replicas[i].state = MS_REPLICA_OPEN;
    }
}

/* All have it: go on, and say so. */
static void end(struct ms_scheduler *s)
{
    open_all(s);
    ms_decide(s, MS_UPDATED)->version = s->weights_version;
}

void ms_weights_go_on(struct ms_scheduler *s)
{
    uint32_t left = 0;

    if (!s->weights)
        return;
    for (uint32_t i = 0; i < s->replica_count; i++) {
        struct ms_gen_replica *r = &s->replicas[i];

        if (!needs(s, r))
            continue;
        left++;
        pause_one(s, i);
        if (s->rolling)
            return;
    }
    if (left == 0)
        end(s);
}

int ms_weights_begin(struct ms_scheduler *s, const struct ms_generate_event *e)
{
    if (s->weights || e->mode > MS_WEIGHTS_KEEP)
        return -EINVAL;
    s->weights = true;
    s->disturbed++;
    s->rolling = e->rolling;
    s->weights_mode = e->mode;
    s->weights_version = e->version;
    s->weights_deadline_ns = e->deadline_ns > 0 ? e->deadline_ns : MS_NEVER;
    ms_weights_go_on(s);
    return 0;
}

/* The silence of a replica that was not to decode does not count. */
static void hear(struct ms_scheduler *s, struct ms_gen_replica *r)
{
    r->heard_ns = s->now_ns;
    for (uint32_t i = r->first; i != MS_NONE; i = s->requests[i].after)
        s->requests[i].since_ns = s->now_ns;
}

int ms_weights_ready(struct ms_scheduler *s, const struct ms_generate_event *e)
{
    struct ms_gen_replica *r = ms_gen_replica_of(s, e);

    if (!r || !s->weights || e->version != s->weights_version)
        return 0; /* late */
    r->version = e->version;
    r->update = 0;
    hear(s, r);
    if (s->rolling)
        r->state = MS_REPLICA_OPEN;
    ms_weights_go_on(s);
    return 0;
}

int ms_weights_failed(struct ms_scheduler *s, const struct ms_generate_event *e)
{
    (void)e;
    if (!s->weights)
        return -EINVAL;
    open_all(s);
    for (uint32_t i = 0; i < s->replica_count; i++)
        hear(s, &s->replicas[i]);
    return 0;
}

int ms_weights_pause(struct ms_scheduler *s, const struct ms_generate_event *e)
{
    if (e->mode > MS_WEIGHTS_KEEP)
        return -EINVAL;
    s->paused = true;
    s->disturbed++;
    for (uint32_t i = 0; e->mode == MS_WEIGHTS_ABORT && i < s->replica_count; i++)
        ms_gen_replica_abort_all(s, i, MS_WHY_WEIGHTS);
    return 0;
}

int ms_weights_resume(struct ms_scheduler *s, const struct ms_generate_event *e)
{
    (void)e;
    s->paused = false;
    for (uint32_t i = 0; i < s->replica_count; i++)
        hear(s, &s->replicas[i]);
    return 0;
}

void ms_weights_tick(struct ms_scheduler *s)
{
    if (!s->weights || s->now_ns < s->weights_deadline_ns)
        return;
    s->weights_deadline_ns = MS_NEVER;
    for (uint32_t i = 0; i < s->replica_count; i++)
        if (s->replicas[i].state == MS_REPLICA_PAUSED && !s->replicas[i].update)
            ms_gen_replica_abort_all(s, i, MS_WHY_WEIGHTS);
}
