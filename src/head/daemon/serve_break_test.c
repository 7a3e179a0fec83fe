/* serve_break_test.c - a daemon head that is started again, and links to it that break */
#include "head/head_impl.h"
#include "head/nodes/test_agents.h"
#include "head/test_events.h"
#include "head/test_ops.h"
#include "head/test_serve.h"
#include "wire/test_proxy.h"

#include <stdio.h>

/* A way to the head that can be broken. */
static void break_point(struct proxy *p)
{
    proxy_start(p, (uint16_t)atoi(strrchr(serve_address, ':') + 1));
    snprintf(p->address, sizeof p->address, "127.0.0.1:%u", p->port);
}

static void test_a_head_that_was_started_again(void **state)
{
    struct test_agent *a = serve_agent("a"), *b = serve_agent("b");
    struct test_events s;
    struct ms_head *h;
    struct ms_head_op *op, *late;
    const Muster__Status *st;
    uint64_t uids[2], kept[2];

    (void)state;
    events_init(&s);
    h = serve_join(&s);
    serve_create(h, "actor", false, uids);
    serve_create(h, "kept", true, kept);
    ms_head_crash(serve_head);
    serve_begin(serve_address);
    late = serve_ask(h, "new", false); /* waits for head and nodes */
    assert_true(test_agent_come_back(a, serve_address));
    assert_true(test_agent_come_back(b, serve_address));
    ops_expect(late, 0, NULL);
    assert_int_equal(test_agent_living(a), 3);

    st = ops_status(serve_head, &op);
    assert_int_equal(st->n_nodes, 2);
    assert_int_equal(st->n_clusters, 3);
    assert_string_equal(st->clusters[0]->name, "actor");
    assert_int_equal(st->clusters[0]->workers[1]->uid, uids[1]);
    assert_string_equal(st->clusters[0]->workers[1]->address, "/w/far.sock");
    assert_true(st->clusters[1]->detached);
    assert_int_equal(st->n_drivers, 1);
    ms_head_op_unref(op);
    assert_int_equal(s.exits, 0); /* nothing was disturbed */

    test_agent_exit(a, uids[0], 7);
    events_wait_exits(&s, 1);
    assert_int_equal(s.codes[0], 7);
    ms_head_stop(h, 0);
    assert_int_equal(test_agent_living(b), 1); /* the detached one */
}

static void test_a_driver_that_does_not_come_back(void **state)
{
    struct test_agent *a = serve_agent("a"), *b = serve_agent("b");
    struct test_events s;
    struct ms_head *h;
    uint64_t uids[2];

    (void)state;
    events_init(&s);
    h = serve_join(&s);
    serve_create(h, "actor", false, uids);
    ms_head_crash(serve_head);
    ms_head_stop(h, 0); /* nobody hears of it */
    serve_begin(serve_address);
    assert_true(test_agent_come_back(a, serve_address));
    assert_true(test_agent_come_back(b, serve_address));
    test_agent_wait_living(a, 0); /* after link_grace */
    test_agent_wait_living(b, 0);
}

static uint64_t create_on_b(struct ms_head *h)
{
    struct ms_head_op *op;
    struct spec s;
    uint64_t uid;

    spec_init(&s, "gone", 1);
    spec_add_node(&s, "b");
    s.message.detached = true;
    op = spec_create(h, &s);
    uid = ((const Muster__ClusterStatus *)ops_message(op))->workers[0]->uid;
    ms_head_op_unref(op);
    return uid;
}

/* Two heads are killed, and one machine never comes back to either. */
static void test_a_death_that_no_head_has_heard_of(void **state)
{
    struct test_agent *a = serve_agent("a");
    struct test_events s;
    struct ms_head_op *lost, *all_lost, *none, *op;
    const Muster__WorkerStatus *w;
    struct ms_head *h;
    uint64_t uids[2], gone;

    (void)state;
    serve_agent("b");
    events_init(&s);
    h = serve_join(&s);
    serve_create(h, "actor", true, uids);
    gone = create_on_b(h);
    for (int i = 0; i < 2; i++) {
        ms_head_crash(serve_head);
        serve_begin(serve_address);
        assert_true(test_agent_come_back(a, serve_address));
    }
    lost = ops_ask_death(h, uids[1]);
    all_lost = ops_ask_death(h, gone);
    none = ops_ask_death(h, 12345);
    ops_expect_death(lost, "nobody has reported it");
    ops_expect_death(all_lost, "nobody has reported it");
    ops_expect_death(none, "knows nothing of it");
    ops_expect_death(ops_ask_death(h, 12345), "knows nothing of it"); /* at once */
    op = ops_find_cluster(h, "actor");
    w = ((const Muster__ClusterStatus *)ops_message(op))->workers[1];
    assert_int_equal(w->uid, uids[1]);
    assert_int_equal(w->state, MUSTER__WORKER_STATE__WORKER_EXITED);
    assert_string_equal(w->address, "/w/far.sock"); /* a handle of it can be made */
    ms_head_op_unref(op);
    ms_head_stop(h, 0);
}

