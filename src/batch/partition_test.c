/* partition_test.c - tests of partition.h: rows shared out so that every part has
 * about the same weight */
#include "batch/partition.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { ROWS_MAX = 200, PARTS_MAX = 16 };

static uint64_t seed = 7;

static uint64_t below(uint64_t n)
{
    seed = seed * 6364136223846793005U + 1442695040888963407U;
    return (seed >> 33) % n;
}

/* The heaviest part, and what the lightest weighs; checks the numbers of rows. */
static void weigh(const int64_t *weights,
                  const uint32_t *part_of,
                  size_t count,
                  uint32_t parts,
                  bool equal,
                  int64_t *heaviest,
                  int64_t *lightest)
{
    int64_t sums[PARTS_MAX] = {0};
    size_t rows[PARTS_MAX] = {0};

    for (size_t i = 0; i < count; i++) {
        assert_true(part_of[i] < parts);
        sums[part_of[i]] += weights[i];
        rows[part_of[i]]++;
    }
    *heaviest = *lightest = sums[0];
    for (uint32_t p = 0; p < parts; p++) {
        *heaviest = sums[p] > *heaviest ? sums[p] : *heaviest;
        *lightest = sums[p] < *lightest ? sums[p] : *lightest;
        if (equal)
            assert_in_range(rows[p], count / parts, (count + parts - 1) / parts);
    }
}

static void test_any_rows(void **state)
{
    int64_t weights[ROWS_MAX];
    uint32_t part_of[ROWS_MAX];

    (void)state;
    for (int round = 0; round < 20000; round++) {
        uint32_t parts = 1 + (uint32_t)below(PARTS_MAX);
        size_t count = below(ROWS_MAX);
        bool equal = below(2);
        enum ms_partition_way way =
            below(2) ? MS_PARTITION_DIFFERENCING : MS_PARTITION_LONGEST_FIRST;
        int64_t longest = 0, heaviest, lightest;

        for (size_t i = 0; i < count; i++) {
            weights[i] = (int64_t)below(1 + below(1000));
            longest = weights[i] > longest ? weights[i] : longest;
        }
        memset(part_of, 0xff, sizeof part_of);
        assert_int_equal(ms_partition(weights, count, parts, way, equal, part_of, NULL),
                         0);
        weigh(weights, part_of, count, parts, equal, &heaviest, &lightest);
        if (!equal) /* else one could be moved to the lightest */
            assert_true(heaviest - lightest <= longest);
    }
}

/* The classic example: 8 7 6 5 4 into two. The longest first gives 17 and 13,
 * differencing 16 and 14. */
static void test_differencing_is_better(void **state)
{
    static const int64_t weights[] = {4, 8, 7, 6, 5};
    uint32_t part_of[5];
    int64_t heaviest, lightest;

    (void)state;
    assert_int_equal(
        ms_partition(weights, 5, 2, MS_PARTITION_LONGEST_FIRST, false, part_of, NULL),
        0);
    weigh(weights, part_of, 5, 2, false, &heaviest, &lightest);
    assert_int_equal(heaviest, 17);
    assert_int_equal(
        ms_partition(weights, 5, 2, MS_PARTITION_DIFFERENCING, false, part_of, NULL),
        0);
    weigh(weights, part_of, 5, 2, false, &heaviest, &lightest);
    assert_int_equal(heaviest, 16);
}

static void test_wrong_input(void **state)
{
    static const int64_t negative[] = {1, -1}, huge[] = {INT64_MAX, INT64_MAX, 2};
    uint32_t part_of[3];
    struct ms_error err = {0};

    (void)state;
    assert_int_equal(ms_partition(negative, 2, 2, 0, true, part_of, &err), -EINVAL);
    assert_non_null(strstr(err.text, "row 1"));
    assert_int_equal(ms_partition(negative, 1, 0, 0, true, part_of, &err), -EINVAL);
    assert_int_equal(ms_partition(huge, 3, 2, 0, true, part_of, &err), -E2BIG);
    assert_int_equal(ms_partition(huge, 0, 2, 0, true, part_of, &err), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_rows),
        cmocka_unit_test(test_differencing_is_better),
        cmocka_unit_test(test_wrong_input),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
