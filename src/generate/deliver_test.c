/* deliver_test.c - surplus, verdicts, batches, admission, and what is too old */
#include "generate/test_rig.h"

static void test_surplus_is_aborted(void **state)
{
    RIG(r, .seed = 1);
    uint64_t last;

    (void)state;
    up(&r, 0, 8);
    EVENT(
        &r, MS_SUBMIT, .id = 1, .samples = 2, .surplus = 1, .max_new = 9, .replica = 0);
    EVENT(&r, MS_TICK);
    DECIDED(&r, MS_SEND, MS_SEND, MS_SEND);
    last = r.d[1].id;
    EVENT(&r, MS_FINISHED, .id = r.d[2].id, .attempt = 1, .tokens = 2);
    EVENT(&r, MS_FINISHED, .id = last, .attempt = 1, .tokens = 3);
    DECIDED(&r, MS_ABORT, MS_READY);
    assert_int_equal(r.d[0].why, MS_WHY_SURPLUS);
}

static void test_filter_asks_for_another(void **state)
{
    RIG(r, .seed = 1, .filter = true);

    (void)state;
    up(&r, 0, 2);
    submit(&r, 1, 1);
    submit_now(&r, 2, 1);
    EVENT(&r, MS_FINISHED, .id = r.d[0].id, .attempt = 1, .tokens = 2);
    DECIDED(&r, MS_READY);
    REFUSED(&r, -EINVAL, MS_VERDICT, .id = 2, .keep = 1); /* it still runs */
    EVENT(&r, MS_PULL, .id = 1, .samples = 1);
    NOTHING(&r); /* not judged yet */
    EVENT(&r, MS_VERDICT, .id = 1, .keep = 0);
    DECIDED(&r, MS_DROP, MS_REFILL);
    assert_int_equal(r.d[0].why, MS_WHY_FILTERED);
    assert_int_equal(r.d[1].tokens, 1);
}

/* Groups are handed out oldest first, come back from a consumer that died, and are dropped
 * when their oldest token is too old. */
static void test_batches_and_staleness(void **state)
{
    RIG(r, .seed = 1, .staleness_max = 1);

    (void)state;
    up(&r, 0, 8);
    for (uint64_t g = 1; g <= 3; g++) {
        submit_now(&r, g, 1);
        EVENT(&r, MS_FINISHED, .id = r.d[0].id, .attempt = 1, .tokens = 2);
    }
    EVENT(&r, MS_PULL, .id = 1, .samples = 2);
    DECIDED(&r, MS_DELIVER, MS_DELIVER, MS_BATCH);
    assert_int_equal(r.d[0].group, 1);
    EVENT(&r, MS_RETURNED, .id = 1);
    EVENT(&r, MS_PULL, .id = 2, .samples = 1);
    assert_int_equal(r.d[0].group, 1); /* it is again the oldest */
    EVENT(&r, MS_ADVANCE, .version = 1);
    NOTHING(&r);
    EVENT(&r, MS_ADVANCE, .version = 2);
    DECIDED(&r, MS_DROP, MS_DROP, MS_REFILL);
    assert_int_equal(r.d[0].why, MS_WHY_STALE);
    assert_int_equal(r.d[2].tokens, 2);
    REFUSED(&r, -EINVAL, MS_ADVANCE, .version = 1);
    EVENT(&r, MS_RETURNED, .id = 2); /* a lease stays, but does not come back */
    DECIDED(&r, MS_DROP, MS_REFILL);
    submit_now(&r, 4, 1); /* its replica has old weights */
    EVENT(&r, MS_FINISHED, .id = r.d[0].id, .attempt = 1, .tokens = 2);
    DECIDED(&r, MS_READY, MS_DROP, MS_REFILL);
}

