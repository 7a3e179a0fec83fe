/* sim.h - simulated engines under the real scheduler
 *
 * A replica decodes its batch of b requests with one token each per step of a + b * beta
 * seconds, runs at most `slots` at once, and holds at most `kv` tokens of cache: what
 * does not fit waits in the engine's own queue, and at overflow the request that came last is
 * preempted and computed anew later. Prefill (also of what resumes on another replica)
 * stalls the batch by `prefill` seconds a token, less what the engine still has of it: a
 * session's prefix, and that of a request whose chunk ended there and which comes back
 * (however long after, though its cache would be evicted at times).
 *
 * The engine knows each request's length; the scheduler is told only what engines report.
 */
#ifndef BENCH_GENERATE_SIM_H
#define BENCH_GENERATE_SIM_H

#include "generate/policy.h"
#include "generate/scheduler.h"

#include <stdio.h>

struct sim_request {
    uint32_t length, prompt;
    double arrives; /* s */
};

/* What is run: requests in groups, on replicas, with what happens to them. */
struct sim_case {
    const char *name;
    uint32_t groups, samples; /* requests[group * samples + seq] */
    struct sim_request *requests;
    uint64_t *keys; /* of prompts */
    uint32_t replicas, slots, max_new;
    uint64_t kv;
    double a, beta, prefill;
    /* multi-turn: sessions of `turns` groups each, the next one `tool` seconds after the
     * last; 0: no sessions */
    uint32_t turns;
    double tool;
    /* faults */
    double lose_at;       /* s: a replica dies; 0: none */
    double hang;          /* share of first attempts that never move */
    double weights_every; /* s: new weights, a barrier of `weights_take`; 0: none */
    double weights_take;
};

struct sim_setup {
    const struct ms_policy *policy;
    bool engine_queue; /* the policy sends more than runs at once: engines queue */
    uint32_t limit;    /* but no more than so many to one; 0: all */
    uint32_t chunk;
    double rebalance; /* s; 0: nothing moves */
    bool warm;        /* earlier steps have shown how long steps take */
    bool progress;    /* requests' progress is reported */
    struct ms_lengths *lengths;
    uint64_t seed;
};

struct sim_result {
    double makespan, mean, p99; /* s; of groups, from arrival to end */
    uint64_t preempted, moved, sent, events;
    uint64_t dropped; /* groups that were given up: the makespan is without them */
    double reprefill; /* s, of all replicas */
    double missed;    /* how far off was the makespan that was expected, of that */
    double scheduler; /* s of CPU in the scheduler */
};

/* The case that runs, for policies that know more than they should (oracles). */
extern const struct sim_case *sim_now;

/* If set, one line for each request that is sent to an engine, and for each that ends:
 * "+" or "-", the session (or the request's own number) and the replica. */
extern FILE *sim_trace;

/* Baselines ask where requests go (baselines.c). */
extern bool sim_is_led;

int sim_run(const struct sim_case *c,
            const struct sim_setup *setup,
            struct sim_result *out);

/* The speed of the scheduler alone (speed.c). 0 or -1. */
int speed_run(void);

/* No schedule is shorter. */
double sim_bound(const struct sim_case *c);

#endif
