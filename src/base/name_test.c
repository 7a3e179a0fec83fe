/* name_test.c - tests of name.h: names that people give, and ids that we make */
#include "base/cleanup.h"
#include "base/limits.h"
#include "base/name.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void test_good_names(void **state)
{
    static const char *const good[] = {"a", "actor_train", "Node-1.rack", "7", "_x"};
    char longest[MS_NAME_MAX + 1];

    (void)state;
    for (size_t i = 0; i < MS_COUNT(good); i++)
        assert_int_equal(ms_name_check(good[i], "cluster", NULL), 0);
    memset(longest, 'n', MS_NAME_MAX);
    longest[MS_NAME_MAX] = 0;
    assert_int_equal(ms_name_check(longest, "cluster", NULL), 0);
}

static void test_bad_names_say_what_they_name(void **state)
{
    static const char *const bad[] = {
        "", ".", "..", ".x", "-x", "a/b", "a b", "a\n", "a\x1b[0m", "na\xc3\xafve"};
    char too_long[MS_NAME_MAX + 2];
    struct ms_error err;

    (void)state;
    for (size_t i = 0; i < MS_COUNT(bad); i++) {
        err = (struct ms_error){0};
        assert_int_equal(ms_name_check(bad[i], "cluster", &err), -EINVAL);
        assert_int_equal(err.code, -EINVAL);
        assert_non_null(strstr(err.text, "cluster"));
        assert_null(strpbrk(err.text, "\n\x1b"));
    }
    assert_int_equal(ms_name_check(NULL, "cluster", NULL), -EINVAL);
    memset(too_long, 'n', sizeof too_long - 1);
    too_long[sizeof too_long - 1] = 0;
    assert_int_equal(ms_name_check(too_long, "cluster", NULL), -EINVAL);
}

static void test_hex_there_and_back(void **state)
{
    const uint8_t bytes[] = {0x00, 0x0f, 0xa5, 0xff};
    uint8_t back[sizeof bytes] = {0};
    char text[2 * sizeof bytes + 1];

    (void)state;
    ms_hex(bytes, sizeof bytes, text);
    assert_string_equal(text, "000fa5ff");
    assert_int_equal(ms_unhex(text, back, sizeof back), 0);
    assert_memory_equal(back, bytes, sizeof bytes);
}

static void test_unhex_wants_exactly_that_many_digits(void **state)
{
    static const char *const bad[] = {
        "", "0", "000", "00000", "0g0a", "0x0a", "00A0", "00 a"};
    uint8_t out[2];

    (void)state;
    for (size_t i = 0; i < MS_COUNT(bad); i++)
        assert_int_equal(ms_unhex(bad[i], out, sizeof out), -EINVAL);
    assert_int_equal(ms_unhex("00a0", out, sizeof out), 0);
}

static void test_names_are_ordered_as_people_count(void **state)
{
    static const char *const names[] = {"a",
                                        "a-1",
                                        "n",
                                        "n1",
                                        "n01",
                                        "n1b",
                                        "n2",
                                        "n2-9",
                                        "n2-10",
                                        "n10",
                                        "n010x",
                                        "nx"};

    (void)state;
    for (size_t i = 0; i < MS_COUNT(names); i++)
        for (size_t k = 0; k < MS_COUNT(names); k++) {
            int order = ms_name_order(names[i], names[k]);

            if (i == k)
                assert_int_equal(order, 0);
            else if (strcmp(names[i], "n1") != 0 && strcmp(names[k], "n1") != 0)
                assert_int_equal(order < 0, i < k);
        }
    assert_true(ms_name_order("n01", "n1") < 0 && ms_name_order("n1", "n01") > 0);
}

static int title(const char *text, size_t len)
{
    return ms_title_check(text, len, 20, "engine", NULL);
}

static void test_titles(void **state)
{
    struct ms_error err = {0};

    (void)state;
    assert_int_equal(title("actor/0", 7), 0);
    assert_int_equal(title("r\xc3\xa9ward model", 13), 0);
    assert_int_equal(title("\xc2\xa0", 2), 0);
    assert_int_equal(title("12345678901234567890", 20), 0);
    assert_int_equal(title("123456789012345678901", 21), -EINVAL);
    assert_int_equal(title("", 0), -EINVAL);
    assert_int_equal(title(NULL, 0), -EINVAL);
    assert_int_equal(title("a\nb", 3), -EINVAL);
    assert_int_equal(title("a\0b", 3), -EINVAL);
    assert_int_equal(title("\x7f", 1), -EINVAL);
    assert_int_equal(title("\xc2\x85", 2), -EINVAL);     /* a newline, too */
    assert_int_equal(title("\xed\xa0\x80", 3), -EINVAL); /* half of a pair */
    assert_int_equal(ms_title_check("a\n", 2, 20, "engine", &err), -EINVAL);
    assert_non_null(strstr(err.text, "engine"));
}

static void test_random_ids_differ(void **state)
{
    uint8_t zero[32] = {0}, bytes[32] = {0};
    uint64_t a = ms_random_id(), b = ms_random_id();

    (void)state;
    assert_true(a != 0 && b != 0 && a != b);
    assert_int_equal(ms_random_bytes(bytes, sizeof bytes), 0);
    assert_memory_not_equal(bytes, zero, sizeof bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good_names),
        cmocka_unit_test(test_bad_names_say_what_they_name),
        cmocka_unit_test(test_hex_there_and_back),
        cmocka_unit_test(test_unhex_wants_exactly_that_many_digits),
        cmocka_unit_test(test_names_are_ordered_as_people_count),
        cmocka_unit_test(test_titles),
        cmocka_unit_test(test_random_ids_differ),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
