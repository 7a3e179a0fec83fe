/* replay_test.c - tests of replay.h: which prompts may begin and which are handed
 * out */
#include "base/cleanup.h"
#include "base/test_random.h"
#include "generate/replay.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static struct ms_replay *buffer(double ratio)
{
    struct ms_replay *r =
        ms_replay_create(&(struct ms_replay_options){.ratio = ratio}, NULL);

    assert_non_null(r);
    return r;
}

static void cleanup_replay(struct ms_replay **r)
{
    ms_replay_destroy(*r);
}

static uint64_t poll_one(struct ms_replay *r)
{
    uint64_t id;

    assert_int_equal(ms_replay_poll(r, &id), 0);
    return id;
}

/* Admit as many as there is room for and begin them; how many that was. */
static int64_t fill(struct ms_replay *r)
{
    int64_t n = 0, step;

    for (;; n++) {
        uint64_t id = poll_one(r);
        int rc = ms_replay_admit(r, id);

        if (rc == -EAGAIN)
            return n;
        assert_int_equal(rc, 0);
        assert_int_equal(ms_replay_begin(r, id, &step), 0);
    }
}

static void test_budget(void **state)
{
    static const struct {
        double ratio;
        int64_t first, second; /* admitted in all, with batches of 4 */
    } cases[] = {{0, 4, 8}, {0.5, 6, 10}, {1, 8, 12}, {2.5, 14, 18}};

    (void)state;
    for (size_t i = 0; i < MS_COUNT(cases); i++) {
        MS_CLEANUP(cleanup_replay) struct ms_replay *r = buffer(cases[i].ratio);

        assert_int_equal(fill(r), 0); /* no step yet */
        assert_int_equal(ms_replay_advance(r, 1, 4), 0);
        assert_int_equal(fill(r), cases[i].first);
        assert_int_equal(ms_replay_advance(r, 2, 4), 0);
        assert_int_equal(fill(r), cases[i].second - cases[i].first);
        assert_int_equal(ms_replay_counts(r).budget, cases[i].second);
    }
}

static void test_additional(void **state)
{
    static const struct {
        int64_t max, extra;
    } cases[] = {{4, 0}, {6, 2}, {3, 0}};

    (void)state;
    for (size_t i = 0; i < MS_COUNT(cases); i++) {
        struct ms_replay_options o = {.additional = true,
                                      .additional_max = cases[i].max};
        MS_CLEANUP(cleanup_replay)
        struct ms_replay *r = ms_replay_create(&o, NULL);

        ms_replay_advance(r, 0, 4);
        assert_int_equal(fill(r), 4 + cases[i].extra);
        assert_int_equal(ms_replay_counts(r).additional, cases[i].extra);
    }
}

static void test_refused(void **state)
{
    struct ms_error err = {0};
    int64_t step;

    (void)state;
    assert_null(ms_replay_create(&(struct ms_replay_options){.ratio = -1}, &err));
    assert_int_equal(err.code, -EINVAL);
    assert_null(ms_replay_create(&(struct ms_replay_options){.ratio = NAN}, NULL));
    assert_null(
        ms_replay_create(&(struct ms_replay_options){.additional = true}, NULL));

    MS_CLEANUP(cleanup_replay) struct ms_replay *r = buffer(0);
    assert_int_equal(ms_replay_want(r, 1), -EINVAL);  /* no step */
    assert_int_equal(ms_replay_admit(r, 0), -EINVAL); /* never polled */
    assert_int_equal(ms_replay_advance(r, 3, 2), 0);
    assert_int_equal(ms_replay_advance(r, 3, 2), -EINVAL);
    assert_int_equal(ms_replay_advance(r, 2, 2), -EINVAL);
    assert_int_equal(poll_one(r), 0);
    assert_int_equal(ms_replay_begin(r, 0, &step), -EINVAL); /* no place */
    assert_int_equal(ms_replay_admit(r, 0), 0);
    assert_int_equal(ms_replay_admit(r, 0), -EINVAL);
    assert_int_equal(ms_replay_commit(r, 0, 1), -EINVAL); /* not begun */
    assert_int_equal(ms_replay_begin(r, 0, &step), 0);
    assert_int_equal(step, 3);
    assert_int_equal(ms_replay_begin(r, 0, &step), -EINVAL);
    assert_int_equal(ms_replay_begin(r, 7, &step), -ECANCELED);
    assert_int_equal(ms_replay_commit(r, 0, 1), 0);
    assert_int_equal(ms_replay_commit(r, 0, 1), -ECANCELED);
}

