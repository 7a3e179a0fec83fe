/* serve_test.c - a daemon head with agents and drivers that dial */
#include "base/cleanup.h"
#include "head/test_serve.h"

#include <stdio.h>
#include <sys/stat.h>

static void test_a_cluster_over_two_nodes(void **state)
{
    struct test_agent *a = serve_agent("a"), *b = serve_agent("b");
    struct test_events s;
    struct ms_head *h;
    struct ms_head_op *op;
    const Muster__Status *st;
    uint64_t uids[2];

    (void)state;
    events_init(&s);
    h = serve_join(&s);
    serve_create(h, "actor", false, uids);
    assert_int_equal(test_agent_living(a), 1);
    assert_int_equal(test_agent_living(b), 1);
    assert_int_equal(test_agent_contexts(a), 1);

    st = ops_status(h, &op); /* asked through the link */
    assert_true(st->is_daemon);
    assert_int_equal(st->n_nodes, 2);
    assert_string_equal(st->nodes[1]->name, "b");
    assert_int_equal(st->nodes[1]->gpus, 4);
    assert_int_equal(st->n_drivers, 1);
    assert_int_equal(st->drivers[0]->pid, getpid());
    assert_string_equal(st->drivers[0]->script, "train.py");
    assert_int_equal(st->clusters[0]->driver, st->drivers[0]->driver);
    assert_string_equal(st->clusters[0]->workers[1]->node, "b");
    assert_int_equal(st->clusters[0]->workers[1]->devices[1], 3);
    ms_head_op_unref(op);

    test_agent_exit(b, uids[1], 5);
    events_wait_exits(&s, 1);
    assert_int_equal(s.uids[0], uids[1]);
    assert_int_equal(s.codes[0], 5);
    test_agent_print(a, uids[0], "hello");
    events_wait_line(&s, "hello");
    ops_expect(ops_destroy(h, "actor", 0), 0, NULL);
    assert_int_equal(test_agent_living(a), 0);
    events_wait_exits(&s, 2);
    ms_head_stop(h, 0);
    test_agent_wait_contexts(a, 0);
}

static void test_all_or_none_across_nodes(void **state)
{
    struct test_agent *a = serve_agent("a"), *b = serve_agent("b");
    struct test_events s;
    struct ms_head *h;

    (void)state;
    events_init(&s);
    h = serve_join(&s);
    test_agent_set_mode(b, TEST_AGENT_FAILS);
    ops_expect(serve_ask(h, "actor", false), -EIO, "node b: no zygote today");
    assert_int_equal(test_agent_started(a), 1);
    assert_int_equal(test_agent_living(a), 0); /* stopped before it completed */
    assert_int_equal(serve_count(), 0);
    assert_int_equal(s.exits, 0); /* nobody has heard of them */
    test_agent_set_mode(b, TEST_AGENT_HONEST);
    ops_expect(serve_ask(h, "actor", false), 0, NULL);
    ops_expect(ops_hold_port(h, "b", "actor:1"), 0, NULL);
    assert_int_equal(test_agent_ports(b), 1);
    assert_int_equal(test_agent_ports(a), 1); /* the cluster's own, where rank 0 is */
    ops_expect(ops_drop_port(h, "actor:1"), 0, NULL);
    assert_int_equal(test_agent_ports(b), 0);
    ms_head_stop(h, 0);
    assert_int_equal(test_agent_living(a), 0);
}

static void test_a_node_ends_while_a_cluster_is_made(void **state)
{
    struct test_agent *a = serve_agent("a"), *b = serve_agent("b");
    struct test_events s;
    struct ms_head *h;
    struct ms_head_op *op;

    (void)state;
    events_init(&s);
    h = serve_join(&s);
    test_agent_set_mode(b, TEST_AGENT_KEEPS);
    op = serve_ask(h, "actor", false);
    test_agent_wait_started(b, 1);
    test_agent_end(b);
    ops_expect(op, -EPIPE, "node b");
    assert_int_equal(test_agent_living(a), 0);
    ms_head_stop(h, 0);
}

