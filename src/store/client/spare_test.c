/* spare_test.c - tests of spare.h: memory that is used again */
#include "store/client/spare.h"

#include "store/server/space.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#define BLOCK MS_SPACE_BLOCK

static bool is_mapped(const struct ms_spare_block *b)
{
    unsigned char in[1];

    return mincore(b->at, 1, in) == 0;
}

static void test_blocks_fit_huge_pages_and_can_be_written(void **state)
{
    struct ms_spare_block b = ms_spare_make(BLOCK + 1);

    (void)state;
    assert_non_null(b.at);
    assert_int_equal(b.len, 2 * BLOCK);
    assert_int_equal((uintptr_t)b.at % BLOCK, 0);
    memset(b.at, 7, b.len);
    munmap(b.at, b.len);
}

static void test_no_memory_is_an_answer(void **state)
{
    (void)state;
    assert_null(ms_spare_make(SIZE_MAX).at);
    assert_null(ms_spare_make((size_t)1 << 60).at);
}

static void test_what_was_given_is_taken_again(void **state)
{
    struct ms_spare s;
    struct ms_spare_block a = ms_spare_make(BLOCK), again;

    (void)state;
    ms_spare_init(&s, 4 * BLOCK);
    assert_null(ms_spare_take(&s, BLOCK).at);
    ms_spare_give(&s, a);
    assert_int_equal(s.bytes, BLOCK);
    again = ms_spare_take(&s, BLOCK / 2);
    assert_ptr_equal(again.at, a.at);
    assert_int_equal(again.len, BLOCK);
    assert_int_equal(s.bytes, 0);
    assert_null(ms_spare_take(&s, BLOCK).at); /* it has an owner: not twice */
    memset(again.at, 1, again.len);
    ms_spare_give(&s, again);
    ms_spare_finish(&s);
    assert_false(is_mapped(&again));
}

static void test_the_smallest_that_fits(void **state)
{
    struct ms_spare s;
    struct ms_spare_block four = ms_spare_make(4 * BLOCK), found;

    (void)state;
    ms_spare_init(&s, 64 * BLOCK);
    ms_spare_give(&s, ms_spare_make(8 * BLOCK));
    ms_spare_give(&s, four);
    ms_spare_give(&s, ms_spare_make(2 * BLOCK));
    assert_null(ms_spare_take(&s, BLOCK).at);     /* half of it would be of no use */
    assert_null(ms_spare_take(&s, 9 * BLOCK).at); /* too small, all of them */
    found = ms_spare_take(&s, 2 * BLOCK + 1);
    assert_ptr_equal(found.at, four.at);
    ms_spare_give(&s, found);
    ms_spare_finish(&s);
    assert_int_equal(s.count, 0);
    assert_int_equal(s.bytes, 0);
}

static void test_no_more_than_the_limit_is_kept(void **state)
{
    struct ms_spare s;
    struct ms_spare_block a = ms_spare_make(BLOCK), b = ms_spare_make(BLOCK),
                          c = ms_spare_make(BLOCK), big = ms_spare_make(3 * BLOCK);

    (void)state;
    ms_spare_init(&s, 2 * BLOCK);
    ms_spare_give(&s, a);
    ms_spare_give(&s, b);
    ms_spare_give(&s, c);
    assert_int_equal(s.bytes, 2 * BLOCK);
    assert_false(is_mapped(&a)); /* the longest unused */
    assert_true(is_mapped(&b));
    ms_spare_give(&s, big);
    assert_false(is_mapped(&big));
    assert_true(is_mapped(&c));
    assert_int_equal(s.bytes, 2 * BLOCK);
    ms_spare_finish(&s);
}

static void test_no_more_blocks_than_there_are_places(void **state)
{
    struct ms_spare s;

    (void)state;
    ms_spare_init(&s, UINT64_MAX);
    for (size_t i = 0; i < MS_SPARE_COUNT_MAX + 3; i++)
        ms_spare_give(&s, ms_spare_make(1));
    assert_int_equal(s.count, MS_SPARE_COUNT_MAX);
    assert_int_equal(s.bytes, MS_SPARE_COUNT_MAX * BLOCK);
    ms_spare_finish(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_fit_huge_pages_and_can_be_written),
        cmocka_unit_test(test_no_memory_is_an_answer),
        cmocka_unit_test(test_what_was_given_is_taken_again),
        cmocka_unit_test(test_the_smallest_that_fits),
        cmocka_unit_test(test_no_more_than_the_limit_is_kept),
        cmocka_unit_test(test_no_more_blocks_than_there_are_places),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
