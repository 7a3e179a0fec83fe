/* weights_test.c - new weights, and replicas that go and come */
#include "generate/test_rig.h"

static void test_weights_at_a_barrier(void **state)
{
    RIG(r, .seed = 1);
    uint64_t id[2];

    (void)state;
    up(&r, 0, 1);
    up(&r, 1, 1);
    submit_now(&r, 1, 2);
    id[0] = r.d[0].id;
    id[1] = r.d[1].id;
    EVENT(&r, MS_WEIGHTS, .version = 3, .mode = MS_WEIGHTS_ABORT);
    DECIDED(&r, MS_ABORT, MS_ABORT);
    REFUSED(&r, -EINVAL, MS_WEIGHTS, .version = 4);
    EVENT(&r, MS_ABORTED, .id = id[0], .attempt = 1, .tokens = 9);
    DECIDED(&r, MS_UPDATE);
    EVENT(&r, MS_WEIGHTS_READY, .replica = r.d[0].replica, .epoch = 1, .version = 3);
    NOTHING(&r); /* the other one is not there yet */
    EVENT(&r, MS_ABORTED, .id = id[1], .attempt = 1, .tokens = 0);
    DECIDED(&r, MS_UPDATE);
    EVENT(&r, MS_WEIGHTS_READY, .replica = r.d[0].replica, .epoch = 1, .version = 3);
    DECIDED(&r, MS_UPDATED, MS_SEND, MS_SEND);
    assert_int_equal(r.d[1].version, 3);
    assert_int_equal(r.d[1].tokens, 9); /* a partial one first */
    EVENT(&r, MS_FINISHED, .id = id[0], .attempt = 2, .tokens = 20);
    EVENT(&r, MS_FINISHED, .id = id[1], .attempt = 2, .tokens = 20);
    EVENT(&r, MS_PULL, .id = 1, .samples = 1);
    assert_int_equal(r.d[0].version, 0); /* of its oldest token */
}

static void test_weights_rolling_and_waiting(void **state)
{
    RIG(r, .seed = 1);
    uint64_t id[2];
    uint32_t on[2];

    (void)state;
    up(&r, 0, 1);
    up(&r, 1, 1);
    submit_now(&r, 1, 2);
    for (int i = 0; i < 2; i++) {
        id[r.d[i].replica] = r.d[i].id;
        on[i] = r.d[i].replica;
    }
    assert_int_not_equal(on[0], on[1]);
    EVENT(&r,
          MS_WEIGHTS,
          .version = 1,
          .mode = MS_WEIGHTS_WAIT,
          .rolling = 1,
          .deadline_ns = S(10));
    NOTHING(&r);
    EVENT(&r, MS_FINISHED, .id = id[0], .attempt = 1, .tokens = 5);
    DECIDED(&r, MS_UPDATE);
    EVENT(&r, MS_WEIGHTS_READY, .replica = 0, .epoch = 1, .version = 1);
    NOTHING(&r);
    r.now_ns = S(10);
    EVENT(&r, MS_TICK); /* the second does not end by itself */
    DECIDED(&r, MS_ABORT);
    EVENT(&r, MS_ABORTED, .id = id[1], .attempt = 1, .tokens = 5);
    DECIDED(&r, MS_UPDATE, MS_SEND); /* and goes on where the weights are new */
    assert_int_equal(r.d[1].replica, 0);
    EVENT(&r, MS_REPLICA_DOWN, .replica = 1, .epoch = 1);
    DECIDED(&r, MS_UPDATED); /* who is gone is not waited for */
}

static void test_weights_in_place(void **state)
{
    RIG(r, .seed = 1);

    (void)state;
    up(&r, 0, 1);
    submit_now(&r, 1, 1);
    EVENT(&r, MS_WEIGHTS, .version = 1, .mode = MS_WEIGHTS_KEEP);
    DECIDED(&r, MS_UPDATE);
    EVENT(&r, MS_WEIGHTS_READY, .replica = 0, .epoch = 1, .version = 1);
    DECIDED(&r, MS_UPDATED);
    assert_int_equal(ms_scheduler_stats(r.s).running, 1);
}

static void test_weights_given_up(void **state)
{
    RIG(r, .seed = 1);

    (void)state;
    up(&r, 0, 1);
    REFUSED(&r, -EINVAL, MS_WEIGHTS_FAILED);
    submit_now(&r, 1, 1);
    EVENT(&r, MS_WEIGHTS, .version = 1);
    DECIDED(&r, MS_ABORT);
    EVENT(&r, MS_ABORTED, .id = r.d[0].id, .attempt = 1, .tokens = 5);
    DECIDED(&r, MS_UPDATE);
    EVENT(&r, MS_WEIGHTS_FAILED);
    DECIDED(&r, MS_SEND);
    assert_int_equal(r.d[0].version, 0); /* what it had */
    EVENT(&r, MS_WEIGHTS, .version = 2, .mode = MS_WEIGHTS_KEEP);
    DECIDED(&r, MS_UPDATE);
}

