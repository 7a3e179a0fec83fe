/* shards_test.c - tests of shards.h: a queue of ranges of a data set, pure */
#include "base/cleanup.h"
#include "base/test_random.h"
#include "job/shards.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct ms_shard_queue
make(uint64_t size, uint64_t shard, uint64_t epochs, bool shuffle)
{
    const struct ms_shards_spec spec = {.size = size,
                                        .shard = shard,
                                        .epochs = epochs,
                                        .shuffle = shuffle,
                                        .seed = 7,
                                        .failures_max = 4,
                                        .deaths_max = 8};
    struct ms_shard_queue s;

    assert_int_equal(ms_shard_queue_init(&s, &spec, NULL), 0);
    return s;
}

static struct ms_shard_range take(struct ms_shard_queue *s, uint64_t owner)
{
    struct ms_shard_range r;

    assert_int_equal(ms_shard_queue_take(s, owner, &r), 1);
    return r;
}

static void test_ranges_in_order(void **state)
{
    MS_CLEANUP(ms_shard_queue_finish) struct ms_shard_queue s = make(10, 4, 2, false);
    static const uint64_t starts[] = {0, 4, 8, 0, 4, 8}, ends[] = {4, 8, 10, 4, 8, 10};
    struct ms_shard_range r;

    (void)state;
    for (size_t i = 0; i < 6; i++) {
        r = take(&s, 1);
        assert_int_equal(r.start, starts[i]);
        assert_int_equal(r.end, ends[i]);
        assert_int_equal(r.epoch, i / 3);
        assert_int_equal(ms_shard_queue_state(&s), MS_SHARDS_OPEN);
    }
    assert_int_equal(ms_shard_queue_take(&s, 1, &r), 0);
    for (uint64_t lease = 1; lease <= 6; lease++) {
        assert_int_equal(ms_shard_queue_state(&s), MS_SHARDS_OPEN);
        assert_int_equal(ms_shard_queue_done(&s, lease, 1), 1);
    }
    assert_int_equal(ms_shard_queue_state(&s), MS_SHARDS_COMPLETE);
    assert_int_equal(ms_shard_queue_done_count(&s), 6);
}

/* Each epoch has every shard once, in an order of its own, the same each time. */
static void test_shuffled(void **state)
{
    static const uint64_t sizes[] = {1, 2, 3, 5, 16, 17, 1000, 4097};

    (void)state;
    for (size_t k = 0; k < MS_COUNT(sizes); k++) {
        MS_CLEANUP(ms_shard_queue_finish)
        struct ms_shard_queue s = make(sizes[k], 1, 2, true);
        MS_CLEANUP(ms_cleanup_free) uint8_t *seen = calloc(sizes[k], 1);
        uint64_t moved = 0, differ = 0;

        assert_non_null(seen);
        for (uint64_t i = 0; i < 2 * sizes[k]; i++) {
            struct ms_shard_range r = ms_shard_queue_range(&s, i);

            assert_true(r.index < sizes[k]);
            assert_int_equal(seen[r.index]++, i / sizes[k]);
            moved += r.index != i % sizes[k];
            differ +=
                i < sizes[k] && r.index != ms_shard_queue_range(&s, i + sizes[k]).index;
        }
        if (sizes[k] >= 16) {
            assert_true(moved > sizes[k]);
            assert_true(differ > sizes[k] / 2);
        }
    }
}

static void test_huge_data_sets_need_no_memory(void **state)
{
    MS_CLEANUP(ms_shard_queue_finish)
    struct ms_shard_queue s = make(UINT64_C(1) << 62, 1, 1, true);
    struct ms_shard_range r = take(&s, 1);

    (void)state;
    assert_true(r.start < UINT64_C(1) << 62);
    assert_int_equal(s.doing.count, 1);
}

