/* resize_test.c - clusters that change their size, and clusters that wait for room
 *
 * On nodes "a" and "b" of 8 CPUs each, whose agents only pretend.
 */
#include "base/cleanup.h"
#include "head/clusters/test_pair.h"

#include <stdio.h>

#define LONG_NS (20 * MS_NS_PER_S)

/* So many ranks of so many CPUs each, with a step. */
static struct ms_head_op *
create(const char *name, uint32_t ranks, uint32_t cpus, int64_t wait_ns)
{
    struct spec s;

    spec_init(&s, name, ranks);
    spec_set_cpus(&s, cpus * 1000);
    spec_add_step(&s, "load", "7b");
    return ms_head_create_cluster(driver, &s.message, wait_ns);
}

static struct ms_head_op *resize(uint32_t world_size)
{
    return ms_head_resize(driver, "actor", world_size, 0);
}

/* One that was started again is asked before any node has come back. */
static void resize_after_a_crash(uint32_t world_size)
{
    struct ms_head_op *op;

    serve_crash();
    serve_begin(serve_address);
    op = resize(world_size);
    assert_true(test_agent_come_back(a, serve_address));
    assert_true(test_agent_come_back(b, serve_address));
    ops_expect(op, 0, NULL);
}

/* The uids of its ranks; how many there are. */
static size_t look(const char *name, uint64_t uids[8])
{
    struct ms_head_op *op = ops_find_cluster(driver, name);
    const Muster__ClusterStatus *c = (const Muster__ClusterStatus *)ops_message(op);
    size_t count = c->n_workers;

    assert_true(count <= 8);
    for (size_t i = 0; i < count; i++) {
        uids[i] = c->workers[i]->uid;
        assert_int_equal(c->workers[i]->rank, i);
        assert_int_equal(c->workers[i]->state, MUSTER__WORKER_STATE__WORKER_RUNNING);
    }
    ms_head_op_unref(op);
    return count;
}

/* ---- another size ---------------------------------------------------------------- */

static void test_more_and_fewer(void **state)
{
    uint64_t before[8], now[8];
    char size[8];

    (void)state;
    ops_expect(create("actor", 2, 2, 0), 0, NULL);
    look("actor", before);
    ops_expect(resize(4), 0, NULL);
    assert_int_equal(look("actor", now), 4);
    assert_memory_equal(before, now, 2 * sizeof *now); /* those go on */
    assert_int_equal(test_agent_living(a) + test_agent_living(b), 4);
    test_agent_env(b, now[3], "WORLD_SIZE", size, sizeof size);
    assert_string_equal(size, "4");
    ops_expect(resize(1), 0, NULL);
    assert_int_equal(look("actor", now), 1);
    assert_int_equal(now[0], before[0]); /* the last ones have gone */
    assert_int_equal(test_agent_living(a), 1);
    assert_int_equal(test_agent_living(b), 0);
    events_wait_exits(&seen, 3);
    ops_expect(resize(1), 0, NULL); /* as it is */
    ops_expect(resize(2), 0, NULL);
    assert_int_equal(look("actor", now), 2);
    ops_expect(ops_destroy(driver, "actor", 0), 0, NULL);
    ops_expect(create("all", 8, 2, 0), 0, NULL); /* nothing is held any more */
}

static void test_places_are_given_back(void **state)
{
    (void)state;
    ops_expect(create("actor", 4, 4, 0), 0, NULL); /* all 16 CPUs */
    ops_expect(create("critic", 2, 4, 0), -ENOSPC, "CPUs");
    ops_expect(resize(2), 0, NULL);
    ops_expect(create("critic", 2, 4, 0), 0, NULL);
    ops_expect(resize(3), -ENOSPC, "CPUs");
    ops_expect(ops_destroy(driver, "critic", 0), 0, NULL);
    ops_expect(resize(4), 0, NULL);
    ops_expect(create("critic", 1, 1, 0), -ENOSPC, "CPUs");
}

