/* A simulated engine that loses, repeats and delays: so many nodes are reserved as one
 * gang, watched, and released. Prints the seconds of one core that this takes, and the
 * bytes that each instance has while all run. */
#include "orchestrator/sim/sim.h"
#include "base/clock.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { DEVICES = 8 };

struct seen {
    bool is_done;
    int rc;
    size_t running, gone;
};

static void on_done(void *arg,
                    int rc,
                    const struct ms_error *why,
                    const struct ms_orch_answer *answer)
{
    struct seen *s = arg;

    (void)answer;
    s->is_done = true;
    s->rc = rc;
    if (rc < 0)
        fprintf(stderr, "%s\n", why->text);
}

static void on_event(void *arg, int rc, const struct ms_orch_event *e)
{
    struct seen *s = arg;

    if (rc < 0) {
        s->rc = rc;
        return;
    }
    s->running += !e->gone && e->piece->phase == MS_PHASE_RUNNING;
    s->gone += e->gone;
}

static bool run(struct ms_sim *sim, struct seen *s)
{
    s->is_done = false;
    while (!s->is_done && ms_sim_step(sim, MS_NEVER))
        ;
    return s->is_done && s->rc == 0;
}

int main(int argc, char **argv)
{
    size_t nodes = argc > 1 ? (size_t)atol(argv[1]) : 10000;
    const struct ms_sim_options options = {.seed = 3,
                                           .nodes = nodes,
                                           .cpu_milli = 8000,
                                           .memory = UINT64_C(1) << 30,
                                           .devices = DEVICES,
                                           .faults = {.lose = 100,
                                                      .repeat = 100,
                                                      .delay = 100,
                                                      .delay_ns = 60 * MS_NS_PER_S,
                                                      .start_ns = 60 * MS_NS_PER_S}};
    struct ms_sim *sim = ms_sim_create(&options);
    struct ms_orchestrator *o = sim ? ms_orchestrator_sim(sim) : NULL;
    struct ms_bundle *bundles = calloc(nodes, sizeof *bundles);
    struct ms_reserve r = {
        .key = "all",
        .pieces = {.name = "all", .bundles = bundles, .count = nodes},
        .timeout_ns = 3600 * MS_NS_PER_S};
    struct seen seen = {0};
    size_t before = mallinfo2().uordblks, held;
    clock_t began = clock();

    if (!o || !bundles)
        return 1;
    for (size_t i = 0; i < nodes; i++)
        bundles[i].devices = DEVICES;
    if (!o->ops->watch(o, UINT64_C(1) << 32, on_event, &seen) ||
        !o->ops->reserve(o, &r, on_done, &seen) || !run(sim, &seen))
        return 1;
    held = mallinfo2().uordblks - before;
    if (!o->ops->release(o, "all", NULL, 0, on_done, &seen) || !run(sim, &seen))
        return 1;
    while (seen.gone < nodes && ms_sim_step(sim, MS_NEVER))
        ;
    if (seen.running != nodes || seen.gone != nodes || ms_sim_held(sim) > 0) {
        fprintf(stderr, "of %zu %zu ran, %zu went\n", nodes, seen.running, seen.gone);
        return 1;
    }
    printf("%.6f %zu\n", (double)(clock() - began) / CLOCKS_PER_SEC, held / nodes);
    o->ops->destroy(o);
    ms_sim_destroy(sim);
    free(bundles);
    return 0;
}
