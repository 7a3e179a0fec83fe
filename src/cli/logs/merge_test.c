/* merge_test.c - tests of merge.h: the lines of one log or of several, in the
 * order of their times */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/timestamp.h"
#include "cli/logs/merge.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { LOGS = 5, LINES = 200 };

/* Logs whose text comes in pieces of odd sizes. */
struct given {
    struct ms_logtext logs[LOGS];
    struct ms_buf text[LOGS], out;
    size_t told[LOGS], step;
    unsigned lines;
    int64_t last_ns;
};

static struct ms_logtext *log_of(void *arg, size_t i)
{
    return &((struct given *)arg)->logs[i];
}

static int more(void *arg, size_t i)
{
    struct given *g = arg;
    size_t left = g->text[i].len - g->told[i], n = left < g->step ? left : g->step;

    assert_int_equal(
        ms_logtext_add(&g->logs[i], (char *)g->text[i].data + g->told[i], n), 0);
    g->told[i] += n;
    return (int)n;
}

static int on_line(void *arg, size_t i, const struct ms_logline *line)
{
    struct given *g = arg;

    assert_true(line->time_ns >= g->last_ns);
    g->last_ns = line->time_ns;
    g->lines++;
    return ms_buf_printf(&g->out, "%zu %.*s\n", i, (int)line->len, line->text);
}

static const struct ms_logmerge_ops ops = {log_of, more, on_line};

static void finish(struct given *g)
{
    for (size_t i = 0; i < LOGS; i++) {
        ms_buf_finish(&g->logs[i].bytes);
        ms_buf_finish(&g->text[i]);
    }
    ms_buf_finish(&g->out);
}

static void put(struct given *g, size_t i, int64_t ms, const char *text)
{
    struct ms_timestamp t = {0};

    ms_timestamp_set(&t, ms * MS_NS_PER_MS);
    ms_buf_printf(&g->text[i], "%s%s", t.text, text);
}

static void test_lines_in_the_order_of_their_times(void **state)
{
    MS_CLEANUP(finish) struct given g = {.step = 7};

    (void)state;
    put(&g, 0, 10, "a\nmore of a\n");
    put(&g, 0, 30, "c\n");
    put(&g, 1, 10, "A\n");
    put(&g, 2, 20, "b\n");
    put(&g, 2, 40, "unfinished");
    assert_int_equal(ms_logmerge(&ops, &g, LOGS), 0);
    assert_string_equal(ms_buf_str(&g.out), "0 a\n0 more of a\n1 A\n2 b\n0 c\n");
    ms_buf_append(&g.text[2], " line\n", 6);
    assert_int_equal(ms_logmerge(&ops, &g, LOGS), 0);
    assert_non_null(strstr(ms_buf_str(&g.out), "0 c\n2 unfinished line\n"));
}

static void test_many(void **state)
{
    (void)state;
    for (size_t step = 1; step < 300; step += 13) {
        MS_CLEANUP(finish) struct given g = {.step = step};

        for (size_t i = 0; i < LOGS; i++)
            for (int k = 0; k < LINES; k++)
                put(&g, i, k * (int64_t)(i + 1) / 2 + 1, "x\n");
        assert_int_equal(ms_logmerge(&ops, &g, LOGS), 0);
        assert_int_equal(g.lines, LOGS * LINES);
    }
}

static int stop(void *arg, size_t i, const struct ms_logline *line)
{
    (void)i;
    (void)line;
    ((struct given *)arg)->lines++;
    return -EIO;
}

static void test_a_failure_stops_it(void **state)
{
    MS_CLEANUP(finish) struct given g = {.step = 100};
    static const struct ms_logmerge_ops stopping = {log_of, more, stop};

    (void)state;
    put(&g, 0, 1, "x\ny\n");
    assert_int_equal(ms_logmerge(&stopping, &g, LOGS), -EIO);
    assert_int_equal(g.lines, 1);
    assert_int_equal(ms_logmerge(&ops, &g, 0), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines_in_the_order_of_their_times),
        cmocka_unit_test(test_many),
        cmocka_unit_test(test_a_failure_stops_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