static struct ms_head_op *resize_with(uint32_t world_size, uint64_t memory)
{
    static char name[] = "actor";
    Muster__ResizeCluster resize = MUSTER__RESIZE_CLUSTER__INIT;

    resize.cluster = name;
    resize.world_size = world_size;
    resize.memory = memory;
    return ms_head_request(driver, MUSTER__DRIVER_TO_HEAD__BODY_RESIZE, &resize);
}

/* Of a node's 1 GiB. */
static void test_new_ranks_with_more_memory(void **state)
{
    uint64_t now[8];
    struct spec s;

    (void)state;
    spec_init(&s, "actor", 2);
    s.place.memory = s.worker.memory_limit = 200 << 20;
    ops_expect(spec_create(driver, &s), 0, NULL);
    ops_expect(resize_with(3, 900 << 20), -ENOSPC, "memory");
    assert_int_equal(look("actor", now), 2);
    ops_expect(resize_with(3, 700 << 20), 0, NULL);
    assert_int_equal(look("actor", now), 3);
    assert_int_equal(test_agent_memory(a, now[0]), 200 << 20);
    assert_int_equal(test_agent_memory(a, now[2]) + test_agent_memory(b, now[2]),
                     700 << 20);
    ops_expect(resize(4), 0, NULL); /* as much, on the other node */
    ops_expect(resize(5), -ENOSPC, "memory");
    ops_expect(ops_destroy(driver, "actor", 0), 0, NULL);
}

static void test_new_ranks_that_fail(void **state)
{
    uint64_t before[8], now[8];

    (void)state;
    ops_expect(create("actor", 2, 4, 0), 0, NULL);
    look("actor", before);
    test_agent_set_mode(b, TEST_AGENT_STEPS_FAIL);
    ops_expect(resize(4), -EREMOTEIO, "no such model");
    assert_int_equal(look("actor", now), 2); /* as it was */
    assert_memory_equal(before, now, 2 * sizeof *now);
    assert_int_equal(test_agent_living(a) + test_agent_living(b), 2);
    test_agent_set_mode(b, TEST_AGENT_FAILS);
    ops_expect(resize(4), -EIO, "no zygote today");
    assert_int_equal(look("actor", now), 2);
    test_agent_set_mode(b, TEST_AGENT_HONEST);
    ops_expect(create("critic", 2, 4, 0), 0, NULL); /* their places are free */
    ops_expect(ops_destroy(driver, "critic", 0), 0, NULL);
    ops_expect(resize(4), 0, NULL);
}

static void test_a_head_that_was_started_again(void **state)
{
    uint64_t before[8], now[8];

    (void)state;
    ops_expect(create("actor", 4, 1, 0), 0, NULL);
    look("actor", before);
    resize_after_a_crash(2);
    assert_int_equal(look("actor", now), 2);
    assert_memory_equal(before, now, 2 * sizeof *now);
    assert_int_equal(test_agent_living(a) + test_agent_living(b), 2);
    resize_after_a_crash(5);
    assert_int_equal(look("actor", now), 5);
    assert_memory_equal(before, now, 2 * sizeof *now);
    assert_int_equal(test_agent_living(a) + test_agent_living(b), 5);
}

static void test_what_cannot_be_resized(void **state)
{
    struct ms_head_op *op;
    struct spec s;

    (void)state;
    ops_expect(resize(2), -ENOENT, "no cluster 'actor'");
    serve_spec(&s, "fixed");
    s.message.can_resize = false;
    ops_expect(spec_create(driver, &s), 0, NULL);
    ops_expect(ms_head_resize(driver, "fixed", 1, 0), -ENOTSUP, "mesh");
    ops_expect(create("actor", 2, 1, 0), 0, NULL);
    ops_expect(resize(0), -EINVAL, "cannot have 0 workers");
    test_agent_set_mode(b, TEST_AGENT_STEPS_NEVER);
    op = resize(4);
    test_agent_wait_runs(b, 2);
    ops_expect(ops_destroy(driver, "actor", 0), 0, NULL);
    ops_expect(op, -ECANCELED, "destroyed meanwhile");
    assert_int_equal(serve_count(), 1);
}

