/* view_test.c - tests of view.h: the log files of a session, read once and then
 * followed */
#include "cli/logs/view.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void check(const char *name, const char *cluster, uint32_t rank)
{
    char found[MS_NAME_MAX + 1];
    uint32_t found_rank;

    assert_true(ms_logview_is_worker(name, found, &found_rank));
    assert_string_equal(found, cluster);
    assert_int_equal(found_rank, rank);
}

static void test_logs_of_workers(void **state)
{
    (void)state;
    check("actor-0.log", "actor", 0);
    check("a-b-17.log", "a-b", 17);
    check("actor-3.00c0ffee00c0ffee.log", "actor", 3);
}

static void test_other_files(void **state)
{
    static const char *const names[] = {"",
                                        ".log",
                                        "merged.log",
                                        "agent.log",
                                        "actor-0",
                                        "actor-.log",
                                        "-0.log",
                                        "actor-0.00c0ffee00c0ffe.log",
                                        "actor-0.00C0FFEE00C0FFEE.log",
                                        ".00c0ffee00c0ffee.log",
                                        "actor-1234567890.log"};
    char cluster[MS_NAME_MAX + 1];
    uint32_t rank;

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        assert_false(ms_logview_is_worker(names[i], cluster, &rank));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logs_of_workers),
        cmocka_unit_test(test_other_files),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
