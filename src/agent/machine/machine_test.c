/* machine_test.c - tests of machine.h: what this node has to give */
#include "agent/machine/machine.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

static void test_quotas(void **state)
{
    (void)state;
    assert_int_equal(ms_machine_quota_v2("200000 100000\n"), 2);
    assert_int_equal(ms_machine_quota_v2("250000 100000\n"), 3);
    assert_int_equal(ms_machine_quota_v2("50000 100000\n"), 1);
    assert_int_equal(ms_machine_quota_v2("max 100000\n"), 0);
    assert_int_equal(ms_machine_quota_v2(""), 0);
    assert_int_equal(ms_machine_quota_v2("100"), 0);
    assert_int_equal(ms_machine_quota_v1("-1\n", "100000\n"), 0);
    assert_int_equal(ms_machine_quota_v1("150000\n", "100000\n"), 2);
    assert_int_equal(ms_machine_quota_v1("", ""), 0);
}

static void test_memory_that_is_left(void **state)
{
    static const char v1[] = "cache 900\ninactive_file 1\ntotal_inactive_file 30\n";

    (void)state;
    assert_int_equal(
        ms_machine_left("1000\n", "700\n", "inactive_file 50\n", "inactive_file"), 350);
    assert_int_equal(ms_machine_left("1000\n", "700\n", v1, "total_inactive_file"),
                     330);
    assert_int_equal(ms_machine_left("1000\n", "700\n", "", "inactive_file"), 300);
    assert_int_equal(ms_machine_left("1000\n", "1700\n", "", "inactive_file"), 0);
    assert_int_equal(
        ms_machine_left("1000\n", "20\n", "inactive_file 50\n", "inactive_file"), 1000);
    assert_true(ms_machine_left("max\n", "700\n", "", "inactive_file") == UINT64_MAX);
    assert_true(ms_machine_left("", "", "", "inactive_file") == UINT64_MAX);
}

static void test_this_machine(void **state)
{
    (void)state;
    assert_true(ms_machine_cpus() >= 1);
    assert_true(ms_machine_cpus() <= (unsigned)sysconf(_SC_NPROCESSORS_CONF));
    assert_true(ms_machine_memory() > (uint64_t)64 << 20);
    assert_true(ms_machine_memory_left() > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_quotas),
        cmocka_unit_test(test_memory_that_is_left),
        cmocka_unit_test(test_this_machine),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
