/* 10,000 jobs in a world of faults; MUSTER_SIM_RUNS says how many others, MUSTER_SIM_RUN
 * tells of one. */
#include "base/clock.h"
#include "job/core/test_sim.h"

#include <stdio.h>
#include <stdlib.h>

#define RUNS         10000
#define FAILURES_MAX 10 /* more say nothing new */

static uint64_t number_of(const char *name, uint64_t otherwise)
{
    const char *value = getenv(name);

    return value ? strtoull(value, NULL, 10) : otherwise;
}

/* How many have failed. */
static uint64_t run_all(uint64_t from, uint64_t count, bool is_told)
{
    uint64_t failed = 0;

    for (uint64_t i = from; i < from + count && failed < FAILURES_MAX; i++) {
        const char *why = sim_run(i, is_told);

        if (why) {
            fprintf(stderr, "run %llu: %s\n", (unsigned long long)i, why);
            failed++;
        }
    }
    if (failed)
        fprintf(stderr, "MUSTER_SIM_RUN=<run> tells what happens in one\n");
    return failed;
}

int main(void)
{
    bool is_one = getenv("MUSTER_SIM_RUN") != NULL;
    uint64_t from = number_of("MUSTER_SIM_RUN", 1);
    uint64_t count = is_one ? 1 : number_of("MUSTER_SIM_RUNS", RUNS), failed;
    int64_t begin_ns = ms_now_ns();

    printf("1..1\n"); /* TAP, as cmocka's programs */
    failed = run_all(from, count, is_one);
    printf("%s 1 - %llu runs in %.1f s\n",
           failed ? "not ok" : "ok",
           (unsigned long long)count,
           (double)(ms_now_ns() - begin_ns) / (double)MS_NS_PER_S);
    return failed != 0;
}