static struct ms_head_op *ask_death(struct ms_head *h, uint64_t uid)
{
    Muster__AskDeath death = MUSTER__ASK_DEATH__INIT;

    death.uid = uid;
    return ms_head_request(h, MUSTER__DRIVER_TO_HEAD__BODY_ASK_DEATH, &death);
}

static void test_drivers_have_their_own(void **state)
{
    struct test_agent *a = serve_agent("a"), *b = serve_agent("b");
    struct test_events s, t;
    struct ms_head *one, *two;
    uint64_t mine[2], yours[2], kept[2];

    (void)state;
    events_init(&s);
    events_init(&t);
    one = serve_join(&s);
    two = serve_join(&t);
    serve_create(one, "mine", false, mine);
    serve_create(two, "yours", false, yours);
    serve_create(one, "kept", true, kept);
    ops_expect(serve_ask(two, "mine", false), -EEXIST, "train.py");
    ops_expect(ms_head_destroy_cluster(two, "mine", true, 0, 0), -ENOENT, "'mine'");
    ops_expect(ms_head_destroy_cluster(two, "mine", false, yours[0], 0), -ENOENT, NULL);
    test_agent_exit(a, mine[0], 1);
    test_agent_print(b, yours[1], "to two");
    events_wait_exits(&s, 1);
    events_wait_line(&t, "to two");
    assert_int_equal(t.exits, 0);
    assert_int_equal(s.lines, 0);
    assert_int_equal(test_agent_contexts(a), 2);

    ms_head_stop(one, 0);
    test_agent_wait_living(b, 2); /* yours, kept */
    test_agent_wait_contexts(a, 1);
    assert_int_equal(serve_count(), 2);
    test_agent_exit(b, kept[1], 9);
    ops_expect(ask_death(two, kept[1]), 0, NULL);
    events_wait_exits(&t, 1);
    assert_int_equal(t.uids[0], kept[1]);
    ops_expect(ms_head_destroy_cluster(two, "kept", false, kept[0], 0), 0, NULL);
    ms_head_stop(two, 0);
    assert_int_equal(test_agent_living(a) + test_agent_living(b), 0);
    assert_int_equal(serve_count(), 0);
}

static struct ms_head_op *ask_stop(struct ms_head *h, const char *cluster, bool head)
{
    Muster__StopRequest stop = MUSTER__STOP_REQUEST__INIT;

    stop.cluster = (char *)(uintptr_t)cluster;
    stop.head = head;
    return ms_head_request(h, MUSTER__DRIVER_TO_HEAD__BODY_STOP, &stop);
}

/* Who may ask is looked up where it arrives. */
static void test_a_driver_may_not_stop_what_others_have(void **state)
{
    struct test_agent *a = serve_agent("a"), *b = serve_agent("b");
    struct test_events s;
    struct ms_head *driver;
    struct ms_head_op *op;
    const Muster__Stopped *done;
    uint64_t uids[2];

    (void)state;
    events_init(&s);
    driver = serve_join(&s);
    serve_create(driver, "one", false, uids);
    serve_create(driver, "two", false, uids);
    ops_expect(ask_stop(driver, "", false), -EPERM, "a driver may not ask for 'stop'");
    ops_expect(ask_stop(serve_head, "three", false), -ENOENT, "'three'");
    assert_int_equal(serve_count(), 2);
    op = ask_stop(serve_head, "", true); /* the test has no on_stop_asked */
    done = (const Muster__Stopped *)ops_message(op);
    assert_int_equal(done->clusters, 2);
    assert_int_equal(done->workers, 4);
    assert_false(done->head);
    ms_head_op_unref(op);
    assert_int_equal(test_agent_living(a) + test_agent_living(b), 0);
    ms_head_stop(driver, 0);
}

