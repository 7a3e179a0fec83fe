/* trace_test.c - tests of trace.h: the lines of a timeline as a trace that
 * Perfetto opens */
#include "cli/timeline/trace.h"

#include "base/cleanup.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

/* The trace of these lines. */
static json_t *
trace_of(const char *const *lines, size_t *unreadable, int64_t *length_ns)
{
    MS_CLEANUP(ms_cleanup_free) char *text = NULL;
    struct ms_trace t;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    json_t *trace;

    assert_int_equal(ms_trace_init(&t), 0);
    for (; *lines; lines++)
        assert_int_equal(ms_trace_add(&t, *lines, strlen(*lines)), 0);
    assert_int_equal(ms_trace_write(&t, out), 0);
    fclose(out);
    if (unreadable)
        *unreadable = t.unreadable;
    if (length_ns)
        *length_ns = ms_trace_length_ns(&t);
    ms_trace_finish(&t);
    trace = json_loads(text, 0, NULL);
    assert_non_null(trace);
    return trace;
}

/* The i-th event of that kind. */
static json_t *find(const json_t *trace, const char *ph, size_t i)
{
    json_t *e;
    size_t at;

    json_array_foreach(json_object_get(trace, "traceEvents"), at, e)
    {
        if (strcmp(json_string_value(json_object_get(e, "ph")), ph) == 0 && i-- == 0)
            return e;
    }
    return NULL;
}

static double real(const json_t *e, const char *name)
{
    return json_number_value(json_object_get(e, name));
}

static json_int_t whole(const json_t *e, const char *name)
{
    return json_integer_value(json_object_get(e, name));
}

static void test_kinds(void **state)
{
    const char *const lines[] = {
        "{\"timeline\":1,\"unix_ns\":5000,\"now_ns\":1000}",
        "{\"track\":\"actor/1@n\",\"name\":\"f\",\"begin\":3000,\"end\":4500,"
        "\"args\":{\"x\":1}}",
        "{\"track\":\"driver\",\"name\":\"here\",\"at\":2000}",
        "{\"track\":\"driver\",\"name\":\"live\",\"at\":5000,\"value\":2.5}",
        NULL};
    int64_t length;
    json_t *trace = trace_of(lines, NULL, &length), *e;

    (void)state;
    assert_int_equal(length, 3000);
    e = find(trace, "X", 0);
    assert_true(real(e, "ts") == 1 && real(e, "dur") == 1.5);
    assert_int_equal(whole(json_object_get(e, "args"), "x"), 1);
    e = find(trace, "i", 0);
    assert_true(real(e, "ts") == 0);
    e = find(trace, "C", 0);
    assert_true(real(e, "ts") == 3 && real(json_object_get(e, "args"), "value") == 2.5);
    assert_string_equal(json_string_value(json_object_get(
                            json_object_get(trace, "otherData"), "unix_ns")),
                        "6000");
    /* a process for each role, a thread for each track */
    e = find(trace, "M", 0);
    assert_string_equal(
        json_string_value(json_object_get(json_object_get(e, "args"), "name")),
        "actor");
    assert_int_equal(whole(e, "pid"), whole(find(trace, "X", 0), "pid"));
    assert_true(whole(find(trace, "i", 0), "pid") != whole(e, "pid"));
    json_decref(trace);
}

/* Spans that overlap are on threads of their own; those that nest are not. */
static void test_lanes(void **state)
{
    const char *const lines[] = {
        "{\"track\":\"r/0\",\"name\":\"a\",\"begin\":0,\"end\":100}",
        "{\"track\":\"r/0\",\"name\":\"b\",\"begin\":10,\"end\":20}",
        "{\"track\":\"r/0\",\"name\":\"c\",\"begin\":20,\"end\":30}",
        "{\"track\":\"d\",\"name\":\"inner\",\"begin\":10,\"end\":20,\"nests\":true}",
        "{\"track\":\"d\",\"name\":\"outer\",\"begin\":5,\"end\":90,\"nests\":true}",
        "{\"track\":\"d\",\"name\":\"across\",\"begin\":15,\"end\":95,\"nests\":true}",
        NULL};
    json_t *trace = trace_of(lines, NULL, NULL);
    json_int_t lane[6];
    static const char *const order[] = {"a", "outer", "b", "inner", "across", "c"};

    (void)state;
    for (size_t i = 0; i < 6; i++) {
        json_t *e = find(trace, "X", i);

        assert_string_equal(json_string_value(json_object_get(e, "name")), order[i]);
        lane[i] = whole(e, "tid");
    }
    assert_true(lane[0] != lane[2] && lane[2] == lane[5]); /* b and c are apart */
    assert_true(lane[1] == lane[3] && lane[4] != lane[1]);
    json_decref(trace);
}

static void test_flows(void **state)
{
    const char *const lines[] = {
        "{\"track\":\"r/1\",\"name\":\"x\",\"begin\":50,\"end\":90,\"flow\":7}",
        "{\"track\":\"r/0\",\"name\":\"x\",\"begin\":0,\"end\":40,\"flow\":7}",
        "{\"track\":\"r/0\",\"name\":\"y\",\"begin\":0,\"end\":40,\"flow\":8}",
        NULL};
    json_t *trace = trace_of(lines, NULL, NULL);
    json_t *from = find(trace, "s", 0), *to = find(trace, "f", 0);

    (void)state;
    assert_int_equal(whole(from, "id"), whole(to, "id"));
    assert_true(real(from, "ts") < 0.04 && real(from, "ts") > 0.03);
    assert_true(real(to, "ts") == 0.05);
    assert_int_equal(whole(from, "tid"), whole(find(trace, "X", 0), "tid"));
    assert_null(find(trace, "s", 1));
    json_decref(trace);
}

static void test_what_is_no_line_is_left_out(void **state)
{
    const char *const lines[] = {
        "{\"track\":\"a\",\"name\":\"b\",\"begin\":5,\"end\":9}",
        "{\"track\":\"a\",\"name\":\"b\",\"begin\":5,\"end\":1}",
        "{\"track\":\"a\",\"name\":\"b\"}",
        "{\"track\":3,\"name\":\"b\",\"at\":1}",
        "[1]",
        "",
        "{\"track\":\"a\",\"na",
        NULL};
    const char *const none[] = {NULL};
    size_t unreadable;
    json_t *trace = trace_of(lines, &unreadable, NULL);

    (void)state;
    assert_int_equal(unreadable, 6);
    assert_non_null(find(trace, "X", 0));
    assert_null(find(trace, "X", 1));
    json_decref(trace);
    json_decref(trace_of(none, &unreadable, NULL));
    assert_int_equal(unreadable, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_lanes),
        cmocka_unit_test(test_flows),
        cmocka_unit_test(test_what_is_no_line_is_left_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