static void test_specs_that_cannot_be(void **state)
{
    static const struct ms_shards_spec cases[] = {
        {0, 1, 1, false, 0, 1, 1},
        {1, 0, 1, false, 0, 1, 1},
        {1, 1, 0, false, 0, 1, 1},
        {1, 1, 1, false, 0, 0, 1},
        {1, 1, 1, false, 0, 1, 0},
        {UINT64_MAX, 1, 2, false, 0, 1, 1},
    };
    struct ms_shard_queue s;

    (void)state;
    for (size_t i = 0; i < MS_COUNT(cases); i++) {
        struct ms_error err = {0};

        assert_int_equal(ms_shard_queue_init(&s, &cases[i], &err), -EINVAL);
        assert_true(err.text[0]);
    }
}

static void test_a_dead_workers_shards_come_again(void **state)
{
    MS_CLEANUP(ms_shard_queue_finish) struct ms_shard_queue s = make(40, 10, 1, false);
    struct ms_shard_range a = take(&s, 1), b = take(&s, 2), c = take(&s, 1), again;

    (void)state;
    assert_int_equal(ms_shard_queue_drop(&s, 1), 2);
    again = take(&s, 3);
    assert_int_equal(again.start, a.start); /* before what was never taken */
    assert_int_equal(again.attempt, 1);
    assert_true(again.lease > c.lease);
    assert_int_equal(take(&s, 3).start, c.start);
    assert_int_equal(take(&s, 3).start, 30);
    /* 5.6, item 7: what the old incarnation says changes nothing */
    assert_int_equal(ms_shard_queue_done(&s, a.lease, 1), 0);
    assert_int_equal(ms_shard_queue_fail(&s, a.lease, 1, "late"), 0);
    assert_int_equal(ms_shard_queue_done(&s, again.lease, 1), 0);
    assert_int_equal(ms_shard_queue_drop(&s, 1), 0);
    assert_int_equal(ms_shard_queue_done(&s, b.lease, 2), 1);
    assert_int_equal(ms_shard_queue_done_count(&s), 1);
}

/* 5.6, item 6 */
static void
test_a_shard_that_fails_4_times_is_reported_and_never_completed(void **state)
{
    MS_CLEANUP(ms_shard_queue_finish) struct ms_shard_queue s = make(20, 10, 1, false);
    struct ms_shard_range bad = take(&s, 1), good, r;

    (void)state;
    for (int i = 0; i < 4; i++) {
        assert_int_equal(bad.start, 0);
        assert_int_equal(ms_shard_queue_fail(&s, bad.lease, 1, "cannot decode"),
                         i < 3 ? 1 : 2);
        if (i < 3)
            bad = take(&s, 1);
    }
    good = take(&s, 1);
    assert_int_equal(good.start, 10);
    assert_int_equal(ms_shard_queue_done(&s, good.lease, 1), 1);
    assert_int_equal(ms_shard_queue_take(&s, 1, &r), 0);
    assert_int_equal(ms_shard_queue_state(&s), MS_SHARDS_FAILED);
    assert_int_equal(s.failed.count, 1);
    assert_string_equal(s.failed.at[0].reason, "cannot decode");
    assert_int_equal(ms_shard_queue_retry(&s), 1);
    assert_int_equal(ms_shard_queue_state(&s), MS_SHARDS_OPEN);
    bad = take(&s, 1);
    assert_int_equal(ms_shard_queue_done(&s, bad.lease, 1), 1);
    assert_int_equal(ms_shard_queue_state(&s), MS_SHARDS_COMPLETE);
}

static void test_deaths_have_a_budget_of_their_own(void **state)
{
    MS_CLEANUP(ms_shard_queue_finish) struct ms_shard_queue s = make(10, 10, 1, false);

    (void)state;
    for (uint64_t owner = 1; owner <= 8; owner++) {
        take(&s, owner);
        assert_int_equal(ms_shard_queue_state(&s), MS_SHARDS_OPEN);
        assert_int_equal(ms_shard_queue_drop(&s, owner), 1);
    }
    assert_int_equal(ms_shard_queue_state(&s), MS_SHARDS_FAILED);
}

