/* create_test.c - making a cluster whose workers do steps, and every way it can fail
 *
 * On nodes "a" and "b", whose agents only pretend.
 */
#include "base/cleanup.h"
#include "head/clusters/test_pair.h"

#include <stdio.h>

/* How long a failure waits for those of other ranks, and what a busy machine may add. */
#define TOGETHER_NS (500 * MS_NS_PER_MS)
#define BUSY_NS     (10 * MS_NS_PER_S)

/* Two ranks, one on each node, with two steps. */
static void actor_spec(struct spec *s)
{
    serve_spec(s, "actor");
    spec_add_step(s, "load", "7b");
    spec_add_step(s, "warm", "up");
}

static struct ms_head_op *create(void)
{
    struct spec s;

    actor_spec(&s);
    return spec_create(driver, &s);
}

/* Of a failed creation: processes, name, port and what it was told. */
static void assert_nothing_left(void)
{
    test_agent_wait_living(a, 0);
    test_agent_wait_living(b, 0);
    test_agent_wait_ports(a, 0);
    assert_int_equal(serve_count(), 0);
    assert_int_equal(seen.exits, 0); /* nobody has heard of them */
    test_agent_set_mode(a, TEST_AGENT_HONEST);
    test_agent_set_mode(b, TEST_AGENT_HONEST);
    ops_expect(create(), 0, NULL);
}

static void test_answers_of_rank_0(void **state)
{
    struct ms_head_op *op = create();
    const Muster__ClusterStatus *c = (const Muster__ClusterStatus *)ops_message(op);
    char steps[64];

    (void)state;
    assert_int_equal(c->n_workers, 2);
    assert_int_equal(c->n_answers, 2);
    assert_int_equal(c->answers[0]->body.len, 2);
    assert_memory_equal(c->answers[0]->body.data, "7b", 2);
    assert_memory_equal(c->answers[1]->body.data, "up", 2);
    test_agent_steps(b, c->workers[1]->uid, steps, sizeof steps);
    assert_string_equal(steps, "load=7b warm=up");
    ms_head_op_unref(op);
}

static void test_all_failures_are_told_together(void **state)
{
    struct ms_head_op *op;
    const Muster__Failure *f;
    struct ms_error err = {0};
    int64_t before_ns = ms_now_ns();

    (void)state;
    test_agent_set_mode(a, TEST_AGENT_STEPS_FAIL);
    test_agent_set_mode(b, TEST_AGENT_STEPS_FAIL);
    op = create();
    assert_int_equal(ops_finish(op, &err), -EREMOTEIO);
    assert_true(ms_now_ns() - before_ns < TOGETHER_NS + BUSY_NS);
    assert_non_null(strstr(err.text, "ValueError: no such model"));
    f = ms_head_op_failure(op);
    assert_non_null(f);
    assert_int_equal(f->n_workers, 2);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(f->workers[i]->kind, MUSTER__FAILURE__KIND__RAISED);
    assert_non_null(strstr(f->workers[0]->where, "actor/"));
    assert_string_not_equal(f->workers[0]->where, f->workers[1]->where);
    ms_head_op_unref(op);
    assert_nothing_left();
}

/* It is not waited for: those that failed are told without it. */
static void test_a_failure_beside_one_that_does_not_end(void **state)
{
    struct ms_head_op *op;
    const Muster__Failure *f;

    (void)state;
    test_agent_set_mode(a, TEST_AGENT_STEPS_FAIL);
    test_agent_set_mode(b, TEST_AGENT_STEPS_NEVER);
    op = create();
    assert_int_equal(ops_finish(op, NULL), -EREMOTEIO);
    f = ms_head_op_failure(op);
    assert_int_equal(f->n_workers, 1);
    assert_string_equal(f->workers[0]->where, "actor/0@a");
    ms_head_op_unref(op);
    assert_nothing_left();
}

static void test_a_worker_that_dies_in_its_steps(void **state)
{
    struct ms_head_op *op;
    const Muster__Failure *f;
    struct ms_error err = {0};

    (void)state;
    test_agent_set_mode(b, TEST_AGENT_STEPS_DIE);
    op = create();
    assert_int_equal(ops_finish(op, &err), -EREMOTEIO);
    assert_non_null(strstr(err.text, "actor/1@b: it has ended"));
    f = ms_head_op_failure(op);
    assert_int_equal(f->n_workers, 1);
    assert_int_equal(f->workers[0]->kind, MUSTER__FAILURE__KIND__WORKER_DIED);
    assert_int_equal(f->workers[0]->exit->code, 7);
    ms_head_op_unref(op);
    assert_nothing_left();
}