static void test_abort_refunds_once(void **state)
{
    MS_CLEANUP(cleanup_replay) struct ms_replay *r = buffer(0);

    (void)state;
    ms_replay_advance(r, 0, 2);
    assert_int_equal(fill(r), 2); /* 0, 1; 2 was polled and waits */
    ms_replay_abort(r, 0);
    ms_replay_abort(r, 0);
    assert_int_equal(ms_replay_commit(r, 0, 1), -ECANCELED);
    assert_int_equal(ms_replay_admit(r, 2), 0);
    assert_int_equal(fill(r), 0);
}

/* A number is admitted once, whatever became of it. */
static void test_no_number_comes_twice(void **state)
{
    MS_CLEANUP(cleanup_replay) struct ms_replay *r = buffer(1);
    struct ms_replay_counts before;

    (void)state;
    ms_replay_advance(r, 0, 2);
    assert_int_equal(fill(r), 4); /* 0 to 3; 4 waits */
    assert_int_equal(ms_replay_commit(r, 0, 1), 0);
    ms_replay_abort(r, 1);
    ms_replay_abort(r, 4); /* waits no longer, and had no place to give back */
    before = ms_replay_counts(r);
    assert_int_equal(before.running, 2);
    assert_int_equal(ms_replay_admit(r, 0), -EINVAL);
    assert_int_equal(ms_replay_admit(r, 1), -EINVAL);
    assert_int_equal(ms_replay_admit(r, 4), -EINVAL);
    assert_int_equal(ms_replay_counts(r).running, before.running);
    assert_int_equal(fill(r), 1); /* the place of 1 */
}

/* `taken` is exactly these. */
#define assert_taken(list, ...)                                                        \
    do {                                                                               \
        const uint64_t wanted_[] = {__VA_ARGS__};                                      \
        assert_int_equal((list).count, MS_COUNT(wanted_));                             \
        assert_memory_equal((list).at, wanted_, sizeof wanted_);                       \
    } while (0)

static void test_old_stragglers_are_waited_for(void **state)
{
    MS_CLEANUP(cleanup_replay) struct ms_replay *r = buffer(1);
    MS_CLEANUP(ms_replay_list_finish) struct ms_replay_list taken = {0};

    (void)state;
    ms_replay_advance(r, 0, 2);
    assert_int_equal(fill(r), 4); /* 0 to 3 began at step 0; 4 waits */
    ms_replay_commit(r, 2, 1);
    ms_replay_commit(r, 1, 1);
    ms_replay_want(r, 2);
    assert_int_equal(ms_replay_take(r, &taken), 0);
    assert_taken(taken, 2, 1); /* in order of commit */
    ms_replay_advance(r, 1, 2);
    assert_int_equal(ms_replay_admit(r, 4), 0);
    ms_replay_begin(r, 4, &(int64_t){0});
    assert_int_equal(fill(r), 1); /* 5 was polled before, so 6 */
    ms_replay_commit(r, 4, 1);
    ms_replay_commit(r, 6, 1);
    ms_replay_commit(r, 0, 1);
    taken.count = 0;
    ms_replay_want(r, 2);
    assert_int_equal(ms_replay_take(r, &taken), -EAGAIN); /* 3 began at step 0 */
    assert_int_equal(taken.count, 0);
    ms_replay_abort(r, 3);
    assert_int_equal(ms_replay_take(r, &taken), 0);
    assert_taken(taken, 0, 4);
}

