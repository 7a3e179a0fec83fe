/* python_test.c - tests of python.h: the programs of a Ray */
#include "orchestrator/ray/job/python.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void test_python_of_a_raylet(void **state)
{
    static const char words[] =
        "raylet\0--x=1\0--python_worker_command=/v/bin/python /v/setup.py a\0--y";
    static const char odd[] = "raylet\0--python_worker_command=python x\0";
    char out[PATH_MAX];

    (void)state;
    assert_int_equal(ms_ray_python_of(words, sizeof words, out), 0);
    assert_string_equal(out, "/v/bin/python");
    assert_int_equal(ms_ray_python_of(odd, sizeof odd, out), -ENOENT);
    assert_int_equal(ms_ray_python_of("a\0b", 3, out), -ENOENT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_python_of_a_raylet)};

    return cmocka_run_group_tests_name("python", tests, NULL, NULL);
}