/* ---- waiting for room ------------------------------------------------------------ */

/* Why the cluster of this name waits; empty: it does not. What was asked before is known. */
static void waits_for(const char *name, char *out, size_t room)
{
    struct ms_head_op *op;
    const Muster__Status *s = ops_status(driver, &op);

    out[0] = 0;
    for (size_t i = 0; i < s->n_clusters; i++)
        if (strcmp(s->clusters[i]->name, name) == 0)
            snprintf(out, room, "%s", s->clusters[i]->waits_for);
    ms_head_op_unref(op);
}

static void test_waiting_in_order(void **state)
{
    struct ms_head_op *second, *third;
    char why[256];

    (void)state;
    ops_expect(create("first", 2, 6, 0), 0, NULL); /* 6 of each node's 8 CPUs */
    second = create("second", 2, 8, LONG_NS);
    third = create("third", 1, 1, LONG_NS); /* fits, but came later */
    waits_for("second", why, sizeof why);
    assert_non_null(strstr(why, "CPUs"));
    waits_for("third", why, sizeof why);
    assert_non_null(strstr(why, "behind cluster 'second'"));
    waits_for("first", why, sizeof why);
    assert_string_equal(why, "");
    ops_expect(ops_destroy(driver, "first", 0), 0, NULL);
    ops_expect(second, 0, NULL);
    waits_for("third", why, sizeof why);
    assert_non_null(strstr(why, "CPUs")); /* now for itself */
    ops_expect(ops_destroy(driver, "second", 0), 0, NULL);
    ops_expect(third, 0, NULL);
}

static void test_what_never_fits_fails_at_once(void **state)
{
    struct ms_head_op *waiting;

    (void)state;
    ops_expect(create("first", 2, 6, 0), 0, NULL);
    ops_expect(create("huge", 1, 9, LONG_NS), -ENOSPC, "CPUs");
    waiting = create("second", 2, 8, LONG_NS);
    ops_expect(create("huge", 1, 9, LONG_NS), -ENOSPC, "CPUs"); /* not behind it */
    ops_expect(create("first", 1, 1, LONG_NS), -EEXIST, "'first' already");
    ops_expect(ops_destroy(driver, "second", 0), 0, NULL);
    ops_expect(waiting, -ECANCELED, "destroyed meanwhile");
    assert_int_equal(serve_count(), 1);
}

/* Those behind one that is given up, or whose time is up, go on. */
static void test_giving_up(void **state)
{
    struct ms_head_op *second, *third;

    (void)state;
    ops_expect(create("first", 2, 6, 0), 0, NULL);
    second = create("second", 2, 8, LONG_NS);
    third = create("third", 1, 1, LONG_NS);
    ops_expect(ops_destroy(driver, "second", 0), 0, NULL);
    ops_expect(second, -ECANCELED, NULL);
    ops_expect(third, 0, NULL);
    second = create("second", 2, 8, 50 * MS_NS_PER_MS);
    third = create("fourth", 1, 1, LONG_NS);
    ops_expect(second, -ENOSPC, "CPUs");
    ops_expect(third, 0, NULL);
    ms_head_op_unref(create("second", 2, 8, LONG_NS));
    ms_head_stop(MS_TAKE(driver), 0); /* and so does a driver that ends */
    assert_int_equal(serve_count(), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_more_and_fewer),
        TEST(test_places_are_given_back),
        TEST(test_new_ranks_with_more_memory),
        TEST(test_new_ranks_that_fail),
        TEST(test_a_head_that_was_started_again),
        TEST(test_what_cannot_be_resized),
        TEST(test_waiting_in_order),
        TEST(test_what_never_fits_fails_at_once),
        TEST(test_giving_up),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
