/* The order of a step is the one that does best in simulation; in slices, running requests
 * make way for those that could take longer. */
#include "generate/choose.h"
#include "generate/choose_sim.h"
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
        ms_lengths_learn(r->lengths, k, &sums, NULL, 0, 0);
    }
}

static void submit_step(struct rig *r, uint64_t first)
{
    for (uint64_t key = 1; key <= PROMPTS; key++)
        EVENT(r,
              MS_SUBMIT,
              .id = first + key,
              .key = key,
              .samples = SAMPLES,
              .prompt = 512,
              .max_new = 16384,
              .replica = MS_NOWHERE);
    EVENT(r, MS_TICK);
}

static void begin_step(struct rig *r, uint32_t replicas)
{
    for (uint32_t i = 0; i < replicas; i++) {
        up(r, i, 16);
        show_steps(r, i);
    }
    submit_step(r, 0);
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

/* A step of prompts of which all is known, more than its places. */
static void
begin_large(struct rig *r, uint32_t replicas, uint32_t slots, uint64_t groups)
{
    show_lengths(r, true);
    for (uint32_t i = 0; i < replicas; i++) {
        up(r, i, slots);
        show_steps(r, i);
    }
    for (uint64_t id = 1; id <= groups; id++)
        EVENT(r,
              MS_SUBMIT,
              .id = id,
              .key = id % PROMPTS + 1,
              .samples = SAMPLES,
              .prompt = 512,
              .max_new = 16384,
              .replica = MS_NOWHERE);
    EVENT(r, MS_TICK);
}

/* How long its tokens take if all places are always taken. */
static double tokens_ns(const struct rig *r, uint32_t replicas, uint32_t slots)
{
    double tokens = 0, count = (double)r->s->group_count * SAMPLES;

    for (size_t i = 0; i < r->s->group_count; i++)
        tokens += SAMPLES * (double)r->s->groups[i].expected;
    return (tokens * (8e6 / slots + 6e4) + 2e4 * 512 * count) / replicas;
}

/* What a choice takes is bounded for steps of any size, and a part stands for the whole: the
 * step that is expected is as long as its tokens take. */
static void test_a_large_step_is_chosen_by_a_part(void **state)
{
    static const struct {
        uint32_t replicas, slots;
        uint64_t groups;
    } steps[] = {{8, 32, 200}, {32, 64, 5000}, {63, 100, 12500}, {1001, 8, 12500}};

    (void)state;
    for (size_t i = 0; i < MS_COUNT(steps); i++) {
        uint32_t replicas = steps[i].replicas, slots = steps[i].slots;
        RIG(r, .policy = &ms_policy_auto, .seed = 1, .rebalance_ns = S(2));
        double expected_ns;

        begin_large(&r, replicas, slots, steps[i].groups);
        expected_ns = r.s->choice.expected_ns;
        assert_int_equal(r.s->choice.order, MS_ORDER_LONGEST);
        assert_true(r.s->choice.work > 0);
        assert_true(r.s->choice.work < MS_CHOOSE_WORK_MAX / 100 * 101);
        assert_true(fabs(expected_ns / tokens_ns(&r, replicas, slots) - 1) < 0.2);
    }
}

/* Where even one draw takes too much the usual order applies. */
static void test_work_ends(void **state)
{
    enum { N = 1000, PLACES = 8 };
    static struct ms_choose_item items[N];
    static struct ms_choose_wait queue[N], yielded[PLACES];
    struct ms_choose_run runs[PLACES];
    struct ms_choose_replica replicas[1];
    struct ms_choose_yield yields[PLACES];
    struct ms_choose c = {.items = items,
                          .n = N,
                          .replica_count = 1,
                          .slots = PLACES,
                          .a = 1e6,
                          .kv_max = INFINITY,
                          .order = MS_ORDER_LONGEST,
                          .queue = queue,
                          .replicas = replicas,
                          .runs = runs,
                          .yields = yields,
                          .yielded = yielded};

    (void)state;
    for (int i = 0; i < N; i++)
        items[i] = (struct ms_choose_item){
            .mean = 100, .worst = {100, 100}, .draw = {100}, .on = MS_NOWHERE};
    for (uint64_t most = 0; most < 5 * N; most += N) {
        c.work = 0;
        c.work_max = most;
        assert_true(isinf(ms_choose_run_ns(&c)));
        assert_true(c.work <= most + N + MS_CHOOSE_EVENT_WORK + 2);
    }
    c.work = 0;
    c.work_max = UINT64_MAX;
    assert_true(fabs(ms_choose_run_ns(&c) / (N / PLACES * 100 * 1e6) - 1) < 1e-6);
    assert_in_range(c.work, N * MS_CHOOSE_EVENT_WORK, 25 * N);
}

/* One place: a request that has 60 of its 100 tokens, and one that has none. */
static float two_requests_ms(uint8_t order, uint32_t on)
{
    struct ms_choose_item items[2] = {{.mean = 100,
                                       .worst = {100, 100},
                                       .draw = {100},
                                       .prompt = 10,
                                       .on = MS_NOWHERE},
                                      {.mean = 100,
                                       .worst = {100, 100},
                                       .draw = {100},
                                       .prompt = 10,
                                       .had = 60,
                                       .on = on}};
    struct ms_choose_wait queue[2], yielded[1];
    struct ms_choose_run runs[1];
    struct ms_choose_replica replicas[1];
    struct ms_choose_yield yields[1];
    struct ms_choose c = {.items = items,
                          .n = 2,
                          .replica_count = 1,
                          .slots = 1,
                          .a = 1e6,
                          .prefill = 1e6,
                          .kv_max = INFINITY,
                          .work_max = UINT64_MAX,
                          .order = order,
                          .queue = queue,
                          .replicas = replicas,
                          .runs = runs,
                          .yields = yields,
                          .yielded = yielded};

    return (float)(ms_choose_run_ns(&c) / 1e6);
}

/* It goes on behind its tokens, which cost their prefill, unless it runs there. */
static void test_what_has_tokens_goes_on(void **state)
{
    static const uint8_t orders[] = {MS_ORDER_FIFO, MS_ORDER_LONGEST, MS_ORDER_WORST};

    (void)state;
    for (size_t i = 0; i < MS_COUNT(orders); i++) {
        assert_float_equal(
            two_requests_ms(orders[i], MS_NOWHERE), 40 + 100 + 70 + 10, 1e-3);
        assert_float_equal(two_requests_ms(orders[i], 0), 40 + 100 + 10, 1e-3);
    }
}

/* What the decisions of the last event sent is in `sent`, by its place in `ids`. */
struct flight {
    uint64_t ids[PROMPTS * SAMPLES + 1];
    uint32_t attempts[PROMPTS * SAMPLES + 1];
    size_t count;
};

static void note_sent(struct rig *r, struct flight *f)
{
    for (size_t i = 0; i < r->count; i++)
        if (r->d[i].what == MS_SEND) {
            f->ids[f->count] = r->d[i].id;
            f->attempts[f->count++] = r->d[i].attempt;
        }
}

/* All that runs, and what is sent in its place, ends with so many tokens. */
static void end_all(struct rig *r, struct flight *f, uint32_t tokens)
{
    for (size_t i = 0; i < f->count; i++) {
        EVENT(r,
              MS_FINISHED,
              .id = f->ids[i],
              .attempt = f->attempts[i],
              .tokens = tokens);
        note_sent(r, f);
    }
    f->count = 0;
    assert_int_equal(ms_scheduler_stats(r->s).live, 0);
}

/* All were aborted with nearly all of their tokens: what is left of the step is short. */
static void test_a_barrier_leaves_a_shorter_step(void **state)
{
    RIG(r, .policy = &ms_policy_auto, .seed = 1, .rebalance_ns = S(2));
    struct flight f = {.count = 0};
    double whole_ns;
    size_t n;

    (void)state;
    show_lengths(&r, true);
    begin_step(&r, 12);
    note_sent(&r, &f);
    whole_ns = r.s->choice.expected_ns;
    n = f.count;
    assert_int_equal(n, 12 * 16);
    EVENT(&r, MS_PAUSE, .mode = MS_WEIGHTS_ABORT);
    for (size_t i = 0; i < n; i++) {
        const struct ms_gen_request *q = &r.s->requests[(uint32_t)f.ids[i]];
        uint32_t tokens = (uint32_t)(0.95 * (double)r.s->groups[q->group].expected);

        EVENT(&r, MS_ABORTED, .id = f.ids[i], .attempt = 1, .tokens = tokens);
    }
    r.now_ns = S(1);
    EVENT(&r, MS_RESUME);
    assert_true(r.s->choice.began_ns == r.now_ns);
    assert_true(r.s->choice.expected_ns < 0.8 * whole_ns);
}

/* Answers that are not at all as expected: then first come, first served, and as soon as
 * they are, by what is known. */
static void test_wrong_predictions_are_not_trusted(void **state)
{
    RIG(r, .policy = &ms_policy_auto, .seed = 1, .rebalance_ns = S(2));
    struct flight f = {.count = 0};
    double expected_ns;

    (void)state;
    show_lengths(&r, true);
    begin_step(&r, 4);
    note_sent(&r, &f);
    assert_int_equal(r.s->choice.order, MS_ORDER_LONGEST);
    r.now_ns += S(1); /* far sooner than expected */
    end_all(&r, &f, 900);
    assert_true(ms_scheduler_stats(r.s).missed > 0.15);
    for (int step = 0; step < 12; step++) {
        show_lengths(&r, true);
        submit_step(&r, (uint64_t)(step + 1) * 1000);
        note_sent(&r, &f);
        expected_ns = r.s->choice.expected_ns;
        if (step < 3)
            assert_int_equal(r.s->choice.order, MS_ORDER_FIFO);
        r.now_ns += (int64_t)expected_ns; /* and from here on it is right */
        end_all(&r, &f, 900);
    }
    assert_true(ms_scheduler_stats(r.s).missed < 0.15);
    assert_int_equal(r.s->choice.order, MS_ORDER_LONGEST);
}

/* A flow of requests never stands still: what has come since counts for the choice. */
static void test_a_flow_is_chosen_for_again(void **state)
{
    RIG(r, .policy = &ms_policy_auto, .seed = 1, .rebalance_ns = S(2));

    (void)state;
    show_lengths(&r, false);
    up(&r, 0, 16);
    show_steps(&r, 0);
    submit_now(&r, 1000, 1);
    DECIDED(&r, MS_SEND); /* it runs: from here on no step begins */
    assert_int_equal(r.s->choice.order, MS_ORDER_UNKNOWN);
    begin_step(&r, 0);
    assert_int_equal(r.s->choice.order, MS_ORDER_UNKNOWN);
    r.now_ns += S(20);
    assert_true(ms_scheduler_wake_ns(r.s) <= r.now_ns);
    EVENT(&r, MS_TICK);
    assert_int_not_equal(r.s->choice.order, MS_ORDER_UNKNOWN);
    assert_true(r.s->choice.began_ns == r.now_ns);
    r.now_ns += S(20);
    EVENT(&r, MS_TICK); /* nothing is new */
    assert_true(r.s->choice.began_ns == r.now_ns - S(20));
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
    NOTHING(&r); /* it has just been looked */
    assert_int_equal(ms_scheduler_wake_ns(r.s), S(1));
    r.now_ns = ms_scheduler_wake_ns(r.s);
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
    r.now_ns = S(3); /* the step has ended: what comes later has its own */
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
        cmocka_unit_test(test_a_large_step_is_chosen_by_a_part),
        cmocka_unit_test(test_work_ends),
        cmocka_unit_test(test_what_has_tokens_goes_on),
        cmocka_unit_test(test_a_barrier_leaves_a_shorter_step),
        cmocka_unit_test(test_wrong_predictions_are_not_trusted),
        cmocka_unit_test(test_a_flow_is_chosen_for_again),
        cmocka_unit_test(test_nothing_is_chosen_in_the_dark),
        cmocka_unit_test(test_slices),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
