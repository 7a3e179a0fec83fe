/* policy.c - order and place: first come first served, longest first, and by what is known */
#include "generate/policy.h"

#include "base/cleanup.h"

#include <string.h>

#define RESUMED    (-1e9F) /* rank: what has tokens goes before all that has none */
#define PROBE      (-1e8F) /* and a group of which nothing is known sends its first one */
#define ICC_MIN    0.1 /* below, prompts say nothing of lengths: in order of arrival */
#define RESERVE    0.2 /* of the expected tokens: cache that is kept free for them */
#define MARGIN_MIN 2   /* requests that a warm replica may have more than another */

/* ---- order ------------------------------------------------------------------------- */

static double remaining(const struct ms_scheduler *s, const struct ms_gen_request *q)
{
    const struct ms_gen_group *g = ms_group_at(s, q->group);

    if (q->generated == 0)
        return g->expected;
    return ms_length_remaining(g->guess, q->generated, q->max_new);
}

static float rank_resumed_first(const struct ms_scheduler *s,
                                const struct ms_gen_request *q)
{
    (void)s;
    return q->generated > 0 ? RESUMED : 0;
}

static float rank_longest(const struct ms_scheduler *s, const struct ms_gen_request *q)
{
    float left = (float)remaining(s, q);

    if (q->generated > 0)
        return RESUMED - left;
    return (q->is_probe ? PROBE : 0) - left;
}

static float rank_auto(const struct ms_scheduler *s, const struct ms_gen_request *q)
{
    return ms_lengths_icc(s->lengths) < ICC_MIN ? rank_resumed_first(s, q)
                                                : rank_longest(s, q);
}

static const char *order_auto(const struct ms_scheduler *s)
{
    return ms_lengths_icc(s->lengths) < ICC_MIN ? "fifo" : "longest";
}

/* ---- place ------------------------------------------------------------------------- */

uint32_t ms_place_fewest(struct ms_scheduler *s, uint64_t kv)
{
    uint32_t best = MS_NOWHERE, ties = 0;

    for (uint32_t i = 0; i < s->replica_count; i++) {
        const struct ms_gen_replica *r = &s->replicas[i];

        if (!ms_replica_has_room(r, kv))
            continue;
        if (best == MS_NOWHERE || r->in_flight < s->replicas[best].in_flight) {
            best = i;
            ties = 1;
        } else if (r->in_flight == s->replicas[best].in_flight &&
                   ms_scheduler_roll(s, ++ties) == 0) {
            best = i;
        }
    }
    return best;
}

static uint32_t place_fewest(struct ms_scheduler *s, const struct ms_gen_request *q)
{
    return ms_place_fewest(s, (uint64_t)q->prompt + q->generated);
}

static uint32_t reserve_share(const struct ms_scheduler *s,
                              const struct ms_gen_request *q)
{
    return (uint32_t)(RESERVE * remaining(s, q));
}

/* Is it worth while to compute the prefix anew, to be among fewer? It, and those that it
 * leaves, have quicker steps than those that it joins; all of these wait for its prefill. */
static bool
is_better(const struct ms_scheduler *s, const struct ms_gen_request *q, uint32_t other)
{
    double there = s->replicas[other].in_flight;
    double more = s->replicas[q->replica].in_flight - there;
    double again_ns = s->o.prefill_ns * ((double)q->prompt + q->generated);

    return more > MARGIN_MIN &&
           2 * s->b_ns * more * remaining(s, q) > again_ns * (there + 1);
}

/* Another turn of a session, whose prefix is warm at q->replica: there if there is room,
 * or when there will be, unless somewhere else is better even so. */
static uint32_t place_warm(struct ms_scheduler *s,
                           const struct ms_gen_request *q,
                           uint64_t kv,
                           uint32_t fewest)
{
    const struct ms_gen_replica *warm = &s->replicas[q->replica];

    if (warm->state != MS_REPLICA_OPEN || fewest == q->replica)
        return fewest;
    if (!ms_replica_has_room(warm, kv))
        return warm->parked < warm->slots ? MS_PARK : fewest;
    return fewest != MS_NOWHERE && is_better(s, q, fewest) ? fewest : q->replica;
}

static uint32_t place_auto(struct ms_scheduler *s, const struct ms_gen_request *q)
{
    uint64_t kv = (uint64_t)q->prompt + q->generated + reserve_share(s, q);
    uint32_t fewest;

    if (s->stats.running + s->stats.aborting == 0) { /* a step begins */
        ms_tail_place(s);
        if (q->target != MS_NOWHERE)
            return q->target;
    }
    fewest = ms_place_fewest(s, kv);
    if (q->generated == 0 && q->replica < s->replica_count)
        return place_warm(s, q, kv, fewest);
    return fewest;
}

/* ---- policies ---------------------------------------------------------------------- */

const struct ms_policy ms_policy_fifo = {
    .name = "fifo", .rank = rank_resumed_first, .place = place_fewest};

const struct ms_policy ms_policy_longest = {
    .name = "longest", .rank = rank_longest, .place = place_fewest};

const struct ms_policy ms_policy_auto = {.name = "auto",
                                         .rank = rank_auto,
                                         .place = place_auto,
                                         .rebalance = ms_tail_rebalance,
                                         .reserve = reserve_share,
                                         .order = order_auto};

const struct ms_policy *ms_policy_find(const char *name)
{
    static const struct ms_policy *const all[] = {
        &ms_policy_fifo, &ms_policy_longest, &ms_policy_auto};

    for (size_t i = 0; i < MS_COUNT(all); i++)
        if (strcmp(all[i]->name, name) == 0)
            return all[i];
    return NULL;
}
