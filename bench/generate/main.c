/* main.c - run cases, policies and seeds; a line of tab-separated values for each
 *
 *   bench-generate [-s SEEDS] [-o FIRST] [-c CASE] [-p POLICY] [-d TRACE] [-f FAULT] [-t] [-l]
 *   bench-generate -S: the speed of the scheduler itself
 *
 * -t prints each sending and end instead (sim_trace). -l: beside these, before each sending,
 * which replicas the policy's rule allows; the one to take is then read from the input.
 */
#include "baselines.h"
#include "cases.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct choice {
    int seeds, first;
    const char *only_case, *only_policy, *trace, *fault;
};

/* What happens on the way, in terms of the bound. */
static void add_fault(struct sim_case *c, const char *fault, double bound)
{
    if (strcmp(fault, "loss") == 0)
        c->lose_at = bound / 2;
    else if (strcmp(fault, "weights") == 0) {
        c->weights_every = bound / 3;
        c->weights_take = 2;
    } else if (strcmp(fault, "hang") == 0)
        c->hang = 0.01;
}

static int run_one(const struct choice *ch,
                   struct case_set *set,
                   const struct baseline *b,
                   int seed)
{
    struct ms_lengths *lengths = case_lengths(set, !b->no_history);
    struct sim_setup setup = {.policy = b->policy,
                              .engine_queue = b->engine_queue,
                              .limit = b->limit,
                              .chunk = b->chunk,
                              .warm = !b->no_steps,
                              .rebalance = b->rebalance,
                              .progress = b->progress || set->c.hang > 0 ||
                                          (set->c.lose_at > 0 && !b->engine_queue),
                              .lengths = lengths,
                              .seed = (uint64_t)seed + 1};
    double bound = sim_bound(&set->c);
    struct sim_result r;

    if (!lengths || sim_run(&set->c, &setup, &r) < 0)
        return -1;
    ms_lengths_destroy(lengths);
    if (sim_trace)
        return 0;
    printf("%s\t%s\t%s\t%d\t%.3f\t%.3f\t%.4f\t%.3f\t%.3f\t%lu\t%lu\t%lu\t%.3f\t%lu\t%."
           "3f\n",
           set->c.name,
           b->name,
           ch->fault,
           seed,
           r.makespan,
           bound,
           r.makespan / bound,
           r.mean,
           r.p99,
           (unsigned long)r.preempted,
           (unsigned long)r.moved,
           (unsigned long)r.events,
           r.scheduler,
           (unsigned long)r.dropped,
           r.missed);
    return 0;
}

static int run_case(const struct choice *ch, int number, int seed)
{
    struct case_set set;
    int rc = 0;

    if (case_make(number, (uint64_t)seed, ch->trace, &set) < 0)
        return 0; /* the trace is not here */
    add_fault(&set.c, ch->fault, sim_bound(&set.c));
    for (int p = 0; p < baseline_count && rc == 0; p++) {
        bool fits = set.c.groups * set.c.samples <= set.c.replicas * set.c.slots;

        if (ch->only_policy && strcmp(ch->only_policy, baselines[p].name) != 0)
            continue;
        if (baselines[p].only_fits && (!fits || set.c.turns || set.c.samples == 1))
            continue;
        if (set.c.hang > 0 && baselines[p].engine_queue)
            continue; /* they wait for ever */
        rc = run_one(ch, &set, &baselines[p], seed);
    }
    case_free(&set);
    return rc;
}

int main(int argc, char **argv)
{
    struct choice ch = {.seeds = 20, .fault = "none", .trace = "trace.csv"};
    int option, rc = 0;

    while ((option = getopt(argc, argv, "s:o:c:p:d:f:Stl")) != -1) {
        switch (option) {
        case 's':
            sscanf(optarg, "%d", &ch.seeds);
            break;
        case 'o':
            sscanf(optarg, "%d", &ch.first);
            break;
        case 'c':
            ch.only_case = optarg;
            break;
        case 'p':
            ch.only_policy = optarg;
            break;
        case 'd':
            ch.trace = optarg;
            break;
        case 'f':
            ch.fault = optarg ? optarg : "none";
            break;
        case 'l':
            sim_is_led = true;
            /* fallthrough */
        case 't':
            sim_trace = stdout;
            break;
        case 'S':
            return speed_run() < 0;
        default:
            return 2;
        }
    }
    for (int c = 0; c < CASES; c++)
        for (int i = 0; i < ch.seeds && rc == 0; i++)
            if (!ch.only_case || strcmp(ch.only_case, case_name(c)) == 0)
                rc = run_case(&ch, c, ch.first + i);
    return rc < 0;
}
