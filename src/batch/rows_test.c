/* rows_test.c - tests of rows.h: which rows of which blocks, in which order */
#include "batch/gather.h"
#include "batch/rows.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { BLOCKS = 3, BLOCK_ROWS = 50, LIST_MAX = 4096 };

/* Rows written out one by one: what the runs must stand for. */
struct list {
    size_t count;
    uint32_t block[LIST_MAX];
    uint64_t row[LIST_MAX];
};

static uint64_t seed = 1;

static uint64_t below(uint64_t n)
{
    seed = seed * 6364136223846793005U + 1442695040888963407U;
    return (seed >> 33) % n;
}

static void expect(const struct ms_rows *r, const struct list *l)
{
    assert_int_equal(r->count, l->count);
    for (size_t i = 0; i < l->count; i++) {
        uint32_t block;
        uint64_t row;

        ms_rows_at(r, i, &block, &row);
        assert_int_equal(block, l->block[i]);
        assert_int_equal(row, l->row[i]);
    }
}

static void list_add(struct list *l, uint32_t block, uint64_t row)
{
    l->block[l->count] = block;
    l->row[l->count++] = row;
}

static void list_of_block(struct list *l, uint32_t block)
{
    for (uint64_t i = 0; i < BLOCK_ROWS; i++)
        list_add(l, block, i);
}

/* ---- one operation on both -------------------------------------------------------- */

static void slice(const struct ms_rows *r,
                  const struct list *l,
                  struct ms_rows *out,
                  struct list *to)
{
    uint64_t first = below(l->count), room;
    int64_t step = (int64_t)below(7) - 3;
    uint64_t count;

    if (step == 0)
        step = 1;
    room = step < 0 ? first / (uint64_t)-step : (l->count - 1 - first) / (uint64_t)step;
    count = below(room + 2); /* up to room + 1 rows fit */
    assert_int_equal(ms_rows_slice(r, first, count, step, out, NULL), 0);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t at = first + (uint64_t)step * i;

        list_add(to, l->block[at], l->row[at]);
    }
}

static void take(const struct ms_rows *r,
                 const struct list *l,
                 struct ms_rows *out,
                 struct list *to)
{
    int64_t indexes[64];
    size_t count = below(64);

    for (size_t i = 0; i < count; i++) {
        size_t at = below(l->count);

        indexes[i] = (int64_t)at - (below(2) ? (int64_t)l->count : 0);
        list_add(to, l->block[at], l->row[at]);
    }
    assert_int_equal(ms_rows_take(r, indexes, count, out, NULL), 0);
}

static void repeat(const struct ms_rows *r,
                   const struct list *l,
                   struct ms_rows *out,
                   struct list *to)
{
    uint64_t times = below(3);
    bool interleave = below(2);

    assert_int_equal(ms_rows_repeat(r, times, interleave, out), 0);
    for (size_t i = 0; i < l->count * times; i++) {
        size_t at = interleave ? i / times : i % l->count;

        list_add(to, l->block[at], l->row[at]);
    }
}

static void concat(const struct ms_rows *r,
                   const struct list *l,
                   struct ms_rows *out,
                   struct list *to)
{
    static const struct ms_move other[BLOCKS] = {{2, 0}, {0, 0}, {1, 0}};

    assert_int_equal(ms_rows_append(out, r, NULL), 0);
    assert_int_equal(ms_rows_append(out, r, other), 0);
    for (size_t i = 0; i < l->count; i++)
        list_add(to, l->block[i], l->row[i]);
    for (size_t i = 0; i < l->count; i++)
        list_add(to, other[l->block[i]].block, l->row[i]);
}

static void test_any_operations(void **state)
{
    static void (*const operations[])(const struct ms_rows *,
                                      const struct list *,
                                      struct ms_rows *,
                                      struct list *) = {slice, take, repeat, concat};
    static struct list lists[2];

    (void)state;
    for (int round = 0; round < 2000; round++) {
        struct ms_rows r;
        struct list *l = &lists[0];

        ms_rows_init(&r);
        l->count = 0;
        for (uint32_t b = 0; b < BLOCKS; b++) {
            struct ms_row_run run = {.block = b, .count = BLOCK_ROWS, .step = 1};

            assert_int_equal(ms_rows_add(&r, run), 0);
            list_of_block(l, b);
        }
        for (int i = 0; i < 8 && l->count > 0 && l->count < 1000; i++) {
            struct list *to = l == &lists[0] ? &lists[1] : &lists[0];
            struct ms_rows out;

            ms_rows_init(&out);
            to->count = 0;
            operations[below(4)](&r, l, &out, to);
            expect(&out, to);
            ms_rows_finish(&r);
            r = out;
            l = to;
        }
        ms_rows_finish(&r);
    }
}

