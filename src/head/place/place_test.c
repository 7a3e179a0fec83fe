/* place_test.c - the head's resource manager: drivers that race, claims, waits, ends */
#include "base/cleanup.h"
#include "head/test_serve.h"

#include <pthread.h>
#include <stdio.h>

enum { RACES = 100 };

static struct test_events told[2];
static struct ms_head *drivers[2];
static struct test_agent *node;

/* A node "a" of 8 CPUs and 4 devices, and two drivers. */
static int setup(void **state)
{
    if (serve_setup(state) < 0)
        return -1;
    node = serve_agent("a");
    for (size_t i = 0; i < 2; i++) {
        events_init(&told[i]);
        drivers[i] = serve_join(&told[i]);
    }
    return 0;
}

static int teardown(void **state)
{
    for (size_t i = 0; i < 2; i++)
        if (drivers[i])
            ms_head_stop(MS_TAKE(drivers[i]), 0);
    return serve_teardown(state);
}

/* ---- asking ---------------------------------------------------------------------- */

static struct ms_head_op *
ask_group(struct ms_head *h, uint32_t devices, uint64_t timeout_ns)
{
    Muster__BundleSpec bundle = MUSTER__BUNDLE_SPEC__INIT, *list[] = {&bundle};
    Muster__PlaceGroup group = MUSTER__PLACE_GROUP__INIT;

    bundle.devices = devices;
    group.bundles = list;
    group.n_bundles = 1;
    group.timeout_ns = timeout_ns;
    return ms_head_request(h, MUSTER__DRIVER_TO_HEAD__BODY_PLACE_GROUP, &group);
}

static struct ms_head_op *
about_group(struct ms_head *h, Muster__DriverToHead__BodyCase body, uint64_t id)
{
    Muster__GroupRef ref = MUSTER__GROUP_REF__INIT;

    ref.id = id;
    return ms_head_request(h, body, &ref);
}

/* Whoever waits for the group is known at the head: what a driver asks is read in order. */
static struct ms_head_op *wait_for_group(struct ms_head *h, uint64_t id)
{
    struct ms_head_op *op = about_group(h, MUSTER__DRIVER_TO_HEAD__BODY_WAIT_GROUP, id);

    ops_expect(about_group(h, MUSTER__DRIVER_TO_HEAD__BODY_FIND_GROUP, id), 0, NULL);
    return op;
}

/* One that must be given, with its state; its id. */
static uint64_t group(struct ms_head *h, uint32_t devices, Muster__GroupState state)
{
    struct ms_head_op *op = ask_group(h, devices, 20 * (uint64_t)MS_NS_PER_S);
    const Muster__GroupStatus *g = (const Muster__GroupStatus *)ops_message(op);
    uint64_t id;

    assert_int_equal(g->state, state);
    id = g->id;
    ms_head_op_unref(op);
    return id;
}

/* Two ranks on devices `first` and the next. */
static void
cluster_spec(struct spec *s, const char *name, uint32_t first, uint32_t cpu_milli)
{
    spec_init(s, name, 2);
    spec_add_device(s, first);
    spec_add_device(s, first + 1);
    spec_set_cpus(s, cpu_milli);
}

static struct ms_head_op *
create(struct ms_head *h, const char *name, uint32_t first, uint32_t cpu_milli)
{
    struct spec s;

    cluster_spec(&s, name, first, cpu_milli);
    return spec_create(h, &s);
}

/* Where would it go? */
static struct ms_head_op *plan(struct ms_head *h, const char *name, uint32_t cpu_milli)
{
    struct spec s;

    cluster_spec(&s, name, 2, cpu_milli);
    s.place.name = s.message.name;
    return ms_head_request(h, MUSTER__DRIVER_TO_HEAD__BODY_PLACE_CLUSTER, &s.place);
}

/* CPUs of node "a" that somebody holds, in thousandths. */
static uint64_t held_cpus(struct ms_head *h)
{
    Muster__ResourcesRequest ask = MUSTER__RESOURCES_REQUEST__INIT;
    struct ms_head_op *op;
    uint64_t held;

    op = ms_head_request(h, MUSTER__DRIVER_TO_HEAD__BODY_RESOURCES, &ask);
    held = ((const Muster__Resources *)ops_message(op))->nodes[0]->cpu_milli_held;
    ms_head_op_unref(op);
    return held;
}

