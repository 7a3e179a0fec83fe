/* sim_test.c - tests of sim.h: the orchestrator of a simulated backend */
#include "base/clock.h"
#include "orchestrator/sim/sim.h"
#include "orchestrator/test_conformance.h"

#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

enum { SEEDS = 40, CROWD = 10000, BYTES_MAX = 1024 };

#define FIRST_CURSOR (UINT64_C(1) << 32) /* of the first controller of a backend */

/* ---- the conformance suite, with and without faults ---------------------------------- */

struct sim_rig {
    struct ms_rig base;
    struct ms_sim *backend;
    struct ms_orchestrator *o;
};

/* A history of its own. */
struct plan {
    uint64_t seed;
    struct ms_sim_faults faults;
    char name[32];
};

static struct sim_rig *rig_of(struct ms_rig *rig)
{
    return (struct sim_rig *)rig;
}

static struct ms_orchestrator *open_rig(struct ms_rig *rig, bool killed)
{
    struct sim_rig *r = rig_of(rig);

    (void)killed; /* either way the backend hears nothing of it */
    if (r->o)
        r->o->ops->destroy(r->o);
    r->o = ms_orchestrator_sim(r->backend);
    assert_non_null(r->o);
    return r->o;
}

static bool run(struct ms_rig *rig, const bool *until, int64_t timeout_ns)
{
    struct ms_sim *s = rig_of(rig)->backend;
    int64_t end_ns = ms_deadline_ns(ms_sim_now_ns(s), timeout_ns);

    while (!*until && ms_sim_step(s, end_ns))
        ;
    return *until;
}

static void end_piece(struct ms_rig *rig, const char *key, uint32_t number, int code)
{
    assert_int_equal(
        ms_sim_end_piece(rig_of(rig)->backend, key, number, MS_CAUSE_EXITED, code), 0);
}

static void kill_node(struct ms_rig *rig, const char *node)
{
    assert_int_equal(ms_sim_kill_node(rig_of(rig)->backend, node), 0);
}

static void silence(struct ms_rig *rig, int64_t for_ns)
{
    ms_sim_silence(rig_of(rig)->backend, for_ns);
}

static size_t held(struct ms_rig *rig)
{
    return ms_sim_held(rig_of(rig)->backend);
}

static struct ms_rig *make(void *arg)
{
    const struct plan *plan = arg;
    static const struct ms_rig_ops ops = {.open = open_rig,
                                          .run = run,
                                          .end_piece = end_piece,
                                          .kill_node = kill_node,
                                          .silence = silence,
                                          .held = held,
                                          .patience_ns = 1200 * MS_NS_PER_S};
    const struct ms_sim_options o = {.seed = plan->seed,
                                     .nodes = MS_RIG_NODES,
                                     .cpu_milli = MS_RIG_CPUS * 1000,
                                     .memory = UINT64_C(1) << 30,
                                     .faults = plan->faults};
    struct sim_rig *r = calloc(1, sizeof *r);

    assert_non_null(r);
    r->base.ops = &ops;
    r->backend = ms_sim_create(&o);
    assert_non_null(r->backend);
    return &r->base;
}

static void destroy(struct ms_rig *rig)
{
    struct sim_rig *r = rig_of(rig);

    if (r->o)
        r->o->ops->destroy(r->o);
    ms_sim_destroy(r->backend);
    free(r);
}

/* ---- ten thousand nodes ---------------------------------------------------------------- */

struct crowd {
    bool done;
    int rc;
    size_t events, running;
};

static void crowd_done(void *arg,
                       int rc,
                       const struct ms_error *why,
                       const struct ms_orch_answer *a)
{
    struct crowd *c = arg;

    (void)why;
    (void)a;
    c->done = true;
    c->rc = rc;
}

static void crowd_heard(void *arg, int rc, const struct ms_orch_event *e)
{
    struct crowd *c = arg;

    assert_int_equal(rc, 0);
    c->events++;
    c->running += !e->gone && e->piece->phase == MS_PHASE_RUNNING;
}

static void crowd_run(struct ms_sim *s, struct crowd *c)
{
    c->done = false;
    while (!c->done)
        assert_true(ms_sim_step(s, MS_NEVER));
    assert_int_equal(c->rc, 0);
}

/* Bytes that are taken from the heap; 0 where a sanitizer has another one. */
static size_t heap_bytes(void)
{
    return mallinfo2().uordblks;
}

static void test_ten_thousand_nodes(void **state)
{
    const struct ms_sim_options options = {.seed = 3,
                                           .nodes = CROWD,
                                           .cpu_milli = 8000,
                                           .memory = UINT64_C(1) << 30,
                                           .devices = 8,
                                           .faults = {.lose = 100,
                                                      .repeat = 100,
                                                      .delay = 100,
                                                      .delay_ns = 60 * MS_NS_PER_S,
                                                      .start_ns = 60 * MS_NS_PER_S}};
    struct ms_sim *s = ms_sim_create(&options);
    struct ms_orchestrator *o = s ? ms_orchestrator_sim(s) : NULL;
    struct ms_bundle *bundles = calloc(CROWD, sizeof *bundles);
    struct ms_reserve r = {
        .key = "all",
        .pieces = {.name = "all", .bundles = bundles, .count = CROWD},
        .timeout_ns = 3600 * MS_NS_PER_S};
    struct crowd c = {0};
    size_t before = heap_bytes();

    (void)state;
    assert_non_null(o);
    assert_non_null(bundles);
    for (size_t i = 0; i < CROWD; i++)
        bundles[i].devices = 8;
    assert_non_null(o->ops->watch(o, FIRST_CURSOR, crowd_heard, &c));
    assert_non_null(o->ops->reserve(o, &r, crowd_done, &c));
    crowd_run(s, &c);
    assert_int_equal(ms_sim_held(s), CROWD);
    assert_in_range(heap_bytes() - before, 0, CROWD * BYTES_MAX);
    assert_non_null(o->ops->release(o, "all", NULL, 0, crowd_done, &c));
    crowd_run(s, &c);
    while (c.events - c.running < CROWD) /* all are told as gone */
        assert_true(ms_sim_step(s, MS_NEVER));
    assert_int_equal(c.running, CROWD);
    assert_int_equal(ms_sim_held(s), 0);
    o->ops->destroy(o);
    ms_sim_destroy(s);
    free(bundles);
}

static const struct ms_sim_faults bad_luck = {.lose = 300,
                                              .repeat = 300,
                                              .delay = 300,
                                              .delay_ns = 60 * MS_NS_PER_S,
                                              .start_ns = 90 * MS_NS_PER_S,
                                              .outage_every_ns = 200 * MS_NS_PER_S,
                                              .outage_ns = 40 * MS_NS_PER_S};

int main(void)
{
    const struct CMUnitTest crowd[] = {cmocka_unit_test(test_ten_thousand_nodes)};
    static struct plan plans[SEEDS + 1];
    static struct ms_conformance all[SEEDS + 1];

    for (size_t i = 0; i <= SEEDS; i++) { /* the first one without faults */
        plans[i].seed = i;
        if (i > 0)
            plans[i].faults = bad_luck;
        snprintf(plans[i].name, sizeof plans[i].name, "seed %zu", i);
        all[i] = (struct ms_conformance){plans[i].name, make, destroy, &plans[i]};
    }
    return ms_conformance_run(all, SEEDS + 1, crowd, 1);
}
