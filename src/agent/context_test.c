/* context_test.c - tests of context.h: what the workers of one driver are started
 * with */
#include "agent/context.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static char home[] = "MUSTER_HOME=/elsewhere", place[] = "PLACE=there",
            python[] = "/usr/bin/python3";

static Muster__DriverContext message(uint64_t driver)
{
    static char *env[] = {home, place}, *pythons[] = {python};
    Muster__DriverContext m = MUSTER__DRIVER_CONTEXT__INIT;

    m.driver = driver;
    m.n_env = 2;
    m.env = env;
    m.n_python = 1;
    m.python = pythons;
    m.wants_logs = true;
    return m;
}

static void test_home_is_ours(void **state)
{
    struct ms_contexts c;
    Muster__DriverContext m = message(7);
    struct ms_context *x;

    (void)state;
    ms_contexts_init(&c);
    setenv("MUSTER_HOME", "/here", 1);
    x = ms_contexts_add(&c, &m);
    assert_non_null(x);
    assert_int_equal(x->message->n_env, 2);
    assert_string_equal(x->message->env[0], "PLACE=there");
    assert_string_equal(x->message->env[1], "MUSTER_HOME=/here");
    unsetenv("MUSTER_HOME");
    m.driver = 8;
    x = ms_contexts_add(&c, &m);
    assert_non_null(x);
    assert_int_equal(x->message->n_env, 1);
    ms_contexts_finish(&c);
}

static void test_own_is_as_it_is(void **state)
{
    static char *env[] = {home}, *pythons[] = {python};
    struct ms_contexts c;
    Muster__AgentConfig config = MUSTER__AGENT_CONFIG__INIT;
    Muster__DriverContext own = MUSTER__DRIVER_CONTEXT__INIT;
    const struct ms_context *x;

    (void)state;
    config.driver_pid = 1;
    config.context = &own;
    own.n_env = 1;
    own.env = env;
    own.n_python = 1;
    own.python = pythons;
    ms_contexts_init(&c);
    x = ms_contexts_add_own(&c, &config);
    assert_ptr_equal(ms_contexts_find(&c, 0), x);
    assert_string_equal(x->message->env[0], home);
    assert_string_equal(x->message->python[0], python);
    assert_false(x->wants_logs);
    ms_contexts_finish(&c);
}

static void test_forgotten_goes_with_its_last_worker(void **state)
{
    struct ms_contexts c;
    Muster__DriverContext a = message(1), b = message(2);
    struct ms_context *x, *y;

    (void)state;
    ms_contexts_init(&c);
    x = ms_contexts_add(&c, &a);
    y = ms_contexts_add(&c, &b);
    x->workers = 1;
    ms_contexts_forget(&c, 1);
    ms_contexts_forget(&c, 1);
    assert_int_equal(c.forgotten, 1);
    assert_null(ms_contexts_find(&c, 1));
    assert_false(x->wants_logs);
    ms_contexts_collect(&c);
    assert_int_equal(c.forgotten, 1); /* held */
    assert_ptr_equal(ms_contexts_find(&c, 2), y);
    x->workers = 0;
    ms_contexts_collect(&c);
    assert_int_equal(c.forgotten, 0);
    ms_contexts_forget(&c, 2);
    ms_contexts_collect(&c);
    assert_true(ms_list_is_empty(&c.list));
}

static void test_told_again_is_back(void **state)
{
    struct ms_contexts c;
    Muster__DriverContext a = message(1);
    struct ms_context *x;

    (void)state;
    ms_contexts_init(&c);
    x = ms_contexts_add(&c, &a);
    ms_contexts_forget(&c, 1);
    assert_ptr_equal(ms_contexts_add(&c, &a), x);
    assert_ptr_equal(ms_contexts_find(&c, 1), x);
    assert_true(x->wants_logs);
    assert_int_equal(c.forgotten, 0);
    ms_contexts_finish(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_home_is_ours),
        cmocka_unit_test(test_own_is_as_it_is),
        cmocka_unit_test(test_forgotten_goes_with_its_last_worker),
        cmocka_unit_test(test_told_again_is_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
