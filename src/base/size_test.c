/* size_test.c - tests of size.h: numbers of bytes, as people write them */
#include "base/size.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void test_sizes(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {
        {"0", 0},
        {"512", 512},
        {"2GB", UINT64_C(2000000000)},
        {"80GiB", UINT64_C(80) << 30},
        {" 80 gib ", UINT64_C(80) << 30},
        {"1.5k", 1500},
        {"1.5KiB", 1536},
        {"2t", UINT64_C(2000000000000)},
        {"1E", UINT64_C(1000000000000000000)},
        {"12B", 12},
    };
    static const char *const bad[] = {
        "",
        "GiB",
        "-1",
        "1x",
        "0x10",
        "1 2",
        "1GiBs",
        "1e3",
        "inf",
        "nan",
        "99EiB",
        "1.2.3",
    };

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        uint64_t bytes = 7;

        assert_int_equal(ms_size_parse(good[i].text, &bytes), 0);
        assert_int_equal(bytes, good[i].bytes);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint64_t bytes = 7;

        if (ms_size_parse(bad[i], &bytes) != -EINVAL)
            fail_msg("'%s' is a size", bad[i]);
        assert_int_equal(bytes, 7);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_sizes)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