static void test_runs_are_joined(void **state)
{
    struct ms_rows r, even, back, same;
    int64_t indexes[] = {0, 2, 4, 6, 8};

    (void)state;
    ms_rows_init(&r);
    ms_rows_init(&even);
    ms_rows_init(&back);
    ms_rows_init(&same);
    assert_int_equal(ms_rows_add(&r, (struct ms_row_run){.count = 4, .step = 1}), 0);
    assert_int_equal(
        ms_rows_add(&r, (struct ms_row_run){.first = 4, .count = 6, .step = 1}), 0);
    assert_true(ms_rows_is_view(&r));
    assert_int_equal(ms_rows_take(&r, indexes, 5, &even, NULL), 0);
    assert_true(ms_rows_is_view(&even));
    assert_int_equal(even.runs[0].step, 2);
    assert_int_equal(ms_rows_slice(&r, 9, 10, -1, &back, NULL), 0);
    assert_true(ms_rows_is_view(&back));
    assert_int_equal(back.runs[0].step, -1);
    assert_int_equal(ms_rows_slice(&r, 0, 0, 1, &same, NULL), 0);
    assert_false(ms_rows_is_view(&same));
    ms_rows_finish(&r);
    ms_rows_finish(&even);
    ms_rows_finish(&back);
    ms_rows_finish(&same);
}

static void test_wrong_indexes(void **state)
{
    static const int64_t bad[] = {3, -4};
    struct ms_rows r, out;
    struct ms_error err = {0};

    (void)state;
    ms_rows_init(&r);
    ms_rows_init(&out);
    assert_int_equal(ms_rows_add(&r, (struct ms_row_run){.count = 3, .step = 1}), 0);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(ms_rows_take(&r, &bad[i], 1, &out, &err), -ERANGE);
        assert_non_null(strstr(err.text, "there are 3"));
    }
    assert_int_equal(ms_rows_slice(&r, 1, 3, 1, &out, &err), -ERANGE);
    assert_int_equal(ms_rows_slice(&r, 3, 1, 1, &out, &err), -ERANGE);
    assert_int_equal(ms_rows_slice(&r, 2, 4, -1, &out, &err), -ERANGE);
    assert_int_equal(ms_rows_slice(&r, 0, 1, 0, &out, &err), -ERANGE);
    assert_int_equal(ms_rows_slice(&r, 2, 2, INT64_MIN, &out, &err), -ERANGE);
    assert_int_equal(ms_rows_repeat(&r, MS_ROWS_MAX, false, &out), -E2BIG);
    assert_int_equal(out.count, 0);
    ms_rows_finish(&r);
    ms_rows_finish(&out);
}

/* ---- payload ---------------------------------------------------------------------- */

static void test_fixed_payload(void **state)
{
    static const int32_t values[2][6] = {{1, 2, 3, 4, 5, 6}, {10, 20, 30, 40, 50, 60}};
    static const int64_t indexes[] = {0, 1, 2, 5, 4, 3, 1, 1};
    static const int32_t wanted[] = {
        1, 2, 3, 4, 5, 6, 50, 60, 30, 40, 10, 20, 3, 4, 3, 4};
    const struct ms_fixed_part parts[] = {{(const uint8_t *)values[0], 3, 8},
                                          {(const uint8_t *)values[1], 3, 8}};
    struct ms_rows r, out;
    int32_t got[16];

    (void)state;
    ms_rows_init(&r);
    ms_rows_init(&out);
    assert_int_equal(ms_rows_add(&r, (struct ms_row_run){.count = 3, .step = 1}), 0);
    assert_int_equal(
        ms_rows_add(&r, (struct ms_row_run){.block = 1, .count = 3, .step = 1}), 0);
    assert_int_equal(ms_rows_take(&r, indexes, 8, &out, NULL), 0);
    ms_gather_fixed(&out, parts, 8, (uint8_t *)got);
    assert_memory_equal(got, wanted, sizeof wanted);
    ms_rows_finish(&r);
    ms_rows_finish(&out);
}

static void test_ragged_payload(void **state)
{
    static const int16_t values[] = {1, 2, 2, 4, 4, 4, 4};
    static const int64_t offsets[] = {0, 1, 3, 3, 7};
    static const int64_t indexes[] = {3, 0, 1, 2, 3, 2, 0};
    static const int64_t lengths[] = {4, 1, 2, 0, 4, 0, 1};
    const struct ms_ragged_part part = {(const uint8_t *)values, offsets, 4};
    struct ms_rows r, out;
    int64_t got[8];
    int16_t copied[12], *at = copied;

    (void)state;
    ms_rows_init(&r);
    ms_rows_init(&out);
    assert_int_equal(ms_rows_add(&r, (struct ms_row_run){.count = 4, .step = 1}), 0);
    assert_int_equal(ms_rows_take(&r, indexes, 7, &out, NULL), 0);
    ms_gather_offsets(&out, &part, got);
    assert_int_equal(got[7], 12);
    ms_gather_ragged(&out, &part, sizeof *values, (uint8_t *)copied);
    for (size_t i = 0; i < 7; i++) {
        assert_int_equal(got[i + 1] - got[i], lengths[i]);
        for (int64_t j = 0; j < lengths[i]; j++)
            assert_int_equal(*at++, lengths[i]);
    }
    ms_rows_finish(&r);
    ms_rows_finish(&out);
}