static void test_given_back_costs_nothing(void **state)
{
    MS_CLEANUP(ms_shard_queue_finish) struct ms_shard_queue s = make(10, 10, 1, false);

    (void)state;
    for (int i = 0; i < 100; i++) {
        struct ms_shard_range r = take(&s, 1);

        assert_int_equal(r.attempt, 0);
        assert_int_equal(ms_shard_queue_give_back(&s, r.lease, 1), 1);
        assert_int_equal(ms_shard_queue_give_back(&s, r.lease, 1), 0);
    }
}

/* ---- checkpoints ---- */

struct packed {
    uint8_t *bytes;
    size_t len;
};

static struct packed pack(const struct ms_shard_queue *s, bool as_checkpoint)
{
    Muster__KeptShards *m = ms_shard_queue_encode(s, as_checkpoint);
    struct packed p;

    assert_non_null(m);
    p.len = muster__kept_shards__get_packed_size(m);
    p.bytes = malloc(p.len + 1);
    assert_non_null(p.bytes);
    muster__kept_shards__pack(m, p.bytes);
    muster__kept_shards__free_unpacked(m, NULL);
    return p;
}

static void test_a_checkpoint_goes_on_where_it_was(void **state)
{
    MS_CLEANUP(ms_shard_queue_finish) struct ms_shard_queue s = make(50, 10, 1, false);
    struct ms_shard_range a = take(&s, 1), b = take(&s, 2), r;
    struct packed p;

    (void)state;
    take(&s, 1);
    ms_shard_queue_done(&s, b.lease, 2);
    p = pack(&s, true);
    ms_shard_queue_done(&s, a.lease, 1); /* after the checkpoint: it is done again */
    take(&s, 1);
    assert_int_equal(ms_shard_queue_restore(&s, p.bytes, p.len, NULL), 0);
    free(p.bytes);
    assert_int_equal(ms_shard_queue_done_count(&s), 1);
    assert_int_equal(ms_shard_queue_done(&s, 4, 1), 0); /* a lease of before */
    for (unsigned seen = 0, i = 0; i < 4; i++) {
        r = take(&s, 3);
        assert_true(r.lease > 4);
        seen |= 1u << (r.start / 10);
        assert_int_equal(ms_shard_queue_done(&s, r.lease, 3), 1);
        if (i == 3)
            assert_int_equal(seen, 0x1d); /* all but b */
    }
    assert_int_equal(ms_shard_queue_state(&s), MS_SHARDS_COMPLETE);
}

static void test_checkpoints_that_are_none(void **state)
{
    MS_CLEANUP(ms_shard_queue_finish) struct ms_shard_queue s = make(50, 10, 1, false);
    MS_CLEANUP(ms_shard_queue_finish)
    struct ms_shard_queue other = make(51, 10, 1, false);
    struct ms_error err = {0};
    struct packed p;

    (void)state;
    take(&s, 1);
    assert_int_equal(ms_shard_queue_restore(&s, (const uint8_t *)"\xff", 1, &err),
                     -EINVAL);
    assert_int_equal(ms_shard_queue_restore(&s, (const uint8_t *)"", 0, &err), -EINVAL);
    assert_non_null(strstr(err.text, "version 0"));
    p = pack(&other, true);
    assert_int_equal(ms_shard_queue_restore(&s, p.bytes, p.len, &err), -EINVAL);
    assert_non_null(strstr(err.text, "another data set"));
    free(p.bytes);
    assert_int_equal(s.doing.count, 1); /* nothing has changed */
}

/* ---- requests that come again ---- */

static const struct ms_shard_request first = {7, 1}, second = {7, 2}, none = {0, 0};

static uint64_t take_by(struct ms_shard_queue *s, const struct ms_shard_request *by)
{
    uint64_t lease = take(s, 1).lease;

    ms_shard_queue_note_taken(s, lease, by);
    return lease;
}

static int end(struct ms_shard_queue *s,
               uint64_t lease,
               enum ms_shard_how how,
               const struct ms_shard_request *by)
{
    const struct ms_shard_end e = {lease, 1, how, *by};

    return ms_shard_queue_end(s, &e, "why");
}

