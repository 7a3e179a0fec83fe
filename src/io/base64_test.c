/* base64_test.c - tests of base64.h: bytes as text (RFC 4648, with padding) */
#include "io/base64.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>

static void test_both_ways(void **state)
{
    static const char *const known[][2] = {{"", ""},
                                           {"f", "Zg=="},
                                           {"fo", "Zm8="},
                                           {"foo", "Zm9v"},
                                           {"foob", "Zm9vYg=="},
                                           {"\xff\xfe\xfb", "//77"}};

    (void)state;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        const char *plain = known[i][0], *coded = known[i][1];
        uint8_t *data = NULL;
        char *text = NULL;
        size_t size = 99, len = 99;

        assert_int_equal(ms_base64_encode(plain, strlen(plain), &text, &len), 0);
        assert_string_equal(text, coded);
        assert_int_equal(len, strlen(coded));
        assert_int_equal(ms_base64_decode(coded, strlen(coded), &data, &size), 0);
        assert_int_equal(size, strlen(plain));
        assert_non_null(data);
        assert_memory_equal(data, plain, size);
        free(data);
        free(text);
    }
}

static void test_what_is_none(void **state)
{
    static const char *const bad[] = {"Z",
                                      "Zg",
                                      "Zg=",
                                      "Zg===",
                                      "=",
                                      "====",
                                      "Z===",
                                      "Zm9v=",
                                      "Zm9v\n",
                                      " Zm9v",
                                      "Zm 9",
                                      "Zg==Zg==",
                                      "Z=g=",
                                      "Zm9*",
                                      "Zm-_",
                                      "    "};
    uint8_t *data = NULL;
    size_t size = 7;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(ms_base64_decode(bad[i], strlen(bad[i]), &data, &size),
                         -EINVAL);
    assert_int_equal(ms_base64_decode("Zm9v\0Zm9", 8, &data, &size), -EINVAL);
    assert_null(data);
    assert_int_equal(size, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_both_ways),
                                       cmocka_unit_test(test_what_is_none)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
