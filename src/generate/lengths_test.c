/* lengths_test.c - tests of lengths.h: what is known of how long answers will be */
#include "base/cleanup.h"
#include "base/test_random.h"
#include "generate/lengths.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void cleanup_lengths(struct ms_lengths **l)
{
    ms_lengths_destroy(*l);
}

static void learn(struct ms_lengths *l, uint64_t key, uint32_t tokens, int samples)
{
    struct ms_length_sums s = {0};

    for (int i = 0; i < samples; i++)
        ms_length_sums_add(&s, tokens + (uint32_t)(i % 2 ? tokens / 10 : 0));
    ms_lengths_learn(l, key, &s, NULL, 0, 1);
}

static double expects(const struct ms_lengths *l, uint64_t key)
{
    struct ms_length_sums none = {0};

    return ms_length_remaining(ms_lengths_guess(l, key, 0, &none, NULL, 0), 0, 100000);
}

static void test_history_tells_prompts_apart(void **state)
{
    MS_CLEANUP(cleanup_lengths) struct ms_lengths *l = ms_lengths_create(1000);

    (void)state;
    for (uint64_t key = 1; key <= 100; key++)
        learn(l, key, (uint32_t)(100 * key), 8);
    assert_true(ms_lengths_has(l, 100));
    assert_false(ms_lengths_has(l, 101));
    assert_true(expects(l, 90) > 2 * expects(l, 20));
    assert_true(fabs(expects(l, 50) / 5250 - 1) < 0.2);
    assert_true(ms_lengths_icc(l) > 0.9);          /* within a group all are alike */
    assert_true(expects(l, 101) > expects(l, 20)); /* unknown: like all */
    assert_true(expects(l, 101) < expects(l, 90));
}

static void test_siblings_tell(void **state)
{
    MS_CLEANUP(cleanup_lengths) struct ms_lengths *l = ms_lengths_create(10);
    struct ms_length_sums none = {0}, two = {0};
    uint32_t live[] = {9000, 9000, 9000}, short_live[] = {1, 1, 1};
    double before, after, with_short;

    (void)state;
    for (int i = 0; i < 100; i++)
        learn(l, 0, i % 2 ? 300 : 3000, 8);
    ms_length_sums_add(&two, 200);
    ms_length_sums_add(&two, 300);
    before = ms_lengths_guess(l, 0, 0, &none, NULL, 0).mu;
    assert_true(ms_lengths_guess(l, 0, 0, &two, NULL, 0).mu < before - 0.3);
    /* samples that are still running at 9,000 say more than those that have just begun */
    after = ms_lengths_guess(l, 0, 0, &none, live, 3).mu;
    with_short = ms_lengths_guess(l, 0, 0, &none, short_live, 3).mu;
    assert_true(after > before + 0.5);
    assert_true(fabs(with_short - before) < 0.05);
}

/* Of 60 prompts around 4,000 tokens, cut at 5,000: what was cut is not taken for its end. */
static void test_cut_answers_are_lower_bounds(void **state)
{
    MS_CLEANUP(cleanup_lengths) struct ms_lengths *l = ms_lengths_create(1000);
    uint64_t seed = test_seed(1);
    double sum = 0, off = 0;

    (void)state;
    for (uint64_t key = 1; key <= 60; key++) {
        double mu = log(4000) + 0.5 * ((double)key / 30 - 1);
        struct ms_length_sums ended = {0};
        uint32_t cut[8];
        size_t cuts = 0;

        for (int i = 0; i < 8; i++) {
            double z = 0;

            for (int k = 0; k < 12; k++) /* about normal */
                z += (double)test_roll(&seed, 1 << 20) / (1 << 20) - 0.5;
            if (exp(mu + 0.2 * z) < 5000)
                ms_length_sums_add(&ended, (uint32_t)exp(mu + 0.2 * z));
            else
                cut[cuts++] = 5000;
        }
        ms_lengths_learn(l, key, &ended, cut, cuts, 1);
    }
    for (uint64_t key = 1; key <= 60; key++) {
        double mu = log(4000) + 0.5 * ((double)key / 30 - 1);
        struct ms_length_guess g =
            ms_lengths_guess(l, key, 0, &(struct ms_length_sums){0}, NULL, 0);

        if (exp(mu) < 6000) { /* above, next to all were cut */
            sum++;
            off += g.mu - mu;
        }
        assert_true(fabs(g.within - 0.2) < 0.05);
    }
    assert_true(fabs(off / sum) < 0.05);
    assert_true(ms_lengths_guess(l, 60, 0, &(struct ms_length_sums){0}, NULL, 0).mu >
                log(5000));
}