static void reload(struct ms_shard_queue *s);

static void test_a_request_that_comes_again(void **state)
{
    MS_CLEANUP(ms_shard_queue_finish) struct ms_shard_queue s = make(50, 10, 1, false);
    struct ms_shard_range r;
    uint64_t lease = take_by(&s, &first);
    size_t at = 0;

    (void)state;
    reload(&s);
    assert_true(ms_shard_queue_next_taken(&s, &first, &at, &r));
    assert_int_equal(r.lease, lease);
    assert_int_equal(r.end, 10);
    assert_false(ms_shard_queue_next_taken(&s, &first, &at, &r));
    assert_int_equal(end(&s, lease, MS_SHARD_DONE, &second), 1);
    reload(&s);
    assert_int_equal(end(&s, lease, MS_SHARD_DONE, &second), 1); /* the same */
    assert_int_equal(end(&s, lease, MS_SHARD_GIVEN_BACK, &second), 0);
    assert_int_equal(ms_shard_queue_done_count(&s), 1);
    ms_shard_queue_settle(&s, 7, 1, NULL, 0);
    assert_int_equal(s.ended_count, 1);
    ms_shard_queue_settle(&s, 7, 1, (uint64_t[]){2}, 1);
    assert_int_equal(s.ended_count, 0);
    assert_int_equal(end(&s, 99, MS_SHARD_FAILED, &second), 0);
    assert_int_equal(end(&s, 99, (enum ms_shard_how)3, &second), -EINVAL);
    assert_int_equal(s.ended_count, 0);
    lease = take_by(&s, &none);
    at = 0;
    assert_false(ms_shard_queue_next_taken(&s, &none, &at, &r));
    assert_int_equal(end(&s, lease, MS_SHARD_FAILED, &none), 1);
    assert_int_equal(s.ended_count, 0); /* it cannot come again */
}

static void test_a_refused_end_is_not_noted_where_no_more_can_be(void **state)
{
    MS_CLEANUP(ms_shard_queue_finish) struct ms_shard_queue s = make(50, 10, 1, false);

    (void)state;
    for (uint64_t i = 0; i < MS_SHARDS_OPEN_MAX; i++) {
        const struct ms_shard_end e = {1000 + i, 9, MS_SHARD_DONE, {8, 1 + i}};

        assert_int_equal(ms_shard_queue_note_ended(&s, &e), 0);
    }
    assert_int_equal(end(&s, 99, MS_SHARD_DONE, &second), 0);
    assert_int_equal(end(&s, 99, MS_SHARD_DONE, &second), 0); /* again, too */
    assert_int_equal(s.ended_count, MS_SHARDS_OPEN_MAX);
    assert_int_equal(s.ended[0].lease, 1000);
    assert_int_equal(end(&s, take_by(&s, &first), MS_SHARD_DONE, &second), 1);
    assert_int_equal(s.ended_count, MS_SHARDS_OPEN_MAX);
    assert_int_equal(s.ended[0].lease, 1001);
}

static void test_what_nobody_knows_of_comes_back(void **state)
{
    MS_CLEANUP(ms_shard_queue_finish) struct ms_shard_queue s = make(50, 10, 1, false);
    const struct ms_shard_request other = {8, 2};
    uint64_t known = take_by(&s, &first), lost = take_by(&s, &second),
             others = take_by(&s, &other);

    (void)state;
    ms_shard_queue_settle(&s, 7, 1, NULL, 0);
    assert_int_equal(ms_shard_queue_leave(&s, 7, false), 0); /* its death is told */
    assert_int_equal(ms_shard_queue_leave(&s, 7, true), 1);
    assert_int_equal(end(&s, lost, MS_SHARD_DONE, &none), 0);
    assert_int_equal(end(&s, known, MS_SHARD_DONE, &none), 1);
    assert_int_equal(end(&s, others, MS_SHARD_DONE, &other), 1);
    assert_int_equal(take(&s, 2).attempt, 0); /* nothing was counted */
    assert_int_equal(ms_shard_queue_leave(&s, 8, true), 0);
    assert_int_equal(s.ended_count, 0);
}