static void test_admission_is_bounded(void **state)
{
    RIG(r, .seed = 1, .batch = 2, .staleness_max = 1);

    (void)state;
    up(&r, 0, 100);
    for (uint64_t g = 1; g <= 7; g++)
        submit(&r, g, 1);
    EVENT(&r, MS_TICK);
    assert_int_equal(r.count, 4); /* (staleness + version + 1) * batch */
    assert_int_equal(ms_scheduler_stats(r.s).held, 3);
    EVENT(&r, MS_CANCEL_GROUP, .id = 1);
    DECIDED(&r, MS_ABORT, MS_DROP, MS_SEND); /* rejected gives back */
    EVENT(&r, MS_ADVANCE, .version = 1);
    DECIDED(&r, MS_SEND, MS_SEND);
}

/* A job that begins at version 100 has consumed its first 100 batches. */
static void test_admission_of_a_restored_job(void **state)
{
    RIG(r, .seed = 1, .batch = 2, .staleness_max = 1);

    (void)state;
    up(&r, 0, 100);
    EVENT(&r, MS_ADVANCE, .version = 100);
    for (uint64_t g = 1; g <= 7; g++)
        submit(&r, g, 1);
    EVENT(&r, MS_TICK);
    assert_int_equal(r.count, 4);
    assert_int_equal(ms_scheduler_stats(r.s).held, 3);
    EVENT(&r, MS_ADVANCE, .version = 101);
    DECIDED(&r, MS_SEND, MS_SEND);
}

static void submit_begun(
    struct rig *r, uint64_t id, uint32_t wanted, uint32_t surplus, uint32_t version)
{
    EVENT(r,
          MS_SUBMIT,
          .id = id,
          .key = id,
          .samples = wanted,
          .surplus = surplus,
          .prompt = 10,
          .max_new = 1000,
          .replica = MS_NOWHERE);
    EVENT(r,
          MS_BEHIND,
          .id = ms_scheduler_request(r->s, id, 0),
          .tokens = 40,
          .version = version);
    NOTHING(r);
}

/* What runs on tokens that have become too old is for nothing: it ends at once. */
static void test_running_group_that_is_too_old_is_dropped(void **state)
{
    RIG(r, .seed = 1, .staleness_max = 1);
    uint64_t old;

    (void)state;
    EVENT(&r, MS_REPLICA_UP, .replica = 0, .epoch = 1, .samples = 8, .version = 5);
    EVENT(&r, MS_ADVANCE, .version = 5);
    submit_begun(&r, 1, 2, 0, 4); /* both are needed */
    submit_begun(&r, 2, 1, 1, 4); /* the other one may still come in time */
    submit_begun(&r, 3, 1, 0, 5);
    old = ms_scheduler_request(r.s, 2, 0);
    EVENT(&r, MS_TICK);
    DECIDED(&r, MS_SEND, MS_SEND, MS_SEND, MS_SEND, MS_SEND);
    EVENT(&r, MS_ADVANCE, .version = 6);
    DECIDED(&r, MS_ABORT, MS_ABORT, MS_DROP, MS_ABORT, MS_REFILL);
    assert_int_equal(r.d[2].group, 1);
    assert_int_equal(r.d[2].why, MS_WHY_STALE);
    assert_int_equal(r.d[3].id, old);
    assert_int_equal(r.d[3].why, MS_WHY_STALE);
    assert_int_equal(r.d[4].tokens, 1);
    assert_int_equal(ms_scheduler_stats(r.s).stale, 1);
    assert_int_equal(ms_scheduler_stats(r.s).dropped, 1);
    EVENT(&r, MS_FINISHED, .id = old, .attempt = 1, .tokens = 50); /* it was quicker */
    NOTHING(&r);
    EVENT(&r,
          MS_FINISHED,
          .id = ms_scheduler_request(r.s, 2, 1),
          .attempt = 1,
          .tokens = 60);
    DECIDED(&r, MS_READY);
    assert_int_equal(ms_scheduler_stats(r.s).dropped, 1);
}

