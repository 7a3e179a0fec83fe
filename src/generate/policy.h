/* policy.h - in which order requests go, where to, and which ones move
 *
 * A policy is a few functions over the state. They read it; what they decide is carried
 * out by the scheduler, which keeps the life cycle's rules whatever a policy says.
 *
 * How to write one: `rank` is asked when a request is queued and again when its group
 * has learnt something; the smallest goes first, ties by age. `place` is asked for the
 * first of the queue and must name a replica with room (ms_gen_replica_has_room), MS_PARK, or
 * MS_NOWHERE: then nothing goes until something has changed. `rebalance` is called at
 * most every `rebalance_ns` when nothing waits, and names requests to move with
 * ms_scheduler_move. Any of them but place may be NULL.
 */
#ifndef MS_GENERATE_POLICY_H
#define MS_GENERATE_POLICY_H

#include "generate/state.h"

/* Of `place`: let it wait for q->replica, which has its prefix, while others pass. */
#define MS_PARK (UINT32_MAX - 1)

struct ms_policy {
    const char *name;
    float (*rank)(const struct ms_scheduler *s, const struct ms_gen_request *q);
    uint32_t (*place)(struct ms_scheduler *s, const struct ms_gen_request *q);
    void (*rebalance)(struct ms_scheduler *s);
    /* a step begins: nothing runs, and what is queued is all there is; or, with `is_due`,
     * what waits and runs is not that for which it was called before */
    void (*begin)(struct ms_scheduler *s);
    bool (*is_due)(const struct ms_scheduler *s);
    /* at a tick while some wait: which running ones make way (ms_scheduler_yield) */
    void (*slice)(struct ms_scheduler *s);
    /* tokens of cache that a request is counted with beside those that it has */
    uint32_t (*reserve)(const struct ms_scheduler *s, const struct ms_gen_request *q);
    /* a parked one while nothing is queued: a replica with room, or MS_NOWHERE */
    uint32_t (*unpark)(struct ms_scheduler *s, const struct ms_gen_request *q);
    const char *(*order)(const struct ms_scheduler *s); /* the order that applies now */
};

extern const struct ms_policy ms_policy_fifo;    /* one queue, fewest requests */
extern const struct ms_policy ms_policy_longest; /* longest expected first */
extern const struct ms_policy ms_policy_auto;    /* what is best by what is known */

/* By name; NULL: there is no such. */
const struct ms_policy *ms_policy_find(const char *name);

/* Of rebalance: abort it, and let it resume there. */
void ms_scheduler_move(struct ms_scheduler *s, uint32_t request, uint32_t replica);

/* Of slice: abort it, and let it wait again, with its tokens. */
void ms_scheduler_yield(struct ms_scheduler *s, uint32_t request);

/* Guess the lengths of all open groups anew, by what has been heard of them since. */
void ms_gen_groups_guess(struct ms_scheduler *s);

/* For `place`: the replica with room and the fewest requests, ties by lot. */
uint32_t ms_place_fewest(struct ms_scheduler *s, uint64_t kv);

/* The tail plan (tail.c): of what runs, for `rebalance`; and of what is queued while
 * nothing runs, as `target` of the requests. Both do nothing where no plan is better. */
void ms_tail_rebalance(struct ms_scheduler *s);
void ms_tail_place(struct ms_scheduler *s);

#endif
