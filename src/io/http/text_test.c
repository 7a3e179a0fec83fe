/* text_test.c - tests of text.h: the characters that HTTP/1.1 allows, and its
 * numbers */
#include "io/http/text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void test_characters(void **state)
{
    (void)state;
    assert_true(ms_http_is_token("X-a_1"));
    assert_false(ms_http_is_token(""));
    assert_false(ms_http_is_token("a b"));
    assert_false(ms_http_is_token("a:"));
    assert_false(ms_http_is_token("\xc3\xa4"));
    assert_true(ms_http_is_target("/a?b%20"));
    assert_false(ms_http_is_target("/\x7f"));
    assert_false(ms_http_is_target("/\xff"));
    assert_true(ms_http_is_value("a\tb \xff"));
    assert_false(ms_http_is_value("a\rb"));
    assert_false(ms_http_is_value("a\x01"));
}

static void test_numbers(void **state)
{
    uint64_t n = 7;

    (void)state;
    assert_true(ms_http_parse_decimal("18446744073709551615", &n));
    assert_true(n == UINT64_MAX);
    assert_false(ms_http_parse_decimal("18446744073709551616", &n));
    assert_false(ms_http_parse_decimal("", &n));
    assert_false(ms_http_parse_decimal("+5", &n));
    assert_false(ms_http_parse_decimal("5 ", &n));
    assert_false(ms_http_parse_decimal("0x5", &n));
    assert_true(ms_http_parse_chunk_size("fF;a=b", &n));
    assert_int_equal(n, 255);
    assert_false(ms_http_parse_chunk_size("", &n));
    assert_false(ms_http_parse_chunk_size(";a", &n));
    assert_false(ms_http_parse_chunk_size("5 ", &n));
    assert_false(ms_http_parse_chunk_size("0x5", &n));
    assert_false(ms_http_parse_chunk_size("1000000000000000", &n)); /* 16 digits */
}

static void test_lists(void **state)
{
    (void)state;
    assert_true(ms_http_list_has("close", "close"));
    assert_true(ms_http_list_has("a, CLOSE\t,b", "close"));
    assert_true(ms_http_list_has(" , ,close", "close"));
    assert_false(ms_http_list_has("closed", "close"));
    assert_false(ms_http_list_has("", "close"));
    assert_false(ms_http_list_has("clos", "close"));
}

static void test_trim_and_lower(void **state)
{
    char text[] = " \tA b\t ", empty[] = "  ";

    (void)state;
    assert_string_equal(ms_http_trim(text), "A b");
    assert_string_equal(ms_http_trim(empty), "");
    ms_http_lower(text);
    assert_string_equal(ms_http_trim(text), "a b");
}

static void test_reasons(void **state)
{
    (void)state;
    assert_string_equal(ms_http_reason(404), "Not Found");
    assert_string_equal(ms_http_reason(299), "Unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_characters),
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_lists),
        cmocka_unit_test(test_trim_and_lower),
        cmocka_unit_test(test_reasons),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
