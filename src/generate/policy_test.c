/* policy_test.c - order and place: lengths, sessions, divided answers */
#include "generate/explain.h"
#include "generate/test_rig.h"

static void test_chunks_move_on(void **state)
{
    RIG(r, .seed = 1, .chunk = 40);
    uint64_t id;

    (void)state;
    up(&r, 0, 1);
    submit_now(&r, 1, 1);
    id = r.d[0].id;
    assert_int_equal(r.d[0].max_tokens, 40);
    EVENT(&r, MS_CHUNK, .id = id, .attempt = 1, .tokens = 40);
    DECIDED(&r, MS_SEND);
    assert_int_equal(r.d[0].tokens, 40);
    EVENT(&r, MS_CHUNK, .id = id, .attempt = 2, .tokens = 80);
    assert_int_equal(r.d[0].max_tokens, 20);
    EVENT(&r, MS_CHUNK, .id = id, .attempt = 3, .tokens = 100);
    DECIDED(&r, MS_READY); /* max_new is the end */
}

static void test_longest_goes_first(void **state)
{
    RIG(r, .seed = 1, .policy = &ms_policy_longest);

    (void)state;
    for (uint64_t key = 1; key <= 3; key++) {
        struct ms_length_sums sums = {0};

        ms_length_sums_add(&sums, key == 2 ? 5000 : (uint32_t)(100 * key));
        ms_length_sums_add(&sums, key == 2 ? 5100 : (uint32_t)(110 * key));
        ms_lengths_learn(r.lengths, key, &sums, NULL, 0, 0);
    }
    up(&r, 0, 1);
    for (uint64_t g = 1; g <= 4; g++) /* 4 is not known: its probe goes before all */
        EVENT(&r,
              MS_SUBMIT,
              .id = g,
              .key = g,
              .samples = 1,
              .max_new = 10000,
              .replica = MS_NOWHERE);
    EVENT(&r, MS_TICK);
    for (int i = 0; i < 4; i++) {
        static const uint64_t wanted[] = {4, 2, 3, 1};
        uint64_t id = r.d[r.count - 1].id;

        assert_int_equal(r.d[r.count - 1].what, MS_SEND);
        assert_int_equal(r.d[r.count - 1].group, wanted[i]);
        EVENT(&r, MS_FINISHED, .id = id, .attempt = 1, .tokens = 10);
    }
}

/* What runs says how long the rest of its group will be; while something waits the scheduler
 * asks for the ticks that it needs to put that into the order. */
static void test_progress_changes_the_order(void **state)
{
    RIG(r, .seed = 1, .policy = &ms_policy_longest, .rebalance_ns = S(2));
    uint64_t second;

    (void)state;
    up(&r, 0, 1);
    up(&r, 1, 1);
    for (uint64_t id = 1; id <= 2; id++)
        EVENT(&r,
              MS_SUBMIT,
              .id = id,
              .key = id,
              .samples = 2,
              .max_new = 100000,
              .replica = MS_NOWHERE);
    EVENT(&r, MS_TICK);
    DECIDED(&r, MS_SEND, MS_SEND); /* one probe of each */
    second = r.d[1].id;
    assert_int_equal(r.d[1].group, 2);
    assert_int_equal(ms_scheduler_wake_ns(r.s), 0);
    EVENT(&r, MS_TICK);
    EVENT(&r, MS_PROGRESS, .id = second, .attempt = 1, .tokens = 50000);
    assert_int_equal(ms_scheduler_wake_ns(r.s), S(2));
    r.now_ns = ms_scheduler_wake_ns(r.s);
    EVENT(&r, MS_TICK);
    NOTHING(&r);
    up(&r, 2, 1);
    DECIDED(&r, MS_SEND);
    assert_int_equal(r.d[0].group, 2);
    up(&r, 3, 1);
    assert_int_equal(r.d[0].group, 1);
    assert_true(ms_scheduler_wake_ns(r.s) == MS_NEVER); /* nothing waits */
}

/* Samples of one prompt that are groups of their own have one probe together. */
static void test_sibling_groups_have_one_probe(void **state)
{
    RIG(r, .seed = 1, .policy = &ms_policy_longest);
    struct ms_length_sums sums = {0};

    (void)state;
    ms_length_sums_add(&sums, 9000); /* prompt 3 is known to be long */
    ms_length_sums_add(&sums, 9000);
    ms_lengths_learn(r.lengths, 3, &sums, NULL, 0, 0);
    up(&r, 0, 1);
    for (uint64_t g = 1; g <= 3; g++) /* 2 is a sibling of 1 */
        EVENT(&r,
              MS_SUBMIT,
              .id = g,
              .key = g == 3 ? 3 : 1,
              .keep = g == 2,
              .samples = 1,
              .max_new = g == 3 ? 20000 : 100,
              .replica = MS_NOWHERE);
    EVENT(&r, MS_TICK);
    for (int i = 0; i < 3; i++) {
        static const uint64_t wanted[] = {1, 3, 2};
        uint64_t id = r.d[r.count - 1].id;

        assert_int_equal(r.d[r.count - 1].what, MS_SEND);
        assert_int_equal(r.d[r.count - 1].group, wanted[i]);
        EVENT(&r, MS_FINISHED, .id = id, .attempt = 1, .tokens = 10);
    }
}

