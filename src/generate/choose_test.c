/* The order of a step is the one that does best in simulation; in slices, running requests
 * make way for those that could take longer. */
#include "generate/choose.h"
#include "generate/test_rig.h"

#include <math.h>

enum { PROMPTS = 40, SAMPLES = 8 };

/* Steps of 8 ms + 0.06 ms a request. */
static void show_steps(struct rig *r, uint32_t replica)
{
    for (uint32_t batch = 1; batch <= 64; batch *= 2)
        EVENT(r,
              MS_LOAD,
              .replica = replica,
              .epoch = 1,
              .samples = batch,
              .step_ns = 8000000 + 60000 * batch);
}

/* A history in which prompts explain all of the variance of lengths, or nothing of it. */
static void show_lengths(struct rig *r, bool by_prompt)
{
    for (uint32_t k = 1; k <= PROMPTS; k++) {
        struct ms_length_sums sums = {0};

        for (uint32_t i = 0; i < SAMPLES; i++) {
            double z =
                ((double)(by_prompt ? k : (k * 7 + i * 5) % PROMPTS) / PROMPTS) * 4 - 2;

            ms_length_sums_add(&sums, (uint32_t)(2000 * exp(z)) + i);
        }
        ms_lengths_learn(r->lengths, k, &sums, 0);
    }
}

static void begin_step(struct rig *r, uint32_t replicas)
{
    for (uint32_t i = 0; i < replicas; i++) {
        up(r, i, 16);
        show_steps(r, i);
    }
    for (uint64_t id = 1; id <= PROMPTS; id++)
        EVENT(r,
              MS_SUBMIT,
              .id = id,
              .key = id,
              .samples = SAMPLES,
              .prompt = 512,
              .max_new = 16384,
              .replica = MS_NOWHERE);
    EVENT(r, MS_TICK);
}

static void test_what_is_known_decides(void **state)
{
    RIG(known, .policy = &ms_policy_auto, .seed = 1, .rebalance_ns = S(2));
    RIG(unknown, .policy = &ms_policy_auto, .seed = 1, .rebalance_ns = S(2));

    (void)state;
    show_lengths(&known, true);
    show_lengths(&unknown, false);
    begin_step(&known, 4);
    begin_step(&unknown, 12);
    assert_int_equal(known.s->choice.order, MS_ORDER_LONGEST);
    assert_true(known.s->choice.slice <= 0);
    assert_true(known.s->choice.expected_ns > 1e9);
    /* nobody knows who is long, and there is room for nearly all: let all begin */
    assert_int_equal(unknown.s->choice.order, MS_ORDER_WORST);
    assert_true(unknown.s->choice.slice > 0);
}

static void test_same_state_same_choice(void **state)
{
    RIG(one, .policy = &ms_policy_auto, .seed = 1, .rebalance_ns = S(2));
    RIG(two, .policy = &ms_policy_auto, .seed = 1, .rebalance_ns = S(2));

    (void)state;
    show_lengths(&one, false);
    show_lengths(&two, false);
    begin_step(&one, 4);
    begin_step(&two, 4);
    assert_int_equal(one.s->choice.order, two.s->choice.order);
    assert_true(one.s->choice.expected_ns - two.s->choice.expected_ns == 0);
}

static void test_nothing_is_chosen_in_the_dark(void **state)
{
    RIG(r, .policy = &ms_policy_auto, .seed = 1);

    (void)state;
    up(&r, 0, 1);
    submit_now(&r, 1, 4);
    DECIDED(&r, MS_SEND);
    assert_int_equal(r.s->choice.order, MS_ORDER_UNKNOWN); /* steps are not known */
}

/* One place: the second request gets its slice, then the first one goes on from where it
 * was, before the second has had more than it. */
static void test_slices(void **state)
{
    RIG(r, .policy = &ms_policy_auto, .seed = 1, .rebalance_ns = S(2));
    uint64_t first;

    (void)state;
    up(&r, 0, 1);
    submit_now(&r, 1, 2);
    DECIDED(&r, MS_SEND);
    first = r.d[0].id;
    r.s->choice =
        (struct ms_choice){.order = MS_ORDER_WORST, .slice = 20, .expected_ns = 1e9};
    EVENT(&r, MS_PROGRESS, .id = first, .attempt = 1, .tokens = 15);
    EVENT(&r, MS_TICK);
    NOTHING(&r);
    EVENT(&r, MS_PROGRESS, .id = first, .attempt = 1, .tokens = 30);
    EVENT(&r, MS_TICK);
    DECIDED(&r, MS_ABORT);
    assert_int_equal(r.d[0].why, MS_WHY_YIELDED);
    EVENT(&r, MS_TICK);
    NOTHING(&r); /* not twice at once */
    EVENT(&r, MS_ABORTED, .id = first, .attempt = 1, .tokens = 31);
    DECIDED(&r, MS_SEND);
    assert_true(r.d[0].id != first);
    EVENT(&r, MS_FINISHED, .id = r.d[0].id, .attempt = 1, .tokens = 40);
    DECIDED(&r, MS_SEND);
    assert_true(r.d[0].id == first);
    assert_int_equal(r.d[0].tokens, 31);
    assert_int_equal(r.d[0].attempt, 2);
    assert_int_equal(ms_scheduler_stats(r.s).yielded, 1);
    r.now_ns = S(2); /* the step has ended: what comes later has its own */
    submit_now(&r, 2, 1);
    EVENT(&r, MS_PROGRESS, .id = first, .attempt = 2, .tokens = 70);
    EVENT(&r, MS_TICK);
    NOTHING(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_known_decides),
        cmocka_unit_test(test_same_state_same_choice),
        cmocka_unit_test(test_nothing_is_chosen_in_the_dark),
        cmocka_unit_test(test_slices),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
