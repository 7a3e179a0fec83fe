/* explain_test.c - tests of explain.h: why a request is where it is */
#include "generate/explain.h"
#include "generate/test_rig.h"

static struct ms_explanation explained(struct rig *r, uint64_t group, uint32_t seq)
{
    struct ms_explanation x = {0}, by_id = {0};

    assert_int_equal(ms_scheduler_explain(r->s, 0, group, seq, &x), 0);
    assert_int_equal(ms_scheduler_explain(r->s, x.id, 0, 0, &by_id), 0);
    assert_memory_equal(&x, &by_id, sizeof x);
    return x;
}

static void test_unknown(void **state)
{
    RIG(r, 0);
    struct ms_explanation x = {.id = 7};

    (void)state;
    submit_now(&r, 1, 2);
    assert_int_equal(ms_scheduler_explain(r.s, 0, 1, 2, &x), -ENOENT);
    assert_int_equal(ms_scheduler_explain(r.s, 0, 2, 0, &x), -ENOENT);
    assert_int_equal(ms_scheduler_explain(r.s, 12345, 0, 0, &x), -ENOENT);
    assert_int_equal(x.id, 7); /* nothing was written */
}

/* What is asked of each state that a request goes through. */
static void test_life(void **state)
{
    RIG(r, .batch = 2);
    struct ms_explanation x;

    (void)state;
    up(&r, 0, 1);
    submit(&r, 1, 2);
    submit(&r, 2, 1);
    submit_now(&r, 3, 1);
    x = explained(&r, 3, 0);
    assert_int_equal(x.state, MS_EXPLAIN_HELD);
    assert_int_equal(x.replica, MS_NOWHERE);
    x = explained(&r, 1, 0);
    assert_int_equal(x.state, MS_EXPLAIN_RUNNING);
    assert_int_equal(x.placed, MS_PLACED_LOAD);
    assert_int_equal(x.attempt, 1);
    assert_int_equal(x.replica, 0);
    assert_int_equal(x.why, MS_WHY_NONE);
    x = explained(&r, 2, 0);
    assert_int_equal(x.state, MS_EXPLAIN_QUEUED);
    assert_int_equal(x.queued, 2);
    assert_int_equal(x.ahead, 1); /* 1's second sample was submitted before */
    assert_string_equal(x.order, "fifo");
    EVENT(&r, MS_FINISHED, .id = explained(&r, 1, 0).id, .attempt = 1, .tokens = 20);
    assert_int_equal(explained(&r, 1, 0).state, MS_EXPLAIN_DONE);
    x = explained(&r, 1, 1);
    assert_int_equal(x.siblings_ended, 1);
    EVENT(&r, MS_FINISHED, .id = x.id, .attempt = 1, .tokens = 30);
    x = explained(&r, 2, 0);
    assert_int_equal(x.state, MS_EXPLAIN_RUNNING);
    EVENT(&r, MS_FAILED, .id = x.id, .attempt = 1);
    x = explained(&r, 2, 0);
    assert_int_equal(x.why, MS_WHY_FAILED);
    assert_int_equal(x.failures, 1);
    assert_int_equal(x.attempt, 2);
    EVENT(&r, MS_PROGRESS, .id = x.id, .attempt = 2, .tokens = 5);
    EVENT(&r, MS_CANCEL, .id = x.id);
    x = explained(&r, 2, 0);
    assert_int_equal(x.state, MS_EXPLAIN_ABORTING);
    assert_int_equal(x.why, MS_WHY_CANCELLED);
    assert_int_equal(x.generated, 5);
}

static void test_lost_replica(void **state)
{
    RIG(r, 0);
    struct ms_explanation x;
    char text[256];

    (void)state;
    up(&r, 0, 1);
    submit_now(&r, 1, 1);
    EVENT(&r, MS_REPLICA_DOWN, .replica = 0, .epoch = 1);
    x = explained(&r, 1, 0);
    assert_int_equal(x.state, MS_EXPLAIN_QUEUED);
    assert_int_equal(x.why, MS_WHY_LOST);
    ms_explanation_print(&x, text, sizeof text);
    assert_non_null(strstr(text, "queued, 0 of 1 ahead by fifo"));
    assert_non_null(strstr(text, "replica lost"));
    ms_explanation_print(&x, text, 10); /* cut, not overrun */
    assert_int_equal(strlen(text), 9);
}

/* Where an estimate comes from. */
static void test_sources(void **state)
{
    RIG(r, .policy = &ms_policy_longest);
    struct ms_length_sums past = {0};
    struct ms_explanation x;

    (void)state;
    for (int i = 0; i < 4; i++)
        ms_length_sums_add(&past, 50);
    ms_lengths_learn(r.lengths, 1, &past, NULL, 0, 0);
    up(&r, 0, 4);
    submit(&r, 1, 2);
    EVENT(&r,
          MS_SUBMIT,
          .id = 2,
          .samples = 1,
          .prompt = 10,
          .max_new = 100,
          .hint = 80,
          .replica = MS_NOWHERE);
    EVENT(&r, MS_TICK);
    x = explained(&r, 1, 0);
    assert_true(x.history == 4);
    assert_int_equal(x.hint, 0);
    assert_true(x.expected > 20 && x.expected <= x.high && x.high <= 100);
    EVENT(&r, MS_PROGRESS, .id = x.id, .attempt = 1, .tokens = 90);
    assert_int_equal(explained(&r, 1, 1).siblings_live, 1);
    x = explained(&r, 1, 0);
    assert_true(x.expected > 90 && x.expected <= 100);
    x = explained(&r, 2, 0);
    assert_true(x.history == 0);
    assert_int_equal(x.hint, 80);
    assert_string_equal(x.policy, "longest");
}

static void test_warm_and_parked(void **state)
{
    RIG(r, .policy = &ms_policy_auto);

    (void)state;
    up(&r, 0, 1);
    up(&r, 1, 1);
    for (uint64_t id = 1; id <= 2; id++)
        EVENT(&r,
              MS_SUBMIT,
              .id = id,
              .samples = 1,
              .prompt = 10,
              .max_new = 100,
              .replica = 1);
    EVENT(&r,
          MS_SUBMIT,
          .id = 3,
          .samples = 1,
          .prompt = 10,
          .max_new = 100,
          .replica = MS_NOWHERE);
    EVENT(&r, MS_TICK);
    assert_int_equal(explained(&r, 3, 0).replica, 0);
    assert_int_equal(explained(&r, 1, 0).placed, MS_PLACED_WARM);
    assert_int_equal(explained(&r, 1, 0).replica, 1);
    assert_int_equal(explained(&r, 2, 0).state, MS_EXPLAIN_PARKED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_life),
        cmocka_unit_test(test_lost_replica),
        cmocka_unit_test(test_sources),
        cmocka_unit_test(test_warm_and_parked),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