static void test_steps_that_do_not_end_in_time(void **state)
{
    struct ms_head_op *op;
    const Muster__Failure *f;
    struct ms_error err = {0};
    struct spec s;

    (void)state;
    test_agent_set_mode(a, TEST_AGENT_STEPS_NEVER);
    test_agent_set_mode(b, TEST_AGENT_STEPS_NEVER);
    actor_spec(&s);
    s.message.step_timeout_ns = 50 * MS_NS_PER_MS;
    op = spec_create(driver, &s);
    assert_int_equal(ops_finish(op, &err), -ETIMEDOUT);
    assert_non_null(strstr(err.text, "not made within 0.05 s (start_timeout)"));
    f = ms_head_op_failure(op);
    assert_int_equal(f->n_workers, 2);
    assert_int_equal(f->workers[1]->kind, MUSTER__FAILURE__KIND__DEADLINE);
    ms_head_op_unref(op);
    assert_nothing_left();
}

static void test_a_destroy_in_the_middle_of_steps(void **state)
{
    struct ms_head_op *op;

    (void)state;
    test_agent_set_mode(b, TEST_AGENT_STEPS_NEVER);
    op = create();
    test_agent_wait_runs(b, 1);
    ops_expect(ops_destroy(driver, "actor", 0), 0, NULL);
    ops_expect(op, -ECANCELED, "destroyed meanwhile");
    assert_nothing_left();
}

static void test_a_destroy_while_processes_start(void **state)
{
    struct ms_head_op *op, *first, *second;

    (void)state;
    test_agent_set_mode(b, TEST_AGENT_KEEPS);
    op = create();
    test_agent_wait_started(b, 1);
    first = ops_destroy(driver, "actor", 0);
    second = ops_destroy(driver, "actor", 0);
    ops_expect(ms_head_status(driver), 0, NULL); /* both have arrived */
    assert_int_equal(ms_head_op_result(first, NULL), -EINPROGRESS);
    test_agent_answer(b);
    ops_expect(op, -ECANCELED, "destroyed meanwhile");
    ops_expect(first, 0, NULL);
    ops_expect(second, 0, NULL);
    assert_nothing_left();
}

static void test_a_node_that_ends_in_the_middle_of_steps(void **state)
{
    struct ms_head_op *op;

    (void)state;
    test_agent_set_mode(b, TEST_AGENT_STEPS_NEVER);
    op = create();
    test_agent_wait_runs(b, 1);
    test_agent_end(b);
    ops_expect(op, -EREMOTEIO, "actor/1@b");
    test_agent_wait_living(a, 0);
    assert_int_equal(serve_count(), 0);
}

static void test_a_driver_that_ends_in_the_middle_of_steps(void **state)
{
    (void)state;
    test_agent_set_mode(b, TEST_AGENT_STEPS_NEVER);
    ms_head_op_unref(create());
    test_agent_wait_runs(b, 1);
    ms_head_stop(MS_TAKE(driver), 0);
    assert_int_equal(test_agent_living(a) + test_agent_living(b), 0);
    assert_int_equal(serve_count(), 0);
}

static void test_a_head_that_is_stopped_in_the_middle_of_steps(void **state)
{
    struct ms_head_op *op;

    (void)state;
    test_agent_set_mode(b, TEST_AGENT_STEPS_NEVER);
    op = create();
    test_agent_wait_runs(b, 1);
    ms_head_stop(MS_TAKE(serve_head), 0);
    ops_expect(op, -EPIPE, "the head was stopped");
    assert_int_equal(test_agent_living(a) + test_agent_living(b), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_answers_of_rank_0),
        TEST(test_all_failures_are_told_together),
        TEST(test_a_failure_beside_one_that_does_not_end),
        TEST(test_a_worker_that_dies_in_its_steps),
        TEST(test_steps_that_do_not_end_in_time),
        TEST(test_a_destroy_in_the_middle_of_steps),
        TEST(test_a_destroy_while_processes_start),
        TEST(test_a_node_that_ends_in_the_middle_of_steps),
        TEST(test_a_driver_that_ends_in_the_middle_of_steps),
        TEST(test_a_head_that_is_stopped_in_the_middle_of_steps),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
