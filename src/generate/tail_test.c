/* When all that waits fits, or nothing waits any more, long requests go among few others;
 * what runs moves only where that gains more than it costs. */
#include "generate/test_rig.h"

enum { LONG = 1, REQUESTS = 16 };

/* Steps of 2 ms + 2 ms a request: a full batch makes each of them slow. */
static void show_steps(struct rig *r)
{
    for (uint32_t batch = 1; batch <= 16; batch *= 2)
        EVENT(r,
              MS_LOAD,
              .epoch = 1,
              .samples = batch,
              .step_ns = 2000000 + 2000000 * batch);
}

/* The first prompt took 10,000 tokens each time, the others as many as `other`. */
static void submit_known(struct rig *r, uint32_t other)
{
    for (uint64_t key = 1; key <= REQUESTS; key++) {
        struct ms_length_sums sums = {0};

        for (uint32_t i = 0; i < 8; i++)
            ms_length_sums_add(&sums, (key <= LONG ? 10000 : other) + i);
        ms_lengths_learn(r->lengths, key, &sums, NULL, 0, 0);
    }
    for (uint64_t id = 1; id <= REQUESTS; id++)
        EVENT(r,
              MS_SUBMIT,
              .id = id,
              .key = id,
              .samples = 1,
              .prompt = 10,
              .max_new = 16384,
              .replica = MS_NOWHERE);
}

/* How many run where the long one does; all were sent in this step. */
static uint32_t beside_the_long(const struct rig *r)
{
    uint32_t on = MS_NOWHERE, count = 0;

    assert_int_equal(r->count, REQUESTS);
    for (size_t i = 0; i < r->count; i++)
        if (r->d[i].group == 1)
            on = r->d[i].replica;
    for (size_t i = 0; i < r->count; i++)
        count += r->d[i].replica == on;
    return count;
}

static void test_long_ones_go_among_few(void **state)
{
    RIG(r, .policy = &ms_policy_auto, .seed = 1);

    (void)state;
    up(&r, 0, 16);
    up(&r, 1, 16);
    show_steps(&r);
    submit_known(&r, 2000);
    EVENT(&r, MS_TICK);
    assert_in_range(beside_the_long(&r), 1, REQUESTS / 2 - 2);
}

static void test_without_step_times_all_are_dealt(void **state)
{
    RIG(r, .policy = &ms_policy_auto, .seed = 1);

    (void)state;
    up(&r, 0, 16);
    up(&r, 1, 16);
    submit_known(&r, 2000);
    EVENT(&r, MS_TICK);
    assert_int_equal(beside_the_long(&r), REQUESTS / 2);
}

/* Dealt while nothing was known of steps; then it is, and a plan is made. */
static void learn_steps_and_look(struct rig *r, uint32_t other)
{
    up(r, 0, 16);
    up(r, 1, 16);
    submit_known(r, other);
    EVENT(r, MS_TICK);
    assert_int_equal(beside_the_long(r), REQUESTS / 2);
    show_steps(r);
    r->now_ns = S(2);
    EVENT(r, MS_TICK);
}

static void test_running_ones_move_if_it_gains(void **state)
{
    RIG(r, .policy = &ms_policy_auto, .seed = 1, .rebalance_ns = S(2));

    (void)state;
    learn_steps_and_look(&r, 2000);
    assert_true(r.count > 0);
    for (size_t i = 0; i < r.count; i++) {
        assert_int_equal(r.d[i].what, MS_ABORT);
        assert_int_equal(r.d[i].why, MS_WHY_MOVED);
    }
    assert_true(ms_scheduler_wake_ns(r.s) ==
                MS_NEVER); /* their aborts are on the way */
}

static void test_nothing_moves_where_prefixes_cost_more(void **state)
{
    RIG(r,
        .policy = &ms_policy_auto,
        .seed = 1,
        .rebalance_ns = S(2),
        .prefill_ns = 100e9);

    (void)state;
    learn_steps_and_look(&r, 2000);
    NOTHING(&r);
    assert_int_equal(ms_scheduler_wake_ns(r.s), S(4)); /* it is looked again */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_long_ones_go_among_few),
        cmocka_unit_test(test_without_step_times_all_are_dealt),
        cmocka_unit_test(test_running_ones_move_if_it_gains),
        cmocka_unit_test(test_nothing_moves_where_prefixes_cost_more),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
