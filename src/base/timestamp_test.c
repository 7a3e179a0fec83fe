/* timestamp_test.c - tests of timestamp.h: times of the wall clock, as logs have
 * them and as people write them */
#include "base/clock.h"
#include "base/timestamp.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#define NOW_NS (INT64_C(1795000000) * MS_NS_PER_S)

static int64_t read_back(const char *text)
{
    int64_t ns = -1;

    assert_true(ms_timestamp_read(text, strlen(text), &ns));
    return ns;
}

static void test_what_is_printed_is_read(void **state)
{
    struct ms_timestamp t = {0};

    (void)state;
    ms_timestamp_set(&t, 0);
    assert_string_equal(t.text, "1970-01-01T00:00:00.000000Z ");
    for (int64_t day = 0; day < 60000; day += 17) {
        int64_t ns = (day * 86400 + day % 86400) * MS_NS_PER_S + day * MS_NS_PER_US;

        ms_timestamp_set(&t, ns);
        assert_int_equal(strlen(t.text), MS_TIMESTAMP_LEN + 1);
        assert_int_equal(read_back(t.text), ns);
        ms_timestamp_set(&t, ns + 999 * MS_NS_PER_US); /* of the same second, mostly */
        assert_int_equal(read_back(t.text), ns + 999 * MS_NS_PER_US);
    }
    assert_int_equal(read_back("2024-02-29T23:59:59.999999Z x") / MS_NS_PER_S,
                     1709251199);
}

static void test_other_text_is_no_timestamp(void **state)
{
    static const char *const texts[] = {"",
                                        "x",
                                        "2026-11-18T05:13:30.123456Z",
                                        "2026-11-18T05:13:30.12345Z x",
                                        "2026-11-18 05:13:30.123456Z x",
                                        "2026-11-18T05:13:30.123456  x",
                                        "20x6-11-18T05:13:30.123456Z x"};
    int64_t ns;

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        assert_false(ms_timestamp_read(texts[i], strlen(texts[i]), &ns));
}

static int64_t since_s(const char *text)
{
    int64_t ns = 0;

    assert_int_equal(ms_since_parse(text, NOW_NS, &ns), 0);
    return ns / MS_NS_PER_S;
}

static void test_since(void **state)
{
    int64_t now_s = NOW_NS / MS_NS_PER_S, ns = 0;

    (void)state;
    setenv("TZ", "CET-1", 1); /* one hour before UTC */
    tzset();
    assert_int_equal(since_s("10m"), now_s - 600);
    assert_int_equal(since_s("1h30m"), now_s - 5400);
    assert_int_equal(since_s("2d"), now_s - 2 * 86400);
    assert_int_equal(since_s("0s"), now_s);
    assert_int_equal(since_s("50000d"), 0);
    assert_int_equal(since_s("2024-02-29T23:59:59Z"), 1709251199);
    assert_int_equal(since_s("2024-02-29T23:59:59.25Z"), 1709251199);
    assert_int_equal(since_s("2024-03-01T01:59:59+02:00"), 1709251199);
    assert_int_equal(since_s("2024-02-29 22:59Z"), 1709251140 - 3600);
    assert_int_equal(since_s("2024-03-01T00:59:59"), 1709251199);
    assert_int_equal(since_s("2024-03-01"), 1709251200 - 3600);
    assert_int_equal(ms_since_parse("2024-02-29T23:59:59.25Z", NOW_NS, &ns), 0);
    assert_int_equal(ns % MS_NS_PER_S, MS_NS_PER_S / 4);
}

static void test_what_is_no_time(void **state)
{
    static const char *const texts[] = {"",
                                        "10",
                                        "m",
                                        "10x",
                                        "10m ",
                                        "-5m",
                                        "1.5h",
                                        "9999999999s",
                                        "999999999d",
                                        "yesterday",
                                        "2026-13-01",
                                        "2026-02-30",
                                        "2026-02-29T05:00Z",
                                        "2026-11-18T",
                                        "2026-11-18T05:00X",
                                        "2026-11-18T05:00+2"};
    int64_t ns = 7;

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (ms_since_parse(texts[i], NOW_NS, &ns) != -EINVAL)
            fail_msg("'%s' is a time", texts[i]);
    assert_int_equal(ns, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_printed_is_read),
        cmocka_unit_test(test_other_text_is_no_timestamp),
        cmocka_unit_test(test_since),
        cmocka_unit_test(test_what_is_no_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
