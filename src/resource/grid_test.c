/* grid_test.c - tests of grid.h: text in columns */
#include "base/cleanup.h"
#include "resource/grid.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void check(const struct ms_grid *g, const char *wanted)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf out = {0};

    assert_int_equal(ms_grid_print(g, &out), 0);
    assert_string_equal(ms_buf_str(&out), wanted);
}

static void test_columns_align(void **state)
{
    MS_CLEANUP(ms_grid_finish) struct ms_grid g;

    (void)state;
    ms_grid_init(&g, "lrl");
    ms_grid_add(&g, NULL, "NAME");
    ms_grid_add(&g, NULL, "PID");
    ms_grid_add(&g, NULL, "WHY");
    ms_grid_add(&g, NULL, "actor");
    ms_grid_add(&g, NULL, "%d", 7);
    ms_grid_add(&g, NULL, "%s", "");
    ms_grid_add(&g, NULL, "%s", "");
    ms_grid_add(&g, NULL, "12345");
    ms_grid_add(&g, NULL, "x");
    check(&g, "NAME     PID  WHY\nactor      7\n       12345  x\n");
}

static void test_width_counts_characters(void **state)
{
    MS_CLEANUP(ms_grid_finish) struct ms_grid g;

    (void)state;
    ms_grid_init(&g, "ll");
    ms_grid_add(&g, NULL, "é");
    ms_grid_add(&g, NULL, "1");
    ms_grid_add(&g, NULL, "ab");
    ms_grid_add(&g, NULL, "2");
    check(&g, "é   1\nab  2\n");
}

static void test_terminal_is_safe(void **state)
{
    MS_CLEANUP(ms_grid_finish) struct ms_grid g;

    (void)state;
    ms_grid_init(&g, "l");
    ms_grid_add(&g, NULL, "a\033[2Jb\nc");
    check(&g, "a [2Jb c\n");
}

static void test_narrow(void **state)
{
    MS_CLEANUP(ms_grid_finish) struct ms_grid g;

    (void)state;
    ms_grid_init(&g, "lrlrl");
    for (int i = 0; i < 5; i++)
        ms_grid_add(&g, NULL, "T%d", i);
    ms_grid_add(&g, NULL, "näme");
    ms_grid_add(&g, NULL, "12");
    ms_grid_add(&g, NULL, "%s", "");
    ms_grid_add(&g, NULL, "34567");
    ms_grid_add(&g, NULL, "text");
    check(&g, "T0    T1  T2     T3  T4\nnäme  12      34567  text\n");
    g.hides_empty = true;
    check(&g, "T0    T1     T3  T4\nnäme  12  34567  text\n");
    g.room = 18;
    check(&g, "T0    T1     T3  T\nnäme  12  34567  t\n");
    g.room = 14; /* a part of a number would be another one; text is cut */
    check(&g, "T0    T1  T4\nnäme  12  text\n");
    g.room = 3;
    check(&g, "T0\nnäm\n");
}

static void test_styles_only_with_colour(void **state)
{
    MS_CLEANUP(ms_grid_finish) struct ms_grid g;

    (void)state;
    ms_grid_init(&g, "ll");
    ms_grid_add(&g, "31", "bad");
    ms_grid_add(&g, NULL, "x");
    check(&g, "bad  x\n");
    g.colour = true;
    check(&g, "\033[31mbad\033[0m  x\n");
}

static void test_unfinished_row_and_nothing(void **state)
{
    MS_CLEANUP(ms_grid_finish) struct ms_grid g;

    (void)state;
    ms_grid_init(&g, "lll");
    check(&g, "");
    ms_grid_add(&g, NULL, "a");
    check(&g, "a\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_columns_align),
        cmocka_unit_test(test_width_counts_characters),
        cmocka_unit_test(test_terminal_is_safe),
        cmocka_unit_test(test_narrow),
        cmocka_unit_test(test_styles_only_with_colour),
        cmocka_unit_test(test_unfinished_row_and_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