static void test_fraction_limits_the_oldest_step(void **state)
{
    static const struct {
        double ratio;
        uint64_t of_oldest; /* of a batch of 4 samples */
    } cases[] = {{0.5, 2}, {0.25, 1}, {0.2, 0}, {1, 4}};

    (void)state;
    for (size_t i = 0; i < MS_COUNT(cases); i++) {
        MS_CLEANUP(cleanup_replay) struct ms_replay *r = buffer(cases[i].ratio);
        MS_CLEANUP(ms_replay_list_finish) struct ms_replay_list taken = {0};
        uint64_t old = 0;
        int64_t first, second;

        ms_replay_advance(r, 0, 4);
        first = fill(r);
        ms_replay_advance(r, 1, 4);
        second = fill(r); /* the id that was polled in vain is skipped */
        for (int64_t id = 0; id < first + second + 1; id++)
            if (id != first)
                assert_int_equal(ms_replay_commit(r, (uint64_t)id, 1), 0);
        ms_replay_want(r, 4);
        assert_int_equal(ms_replay_take(r, &taken), 0);
        assert_int_equal(taken.count, 4);
        for (size_t k = 0; k < 4; k++)
            old += taken.at[k] < (uint64_t)first;
        assert_int_equal(old, cases[i].of_oldest);
    }
}

static void test_prompts_are_not_divided(void **state)
{
    MS_CLEANUP(cleanup_replay) struct ms_replay *r = buffer(0);
    MS_CLEANUP(ms_replay_list_finish) struct ms_replay_list taken = {0};

    (void)state;
    ms_replay_advance(r, 0, 3);
    fill(r);
    ms_replay_want(r, 8);
    ms_replay_commit(r, 1, 5);
    assert_int_equal(ms_replay_take(r, &taken), -EAGAIN);
    ms_replay_commit(r, 0, 5);
    assert_int_equal(ms_replay_take(r, &taken), 0);
    assert_taken(taken, 1, 0); /* 10 samples */
    assert_int_equal(ms_replay_take(r, &taken), -EINVAL);
}

static void test_gc(void **state)
{
    MS_CLEANUP(cleanup_replay) struct ms_replay *r = buffer(1);
    MS_CLEANUP(ms_replay_list_finish) struct ms_replay_list aborted = {0};
    MS_CLEANUP(ms_replay_list_finish) struct ms_replay_list dropped = {0};
    int64_t step;

    (void)state;
    ms_replay_advance(r, 0, 1);
    assert_int_equal(fill(r), 2);
    assert_int_equal(ms_replay_gc(r, &aborted, &dropped), 0);
    assert_int_equal(aborted.count, 0); /* step 0 is within the ratio */
    ms_replay_advance(r, 1, 1);
    assert_int_equal(fill(r), 1); /* 3 */
    ms_replay_commit(r, 1, 1);
    assert_int_equal(ms_replay_gc(r, &aborted, &dropped), 0);
    assert_taken(aborted, 0);
    assert_taken(dropped, 1);
    assert_int_equal(ms_replay_commit(r, 0, 1), -ECANCELED); /* late */
    assert_int_equal(ms_replay_counts(r).running, 1);
    assert_int_equal(ms_replay_commit(r, 3, 1), 0);
    /* a synchronous buffer collects the current step: nothing begins until the next */
    MS_CLEANUP(cleanup_replay) struct ms_replay *sync = buffer(0);
    ms_replay_advance(sync, 0, 1);
    poll_one(sync);
    ms_replay_admit(sync, 0);
    ms_replay_gc(sync, &aborted, &dropped);
    assert_int_equal(ms_replay_begin(sync, 0, &step), -EAGAIN);
    ms_replay_advance(sync, 1, 1);
    assert_int_equal(ms_replay_begin(sync, 0, &step), 0);
    assert_int_equal(step, 1);
}

/* ---- random histories -------------------------------------------------------------- */

enum { PROMPTS = 512, HISTORIES = 100000 };

/* What a history remembers of each prompt, against which the buffer is held. */
struct history {
    uint64_t seed;
    struct ms_replay *r;
    double ratio;
    int64_t step, batch;
    int64_t began[PROMPTS]; /* -1: not begun or over */
    bool taken[PROMPTS];
    struct ms_replay_list out, dropped;
    bool wants;
};