/* A session's next turn goes where its prefix is: at once, or when there is room; and
 * elsewhere if that takes too long. */
static void test_warm_replica(void **state)
{
    RIG(r, .seed = 1, .policy = &ms_policy_auto);
    uint64_t id;

    (void)state;
    up(&r, 0, 1);
    up(&r, 1, 2);
    EVENT(
        &r, MS_SUBMIT, .id = 1, .samples = 1, .max_new = 9, .prompt = 9, .replica = 0);
    EVENT(&r, MS_TICK);
    assert_int_equal(r.d[0].replica, 0);
    id = r.d[0].id;
    EVENT(
        &r, MS_SUBMIT, .id = 2, .samples = 1, .max_new = 9, .prompt = 9, .replica = 0);
    EVENT(&r, MS_TICK);
    NOTHING(&r); /* it waits for replica 0, and others pass */
    EVENT(&r, MS_SUBMIT, .id = 3, .samples = 1, .max_new = 9, .replica = MS_NOWHERE);
    EVENT(&r, MS_TICK);
    assert_int_equal(r.d[0].replica, 1);
    EVENT(&r, MS_FINISHED, .id = id, .attempt = 1, .tokens = 4);
    DECIDED(&r, MS_READY, MS_SEND);
    assert_int_equal(r.d[1].replica, 0);
    EVENT(
        &r, MS_SUBMIT, .id = 4, .samples = 1, .max_new = 9, .prompt = 9, .replica = 0);
    EVENT(&r, MS_TICK);
    NOTHING(&r);
    r.now_ns = ms_scheduler_wake_ns(r.s);
    assert_true(r.now_ns <= S(60));
    EVENT(&r, MS_TICK);
    DECIDED(&r, MS_SEND);
    assert_int_equal(r.d[0].replica, 1);
}

static void submit_warm(struct rig *r, uint64_t id, uint32_t epoch, uint32_t version)
{
    EVENT(r,
          MS_SUBMIT,
          .id = id,
          .samples = 1,
          .prompt = 9,
          .max_new = 9,
          .replica = 0,
          .epoch = epoch,
          .version = version);
    EVENT(r, MS_TICK);
}

/* A cache lasts as long as its engine and its weights: a prefix of earlier ones is nowhere. */
static void test_prefix_of_other_weights_is_cold(void **state)
{
    RIG(r, .seed = 1, .policy = &ms_policy_auto);

    (void)state;
    up(&r, 0, 1);
    up(&r, 1, 4);
    submit_warm(&r, 1, 1, 0);
    DECIDED(&r, MS_SEND);
    assert_int_equal(r.d[0].replica, 0);
    submit_warm(&r, 2, 1, 0);
    NOTHING(&r); /* it waits for its prefix */
    submit_warm(&r, 3, 1, 7);
    DECIDED(&r, MS_SEND); /* of other weights */
    assert_int_equal(r.d[0].replica, 1);
    submit_warm(&r, 4, 2, 0);
    DECIDED(&r, MS_SEND); /* of another incarnation */
    assert_int_equal(r.d[0].replica, 1);
    EVENT(&r, MS_WEIGHTS, .version = 7, .mode = MS_WEIGHTS_KEEP);
    EVENT(&r, MS_WEIGHTS_READY, .replica = 0, .epoch = 1, .version = 7);
    EVENT(&r, MS_WEIGHTS_READY, .replica = 1, .epoch = 1, .version = 7);
    submit_warm(&r, 5, 1, 0);
    DECIDED(&r, MS_SEND); /* what was warm is not any more */
    assert_int_equal(r.d[0].replica, 1);
    submit_warm(&r, 6, 1, 7);
    NOTHING(&r);
}

/* An attempt that ended before its first token may have left no prefix. */
static void test_an_aborted_request_is_not_warm(void **state)
{
    RIG(r, .seed = 1, .policy = &ms_policy_auto);
    struct ms_explanation x;
    uint64_t id;

    (void)state;
    up(&r, 0, 1);
    submit_warm(&r, 1, 0, 0);
    id = r.d[0].id;
    assert_int_equal(ms_scheduler_explain(r.s, id, 0, 0, &x), 0);
    assert_int_equal(x.placed, MS_PLACED_WARM);
    EVENT(&r, MS_PAUSE, .mode = MS_WEIGHTS_ABORT);
    EVENT(&r, MS_ABORTED, .id = id, .attempt = 1);
    EVENT(&r, MS_RESUME);
    DECIDED(&r, MS_SEND);
    assert_int_equal(ms_scheduler_explain(r.s, id, 0, 0, &x), 0);
    assert_int_equal(x.placed, MS_PLACED_LOAD);
}