static void test_pause_and_take_one(void **state)
{
    RIG(r, .seed = 1, .silence_ns = S(5));
    uint64_t id;

    (void)state;
    up(&r, 0, 1);
    submit_now(&r, 7, 1);
    id = r.d[0].id;
    assert_int_equal(ms_scheduler_request(r.s, 7, 0), id);
    assert_int_equal(ms_scheduler_request(r.s, 7, 1), 0);
    EVENT(&r, MS_PAUSE, .mode = MS_WEIGHTS_ABORT);
    DECIDED(&r, MS_ABORT);
    EVENT(&r, MS_ABORTED, .id = id, .attempt = 1, .tokens = 5);
    NOTHING(&r);
    r.now_ns = S(100);
    EVENT(&r, MS_TICK);
    NOTHING(&r);
    EVENT(&r, MS_RESUME);
    DECIDED(&r, MS_SEND);
    REFUSED(&r, -EAGAIN, MS_TAKE, .id = 7);
    EVENT(&r, MS_PAUSE, .mode = MS_WEIGHTS_KEEP);
    r.now_ns = S(200);
    EVENT(&r, MS_TICK); /* that it is silent means nothing now */
    NOTHING(&r);
    EVENT(&r, MS_RESUME);
    EVENT(&r, MS_TICK);
    NOTHING(&r);
    EVENT(&r, MS_FINISHED, .id = id, .attempt = 2, .tokens = 9);
    DECIDED(&r, MS_READY);
    EVENT(&r, MS_TAKE, .id = 7);
    NOTHING(&r);
    assert_int_equal(ms_scheduler_stats(r.s).delivered, 1);
    assert_int_equal(ms_scheduler_stats(r.s).groups, 0);
    REFUSED(&r, -ENOENT, MS_TAKE, .id = 7);
}

static void test_shrink_and_expand_keep_work(void **state)
{
    RIG(r, .seed = 1);
    uint64_t id;

    (void)state;
    up(&r, 0, 1);
    submit_now(&r, 1, 1);
    id = r.d[0].id;
    EVENT(&r, MS_DRAIN, .replica = 0);
    DECIDED(&r, MS_ABORT);
    EVENT(&r, MS_ABORTED, .id = id, .attempt = 1, .tokens = 50);
    DECIDED(&r, MS_RELEASED);
    EVENT(&r, MS_REPLICA_UP, .replica = 3, .epoch = 1, .samples = 1);
    DECIDED(&r, MS_SEND);
    assert_int_equal(r.d[0].tokens, 50);
    EVENT(&r, MS_REPLICA_UP, .replica = 3, .epoch = 2, .samples = 1); /* restarted */
    DECIDED(&r, MS_SEND);
    assert_int_equal(r.d[0].epoch, 2);
    REFUSED(&r, -EINVAL, MS_REPLICA_UP, .replica = 3, .epoch = 1, .samples = 1);
}

/* An engine says that its tokens are of an older version than it was given. */
static void test_a_replica_that_falls_back_gets_no_more(void **state)
{
    RIG(r, .seed = 1, .staleness_max = 1);
    uint64_t id[2];

    (void)state;
    EVENT(&r, MS_ADVANCE, .version = 5);
    EVENT(&r, MS_REPLICA_UP, .replica = 0, .epoch = 1, .samples = 2, .version = 5);
    submit_now(&r, 1, 2);
    id[0] = r.d[0].id;
    id[1] = r.d[1].id;
    EVENT(&r, MS_FELL_BACK, .id = id[0], .attempt = 1, .epoch = 9, .version = 5);
    NOTHING(&r);
    EVENT(&r, MS_FELL_BACK, .id = id[0], .attempt = 1, .epoch = 1, .version = 3);
    DECIDED(&r, MS_ABORT, MS_ABORT);
    EVENT(&r, MS_FELL_BACK, .id = id[1], .attempt = 1, .epoch = 1, .version = 4);
    NOTHING(&r); /* it is drained already */
    EVENT(&r, MS_ABORTED, .id = id[0], .attempt = 1, .tokens = 9);
    NOTHING(&r); /* there is no other */
    EVENT(&r, MS_ABORTED, .id = id[1], .attempt = 1, .tokens = 9);
    DECIDED(&r, MS_RELEASED);
    submit_now(&r, 2, 1);
    NOTHING(&r);
    EVENT(&r, MS_REPLICA_UP, .replica = 0, .epoch = 2, .samples = 3, .version = 5);
    DECIDED(&r, MS_SEND, MS_SEND, MS_SEND);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(r.d[i].version, 5);
        assert_int_equal(r.d[i].tokens, r.d[i].group == 1 ? 9 : 0);
    }
    EVENT(&r, MS_FINISHED, .id = id[1], .attempt = 2, .tokens = 20);
    NOTHING(&r);
    EVENT(&r, MS_FINISHED, .id = id[0], .attempt = 2, .tokens = 20);
    DECIDED(&r, MS_READY, MS_DROP, MS_REFILL);
    assert_int_equal(r.d[1].why, MS_WHY_STALE); /* its oldest token is of version 3 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_replica_that_falls_back_gets_no_more),
        cmocka_unit_test(test_weights_at_a_barrier),
        cmocka_unit_test(test_weights_rolling_and_waiting),
        cmocka_unit_test(test_weights_in_place),
        cmocka_unit_test(test_weights_given_up),
        cmocka_unit_test(test_pause_and_take_one),
        cmocka_unit_test(test_shrink_and_expand_keep_work),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
