/* env_test.c - tests of env.h: the environment that a driver's workers start from */
#include "session/env.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void expect(const char *const *driver, const char *const *wanted)
{
    char **env = ms_session_env(driver);
    size_t i = 0;

    assert_non_null(env);
    for (; wanted[i]; i++)
        assert_string_equal(env[i], wanted[i]);
    assert_null(env[i]);
    ms_session_env_free(env);
}

static void test_the_secret_stays(void **state)
{
    const char *driver[] = {"A=1",
                            "MUSTER_SECRET=00ff",
                            "MUSTER_SECRET_FILE=/f",
                            "MUSTER_SECRETS=x",
                            "OMP_NUM_THREADS=4",
                            "MUSTER_SECRET=twice",
                            NULL};
    const char *wanted[] = {
        "A=1", "MUSTER_SECRET_FILE=/f", "MUSTER_SECRETS=x", "OMP_NUM_THREADS=4", NULL};

    (void)state;
    expect(driver, wanted);
}

static void test_what_torchrun_says_of_the_driver_stays(void **state)
{
    const char *driver[] = {"GROUP_RANK=0",
                            "TORCHELASTIC_RUN_ID=1",
                            "TORCHELASTIC_USE_AGENT_STORE=True",
                            "ROLE_NAME=default",
                            "TORCH_HOME=/h",
                            "OMP_NUM_THREADS=1",
                            NULL};
    const char *wanted[] = {"TORCH_HOME=/h", "OMP_NUM_THREADS=1", NULL};
    const char *users[] = {"ROLE_NAME=mine", "OMP_NUM_THREADS=1", NULL};

    (void)state;
    expect(driver, wanted);
    expect(users, users);
}

static void test_one_thread_unless_told(void **state)
{
    const char *none[] = {NULL}, *one[] = {"OMP_NUM_THREADS=1", NULL};
    const char *other[] = {"OMP_NUM_THREADS_MORE=2", "odd", NULL};
    const char *both[] = {"OMP_NUM_THREADS_MORE=2", "odd", "OMP_NUM_THREADS=1", NULL};

    (void)state;
    expect(none, one);
    expect(one, one);
    expect(other, both);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_secret_stays),
        cmocka_unit_test(test_what_torchrun_says_of_the_driver_stays),
        cmocka_unit_test(test_one_thread_unless_told),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