/* Where nothing has ended, what little is known teaches little. */
static void test_an_early_abort_teaches_nothing(void **state)
{
    MS_CLEANUP(cleanup_lengths) struct ms_lengths *l = ms_lengths_create(100);
    struct ms_length_sums none = {0};
    uint32_t least[] = {3, 5};

    (void)state;
    for (int i = 0; i < 50; i++)
        learn(l, 0, 1000, 8);
    ms_lengths_learn(l, 1, &none, least, 2, 1);
    assert_false(ms_lengths_has(l, 1));
    assert_true(fabs(expects(l, 1) / 1050 - 1) < 0.1);
}

/* A hint is the mean that is expected, and gives way to siblings as they end. */
static void test_a_hint_and_siblings(void **state)
{
    MS_CLEANUP(cleanup_lengths) struct ms_lengths *l = ms_lengths_create(100);
    struct ms_length_sums ended = {0};
    double last = 8000, now;

    (void)state;
    for (int i = 0; i < 50; i++)
        learn(l, 7, 300, 8);
    for (int n = 0; n <= 8; n++) {
        struct ms_length_guess g = ms_lengths_guess(l, 7, 8000, &ended, NULL, 0);

        now = ms_length_remaining(g, 0, 1 << 30);
        if (n == 0)
            assert_true(fabs(now / 8000 - 1) < 0.01);
        else
            assert_true(now < last && now > 1000);
        if (n == 1) /* one sibling does not undo it */
            assert_true(now > 4000);
        last = now;
        ms_length_sums_add(&ended, 1000);
    }
    assert_true(last < 2500);
}

static void test_remaining(void **state)
{
    struct ms_length_guess g = {.mu = 7, .sigma = 1, .within = 1, .spread = 0};
    double last = 0;

    (void)state;
    for (uint32_t made = 0; made < 100000; made += 1000) {
        double left = ms_length_remaining(g, made, 100000);

        assert_true(left >= 1 && left <= 100000 - made);
        if (made > 2000 && made < 50000) /* a heavy tail: the older, the more to come */
            assert_true(left + made > last);
        last = left + made;
    }
    assert_true(fabs(ms_length_remaining(g, 0, 1 << 30) / exp(7.5) - 1) < 0.01);
    assert_true(ms_length_remaining(g, 500, 500) == 0);
}

static void test_draws_agree_with_the_mean(void **state)
{
    static const uint32_t made[] = {0, 500, 2000, 20000};
    struct ms_length_guess g = {.mu = 7, .sigma = 1, .within = 0.8F, .spread = 0.6F};
    uint64_t seed = test_seed(1);

    (void)state;
    g.spread = 0; /* the conditional mean is of one mu */
    g.sigma = g.within;
    for (size_t k = 0; k < MS_COUNT(made); k++) {
        double sum = 0, mean = ms_length_remaining(g, made[k], 40000);
        int n = 40000;

        for (int i = 0; i < n; i++) {
            double u = ((double)test_roll(&seed, 1 << 30) + 0.5) / (1 << 30);

            sum += ms_length_draw(g, ms_length_draw_mu(g, 0.5), u, made[k], 40000);
        }
        assert_true(fabs(sum / n / mean - 1) < 0.08);
    }
}

static void test_saved_and_loaded(void **state)
{
    MS_CLEANUP(cleanup_lengths) struct ms_lengths *l = ms_lengths_create(500);
    MS_CLEANUP(cleanup_lengths) struct ms_lengths *other = ms_lengths_create(500);
    MS_CLEANUP(ms_buf_finish) struct ms_buf b = {0};
    struct ms_lengths_saving saving = {0};
    struct ms_error err = {0};

    (void)state;
    for (uint64_t key = 1; key <= 200; key++)
        learn(l, key, (uint32_t)(50 * key), 4);
    assert_int_equal(ms_lengths_save(l, &saving, &b), 0);
    assert_int_equal(ms_lengths_load(other, b.data, b.len, &err), 0);
    for (uint64_t key = 1; key <= 201; key++)
        assert_true(expects(l, key) == expects(other, key));
    /* what is cut or changed is refused, and changes nothing */
    for (size_t cut = 0; cut < b.len; cut += 7)
        assert_int_equal(ms_lengths_load(other, b.data, cut, &err), -EBADMSG);
    memset(b.data + b.len - 16, 0xff, 8); /* not numbers */
    assert_int_equal(ms_lengths_load(other, b.data, b.len, NULL), -EBADMSG);
    assert_true(expects(l, 7) == expects(other, 7));
}

