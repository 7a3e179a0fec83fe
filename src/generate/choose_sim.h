/* choose_sim.h - a step as the chooser simulates it: requests, replicas, one order
 *
 * A step of a batch of b takes a + b * beta, a prefix costs its prefill, and replicas are
 * alike. Some requests may run already, and some of those that wait may have tokens: these
 * go on behind them. Requests wait in one queue in the order that is tried; each goes to the
 * replica with the fewest as soon as there is a place. With a slice, running requests make
 * way once a second for those that could need more, by more than the slice.
 *
 * What a run costs is counted in what it looks at (`work`), and it ends when `work_max` is
 * used up. The caller owns all memory.
 */
#ifndef MS_GENERATE_CHOOSE_SIM_H
#define MS_GENERATE_CHOOSE_SIM_H

#include "generate/state.h"

enum { MS_CHOOSE_DRAWS = 6, MS_CHOOSE_WORSTS = 2 };

#define MS_CHOOSE_TICK_NS    1e9 /* between slices */
#define MS_CHOOSE_EVENT_WORK 16  /* of a request's end and the beginning of another */
#define MS_CHOOSE_SORT_WORK  32 /* of one running request, when slices are looked for */

/* A request as the simulation sees it; tokens are those of the whole answer. */
struct ms_choose_item {
    float mean, worst[MS_CHOOSE_WORSTS];
    float draw[MS_CHOOSE_DRAWS];
    float had; /* of them it has already */
    uint32_t prompt;
    uint32_t on; /* the replica that it runs on at the start; MS_NOWHERE: it waits */
};

struct
    ms_choose_wait { /* in the queue: the greatest key first, then the least number */
    float key, had;
    uint32_t item;
};

struct ms_choose_run { /* on a replica */
    double end, began; /* on its clock of tokens */
    float had;
    uint32_t item;
};

struct ms_choose_replica {
    uint32_t count;
    double clock;           /* tokens that each of its requests has got */
    double now_ns, free_ns; /* the clock is right at now; prefill until free */
    double kv;
    struct ms_choose_run *at; /* heap by end */
};

struct ms_choose {
    /* what is simulated */
    struct ms_choose_item *items;
    uint32_t n, replica_count, slots, draw, waiting;
    uint64_t work, work_max; /* replicas and requests looked at, of all runs */
    double a, b, prefill, kv_max, slice;
    uint8_t order, worst;         /* which one, of MS_ORDER_WORST */
    struct ms_choose_wait *queue; /* heap */
    struct ms_choose_replica *replicas;
    struct ms_choose_run *runs; /* of all replicas */
    struct ms_choose_yield {
        double left;
        uint32_t replica, at;
    } * yields; /* scratch of slicing */
    struct ms_choose_wait *yielded;
};

/* Tokens that may still come at worst, of an answer that could be `worst` long. */
double ms_choose_worst_left(double worst, double had);

/* The makespan of draw `draw` in order `order` and slices of `slice` tokens (0: none).
 * INFINITY: the work was used up before the end. */
double ms_choose_run_ns(struct ms_choose *c);

#endif
