/* baselines.h - how others place requests, as policies of the same scheduler
 *
 * Written from what their code does, without their code. The oracles read lengths that
 * nobody can know.
 */
#ifndef BENCH_GENERATE_BASELINES_H
#define BENCH_GENERATE_BASELINES_H

#include "sim.h"

struct baseline {
    const char *name;
    const struct ms_policy *policy;
    bool engine_queue, progress;
    uint32_t limit; /* with engine_queue: requests that a replica gets; 0: all */
    uint32_t chunk;
    double rebalance;
    bool no_history; /* starts without that of lengths */
    bool no_steps;   /* and without knowing how long steps take */
    bool only_fits;  /* only for cases in which all requests fit at once */
};

extern const struct baseline baselines[];
extern const int baseline_count;

#endif
