/* staleness_test.c - tests of staleness.h: how many rollouts may begin, by AReaL's
 * rule */
#include "base/cleanup.h"
#include "base/test_random.h"
#include "generate/staleness.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>

#include <cmocka.h>

static void test_capacity(void **state)
{
    static const struct {
        int64_t concurrent_max, batch, staleness_max; /* given */
        int64_t running, accepted, version;           /* so far */
        int64_t capacity, pending_max;                /* wanted */
    } cases[] = {
        {4, 8, 0, 0, 0, 0, 4, 8},      /* concurrency binds */
        {64, 8, 0, 0, 0, 0, 8, 8},     /* on-policy: one batch */
        {64, 8, 0, 3, 5, 0, 0, 8},     /* all of it begun or done */
        {64, 8, 0, 0, 8, 1, 8, 8},     /* the next version admits the next batch */
        {64, 8, 2, 0, 0, 0, 24, 24},   /* two batches ahead */
        {64, 8, 2, 10, 14, 0, 0, 24},  /* and no more */
        {64, 8, 2, 0, 30, 0, -6, 24},  /* over capacity is said */
        {64, 8, 2, 70, 0, 10, -6, 24}, /* by concurrency too */
        {0, 8, 0, 0, 0, 0, 1, 8},      /* no concurrency means one */
        {-3, 8, 0, 1, 0, 0, 0, 8},     /* as does less */
        {8, 0, 0, 0, 0, 0, 1, 0},      /* a batch of none counts as one */
        {8, 0, 3, 0, 2, 0, 2, 0},      /* but admits none to wait */
        {1000, 32, 4, 0, 96, 3, 160, 160},
        {64, 256, INT64_MAX, 3, 5, 0, 61, INT64_MAX}, /* no limit of staleness */
        {64, 256, INT64_MAX / 2, 0, 0, 0, 64, INT64_MAX},
        {INT64_MAX, INT64_MAX, 1, 0, 0, INT64_MAX, INT64_MAX, INT64_MAX},
        {INT64_MAX, 8, 0, -1, 0, INT64_MAX, INT64_MAX, 8}, /* counts may be negative */
        {64, 256, INT64_MIN, 0, 0, 0, INT64_MIN, INT64_MIN},
        {64, 8, 0, 1, INT64_MAX, 0, 8 - INT64_MAX, 8},
    };

    (void)state;
    for (size_t i = 0; i < MS_COUNT(cases); i++) {
        struct ms_staleness s = {.concurrent_max = cases[i].concurrent_max,
                                 .batch = cases[i].batch,
                                 .staleness_max = cases[i].staleness_max,
                                 .running = cases[i].running,
                                 .accepted = cases[i].accepted};

        assert_int_equal(ms_staleness_capacity(&s, cases[i].version),
                         cases[i].capacity);
        assert_int_equal(ms_staleness_pending_max(&s), cases[i].pending_max);
    }
}

static void test_rejected_gives_back(void **state)
{
    struct ms_staleness s = {.concurrent_max = 64, .batch = 2};

    (void)state;
    for (int i = 0; i < 2; i++) {
        ms_staleness_enqueue(&s);
        assert_int_equal(s.enqueued, 1);
        ms_staleness_submit(&s);
    }
    assert_int_equal(ms_staleness_capacity(&s, 0), 0);
    ms_staleness_reject(&s);
    assert_int_equal(ms_staleness_capacity(&s, 0), 1);
    ms_staleness_accept(&s);
    assert_int_equal(ms_staleness_capacity(&s, 0), 1);
    assert_int_equal(s.enqueued + s.running, 0);
    assert_int_equal(s.accepted, 1);
    assert_int_equal(s.rejected, 1);
}

/* After recovery the capacity is that of a run without a break, not a burst. */
static void test_recovery(void **state)
{
    (void)state;
    for (int64_t version = 0; version < 50; version++) {
        struct ms_staleness s = {
            .concurrent_max = 1000, .batch = 7, .staleness_max = 2, .running = 5};

        ms_staleness_recover(&s, version);
        assert_int_equal(s.running, 0);
        assert_int_equal(ms_staleness_capacity(&s, version), 3 * 7);
        s.batch = 0; /* counts as one, here too */
        ms_staleness_recover(&s, version);
        assert_int_equal(ms_staleness_capacity(&s, version), 3);
    }
    struct ms_staleness s = {.concurrent_max = 8, .batch = 7};
    ms_staleness_recover(&s, INT64_MAX);
    assert_int_equal(s.accepted, INT64_MAX);
}

/* What is consumed in order of its beginning is never older than the bound. */
static void test_bound_holds(void **state)
{
    enum { HISTORIES = 100000, ROLLOUTS = 60 };

    (void)state;
    for (uint64_t h = 0; h < HISTORIES; h++) {
        uint64_t seed = test_seed(h);
        struct ms_staleness s = {.concurrent_max = 1 + test_roll(&seed, 40),
                                 .batch = 1 + test_roll(&seed, 8),
                                 .staleness_max = test_roll(&seed, 4)};
        int64_t began[ROLLOUTS], version = 0;
        size_t begun = 0, done = 0, consumed = 0;

        while (begun < ROLLOUTS) {
            if (test_roll(&seed, 2) && ms_staleness_capacity(&s, version) > 0) {
                ms_staleness_enqueue(&s);
                ms_staleness_submit(&s);
                began[begun++] = version;
            } else if (done < begun && test_roll(&seed, 2)) {
                ms_staleness_accept(&s);
                done++;
            } else if (done - consumed >= (size_t)s.batch) {
                for (int64_t i = 0; i < s.batch; i++)
                    assert_true(version - began[consumed++] <= s.staleness_max);
                version++;
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_capacity),
        cmocka_unit_test(test_rejected_gives_back),
        cmocka_unit_test(test_recovery),
        cmocka_unit_test(test_bound_holds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