/* What is learnt while a big one is saved is in it or not, and it is whole. */
static void test_saved_in_parts(void **state)
{
    enum { PROMPTS = 40000 };
    MS_CLEANUP(cleanup_lengths) struct ms_lengths *l = ms_lengths_create(PROMPTS);
    MS_CLEANUP(cleanup_lengths) struct ms_lengths *other = ms_lengths_create(PROMPTS);
    MS_CLEANUP(ms_buf_finish) struct ms_buf b = {0};
    struct ms_lengths_saving saving = {0};
    uint64_t late = PROMPTS;
    int parts = 1, rc;

    (void)state;
    for (uint64_t key = 1; key < PROMPTS / 2; key++)
        learn(l, key, (uint32_t)key, 4);
    while ((rc = ms_lengths_save(l, &saving, &b)) == 1) {
        for (int i = 0; i < 1000; i++)
            learn(l, ++late, 7, 4);
        parts++;
    }
    assert_int_equal(rc, 0);
    assert_true(parts > 2);
    assert_int_equal(ms_lengths_load(other, b.data, b.len, NULL), 0);
    for (uint64_t key = 1; key < PROMPTS / 2; key++)
        assert_true(!ms_lengths_has(l, key) || ms_lengths_has(other, key));
    assert_true(ms_lengths_has(other, 1) && ms_lengths_has(other, PROMPTS / 2 - 1));
}

static void test_least_recently_used_goes(void **state)
{
    MS_CLEANUP(cleanup_lengths) struct ms_lengths *l = ms_lengths_create(64);
    size_t kept = 0;

    (void)state;
    for (uint64_t key = 1; key <= 10000; key++) {
        learn(l, key, 100, 1);
        assert_true(ms_lengths_has(l, key));
    }
    for (uint64_t key = 1; key <= 10000; key++)
        kept += ms_lengths_has(l, key);
    assert_true(kept >= 64 && kept <= 72);
    learn(l, 0, 100, 1); /* no key: only the prior learns */
    assert_false(ms_lengths_has(l, 0));
}

/* Sibling sessions report one by one: that is one step, in which nothing fades. */
static void test_the_past_fades_with_the_version_only(void **state)
{
    MS_CLEANUP(cleanup_lengths) struct ms_lengths *l = ms_lengths_create(1000);
    struct ms_length_sums one = {0};

    (void)state;
    ms_length_sums_add(&one, 100);
    for (int i = 0; i < 8; i++)
        ms_lengths_learn(l, 1, &one, NULL, 0, 1);
    assert_float_equal(ms_lengths_samples(l, 1), 8, 1e-3);
    ms_lengths_learn(l, 1, &one, NULL, 0, 2);
    assert_float_equal(ms_lengths_samples(l, 1), 0.7 * 8 + 1, 1e-3);
}

static void test_turns_have_keys_of_their_own(void **state)
{
    (void)state;
    assert_int_equal(ms_lengths_next_turn(0), 0);
    for (uint64_t key = 1; key < 1000; key++) {
        uint64_t turn = key;

        for (int i = 0; i < 8; i++) {
            turn = ms_lengths_next_turn(turn);
            assert_true(turn >= 1000);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_history_tells_prompts_apart),
        cmocka_unit_test(test_siblings_tell),
        cmocka_unit_test(test_cut_answers_are_lower_bounds),
        cmocka_unit_test(test_an_early_abort_teaches_nothing),
        cmocka_unit_test(test_a_hint_and_siblings),
        cmocka_unit_test(test_remaining),
        cmocka_unit_test(test_draws_agree_with_the_mean),
        cmocka_unit_test(test_saved_and_loaded),
        cmocka_unit_test(test_saved_in_parts),
        cmocka_unit_test(test_least_recently_used_goes),
        cmocka_unit_test(test_the_past_fades_with_the_version_only),
        cmocka_unit_test(test_turns_have_keys_of_their_own),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
