/* 10,000 jobs in a world of faults; MUSTER_SIM_RUNS says how many others, MUSTER_SIM_RUN
 * tells of one. */
#include "job/core/test_sim.h"

#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    const char *one = getenv("MUSTER_SIM_RUN"), *many = getenv("MUSTER_SIM_RUNS");
    uint64_t from = one ? strtoull(one, NULL, 10) : 1;
    uint64_t count = one ? 1 : many ? strtoull(many, NULL, 10) : 10000, failed = 0;

    for (uint64_t i = from; i < from + count && failed < 10; i++) {
        const char *why = sim_run(i, one != NULL);

        if (why) {
            fprintf(stderr, "run %llu: %s\n", (unsigned long long)i, why);
            failed++;
        }
    }
    if (failed)
        fprintf(stderr, "MUSTER_SIM_RUN=<run> tells what happens in one\n");
    else
        printf("%llu runs\n", (unsigned long long)count);
    return failed != 0;
}
