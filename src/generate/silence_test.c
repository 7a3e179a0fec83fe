/* silence_test.c - replicas and requests that are not heard of */
#include "generate/scheduler_impl.h"
#include "generate/test_rig.h"

static void test_retry_waits_for_the_ack(void **state)
{
    RIG(r, .seed = 1, .silence_ns = S(30));
    uint64_t id;

    (void)state;
    up(&r, 0, 2);
    up(&r, 1, 2);
    submit_now(&r, 1, 1);
    id = r.d[0].id;
    EVENT(&r, MS_PROGRESS, .id = id, .attempt = 1, .tokens = 12);
    r.now_ns = S(29);
    EVENT(&r, MS_LOAD, .replica = 0, .epoch = 1, .samples = 1, .step_ns = 1);
    EVENT(&r, MS_LOAD, .replica = 1, .epoch = 1, .samples = 1, .step_ns = 1);
    r.now_ns = S(30);
    assert_true(ms_scheduler_wake_ns(r.s) <= S(30));
    EVENT(&r, MS_TICK); /* its replica lives, the request does not move */
    DECIDED(&r, MS_ABORT);
    assert_int_equal(r.d[0].why, MS_WHY_SILENT);
    EVENT(&r, MS_TICK);
    NOTHING(&r); /* never twice at once */
    EVENT(&r, MS_ABORTED, .id = id, .attempt = 1, .tokens = 15);
    DECIDED(&r, MS_SEND);
    assert_int_equal(r.d[0].attempt, 2);
    assert_int_equal(r.d[0].tokens, 15);
    assert_int_equal(r.d[0].max_tokens, 85);
    EVENT(&r, MS_FINISHED, .id = id, .attempt = 1, .tokens = 99); /* the old attempt */
    NOTHING(&r);
    EVENT(&r, MS_FINISHED, .id = id, .attempt = 2, .tokens = 40);
    DECIDED(&r, MS_READY);
}

static void test_silent_replica_is_probed_and_evicted(void **state)
{
    RIG(r, .seed = 1, .silence_ns = S(30), .probe_ns = S(10));
    uint32_t first;
    uint64_t id;

    (void)state;
    up(&r, 0, 2);
    up(&r, 1, 2);
    submit_now(&r, 1, 1);
    id = r.d[0].id;
    first = r.d[0].replica;
    EVENT(&r, MS_PROGRESS, .id = id, .attempt = 1, .tokens = 12);
    r.now_ns = S(31);
    EVENT(&r, MS_TICK);
    DECIDED(&r, MS_PROBE);
    assert_int_equal(r.d[0].replica, first);
    EVENT(&r, MS_ALIVE, .replica = first, .epoch = 1);
    r.now_ns = S(62);
    EVENT(&r, MS_TICK);
    DECIDED(&r, MS_PROBE);
    r.now_ns = S(73);
    EVENT(&r, MS_TICK);
    DECIDED(&r, MS_EVICT, MS_SEND);
    assert_int_equal(r.d[1].replica, 1 - first);
    assert_int_equal(r.d[1].tokens, 12);               /* from what was streamed */
    EVENT(&r, MS_ALIVE, .replica = first, .epoch = 1); /* too late */
    NOTHING(&r);
}

/* What waits in its engine for cache is not silent, if the engine says so. */
static void test_waiting_is_not_silence(void **state)
{
    RIG(r, .seed = 1, .silence_ns = S(30));
    uint64_t id;

    (void)state;
    up(&r, 0, 2);
    submit_now(&r, 1, 1);
    id = r.d[0].id;
    EVENT(&r, MS_PROGRESS, .id = id, .attempt = 1, .tokens = 12);
    for (int i = 1; i <= 10; i++) {
        r.now_ns = S(20 * i);
        EVENT(&r, MS_WAITING, .id = id, .attempt = 1);
        EVENT(&r, MS_TICK);
        NOTHING(&r);
    }
    EVENT(&r, MS_WAITING, .id = id, .attempt = 2); /* of no attempt */
    assert_int_equal(ms_scheduler_stats(r.s).late, 1);
    EVENT(&r, MS_FINISHED, .id = id, .attempt = 1, .tokens = 20);
    DECIDED(&r, MS_READY);
}

static void up_with_cache(struct rig *r, uint32_t replica, uint32_t tokens)
{
    EVENT(r,
          MS_REPLICA_UP,
          .replica = replica,
          .epoch = 1,
          .samples = 4,
          .tokens = tokens);
}

/* Where it does not, the scheduler can tell by the tokens that it has sent there: a request
 * that is silent on a full replica goes elsewhere, as often as it takes. */