/* A detached cluster outlives its driver once it is made, and not before. */
static void test_a_detached_cluster_must_be_made(void **state)
{
    struct test_agent *a = serve_agent("a"), *b = serve_agent("b");
    struct test_events s;
    struct ms_head *h;
    struct ms_head_op *op;
    uint64_t kept[2];
    struct spec spec;

    (void)state;
    events_init(&s);
    h = serve_join(&s);
    serve_create(h, "kept", true, kept);
    test_agent_set_mode(b, TEST_AGENT_STEPS_NEVER);
    serve_spec(&spec, "unmade");
    spec.message.detached = true;
    spec_add_step(&spec, "load", "7b");
    op = spec_create(h, &spec);
    test_agent_wait_runs(b, 1);
    ms_head_stop(h, 0);
    ms_head_op_unref(op);
    test_agent_wait_living(a, 1); /* kept */
    test_agent_wait_living(b, 1);
    assert_int_equal(serve_count(), 1);
    assert_int_equal(test_agent_ports(a), 1);
    ops_expect(ops_destroy(serve_head, "kept", 0), 0, NULL);
    test_agent_wait_ports(a, 0);
}

static void test_an_agent_that_ends_takes_its_workers(void **state)
{
    struct test_agent *b;
    struct test_events s;
    struct ms_head *h;
    uint64_t uids[2];

    (void)state;
    serve_agent("a");
    b = serve_agent("b");
    events_init(&s);
    h = serve_join(&s);
    serve_create(h, "actor", false, uids);
    test_agent_end(b);
    events_wait_exits(&s, 1);
    assert_int_equal(s.uids[0], uids[1]);
    assert_non_null(strstr(s.details[0], "node b"));
    ops_expect(serve_ask(h, "more", false), -ENOSPC, "node 'b' is gone");
    ms_head_stop(h, 0);
}

static void test_a_second_agent_of_a_name_is_refused(void **state)
{
    uint8_t wrong[32] = {1};

    (void)state;
    serve_agent("a");
    assert_null(test_agent_dial(serve_address, serve_secret(), "a", 1));
    assert_non_null(strstr(test_agent_refusal(), "node a has an agent already"));
    assert_null(test_agent_dial(serve_address, serve_secret(), "../a", 1));
    assert_null(test_agent_dial(serve_address, wrong, "c", 1));
}

static void test_a_second_head_of_a_name_is_refused(void **state)
{
    struct ms_error err = {0};
    char before[32], path[128];
    struct stat st;

    (void)state;
    assert_null(serve_at("127.0.0.1:0", &err));
    assert_int_equal(err.code, -EBUSY);
    assert_non_null(strstr(err.text, "'test' runs here already"));
    snprintf(path, sizeof path, "%s/secret", ms_head_session(serve_head)->dir);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    memcpy(before, serve_secret(), 32);
    ms_head_stop(serve_head, 0);
    serve_begin("127.0.0.1:0");
    assert_memory_equal(before, serve_secret(), 32); /* it found its own again */
}

static void test_goodbye_ends_all(void **state)
{
    struct test_agent *a = serve_agent("a");
    struct test_events s;
    struct ms_head *h;
    uint64_t uids[2];

    (void)state;
    serve_agent("b");
    events_init(&s);
    h = serve_join(&s);
    serve_create(h, "actor", false, uids);
    ms_head_stop(MS_TAKE(serve_head), 0);
    events_wait_lost(&s);
    assert_int_equal(s.exits, 2);
    assert_int_equal(test_agent_living(a), 0);
    ops_expect(ms_head_status(h), -EPIPE, "the head was stopped");
    ms_head_stop(h, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, serve_setup, serve_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_cluster_over_two_nodes),
        TEST(test_all_or_none_across_nodes),
        TEST(test_a_node_ends_while_a_cluster_is_made),
        TEST(test_drivers_have_their_own),
        TEST(test_a_driver_may_not_stop_what_others_have),
        TEST(test_a_detached_cluster_must_be_made),
        TEST(test_an_agent_that_ends_takes_its_workers),
        TEST(test_a_second_agent_of_a_name_is_refused),
        TEST(test_a_second_head_of_a_name_is_refused),
        TEST(test_goodbye_ends_all),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