static void submit_turn(struct rig *r, uint64_t id, uint64_t key, uint8_t turn)
{
    EVENT(r,
          MS_SUBMIT,
          .id = id,
          .key = key,
          .turn = turn,
          .samples = 1,
          .prompt = 10,
          .max_new = 10000,
          .replica = MS_NOWHERE);
}

/* A session is as long as its turns together: what is known of later ones, as many as
 * earlier sessions of the prompt had, counts already at its first. */
static void test_longest_session_goes_first(void **state)
{
    RIG(r, .seed = 1, .policy = &ms_policy_auto);
    static const uint64_t wanted[] = {4, 2, 1, 3};

    (void)state;
    for (uint64_t key = 1; key <= 3; key++) { /* 200; 100 in each of 4 turns; 150 */
        uint64_t turn_key = key;

        for (int turn = 0; turn < (key == 2 ? 4 : 1); turn++) {
            struct ms_length_sums sums = {0};

            for (int i = 0; i < 8; i++)
                ms_length_sums_add(&sums, key == 1 ? 200 : key == 2 ? 100 : 150);
            ms_lengths_learn(r.lengths, turn_key, &sums, NULL, 0, 0);
            turn_key = ms_lengths_next_turn(turn_key);
        }
    }
    for (uint64_t key = 1; key <= 3; key++)
        submit_turn(&r, key, key, 0);
    submit_turn(&r, 4, 4, 1); /* nothing is known of it: it goes first */
    up(&r, 0, 1);
    for (size_t i = 0; i < MS_COUNT(wanted); i++) {
        uint64_t id = r.d[r.count - 1].id;

        assert_int_equal(r.d[r.count - 1].group, wanted[i]);
        EVENT(&r, MS_FINISHED, .id = id, .attempt = 1, .tokens = 10);
    }
}

/* Divided answers stay where their caches are, while there is nothing to gain elsewhere. */
static void test_chunks_stay_where_their_cache_is(void **state)
{
    RIG(r, .seed = 1, .policy = &ms_policy_auto, .chunk = 10);
    uint32_t on;
    uint64_t id;

    (void)state;
    for (uint32_t i = 0; i < 4; i++)
        up(&r, i, 4);
    submit_now(&r, 1, 1);
    id = r.d[0].id;
    on = r.d[0].replica;
    for (uint32_t attempt = 1; attempt < 9; attempt++) {
        EVENT(&r, MS_CHUNK, .id = id, .attempt = attempt, .tokens = 10 * attempt);
        DECIDED(&r, MS_SEND);
        assert_int_equal(r.d[0].replica, on);
    }
    EVENT(&r, MS_DRAIN, .replica = on);
    DECIDED(&r, MS_ABORT);
    EVENT(&r, MS_CHUNK, .id = id, .attempt = 9, .tokens = 90);
    assert_int_equal(r.d[r.count - 1].what, MS_SEND);
    assert_int_not_equal(r.d[r.count - 1].replica, on);
}

/* A crowded replica lets the next part go to an idle one, if a new prefill is cheaper than to
 * be among so many. */
static void test_chunks_leave_a_crowd(void **state)
{
    static const struct {
        double prefill_ns;
        uint32_t wanted;
    } rows[] = {{1e3, 1}, {1e9, 0}};

    (void)state;
    for (size_t k = 0; k < MS_COUNT(rows); k++) {
        RIG(r,
            .seed = 1,
            .policy = &ms_policy_auto,
            .chunk = 50,
            .prefill_ns = rows[k].prefill_ns);
        uint64_t id;

        up(&r, 0, 8);
        submit_now(&r, 1, 8);
        assert_int_equal(r.count, 8);
        id = r.d[0].id;
        for (uint32_t batch = 1; batch <= 8; batch *= 2)
            EVENT(&r,
                  MS_LOAD,
                  .replica = 0,
                  .epoch = 1,
                  .samples = batch,
                  .step_ns = MS_NS_PER_MS * (8 + batch));
        up(&r, 1, 8);
        EVENT(&r, MS_CHUNK, .id = id, .attempt = 1, .tokens = 50);
        DECIDED(&r, MS_SEND);
        assert_int_equal(r.d[0].replica, rows[k].wanted);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chunks_move_on),
        cmocka_unit_test(test_longest_goes_first),
        cmocka_unit_test(test_progress_changes_the_order),
        cmocka_unit_test(test_sibling_groups_have_one_probe),
        cmocka_unit_test(test_warm_replica),
        cmocka_unit_test(test_prefix_of_other_weights_is_cold),
        cmocka_unit_test(test_an_aborted_request_is_not_warm),
        cmocka_unit_test(test_longest_session_goes_first),
        cmocka_unit_test(test_chunks_stay_where_their_cache_is),
        cmocka_unit_test(test_chunks_leave_a_crowd),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