/* A head is killed while it makes a cluster: the next one ends what there is of it first. */
static void test_a_creation_that_the_head_before_has_begun(void **state)
{
    struct test_agent *a = serve_agent("a"), *b = serve_agent("b");
    struct test_events s;
    struct ms_head_op *op;
    struct ms_head *h;
    struct spec what;

    (void)state;
    events_init(&s);
    h = serve_join(&s);
    test_agent_set_mode(b, TEST_AGENT_STEPS_NEVER);
    serve_spec(&what, "new");
    spec_add_step(&what, "load", "7b");
    op = spec_create(h, &what);
    test_agent_wait_runs(a, 1);
    test_agent_wait_runs(b, 1);
    ms_head_crash(serve_head);
    test_agent_set_mode(b, TEST_AGENT_HONEST);
    serve_begin(serve_address);
    assert_true(test_agent_come_back(a, serve_address));
    assert_true(test_agent_come_back(b, serve_address));
    ops_expect(op, 0, NULL);
    assert_int_equal(serve_count(), 1);
    assert_int_equal(test_agent_living(a), 1);
    assert_int_equal(test_agent_living(b), 1);
    assert_int_equal(test_agent_started(a), 2);
    ms_head_stop(h, 0);
    test_agent_wait_living(a, 0);
    test_agent_wait_living(b, 0);
}

/* Also of clusters that agents have not reported yet. */
static void test_a_destroy_that_comes_before_the_nodes(void **state)
{
    struct test_agent *a = serve_agent("a"), *b = serve_agent("b");
    struct test_events s;
    struct ms_head_op *op;
    struct ms_head *h;
    uint64_t uids[2];

    (void)state;
    events_init(&s);
    h = serve_join(&s);
    serve_create(h, "actor", false, uids);
    ms_head_crash(serve_head);
    serve_begin(serve_address);
    op = ops_destroy(h, "actor", 0);
    assert_true(test_agent_come_back(a, serve_address));
    assert_true(test_agent_come_back(b, serve_address));
    ops_expect(op, 0, NULL);
    test_agent_wait_living(a, 0);
    test_agent_wait_living(b, 0);
    assert_int_equal(serve_count(), 0);
    ms_head_stop(h, 0);
}

/* Two nodes, "b" behind a proxy, a driver, and its cluster on both. */
static struct test_agent *
behind(struct proxy *p, struct test_events *s, struct ms_head **h, uint64_t uids[2])
{
    struct test_agent *b;

    serve_agent("a");
    break_point(p);
    b = test_agent_dial(p->address, serve_secret(), "b", 4);
    assert_non_null(b);
    events_init(s);
    *h = serve_join(s);
    serve_create(*h, "actor", false, uids);
    return b;
}

static void test_an_agents_link_breaks_and_heals(void **state)
{
    struct test_agent *b;
    struct proxy p;
    struct test_events s;
    struct ms_head *h;
    struct ms_head_op *op;
    uint64_t uids[2];

    (void)state;
    b = behind(&p, &s, &h, uids);
    test_agent_set_mode(b, TEST_AGENT_KEEPS);
    op = serve_ask(h, "more", false);
    test_agent_wait_started(b, 2);
    proxy_reset(&p);
    assert_true(test_agent_come_back(b, p.address));
    test_agent_answer(b); /* under the number of before */
    ops_expect(op, 0, NULL);
    assert_int_equal(test_agent_started(b), 2); /* none was started twice */
    assert_int_equal(s.exits, 0);
    test_agent_set_mode(b, TEST_AGENT_HONEST);
    ops_expect(ops_destroy(h, "actor", 0), 0, NULL);
    assert_int_equal(test_agent_contexts(b), 2); /* told once more, before that */
    ms_head_stop(h, 0);
    assert_int_equal(test_agent_living(b), 0);
    proxy_stop(&p);
}

