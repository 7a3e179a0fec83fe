/* lines_test.c - tests of lines.h: what a worker prints, as lines */
#include "agent/logs/lines.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Lines as they came, each followed by '|'. */
struct seen {
    struct ms_lines lines;
    struct ms_buf text;
    size_t longest;
};

static void on_line(void *arg, const char *text, size_t len)
{
    struct seen *s = arg;

    if (len > s->longest)
        s->longest = len;
    assert_int_equal(ms_buf_append(&s->text, text, len), 0);
    assert_int_equal(ms_buf_append(&s->text, "|", 1), 0);
}

static int set_up(void **state)
{
    static struct seen s;

    s = (struct seen){0};
    ms_lines_init(&s.lines);
    *state = &s;
    return 0;
}

static int tear_down(void **state)
{
    struct seen *s = *state;

    ms_lines_finish(&s->lines);
    ms_buf_finish(&s->text);
    return 0;
}

static void feed(struct seen *s, const char *text, int64_t now_ns)
{
    ms_lines_feed(&s->lines, text, strlen(text), now_ns, on_line, s);
}

static void test_lines_across_reads(void **state)
{
    struct seen *s = *state;

    feed(s, "one\ntw", 0);
    feed(s, "o\n\nth", 0);
    feed(s, "ree", 0);
    assert_string_equal(ms_buf_str(&s->text), "one|two||");
    ms_lines_end(&s->lines, on_line, s);
    ms_lines_end(&s->lines, on_line, s); /* twice is harmless */
    assert_string_equal(ms_buf_str(&s->text), "one|two||three|");
}

static void test_bytes_one_by_one_give_the_same(void **state)
{
    struct seen *s = *state;
    const char *text = "one\r\ntwo\n\r\nthree\n";

    for (const char *c = text; *c; c++)
        ms_lines_feed(&s->lines, c, 1, 0, on_line, s);
    assert_string_equal(ms_buf_str(&s->text), "one|two||three|");
}

static void test_progress_bar_does_not_explode(void **state)
{
    struct seen *s = *state;
    size_t count = 0;

    /* 3 s of updates, 1,000 each second */
    for (int i = 0; i < 3000; i++)
        feed(s, "\r 10%|====      |", i * MS_NS_PER_MS);
    feed(s, "\r100%|==========|\n", 3000 * MS_NS_PER_MS);
    for (const char *c = ms_buf_str(&s->text); *c; c++)
        count += *c == '\n';
    assert_int_equal(count, 0);
    assert_true(s->text.len < 5 * 32); /* one each second, and the last */
    assert_non_null(strstr(ms_buf_str(&s->text), "100%|==========||"));
}

static void test_long_line_is_cut(void **state)
{
    struct seen *s = *state;
    char *big = malloc(3 * MS_LOG_LINE_MAX + 1);

    memset(big, 'x', 3 * MS_LOG_LINE_MAX);
    big[3 * MS_LOG_LINE_MAX] = 0;
    feed(s, big, 0);
    feed(s, "end\n", 0);
    free(big);
    assert_int_equal(s->longest, MS_LOG_LINE_MAX);
    assert_int_equal(s->text.len, 3 * MS_LOG_LINE_MAX + 3 + 4);
}

static void test_long_line_is_not_cut_inside_a_character(void **state)
{
    struct seen *s = *state;
    char *big = malloc(MS_LOG_LINE_MAX + 3);

    memset(big, 'x', MS_LOG_LINE_MAX - 1);
    memcpy(big + MS_LOG_LINE_MAX - 1, "\xc3\xa4\n", 4);
    feed(s, big, 0);
    free(big);
    assert_int_equal(s->longest, MS_LOG_LINE_MAX - 1);
    assert_memory_equal(s->text.data + MS_LOG_LINE_MAX, "\xc3\xa4|", 3);
}

static void test_memory_is_given_back(void **state)
{
    struct seen *s = *state;
    char big[8192];

    memset(big, 'x', sizeof big);
    ms_lines_feed(&s->lines, big, sizeof big, 0, on_line, s);
    assert_true(s->lines.part.capacity >= sizeof big);
    feed(s, "\n", 0);
    assert_int_equal(s->lines.part.capacity, 0);
}

static void test_tail_keeps_the_last(void **state)
{
    struct ms_tail t = {0};
    char text[16];

    (void)state;
    assert_null(ms_tail_get(&t, 0));
    for (unsigned i = 0; i < MS_LAST_LINES + 3; i++) {
        snprintf(text, sizeof text, "line %u", i);
        ms_tail_add(&t, text, strlen(text));
    }
    assert_string_equal(ms_tail_get(&t, 0), "line 3");
    assert_string_equal(ms_tail_get(&t, MS_LAST_LINES - 1), "line 22");
    assert_null(ms_tail_get(&t, MS_LAST_LINES));
    ms_tail_finish(&t);
}

static void add(struct ms_tail *t, const char *text)
{
    ms_tail_add(t, text, strlen(text));
}

/* The innermost calls of a crash come first, and stay. */
static void test_tail_keeps_the_first_of_a_crash(void **state)
{
    struct ms_tail t = {0};

    (void)state;
    for (unsigned i = 0; i < MS_LAST_LINES; i++)
        add(&t, i == MS_LAST_LINES - 1 ? "the last line before" : "before");
    add(&t, "Fatal Python error: Segmentation fault");
    add(&t, "");
    add(&t, "Current thread 0x00007f (most recent call first):");
    add(&t, "  File \"x.py\", line 1 in innermost");
    for (unsigned i = 0; i < 100; i++)
        add(&t, "  File \"x.py\", line 2 in outer");
    assert_string_equal(ms_tail_get(&t, 4), "the last line before");
    assert_string_equal(ms_tail_get(&t, 5), "Fatal Python error: Segmentation fault");
    assert_string_equal(ms_tail_get(&t, 8), "  File \"x.py\", line 1 in innermost");
    assert_non_null(ms_tail_get(&t, MS_LAST_LINES - 1));
    add(&t, "a child has crashed, not we");
    assert_string_equal(ms_tail_get(&t, MS_LAST_LINES - 1),
                        "a child has crashed, not we");
    ms_tail_finish(&t);
}

static void test_tail_lines_are_strings_of_bounded_length(void **state)
{
    struct ms_tail t = {0};
    char big[4096];

    (void)state;
    memset(big, 'x', sizeof big);
    ms_tail_add(&t, "a\0b", 3);
    ms_tail_add(&t, big, sizeof big);
    ms_tail_add(&t, "", 0);
    assert_string_equal(ms_tail_get(&t, 0), "a b");
    assert_int_equal(strlen(ms_tail_get(&t, 1)), MS_LAST_LINE_MAX);
    assert_string_equal(ms_tail_get(&t, 2), "");
    ms_tail_finish(&t);
}

#define LINES_TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        LINES_TEST(test_lines_across_reads),
        LINES_TEST(test_bytes_one_by_one_give_the_same),
        LINES_TEST(test_progress_bar_does_not_explode),
        LINES_TEST(test_long_line_is_cut),
        LINES_TEST(test_long_line_is_not_cut_inside_a_character),
        LINES_TEST(test_memory_is_given_back),
        cmocka_unit_test(test_tail_keeps_the_last),
        cmocka_unit_test(test_tail_keeps_the_first_of_a_crash),
        cmocka_unit_test(test_tail_lines_are_strings_of_bounded_length),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