/* It waits for its admission with tokens that have become too old by then. */
static void test_what_is_too_old_when_it_is_admitted(void **state)
{
    RIG(r, .seed = 1, .batch = 1, .staleness_max = 1);

    (void)state;
    EVENT(&r, MS_REPLICA_UP, .replica = 0, .epoch = 1, .samples = 8, .version = 5);
    EVENT(&r, MS_ADVANCE, .version = 5);
    submit(&r, 1, 1);
    submit(&r, 2, 1);
    submit_begun(&r, 3, 1, 0, 4);
    submit_begun(&r, 4, 1, 1, 4); /* the other one has no tokens yet */
    EVENT(&r, MS_TICK);
    DECIDED(&r, MS_SEND, MS_SEND);
    EVENT(&r, MS_ADVANCE, .version = 6);
    DECIDED(&r, MS_DROP, MS_REFILL, MS_SEND);
    assert_int_equal(r.d[0].group, 3);
    assert_int_equal(r.d[0].why, MS_WHY_STALE);
    assert_int_equal(r.d[2].group, 4);
    assert_int_equal(r.d[2].seq, 1);
    assert_int_equal(ms_scheduler_stats(r.s).held, 0);
}

/* What would be too old with the next version goes before all else, whatever the order. */
static void test_last_chance_goes_first(void **state)
{
    static const struct ms_policy *const policies[] = {
        &ms_policy_fifo, &ms_policy_longest, &ms_policy_auto};

    (void)state;
    for (size_t p = 0; p < MS_COUNT(policies); p++) {
        RIG(r, .seed = 1, .policy = policies[p], .staleness_max = 2);
        static const uint64_t wanted[] = {3, 2, 1};

        EVENT(&r, MS_ADVANCE, .version = 5);
        submit_begun(&r, 2, 1, 0, 5);
        submit_begun(&r, 3, 1, 0, 4); /* of its time it has one version more */
        submit(&r, 1, 1);
        EVENT(&r, MS_TICK);
        NOTHING(&r); /* no replica yet */
        EVENT(&r, MS_ADVANCE, .version = 6);
        EVENT(&r, MS_REPLICA_UP, .replica = 0, .epoch = 1, .samples = 1, .version = 6);
        for (size_t i = 0; i < MS_COUNT(wanted); i++) {
            assert_int_equal(r.d[r.count - 1].what, MS_SEND);
            assert_int_equal(r.d[r.count - 1].group, wanted[i]);
            EVENT(
                &r, MS_FINISHED, .id = r.d[r.count - 1].id, .attempt = 1, .tokens = 50);
        }
    }
}

/* A group of one with one more: the short one ends, the other would be long. How many were
 * begun. */
static uint32_t play_surplus(struct rig *r, uint64_t id, uint32_t other)
{
    uint64_t first = 0, second = 0;

    EVENT(r,
          MS_SUBMIT,
          .id = id,
          .samples = 1,
          .surplus = 1,
          .max_new = 9999,
          .replica = MS_NOWHERE);
    EVENT(r, MS_TICK);
    for (size_t i = 0; i < r->count; i++)
        *(r->d[i].seq == 0 ? &first : &second) = r->d[i].id;
    EVENT(r, MS_FINISHED, .id = first, .attempt = 1, .tokens = 10);
    if (second)
        EVENT(r, MS_ABORTED, .id = second, .attempt = 1, .tokens = other);
    EVENT(r, MS_PULL, .id = id, .samples = 1);
    EVENT(r, MS_CONSUMED, .id = id);
    return second ? 2 : 1;
}

