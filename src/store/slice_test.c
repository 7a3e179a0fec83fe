/* slice_test.c - tests of slice.h: the numbers of objects */
#include "store/slice.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

enum { SIDE = 24 };

static int by_value(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return (*x > *y) - (*x < *y);
}

static void test_ranges_have_numbers_of_their_own(void **unused)
{
    static uint64_t ids[SIDE * SIDE * SIDE];
    size_t count = 0;

    (void)unused;
    for (uint64_t of = 1; of <= SIDE; of++)
        for (uint64_t offset = 0; offset < SIDE; offset++)
            for (uint64_t len = 1; len <= SIDE; len++)
                ids[count++] = ms_slice_id(of, offset * 4096, len * 4096);
    qsort(ids, count, sizeof ids[0], by_value);
    for (size_t i = 0; i < count; i++) {
        assert_true(ms_slice_is(ids[i]));
        assert_true(i == 0 || ids[i] != ids[i - 1]);
    }
}

static void test_the_same_range_has_the_same_number(void **unused)
{
    (void)unused;
    assert_true(ms_slice_id(7, 100, 50) == ms_slice_id(7, 100, 50));
    assert_false(ms_slice_is(1));
    assert_false(ms_slice_is(UINT64_C(1) << 62));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranges_have_numbers_of_their_own),
        cmocka_unit_test(test_the_same_range_has_the_same_number),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
