/* reorder_test.c - tests of reorder.h: pieces of several logs, in the order of
 * their times */
#include "base/clock.h"
#include "cli/logs/reorder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { HOLD = 20 };

static void test_an_older_one_that_comes_later_goes_first(void **state)
{
    struct ms_reorder_item a, b, c;
    struct ms_reorder m;

    (void)state;
    ms_reorder_init(&m, HOLD);
    assert_int_equal(ms_reorder_next_ns(&m), MS_NEVER);
    assert_null(ms_reorder_take(&m, MS_NEVER));
    ms_reorder_add(&m, &b, 2000, 100);
    ms_reorder_add(&m, &a, 1000, 110);
    ms_reorder_add(&m, &c, 3000, 119);
    assert_int_equal(ms_reorder_next_ns(&m), 120);
    assert_null(ms_reorder_take(&m, 119));
    assert_ptr_equal(ms_reorder_take(&m, 120), &a); /* b is due, and a is older */
    assert_ptr_equal(ms_reorder_take(&m, 120), &b);
    assert_null(ms_reorder_take(&m, 120)); /* another may still come before it */
    assert_int_equal(ms_reorder_next_ns(&m), 139);
    assert_ptr_equal(ms_reorder_take(&m, 139), &c);
    assert_null(ms_reorder_take(&m, MS_NEVER));
}

static void test_those_of_one_time_stay_in_order(void **state)
{
    struct ms_reorder_item all[5];
    struct ms_reorder m;

    (void)state;
    ms_reorder_init(&m, HOLD);
    for (int i = 0; i < 5; i++)
        ms_reorder_add(&m, &all[i], 7, i);
    for (int i = 0; i < 5; i++)
        assert_ptr_equal(ms_reorder_take(&m, MS_NEVER), &all[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_older_one_that_comes_later_goes_first),
        cmocka_unit_test(test_those_of_one_time_stay_in_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
