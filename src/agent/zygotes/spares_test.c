/* spares_test.c - which spares are forked, and what becomes of their requests */
#include "agent/zygotes/spares.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static struct ms_spares s;

static int set_up(void **state)
{
    (void)state;
    ms_spares_init(&s);
    return s.doing ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    ms_spares_finish(&s);
    return 0;
}

static void want_and_fork(pid_t pid)
{
    ms_spares_want(&s);
    assert_true(ms_spares_begin(&s));
    ms_spares_forked(&s, pid);
}

static void test_one_for_each_end(void **state)
{
    (void)state;
    assert_false(ms_spares_begin(&s));
    ms_spares_want(&s);
    ms_spares_want(&s);
    assert_true(ms_spares_begin(&s));
    ms_spares_forked(&s, 100);
    assert_true(ms_spares_begin(&s));
    ms_spares_forked(&s, 101);
    assert_false(ms_spares_begin(&s));
}

static void test_no_more_than_wait(void **state)
{
    (void)state;
    for (pid_t pid = 100; pid < 100 + MS_SPARES_MAX; pid++)
        want_and_fork(pid);
    ms_spares_want(&s);
    assert_false(ms_spares_begin(&s));
    assert_int_equal(s.wanted, 0);
    ms_spares_reported(&s); /* the last one is a worker now */
    want_and_fork(200);
}

static void test_failed_fork_is_not_repeated(void **state)
{
    (void)state;
    ms_spares_want(&s);
    ms_spares_want(&s);
    assert_true(ms_spares_begin(&s));
    ms_spares_forked(&s, -1);
    assert_false(ms_spares_begin(&s));
}

static void test_ends(void **state)
{
    uint64_t lost = 7;

    (void)state;
    assert_false(ms_spares_reaped(&s, 99, &lost)); /* a worker that was never one */
    want_and_fork(100);
    assert_true(ms_spares_reaped(&s, 100, &lost)); /* while it waited */
    assert_int_equal(lost, 0);
    want_and_fork(101);
    ms_spares_take(&s, 42);
    ms_spares_reported(&s);
    assert_false(ms_spares_reaped(&s, 101, &lost)); /* as a worker */
    assert_int_equal(lost, 0);
}

/* What a spare has read is known of in its zygote. */
static void test_request_lost_with_a_process(void **state)
{
    uint64_t lost = 0;
    pid_t pid;

    (void)state;
    ms_spares_want(&s);
    assert_true(ms_spares_begin(&s));
    pid = fork();
    if (pid == 0) {
        ms_spares_take(&s, 42);
        _exit(0);
    }
    ms_spares_forked(&s, pid);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_true(ms_spares_reaped(&s, pid, &lost));
    assert_int_equal(lost, 42);
}

#define SPARES_TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SPARES_TEST(test_one_for_each_end),
        SPARES_TEST(test_no_more_than_wait),
        SPARES_TEST(test_failed_fork_is_not_repeated),
        SPARES_TEST(test_ends),
        SPARES_TEST(test_request_lost_with_a_process),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
