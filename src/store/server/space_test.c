/* space_test.c - tests of space.h: which bytes of the arena are whose, and which
 * have memory behind them */
#include "store/server/space.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

#define MIB ((uint64_t)1 << 20)

enum { LIVE_MAX = 300, STEPS = 20000 };

static uint64_t state;

static uint64_t next_random(void)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

/* Sizes of all orders of magnitude. */
static uint64_t random_len(void)
{
    return next_random() % (UINT64_C(1) << (next_random() % 25));
}

static void commit_all(struct ms_space *s, uint64_t at, uint64_t len)
{
    struct ms_block_run run;

    while (ms_space_missing(s, at, len, &run)) {
        assert_int_equal(run.at % MS_SPACE_BLOCK, 0);
        ms_space_set_memory(s, &run, true);
    }
}

static void decommit_all(struct ms_space *s)
{
    struct ms_block_run run;
    uint64_t from = 0;

    while (ms_space_idle(s, from, &run)) {
        ms_space_set_memory(s, &run, false);
        from = run.at + run.len;
    }
}

static bool overlaps(const struct ms_block_run *a, const struct ms_block_run *b)
{
    return a->at < b->at + b->len && b->at < a->at + a->len;
}

static void test_random_ranges_never_overlap(void **unused)
{
    struct ms_space *s = ms_space_create(256 * MIB, 64 * MIB);
    struct ms_block_run live[LIVE_MAX];
    struct ms_block_run run;
    size_t count = 0;

    (void)unused;
    state = 42;
    for (int step = 0; step < STEPS; step++) {
        if (count < LIVE_MAX && next_random() % 2) {
            struct ms_block_run r = {0, random_len()};
            int rc = ms_space_alloc(s, r.len, &r.at);

            if (rc == -ENOSPC)
                continue;
            assert_int_equal(rc, 0);
            assert_int_equal(r.at % MS_SPACE_ALIGN, 0);
            r.len = r.len ? r.len : 1;
            for (size_t i = 0; i < count; i++)
                assert_false(overlaps(&r, &live[i]));
            commit_all(s, r.at, r.len);
            live[count++] = r;
        } else if (count) {
            size_t i = next_random() % count;

            ms_space_free(s, live[i].at);
            live[i] = live[--count];
        }
        assert_true(s->used <= 64 * MIB);
        if (step % 500 == 0)
            assert_true(ms_space_check(s));
        if (step % 2000 == 0)
            decommit_all(s);
        for (size_t i = 0; i < count && step % 500 == 0; i++)
            assert_false(ms_space_missing(s, live[i].at, live[i].len, &run));
    }
    while (count)
        ms_space_free(s, live[--count].at);
    assert_true(ms_space_check(s));
    assert_int_equal(s->used, 0);
    decommit_all(s);
    assert_int_equal(s->committed, 0);
    ms_space_destroy(s);
}

static void test_what_was_freed_is_used_again(void **unused)
{
    struct ms_space *s = ms_space_create(1024 * MIB, 256 * MIB);
    uint64_t first, at;
    struct ms_block_run run;

    (void)unused;
    assert_int_equal(ms_space_alloc(s, 100 * MIB, &first), 0);
    commit_all(s, first, 100 * MIB);
    for (int i = 0; i < 10; i++) {
        ms_space_free(s, first);
        assert_int_equal(ms_space_alloc(s, 100 * MIB, &at), 0);
        assert_int_equal(at, first);
        assert_false(ms_space_missing(s, at, 100 * MIB, &run));
    }
    assert_int_equal(s->committed, 100 * MIB);
    ms_space_destroy(s);
}

static void test_limits(void **unused)
{
    struct ms_space *s = ms_space_create(MIB, 0);
    uint64_t at = 7;

    (void)unused;
    assert_int_equal(ms_space_alloc(s, 0, &at), -ENOSPC); /* none means none */
    assert_int_equal(at, 7);
    ms_space_destroy(s);

    s = ms_space_create(8 * MIB, 2 * MIB);
    assert_int_equal(ms_space_alloc(s, 2 * MIB + 1, &at), -ENOSPC);
    assert_int_equal(ms_space_alloc(s, UINT64_MAX, &at), -ENOSPC);
    assert_int_equal(ms_space_alloc(s, 2 * MIB, &at), 0);
    assert_int_equal(ms_space_alloc(s, 1, &at), -ENOSPC);
    ms_space_destroy(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_ranges_never_overlap),
        cmocka_unit_test(test_what_was_freed_is_used_again),
        cmocka_unit_test(test_limits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