static void test_an_agents_link_breaks_for_good(void **state)
{
    struct test_agent *b;
    struct proxy p;
    struct test_events s;
    struct ms_head *h;
    struct ms_head_op *op;
    uint64_t uids[2];

    (void)state;
    b = behind(&p, &s, &h, uids);
    proxy_reset(&p);
    op = ops_destroy(h, "actor", 0); /* waits for the node */
    events_wait_exits(&s, 2);
    assert_int_equal(s.uids[1], uids[1]);
    assert_non_null(strstr(s.details[1], "node b was silent for 1 s"));
    ops_expect(op, 0, NULL);
    assert_true(test_agent_come_back(b, p.address)); /* too late */
    test_agent_wait_living(b, 0);
    ms_head_stop(h, 0);
    proxy_stop(&p);
}

static void test_a_drivers_link_breaks_and_heals(void **state)
{
    struct test_agent *a = serve_agent("a"), *b = serve_agent("b");
    struct proxy p;
    struct test_events s;
    struct ms_head *h;
    struct ms_head_op *op;
    uint64_t uids[2];

    (void)state;
    break_point(&p);
    events_init(&s);
    h = serve_join_at(&s, p.address);
    serve_create(h, "actor", false, uids);
    test_agent_set_mode(b, TEST_AGENT_KEEPS);
    op = serve_ask(h, "more", false);
    test_agent_wait_started(b, 2);
    proxy_reset(&p);
    test_agent_exit(a, uids[0], 3); /* perhaps while nobody hears it */
    test_agent_answer(b);
    ops_expect(op, 0, NULL);
    events_wait_exits(&s, 1);
    ops_expect(ms_head_status(h), 0, NULL); /* what came before has arrived */
    assert_int_equal(s.exits, 1);
    assert_int_equal(s.codes[0], 3);
    assert_int_equal(test_agent_started(b), 2);
    ms_head_stop(h, 0);
    assert_int_equal(test_agent_living(a) + test_agent_living(b), 0);
    proxy_stop(&p);
}

static int64_t kv_number(struct ms_head *h)
{
    Muster__KvAdd m = MUSTER__KV_ADD__INIT;
    char key[] = "count";
    struct ms_head_op *op;
    int64_t value;

    m.key = key;
    op = ops_request(h, MUSTER__DRIVER_TO_HEAD__BODY_KV_ADD, &m);
    value = ((const Muster__KvNumber *)ops_message(op))->value;
    ms_head_op_unref(op);
    return value;
}

static size_t drivers(void)
{
    struct ms_head_op *op;
    size_t n = ops_status(serve_head, &op)->n_drivers;

    ms_head_op_unref(op);
    return n;
}

/* It was given up when it comes back: a change whose answer was lost is not made again. */
static void test_a_driver_that_comes_back_too_late(void **state)
{
    struct proxy p;
    struct test_events s;
    struct ms_head *h;
    struct ms_head_op *op;
    Muster__KvAdd add = MUSTER__KV_ADD__INIT;
    char key[] = "count";

    (void)state;
    serve_agent("a");
    serve_agent("b");
    break_point(&p);
    events_init(&s);
    h = serve_join_at(&s, p.address);
    proxy_hold(&p, true);
    add.key = key;
    add.amount = 1;
    op = ops_request(h, MUSTER__DRIVER_TO_HEAD__BODY_KV_ADD, &add);
    while (kv_number(serve_head) == 0)
        ;
    proxy_cut(&p);
    proxy_reset(&p);
    while (drivers() > 0)
        ;
    proxy_hold(&p, false);
    proxy_heal(&p, true);
    ops_expect(op, -ESTALE, "may have been done");
    assert_int_equal(kv_number(h), 1);
    ms_head_stop(h, 0);
    proxy_stop(&p);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, serve_setup, serve_teardown)
#define HASTY_TEST(name)                                                               \
    cmocka_unit_test_setup_teardown(name, serve_setup_hasty, serve_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_head_that_was_started_again),
        HASTY_TEST(test_a_driver_that_does_not_come_back),
        HASTY_TEST(test_a_death_that_no_head_has_heard_of),
        TEST(test_a_creation_that_the_head_before_has_begun),
        TEST(test_a_destroy_that_comes_before_the_nodes),
        TEST(test_an_agents_link_breaks_and_heals),
        HASTY_TEST(test_an_agents_link_breaks_for_good),
        TEST(test_a_drivers_link_breaks_and_heals),
        HASTY_TEST(test_a_driver_that_comes_back_too_late),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
