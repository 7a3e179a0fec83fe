/* place_test.c - the head's resource manager: drivers that race, claims, waits, ends */
#include "base/cleanup.h"
#include "head/test_serve.h"

#include <pthread.h>
#include <stdio.h>

enum { RACES = 200 };

static struct seen told[2];
static struct ms_head *drivers[2];

/* A node "a" of 8 CPUs and 4 devices, and two drivers. */
static int setup(void **state)
{
    if (serve_setup(state) < 0)
        return -1;
    serve_agent("a");
    for (size_t i = 0; i < 2; i++) {
        seen_init(&told[i]);
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
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;

    bundle.devices = devices;
    group.bundles = list;
    group.n_bundles = 1;
    group.timeout_ns = timeout_ns;
    m.body_case = MUSTER__DRIVER_TO_HEAD__BODY_PLACE_GROUP;
    m.place_group = &group;
    return ms_head_request(h, &m);
}

static struct ms_head_op *
about_group(struct ms_head *h, Muster__DriverToHead__BodyCase body, uint64_t id)
{
    Muster__GroupRef ref = MUSTER__GROUP_REF__INIT;
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;

    ref.id = id;
    m.body_case = body;
    m.find_group = &ref;
    return ms_head_request(h, &m);
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

static struct ms_head_op *
ask_cluster(struct ms_head *h, const char *name, uint64_t cpu_milli)
{
    uint32_t devices[] = {2, 3};
    Muster__PlaceCluster place = MUSTER__PLACE_CLUSTER__INIT;
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;
    char copy[32];

    snprintf(copy, sizeof copy, "%s", name);
    place.name = copy;
    place.devices = devices;
    place.n_devices = 2;
    place.devices_per_worker = 1;
    place.cpu_milli = cpu_milli;
    m.body_case = MUSTER__DRIVER_TO_HEAD__BODY_PLACE_CLUSTER;
    m.place_cluster = &place;
    return ms_head_request(h, &m);
}

static struct ms_head_op *
create(struct ms_head *h, const char *name, uint32_t first, uint32_t cpu_milli)
{
    const uint32_t devices[] = {first, first + 1};
    struct ms_head_rank ranks[2] = {0};

    for (size_t i = 0; i < 2; i++) {
        muster__worker_spec__init(&ranks[i].spec);
        ranks[i].spec.cpu_milli = cpu_milli;
        ranks[i].node = "a";
        ranks[i].devices = devices + i;
        ranks[i].device_count = 1;
    }
    return ms_head_create_cluster(h, name, ranks, 2);
}

/* ---- the tests ------------------------------------------------------------------- */

struct racer {
    struct ms_head *driver;
    const char *prefix;
    pthread_barrier_t *line;
    int won[RACES];
};

static void *race(void *arg)
{
    struct racer *r = arg;
    char name[32];

    for (int i = 0; i < RACES; i++) {
        struct ms_head_op *op;

        snprintf(name, sizeof name, "%s%d", r->prefix, i);
        pthread_barrier_wait(r->line);
        op = ask_cluster(r->driver, name, 2500); /* 5 of 8 CPUs */
        r->won[i] = ms_head_op_wait(op, ms_now_ns() + OPS_DEADLINE_NS) == 0 &&
                    ms_head_op_result(op, NULL) == 0;
        ms_head_op_unref(op);
        pthread_barrier_wait(r->line);
        if (r->won[i]) {
            Muster__DropClaim drop = MUSTER__DROP_CLAIM__INIT;
            Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;

            drop.cluster = name;
            m.body_case = MUSTER__DRIVER_TO_HEAD__BODY_DROP_CLAIM;
            m.drop_claim = &drop;
            op = ms_head_request(r->driver, &m);
            ms_head_op_wait(op, ms_now_ns() + OPS_DEADLINE_NS);
            ms_head_op_unref(op);
        }
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
    for (size_t i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&line);
    for (int i = 0; i < RACES; i++)
        assert_int_equal(racers[0].won[i] + racers[1].won[i], 1);
}

static void test_creation_keeps_to_its_claim(void **state)
{
    (void)state;
    ops_expect(ask_cluster(drivers[0], "c", 1000), 0, NULL);
    ops_expect(
        ask_cluster(drivers[1], "c", 0), -EEXIST, "there is a cluster 'c' already");
    ops_expect(
        create(drivers[1], "c", 2, 1000), -EEXIST, "another driver is creating it");
    ops_expect(
        create(drivers[0], "c", 0, 1000), -EINVAL, "what was placed for it is node a");
    ops_expect(
        ask_cluster(drivers[0], "c", 1000), 0, NULL); /* a failure gives it back */
    ops_expect(create(drivers[0], "c", 2, 2000), -EINVAL, "less of its CPUs");
    ops_expect(ask_cluster(drivers[0], "c", 3000), 0, NULL);
    ops_expect(create(drivers[0], "c", 2, 3000), 0, NULL);
    ops_expect(create(drivers[1], "d", 0, 2000), -ENOSPC, "not so many CPUs are free");
    ops_expect(create(drivers[1], "d", 0, 1000), 0, NULL); /* unplaced, and it fits */
    ops_expect(ask_cluster(drivers[1], "e", 1), -ENOSPC, "and 0 is what is free");
    ops_expect(ms_head_destroy_cluster(drivers[0], "c", 0), 0, NULL);
    ops_expect(ask_cluster(drivers[1], "e", 3000), 0, NULL);
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
    ops_expect(ask_cluster(drivers[0], "c", 1000), 0, NULL);
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
        TEST(test_creation_keeps_to_its_claim),
        TEST(test_group_waits_for_another_driver),
        TEST(test_driver_that_ends_gives_back),
        TEST(test_requests_of_the_head_itself),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