/* ---- the tests ------------------------------------------------------------------- */

struct racer {
    struct ms_head *driver;
    const char *prefix;
    pthread_barrier_t *line;
    int won[RACES];
};

static int finish(struct ms_head_op *op)
{
    int rc = ms_head_op_wait(op, ms_now_ns() + OPS_DEADLINE_NS);

    if (rc == 0)
        rc = ms_head_op_result(op, NULL);
    ms_head_op_unref(op);
    return rc;
}

static void *race(void *arg)
{
    struct racer *r = arg;
    char name[32];

    for (int i = 0; i < RACES; i++) {
        snprintf(name, sizeof name, "%s%d", r->prefix, i);
        pthread_barrier_wait(r->line);
        r->won[i] = finish(create(r->driver, name, 2, 2500)) == 0; /* 5 of 8 CPUs */
        pthread_barrier_wait(r->line);
        if (r->won[i] && finish(ops_destroy(r->driver, name, 0)) < 0)
            return arg;
        pthread_barrier_wait(r->line);
    }
    return NULL;
}

static void test_two_drivers_never_get_the_same(void **state)
{
    static struct racer racers[2];
    pthread_barrier_t line;
    pthread_t threads[2];

    (void)state;
    pthread_barrier_init(&line, NULL, 2);
    for (size_t i = 0; i < 2; i++) {
        racers[i] = (struct racer){
            .driver = drivers[i], .prefix = i ? "y" : "x", .line = &line};
        assert_int_equal(pthread_create(&threads[i], NULL, race, &racers[i]), 0);
    }
    for (size_t i = 0; i < 2; i++) {
        void *failed;

        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    pthread_barrier_destroy(&line);
    for (int i = 0; i < RACES; i++)
        assert_int_equal(racers[0].won[i] + racers[1].won[i], 1);
}

static void test_a_plan_holds_nothing(void **state)
{
    const Muster__ClusterPlaced *p;
    struct ms_head_op *op;

    (void)state;
    for (size_t i = 0; i < 2; i++) { /* of the same name, and all that there is */
        op = plan(drivers[i], "c", 4000);
        p = (const Muster__ClusterPlaced *)ops_message(op);
        assert_int_equal(p->n_ranks, 2);
        assert_string_equal(p->ranks[1]->pieces[0]->node, "a");
        assert_int_equal(p->ranks[1]->pieces[0]->devices[0], 3);
        ms_head_op_unref(op);
    }
    ops_expect(plan(drivers[0], "c", 4001), -ENOSPC, "CPUs");
    assert_int_equal(held_cpus(drivers[0]), 0);
    ops_expect(create(drivers[0], "c", 2, 1000), 0, NULL);
    ops_expect(plan(drivers[0], "c", 4000), -ENOSPC, "CPUs");
    ops_expect(plan(drivers[0], "c", 3000), 0, NULL); /* beside what it has */
    assert_int_equal(held_cpus(drivers[0]), 2000);
}

static void test_a_cluster_holds_its_places(void **state)
{
    (void)state;
    ops_expect(create(drivers[0], "c", 2, 3000), 0, NULL);
    ops_expect(
        create(drivers[1], "c", 0, 0), -EEXIST, "there is a cluster 'c' already");
    ops_expect(create(drivers[1], "d", 0, 2000), -ENOSPC, "CPUs");
    ops_expect(create(drivers[1], "d", 0, 1000), 0, NULL);
    assert_int_equal(held_cpus(drivers[0]), 8000);
    ops_expect(create(drivers[1], "e", 0, 1), -ENOSPC, "and 0 is what is free");
    ops_expect(ops_destroy(drivers[0], "c", 0), 0, NULL);
    ops_expect(create(drivers[1], "e", 2, 3000), 0, NULL);
    test_agent_set_mode(node, TEST_AGENT_FAILS); /* what is not made holds nothing */
    ops_expect(ops_destroy(drivers[1], "e", 0), 0, NULL);
    ops_expect(create(drivers[1], "e", 2, 3000), -EIO, "no zygote today");
    assert_int_equal(held_cpus(drivers[0]), 2000);
}

/* Held by its node from before its start until its end. */
static void test_a_cluster_holds_a_port(void **state)
{
    (void)state;
    ops_expect(create(drivers[0], "c", 2, 0), 0, NULL);
    assert_int_equal(test_agent_ports(node), 1);
    test_agent_set_mode(node, TEST_AGENT_FAILS);
    ops_expect(create(drivers[0], "d", 2, 0), -EIO, NULL);
    test_agent_wait_ports(node, 1);
    ops_expect(ops_destroy(drivers[0], "c", 0), 0, NULL);
    test_agent_wait_ports(node, 0);
}

static void test_group_waits_for_another_driver(void **state)
{
    uint64_t first, second;
    struct ms_head_op *op, *removed;

    (void)state;
    first = group(drivers[0], 3, MUSTER__GROUP_STATE__GROUP_PLACED);
    ops_expect(ask_group(drivers[1], 2, 0), -EBUSY, "held by others");
    ops_expect(ask_group(drivers[1], 5, UINT64_MAX), -ENOSPC, "cannot be placed");
    second = group(drivers[1], 2, MUSTER__GROUP_STATE__GROUP_WAITING);
    op = wait_for_group(drivers[1], second);
    removed = about_group(drivers[0], MUSTER__DRIVER_TO_HEAD__BODY_REMOVE_GROUP, first);
    ops_expect(removed, 0, NULL);
    ops_expect(op, 0, NULL);
    first = group(drivers[0], 3, MUSTER__GROUP_STATE__GROUP_WAITING);
    op = wait_for_group(drivers[0], first);
    removed = about_group(drivers[1], MUSTER__DRIVER_TO_HEAD__BODY_REMOVE_GROUP, first);
    ops_expect(removed, 0, NULL);
    ops_expect(op, -ENOENT, "the group was removed");
}

static void test_driver_that_ends_gives_back(void **state)
{
    struct ms_head_op *op;
    uint64_t id;

    (void)state;
    group(drivers[0], 2, MUSTER__GROUP_STATE__GROUP_PLACED);
    ops_expect(create(drivers[0], "c", 2, 1000), 0, NULL);
    id = group(drivers[1], 4, MUSTER__GROUP_STATE__GROUP_WAITING);
    op = wait_for_group(drivers[1], id);
    ms_head_stop(MS_TAKE(drivers[0]), 0);
    ops_expect(op, 0, NULL);
}

/* The process of a head itself, on its own thread and without a word to the head's. */
static void test_requests_of_the_head_itself(void **state)
{
    struct ms_head_op *op = ask_group(serve_head, 1, 0);
    const Muster__GroupStatus *g;
    uint64_t id;

    (void)state;
    assert_int_equal(ms_head_op_result(op, NULL), 0); /* at once */
    g = (const Muster__GroupStatus *)ms_head_op_message(op);
    assert_int_equal(g->n_pieces, 1);
    assert_string_equal(g->pieces[0]->node, "a");
    id = g->id;
    ms_head_op_unref(op);
    ops_expect(
        about_group(serve_head, MUSTER__DRIVER_TO_HEAD__BODY_FIND_GROUP, id), 0, NULL);
    ops_expect(about_group(serve_head, MUSTER__DRIVER_TO_HEAD__BODY_REMOVE_GROUP, id),
               0,
               NULL);
    ops_expect(about_group(serve_head, MUSTER__DRIVER_TO_HEAD__BODY_FIND_GROUP, id),
               -ENOENT,
               NULL);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_two_drivers_never_get_the_same),
        TEST(test_a_plan_holds_nothing),
        TEST(test_a_cluster_holds_its_places),
        TEST(test_a_cluster_holds_a_port),
        TEST(test_group_waits_for_another_driver),
        TEST(test_driver_that_ends_gives_back),
        TEST(test_requests_of_the_head_itself),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