static void test_silent_on_a_full_replica_is_no_failure(void **state)
{
    RIG(r, .seed = 1, .silence_ns = S(30));
    uint64_t ids[4] = {0};

    (void)state;
    up_with_cache(&r, 0, 100);
    submit_now(&r, 1, 4);
    DECIDED(&r, MS_SEND, MS_SEND, MS_SEND, MS_SEND);
    for (int i = 0; i < 4; i++)
        ids[i] = r.d[i].id;
    for (uint32_t attempt = 1; attempt <= 5; attempt++) {
        r.now_ns += S(20);
        for (int i = 0; i < 3; i++)
            EVENT(&r, MS_PROGRESS, .id = ids[i], .attempt = 1, .tokens = 20);
        r.now_ns += S(20);
        EVENT(&r, MS_TICK);
        DECIDED(&r, MS_ABORT); /* 3 * 30 and 10 tokens of 100 */
        assert_true(r.d[0].id == ids[3]);
        assert_int_equal(r.d[0].why, MS_WHY_PREEMPTED);
        EVENT(&r, MS_ABORTED, .id = ids[3], .attempt = attempt);
        DECIDED(&r, MS_SEND);
    }
    assert_int_equal(ms_scheduler_stats(r.s).failed, 0);
}

/* One request on each of `count` replicas, which all have made a step of so long. */
static void run_on_slow(struct rig *r, uint32_t count, int64_t step_ns)
{
    for (uint32_t i = 0; i < count; i++)
        up(r, i, 1);
    submit_now(r, 1, count);
    assert_int_equal(r->count, count);
    for (uint32_t i = 0; i < count; i++)
        EVENT(r, MS_LOAD, .replica = i, .epoch = 1, .samples = 1, .step_ns = step_ns);
}

/* How long a replica may be silent: 20 of its own steps, within the floor and a limit. */
static void test_silence_is_measured_in_steps(void **state)
{
    static const struct {
        int64_t step_ns, floor_ns, wanted_ns;
    } rows[] = {
        {20 * MS_NS_PER_MS, S(30), S(30)}, /* an ordinary device */
        {S(1), S(30), S(30)},
        {S(2), S(30), S(40)},
        {S(5), S(30), S(100)}, /* a model on a CPU */
        {S(5), S(200), S(200)},
        {S(31), S(30), S(600)},  /* 10 minutes at most */
        {S(31), S(900), S(900)}, /* but for who says more */
        {S(3600), S(1), S(600)},
    };

    (void)state;
    for (size_t i = 0; i < MS_COUNT(rows); i++) {
        RIG(r, .seed = 1, .silence_ns = rows[i].floor_ns);

        run_on_slow(&r, 1, rows[i].step_ns);
        assert_int_equal(ms_scheduler_wake_ns(r.s), rows[i].wanted_ns);
        r.now_ns = rows[i].wanted_ns - 1;
        EVENT(&r, MS_TICK);
        NOTHING(&r);
        r.now_ns++;
        EVENT(&r, MS_TICK);
        DECIDED(&r, MS_PROBE);
    }
}

/* A slow replica gives no quick one more time, and one that was not measured yet is taken to be
 * as the others are. */
static void test_silence_is_of_each_replica(void **state)
{
    RIG(r, .seed = 1, .silence_ns = S(30));

    (void)state;
    run_on_slow(&r, 2, S(5));
    for (int i = 0; i < 100; i++) /* the second one has become quick */
        EVENT(&r,
              MS_LOAD,
              .replica = 1,
              .epoch = 1,
              .samples = 1,
              .step_ns = 10 * MS_NS_PER_MS);
    r.now_ns = S(31);
    EVENT(&r, MS_TICK);
    DECIDED(&r, MS_PROBE);
    assert_int_equal(r.d[0].replica, 1);
    EVENT(&r, MS_ALIVE, .replica = 1, .epoch = 1);
    r.now_ns = S(35);
    EVENT(&r, MS_REPLICA_DOWN, .replica = 1, .epoch = 1);
    EVENT(&r, MS_REPLICA_UP, .replica = 1, .epoch = 2, .samples = 1);
    assert_true(ms_gen_replica_silence_ns(r.s, &r.s->replicas[1]) >= S(30));
    assert_int_equal(ms_gen_replica_silence_ns(r.s, &r.s->replicas[0]), S(100));
}

static void test_without_silence_nobody_is_probed(void **state)
{
    RIG(r, .seed = 1);

    (void)state;
    run_on_slow(&r, 2, S(5));
    r.now_ns = S(100000);
    EVENT(&r, MS_TICK);
    NOTHING(&r);
    assert_true(ms_scheduler_wake_ns(r.s) == MS_NEVER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_retry_waits_for_the_ack),
        cmocka_unit_test(test_silent_replica_is_probed_and_evicted),
        cmocka_unit_test(test_waiting_is_not_silence),
        cmocka_unit_test(test_silent_on_a_full_replica_is_no_failure),
        cmocka_unit_test(test_silence_is_measured_in_steps),
        cmocka_unit_test(test_silence_is_of_each_replica),
        cmocka_unit_test(test_without_silence_nobody_is_probed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