/* Who takes the first that end gets short answers: while it does surplus shrinks. */
static void test_surplus_shrinks_while_it_biases(void **state)
{
    RIG(r, .seed = 1);
    uint64_t id = 0, begun = 0;

    (void)state;
    up(&r, 0, 8);
    for (int i = 0; i < 200; i++) /* so few could be chance */
        assert_int_equal(play_surplus(&r, ++id, 1000), 2);
    for (int i = 0; i < 1000; i++)
        play_surplus(&r, ++id, 1000);
    assert_true(ms_scheduler_bias(r.s) > 0.05);
    assert_int_equal(play_surplus(&r, ++id, 1000), 1);
    for (int i = 0; i < 30000 && begun < 2; i++) /* and none of it biases nothing */
        begun = play_surplus(&r, ++id, 10);
    assert_int_equal(begun, 2);
    assert_true(ms_scheduler_bias(r.s) <= 0.05);
    assert_int_equal(ms_scheduler_stats(r.s).groups, 0);
}

static void test_surplus_that_does_not_bias_stays(void **state)
{
    RIG(r, .seed = 1);

    (void)state;
    up(&r, 0, 8);
    for (uint64_t id = 1; id <= 2000; id++)
        assert_int_equal(play_surplus(&r, id, 10), 2);
}

/* More groups than are taken: what is not over when a batch is full stops with its tokens, and
 * goes first in the next step, behind them. */
static void test_groups_beyond_a_batch_go_on_in_the_next_step(void **state)
{
    RIG(r, .seed = 1, .staleness_max = 1);
    uint64_t ids[4] = {0};

    (void)state;
    up(&r, 0, 4);
    for (uint64_t g = 1; g <= 4; g++)
        submit(&r, g, 1);
    EVENT(&r, MS_TICK);
    for (int i = 0; i < 4; i++)
        ids[i] = r.d[i].id;
    EVENT(&r, MS_PULL, .id = 1, .samples = 2);
    EVENT(&r, MS_FINISHED, .id = ids[0], .attempt = 1, .tokens = 5);
    EVENT(&r, MS_FINISHED, .id = ids[2], .attempt = 1, .tokens = 5);
    assert_int_equal(r.d[r.count - 1].what, MS_BATCH);
    EVENT(&r, MS_WEIGHTS, .version = 1, .mode = MS_WEIGHTS_ABORT);
    DECIDED(&r, MS_ABORT, MS_ABORT);
    EVENT(&r, MS_ABORTED, .id = ids[1], .attempt = 1, .tokens = 50);
    EVENT(&r, MS_ABORTED, .id = ids[3], .attempt = 1, .tokens = 60);
    EVENT(&r, MS_CONSUMED, .id = 1);
    for (uint64_t g = 5; g <= 8; g++) /* the next step's prompts */
        submit(&r, g, 1);
    EVENT(&r, MS_ADVANCE, .version = 1);
    EVENT(&r, MS_WEIGHTS_READY, .replica = 0, .epoch = 1, .version = 1);
    DECIDED(&r, MS_UPDATED, MS_SEND, MS_SEND, MS_SEND, MS_SEND);
    assert_int_equal(r.d[1].group, 2);
    assert_int_equal(r.d[1].tokens, 50);
    assert_int_equal(r.d[2].group, 4);
    assert_int_equal(r.d[2].tokens, 60);
    assert_int_equal(r.d[1].version, 1); /* what comes now; what it has is of 0 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_surplus_is_aborted),
        cmocka_unit_test(test_filter_asks_for_another),
        cmocka_unit_test(test_batches_and_staleness),
        cmocka_unit_test(test_admission_is_bounded),
        cmocka_unit_test(test_admission_of_a_restored_job),
        cmocka_unit_test(test_running_group_that_is_too_old_is_dropped),
        cmocka_unit_test(test_what_is_too_old_when_it_is_admitted),
        cmocka_unit_test(test_last_chance_goes_first),
        cmocka_unit_test(test_surplus_shrinks_while_it_biases),
        cmocka_unit_test(test_surplus_that_does_not_bias_stays),
        cmocka_unit_test(test_groups_beyond_a_batch_go_on_in_the_next_step),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