static void test_spans_and_moves(void **state)
{
    static const int64_t indexes[] = {8, 3, 8, 12, 5};
    const struct ms_move to[] = {{.block = 1, .first = 3}, {.block = 0, .first = 2}};
    struct ms_span spans[3];
    struct ms_rows r, some, moved;
    uint32_t block;
    uint64_t row;

    (void)state;
    ms_rows_init(&r);
    ms_rows_init(&some);
    ms_rows_init(&moved);
    assert_int_equal(ms_rows_add(&r, (struct ms_row_run){.count = 10, .step = 1}), 0);
    assert_int_equal(
        ms_rows_add(&r, (struct ms_row_run){.block = 1, .count = 4, .step = 1}), 0);
    assert_int_equal(ms_rows_take(&r, indexes, 5, &some, NULL), 0);
    assert_int_equal(ms_rows_spans(&some, spans, 3), 0);
    assert_int_equal(spans[0].first, 3);
    assert_int_equal(spans[0].end, 9);
    assert_int_equal(spans[0].count, 4);
    assert_int_equal(spans[1].first, 2);
    assert_int_equal(spans[1].end, 3);
    assert_int_equal(spans[2].count, 0);
    assert_int_equal(ms_rows_spans(&some, spans, 1), -ERANGE);

    assert_int_equal(ms_rows_append(&moved, &some, to), 0);
    assert_int_equal(moved.count, 5);
    ms_rows_at(&moved, 0, &block, &row);
    assert_int_equal(block, 1);
    assert_int_equal(row, 5);
    ms_rows_at(&moved, 3, &block, &row);
    assert_int_equal(block, 0);
    assert_int_equal(row, 0);
    ms_rows_finish(&r);
    ms_rows_finish(&some);
    ms_rows_finish(&moved);
}

static void test_packed_without_blocks_that_have_no_rows(void **unused)
{
    const struct ms_row_run runs[] = {
        {9, 4, 3, -2, 0}, {2, 1, 1, 1, 0}, {9, 5, 1, 1, 0}, {7, 0, 4, 0, 0}};
    struct ms_rows r, packed;
    uint32_t blocks[4];
    size_t count = 99;

    (void)unused;
    ms_rows_init(&r);
    ms_rows_init(&packed);
    assert_int_equal(ms_rows_append_packed(&packed, &r, blocks, &count), 0);
    assert_int_equal(count, 0);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(ms_rows_add(&r, runs[i]), 0);
    assert_int_equal(ms_rows_append_packed(&packed, &r, blocks, &count), 0);
    assert_int_equal(count, 3);
    assert_int_equal(packed.count, r.count);
    for (uint64_t i = 0; i < r.count; i++) {
        uint32_t was, is;
        uint64_t was_row, is_row;

        ms_rows_at(&r, i, &was, &was_row);
        ms_rows_at(&packed, i, &is, &is_row);
        assert_true(is < count);
        assert_int_equal(blocks[is], was);
        assert_int_equal(is_row, was_row);
    }
    ms_rows_finish(&r);
    ms_rows_finish(&packed);
}

static void test_steps_and_times_without_end(void **unused)
{
    struct ms_rows r, out;
    uint32_t block;
    uint64_t row;

    (void)unused;
    ms_rows_init(&r);
    ms_rows_init(&out);
    assert_int_equal(ms_rows_repeat(&r, UINT64_MAX, false, &out), 0);
    assert_int_equal(ms_rows_repeat(&r, UINT64_MAX, true, &out), 0);
    assert_int_equal(out.count, 0);
    assert_int_equal(ms_rows_add(&r, (struct ms_row_run){.count = 9, .step = 4}), 0);
    assert_int_equal(ms_rows_slice(&r, 2, 1, INT64_MAX, &out, NULL), 0);
    assert_int_equal(ms_rows_slice(&r, 2, 1, INT64_MIN, &out, NULL), 0);
    assert_int_equal(out.count, 2);
    ms_rows_at(&out, 1, &block, &row);
    assert_int_equal(row, 8);
    assert_int_equal(ms_rows_slice(&r, 2, 2, INT64_MIN, &out, NULL), -ERANGE);
    ms_rows_finish(&r);
    ms_rows_finish(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_operations),
        cmocka_unit_test(test_runs_are_joined),
        cmocka_unit_test(test_wrong_indexes),
        cmocka_unit_test(test_fixed_payload),
        cmocka_unit_test(test_ragged_payload),
        cmocka_unit_test(test_spans_and_moves),
        cmocka_unit_test(test_packed_without_blocks_that_have_no_rows),
        cmocka_unit_test(test_steps_and_times_without_end),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
