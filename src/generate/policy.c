/* policy.c - order and place: first come first served, longest first, and by what is known */
#include "generate/policy.h"

#include "base/cleanup.h"
#include "generate/choose.h"

#include <string.h>

#define RESUMED    (-1e9F) /* rank: what has tokens goes before all that has none */
#define PROBE      (-1e8F) /* and a group of which nothing is known sends its first one */
#define RESERVE    0.2  /* of the expected tokens: cache that is kept free for them */
#define TURN       1e6F /* rank of a turn more: more than any length */
#define MARGIN_MIN 2    /* requests that a warm replica may have more than another */

/* ---- order ------------------------------------------------------------------------- */

static double remaining(const struct ms_scheduler *s, const struct ms_gen_request *q)
{
    const struct ms_gen_group *g = ms_gen_group_at(s, q->group);

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

static uint8_t order_now(const struct ms_scheduler *s)
{
    if (ms_choice_holds(s))
        return s->choice.order;
    return ms_lengths_icc(s->lengths) < MS_ICC_MIN ? MS_ORDER_FIFO : MS_ORDER_LONGEST;
}

/* The turns of a session come one after the other, so it counts as one long answer. Where
 * nothing is known of it sessions go breadth first, before those that are known: one that
 * has had fewer turns has more of them to come. */
static float rank_session(const struct ms_scheduler *s, const struct ms_gen_request *q)
{
    const struct ms_gen_group *g = ms_gen_group_at(s, q->group);
    float left = (float)remaining(s, q) + g->later;

    if (q->generated > 0)
        return RESUMED - left;
    return g->unknown ? PROBE + TURN * (float)g->turn : -left;
}

static float rank_auto(const struct ms_scheduler *s, const struct ms_gen_request *q)
{
    const struct ms_gen_group *g = ms_gen_group_at(s, q->group);
    uint8_t order = order_now(s);

    if (g->turn > 0 || g->later > 0)
        return rank_session(s, q);
    if (order == MS_ORDER_WORST)
        return -(float)ms_choice_worst(s, q);
    if (order == MS_ORDER_FIFO)
        return rank_resumed_first(s, q);
    return rank_longest(s, q);
}

static const char *order_auto(const struct ms_scheduler *s)
{
    static const char *const names[] = {[MS_ORDER_FIFO] = "fifo",
                                        [MS_ORDER_LONGEST] = "longest",
                                        [MS_ORDER_WORST] = "longest at worst"};

    return names[order_now(s)];
}

/* All that waits fits: a plan of places. It does not: the best order. */
static void begin_auto(struct ms_scheduler *s)
{
    if (s->stats.running + s->stats.aborting == 0)
        ms_tail_place(s);
    else
        ms_gen_groups_guess(s); /* those that run have shown more */
    ms_choose(s);
}

/* ---- place ------------------------------------------------------------------------- */

uint32_t ms_place_fewest(struct ms_scheduler *s, uint64_t kv)
{
    uint32_t best = MS_NOWHERE, ties = 0;

    for (uint32_t i = 0; i < s->replica_count; i++) {
        const struct ms_gen_replica *r = &s->replicas[i];

        if (!ms_gen_replica_has_room(r, kv))
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
    if (!ms_gen_replica_has_room(warm, kv))
        return warm->parked < warm->slots ? MS_PARK : fewest;
    return fewest != MS_NOWHERE && is_better(s, q, fewest) ? fewest : q->replica;
}

/* The next part of a divided answer: where its cache is, if there is room, unless it is worth
 * a new prefill elsewhere. */
static uint32_t place_chunk(const struct ms_scheduler *s,
                            const struct ms_gen_request *q,
                            uint64_t kv,
                            uint32_t fewest)
{
    if (fewest == MS_NOWHERE || fewest == q->replica ||
        !ms_gen_replica_has_room(&s->replicas[q->replica], kv))
        return fewest;
    return is_better(s, q, fewest) ? fewest : q->replica;
}

/* Rather than wait for its turn on the warm one, behind those that are parked before it? */
static uint32_t unpark(struct ms_scheduler *s, const struct ms_gen_request *q)
{
    const struct ms_gen_replica *warm = &s->replicas[q->replica];
    uint32_t to = ms_place_fewest(s, q->prompt);
    double each_ns = (s->a_ns + s->b_ns * warm->in_flight) * remaining(s, q);

    if (s->a_ns <= 0)
        return MS_NOWHERE;
    return each_ns * warm->parked / (warm->slots + 1.0) > s->o.prefill_ns * q->prompt
               ? to
               : MS_NOWHERE;
}

static uint32_t place_auto(struct ms_scheduler *s, const struct ms_gen_request *q)
{
    uint64_t kv = (uint64_t)q->prompt + q->generated + reserve_share(s, q);
    uint32_t fewest;

    fewest = ms_place_fewest(s, kv);
    if (ms_gen_request_is_warm(s, q))
        return place_warm(s, q, kv, fewest);
    if (ms_gen_request_is_divided(q))
        return place_chunk(s, q, kv, fewest);
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
                                         .begin = begin_auto,
                                         .is_due = ms_choose_is_due,
                                         .slice = ms_choice_slice,
                                         .reserve = reserve_share,
                                         .unpark = unpark,
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