/* ---- random ---- */

enum { OWNERS = 5, COUNT = 60 };

static void reload(struct ms_shard_queue *s)
{
    struct packed p = pack(s, false);
    Muster__KeptShards *m = muster__kept_shards__unpack(NULL, p.len, p.bytes);
    struct ms_shard_queue again;

    assert_non_null(m);
    assert_int_equal(ms_shard_queue_decode(&again, m, NULL), 0);
    muster__kept_shards__free_unpacked(m, NULL);
    free(p.bytes);
    assert_int_equal(again.doing.count, s->doing.count);
    assert_int_equal(ms_shard_queue_done_count(&again), ms_shard_queue_done_count(s));
    ms_shard_queue_finish(s);
    *s = again;
}

/* Whatever happens, each shard is done exactly once, or is reported. */
static void run_one(uint64_t number)
{
    uint64_t seed = test_seed(number), owners[OWNERS], last_owner = OWNERS;
    MS_CLEANUP(ms_shard_queue_finish)
    struct ms_shard_queue s = make(COUNT, 2, 2, number % 2);
    struct ms_shard_range out[OWNERS] = {0};
    int done[COUNT] = {0}; /* by epoch and index */

    for (size_t i = 0; i < OWNERS; i++)
        owners[i] = i + 1;
    while (ms_shard_queue_state(&s) == MS_SHARDS_OPEN) {
        size_t w = test_roll(&seed, OWNERS);
        bool is_out = out[w].lease != 0;

        switch (test_roll(&seed, 16)) {
        case 0: /* it dies, with what it has */
            assert_int_equal(ms_shard_queue_drop(&s, owners[w]), is_out);
            owners[w] = ++last_owner;
            out[w] = (struct ms_shard_range){0};
            break;
        case 1:
            assert_int_equal(ms_shard_queue_fail(&s, out[w].lease, owners[w], "x") > 0,
                             is_out);
            out[w] = (struct ms_shard_range){0};
            break;
        case 2:
            reload(&s);
            break;
        default:
            if (is_out) {
                assert_int_equal(ms_shard_queue_done(&s, out[w].lease, owners[w]), 1);
                done[out[w].epoch * COUNT / 2 + out[w].index]++;
                out[w] = (struct ms_shard_range){0};
            } else if (ms_shard_queue_take(&s, owners[w], &out[w]) <= 0) {
                out[w] = (struct ms_shard_range){0};
            }
        }
    }
    for (size_t i = 0; i < s.failed.count; i++) {
        struct ms_shard_range r = ms_shard_queue_range(&s, s.failed.at[i].position);

        assert_int_equal(done[r.epoch * COUNT / 2 + r.index]++, 0);
    }
    for (size_t i = 0; i < COUNT; i++)
        assert_int_equal(done[i], 1);
}

static void test_random_workers(void **state)
{
    (void)state;
    for (uint64_t number = 1; number <= 1000; number++)
        run_one(number);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges_in_order),
        cmocka_unit_test(test_shuffled),
        cmocka_unit_test(test_huge_data_sets_need_no_memory),
        cmocka_unit_test(test_specs_that_cannot_be),
        cmocka_unit_test(test_a_dead_workers_shards_come_again),
        cmocka_unit_test(
            test_a_shard_that_fails_4_times_is_reported_and_never_completed),
        cmocka_unit_test(test_deaths_have_a_budget_of_their_own),
        cmocka_unit_test(test_given_back_costs_nothing),
        cmocka_unit_test(test_a_checkpoint_goes_on_where_it_was),
        cmocka_unit_test(test_checkpoints_that_are_none),
        cmocka_unit_test(test_a_request_that_comes_again),
        cmocka_unit_test(test_a_refused_end_is_not_noted_where_no_more_can_be),
        cmocka_unit_test(test_what_nobody_knows_of_comes_back),
        cmocka_unit_test(test_random_workers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