static void history_check(struct history *h)
{
    struct ms_replay_counts c = ms_replay_counts(h->r);
    int64_t ahead = (int64_t)ceil((double)h->batch * h->ratio);

    assert_int_equal(c.budget, ahead + (h->step + 1) * h->batch);
    assert_true(c.running >= 0 && c.completed >= 0);
    assert_true(c.running + c.completed <= c.budget);
}

static void history_take(struct history *h)
{
    if (!h->wants)
        assert_int_equal(ms_replay_want(h->r, h->batch), 0);
    h->wants = ms_replay_take(h->r, &h->out) == -EAGAIN;
    for (size_t i = 0; i < h->out.count; i++) {
        uint64_t id = h->out.at[i];

        assert_false(h->taken[id]); /* once */
        h->taken[id] = true;
        assert_true(h->began[id] >= h->step - (int64_t)ceil(h->ratio));
    }
    h->out.count = 0;
    if (h->wants)
        return;
    assert_int_equal(ms_replay_gc(h->r, &h->out, &h->dropped), 0);
    for (size_t i = 0; i < h->out.count; i++)
        h->began[h->out.at[i]] = -1;
    if (fmod(h->ratio, 1) == 0)
        assert_int_equal(h->dropped.count, 0); /* a fraction may leave a rest */
    h->out.count = h->dropped.count = 0;
    assert_int_equal(ms_replay_advance(h->r, ++h->step, h->batch), 0);
}

static void history_poll(struct history *h)
{
    uint64_t id = poll_one(h->r);
    int64_t step;

    if (ms_replay_admit(h->r, id) == 0) {
        assert_int_equal(ms_replay_begin(h->r, id, &step), 0);
        assert_int_equal(step, h->step);
        h->began[id] = step;
    } else {
        ms_replay_abort(h->r, id);
    }
}

static void history_end_one(struct history *h)
{
    uint64_t used = ms_replay_counts(h->r).used;
    uint64_t id = test_roll(&h->seed, (uint32_t)used + 1);
    bool runs = id < used && h->began[id] >= 0;
    int rc;

    if (test_roll(&h->seed, 4) == 0) {
        ms_replay_abort(h->r, id);
        assert_int_equal(ms_replay_commit(h->r, id, 1), -ECANCELED);
        return;
    }
    rc = ms_replay_commit(h->r, id, 1);
    assert_true(rc == 0 || rc == -ECANCELED);
    if (rc == 0)
        assert_true(runs && !h->taken[id]);
}

/* Whatever has happened: if all that runs is committed, batches go on. */
static void history_drain(struct history *h)
{
    for (int64_t step = h->step; h->step < step + 4;) {
        for (int64_t i = 0; i < h->batch; i++)
            history_poll(h);
        for (uint64_t id = 0; id < ms_replay_counts(h->r).used; id++)
            ms_replay_commit(h->r, id, 1);
        history_take(h);
        assert_false(h->wants);
        history_check(h);
    }
}

static void history_run(uint64_t number)
{
    static const double ratios[] = {0, 0.5, 1, 2.5};
    struct history h = {.seed = test_seed(number)};

    h.ratio = ratios[number % MS_COUNT(ratios)];
    h.batch = 1 + test_roll(&h.seed, 4);
    h.r = buffer(h.ratio);
    memset(h.began, 0xff, sizeof h.began);
    ms_replay_advance(h.r, 0, h.batch);
    while (ms_replay_counts(h.r).used < 40) {
        uint32_t what = test_roll(&h.seed, 8);

        if (what < 3)
            history_poll(&h);
        else if (what < 7)
            history_end_one(&h);
        else
            history_take(&h);
        history_check(&h);
    }
    history_drain(&h);
    ms_replay_destroy(h.r);
    ms_replay_list_finish(&h.out);
    ms_replay_list_finish(&h.dropped);
}

static void test_histories(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < HISTORIES; i++)
        history_run(i);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_budget),
        cmocka_unit_test(test_additional),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_abort_refunds_once),
        cmocka_unit_test(test_no_number_comes_twice),
        cmocka_unit_test(test_old_stragglers_are_waited_for),
        cmocka_unit_test(test_fraction_limits_the_oldest_step),
        cmocka_unit_test(test_prompts_are_not_divided),
        cmocka_unit_test(test_gc),
        cmocka_unit_test(test_histories),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
