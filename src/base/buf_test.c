/* buf_test.c - tests of buf.h: bytes and arrays that grow */
#include "base/buf.h"
#include "base/cleanup.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void test_append_grows_and_keeps_the_bytes(void **state)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf b;

    (void)state;
    ms_buf_init(&b);
    for (unsigned i = 0; i < 5000; i++)
        assert_int_equal(ms_buf_append(&b, &(uint8_t){(uint8_t)(i % 251)}, 1), 0);
    assert_int_equal(b.len, 5000);
    assert_true(b.capacity >= b.len);
    for (unsigned i = 0; i < 5000; i++)
        assert_int_equal(b.data[i], i % 251);
}

static void test_appending_nothing_is_allowed(void **state)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf b;

    (void)state;
    ms_buf_init(&b);
    assert_int_equal(ms_buf_append(&b, NULL, 0), 0);
    assert_int_equal(b.len, 0);
    assert_string_equal(ms_buf_str(&b), "");
}

static void test_printf_appends_without_the_nul(void **state)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf b;
    char wide[600];

    (void)state;
    ms_buf_init(&b);
    memset(wide, 'w', sizeof wide - 1);
    wide[sizeof wide - 1] = 0;
    assert_int_equal(ms_buf_printf(&b, "%s/%d", "actor", 3), 0);
    assert_int_equal(b.len, 7);
    assert_int_equal(ms_buf_printf(&b, " %s", wide), 0);
    assert_int_equal(b.len, 7 + 1 + 599);
    assert_memory_equal(b.data, "actor/3 www", 11);
    assert_int_equal(strlen(ms_buf_str(&b)), b.len);
}

static void test_consume_drops_the_front(void **state)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf b;

    (void)state;
    ms_buf_init(&b);
    ms_buf_append(&b, "abcdef", 6);
    ms_buf_consume(&b, 2);
    assert_string_equal(ms_buf_str(&b), "cdef");
    ms_buf_consume(&b, 0);
    assert_string_equal(ms_buf_str(&b), "cdef");
    ms_buf_consume(&b, 4);
    assert_int_equal(b.len, 0);
}

static void test_an_impossible_size_changes_nothing(void **state)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf b;

    (void)state;
    ms_buf_init(&b);
    ms_buf_append(&b, "kept", 4);
    assert_int_equal(ms_buf_reserve(&b, SIZE_MAX), -ENOMEM);
    assert_int_equal(ms_buf_reserve(&b, SIZE_MAX - 4), -ENOMEM);
    assert_int_equal(ms_buf_append(&b, "x", SIZE_MAX), -ENOMEM);
    assert_int_equal(b.len, 4);
    assert_string_equal(ms_buf_str(&b), "kept");
}

static void test_finish_is_idempotent(void **state)
{
    struct ms_buf b;

    (void)state;
    ms_buf_init(&b);
    ms_buf_append(&b, "x", 1);
    ms_buf_finish(&b);
    assert_null(b.data);
    assert_int_equal(b.len, 0);
    ms_buf_finish(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_append_grows_and_keeps_the_bytes),
        cmocka_unit_test(test_appending_nothing_is_allowed),
        cmocka_unit_test(test_printf_appends_without_the_nul),
        cmocka_unit_test(test_consume_drops_the_front),
        cmocka_unit_test(test_an_impossible_size_changes_nothing),
        cmocka_unit_test(test_finish_is_idempotent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
