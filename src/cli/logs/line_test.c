/* line_test.c - tests of line.h: one line of a log */
#include "base/cleanup.h"
#include "cli/logs/line.h"
#include "cli/out.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void test_prefix_is_split(void **state)
{
    const char *text = "actor-1.x/12@host-a:   indented: yes";
    struct ms_logline l = {.text = text, .len = strlen(text)};

    (void)state;
    assert_true(ms_logline_split(&l));
    assert_string_equal(l.cluster, "actor-1.x");
    assert_int_equal(l.rank, 12);
    assert_string_equal(l.node, "host-a");
    assert_int_equal(l.len, strlen("  indented: yes"));
    assert_memory_equal(l.text, "  indented: yes", l.len);
}

static void test_other_lines_stay(void **state)
{
    static const char *const lines[] = {
        "",
        "hello",
        "/0@n: x",
        "a/@n: x",
        "a/1n: x",
        "a/1@: x",
        "a/1@n:x",
        "a/1@n:",
        "a/1@n",
        "a/1",
        "a/1234567890@n: x",
        "a b/1@n: x",
        "../1@n: x",
    };

    (void)state;
    for (size_t i = 0; i < MS_COUNT(lines); i++) {
        struct ms_logline l = {.text = lines[i], .len = strlen(lines[i])};

        if (ms_logline_split(&l))
            fail_msg("'%s' was split", lines[i]);
        assert_string_equal(l.cluster, "");
        assert_ptr_equal(l.text, lines[i]);
    }
}

static void test_an_empty_line_is_split(void **state)
{
    const char *text = "a/0@n: ";
    struct ms_logline l = {.text = text, .len = strlen(text)};

    (void)state;
    assert_true(ms_logline_split(&l));
    assert_int_equal(l.len, 0);
}

/* Whatever bytes a worker prints, the JSON is valid: what is not UTF-8 is replaced. */
static void test_any_bytes_are_text(void **state)
{
    static const struct {
        const char *in, *out;
    } cases[] = {
        {"", ""},
        {"plain", "plain"},
        {"\xc3\xa9", "\xc3\xa9"},
        {"\xff", "\xef\xbf\xbd"},
        {"a\xc3", "a\xef\xbf\xbd"},                               /* cut */
        {"\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd"},                 /* too long a form */
        {"\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"}, /* a surrogate */
        {"\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
        {"\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80"},
    };

    (void)state;
    for (size_t i = 0; i < MS_COUNT(cases); i++) {
        json_t *j = ms_json_text(cases[i].in, strlen(cases[i].in));

        assert_non_null(j);
        assert_string_equal(json_string_value(j), cases[i].out);
        json_decref(j);
    }
}

static void test_random_bytes_are_text(void **state)
{
    uint64_t seed = 7;

    (void)state;
    for (int round = 0; round < 100000; round++) {
        char bytes[8];
        json_t *j;

        for (size_t i = 0; i < sizeof bytes; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            bytes[i] = (char)(seed >> 40);
            if (seed >> 63) /* lead bytes and what may follow them are more fun */
                bytes[i] = (char)(0x80 | bytes[i]);
        }
        j = ms_json_text(bytes, sizeof bytes);
        assert_non_null(j); /* jansson refuses what is not UTF-8 */
        json_decref(j);
    }
}

static void test_durations(void **state)
{
    static const struct {
        uint64_t seconds;
        const char *text;
    } cases[] = {{0, "0s"},
                 {59, "59s"},
                 {60, "1m00s"},
                 {3599, "59m59s"},
                 {3660, "1h01m"},
                 {86400 * 3 + 3600 * 5, "3d05h"}};
    char out[24];

    (void)state;
    for (size_t i = 0; i < MS_COUNT(cases); i++)
        assert_string_equal(ms_out_duration(cases[i].seconds * 1000000000u, out),
                            cases[i].text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_prefix_is_split),
        cmocka_unit_test(test_other_lines_stay),
        cmocka_unit_test(test_an_empty_line_is_split),
        cmocka_unit_test(test_any_bytes_are_text),
        cmocka_unit_test(test_random_bytes_are_text),
        cmocka_unit_test(test_durations),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
