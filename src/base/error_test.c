/* error_test.c - tests of error.h: what went wrong, for the program and for the
 * person */
#include "base/error.h"

#include <errno.h>
#include <setjmp.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_set_returns_the_code_and_fills(void **state)
{
    struct ms_error err = {0};

    (void)state;
    assert_int_equal(ms_error_set(&err, -EINVAL, "slot %d of %s", 3, "actor"), -EINVAL);
    assert_int_equal(err.code, -EINVAL);
    assert_string_equal(err.text, "slot 3 of actor");
}

static void test_sys_appends_the_reason(void **state)
{
    struct ms_error err = {0};

    (void)state;
    assert_int_equal(ms_error_sys(&err, -ENOENT, "cannot open '%s'", "x"), -ENOENT);
    assert_int_equal(err.code, -ENOENT);
    assert_string_equal(err.text, "cannot open 'x': No such file or directory");
}

static void test_wrap_puts_context_first_and_keeps_the_code(void **state)
{
    struct ms_error err = {0};

    (void)state;
    ms_error_set(&err, -EPERM, "not yours");
    assert_int_equal(ms_error_wrap(&err, "node %d", 7), -EPERM);
    assert_int_equal(err.code, -EPERM);
    assert_string_equal(err.text, "node 7: not yours");
}

static void test_null_is_allowed(void **state)
{
    (void)state;
    assert_int_equal(ms_error_set(NULL, -EINVAL, "unread"), -EINVAL);
    assert_int_equal(ms_error_sys(NULL, -EIO, "unread"), -EIO);
    assert_int_equal(ms_error_wrap(NULL, "unread"), 0);
}

static void test_a_long_text_is_cut_inside_the_room(void **state)
{
    struct {
        struct ms_error err;
        char guard[8];
    } at = {.guard = "guarded"};
    char text[2 * MS_ERROR_TEXT_MAX];

    (void)state;
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    ms_error_set(&at.err, -EINVAL, "%s", text);
    assert_int_equal(strlen(at.err.text), MS_ERROR_TEXT_MAX - 1);
    ms_error_wrap(&at.err, "%s", text);
    assert_int_equal(strlen(at.err.text), MS_ERROR_TEXT_MAX - 1);
    ms_error_sys(&at.err, -EIO, "%s", text);
    assert_int_equal(strlen(at.err.text), MS_ERROR_TEXT_MAX - 1);
    assert_string_equal(at.guard, "guarded");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_set_returns_the_code_and_fills),
        cmocka_unit_test(test_sys_appends_the_reason),
        cmocka_unit_test(test_wrap_puts_context_first_and_keeps_the_code),
        cmocka_unit_test(test_null_is_allowed),
        cmocka_unit_test(test_a_long_text_is_cut_inside_the_room),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
