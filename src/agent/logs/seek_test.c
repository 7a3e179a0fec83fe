/* seek_test.c - tests of seek.h: where in a log file to begin */
#include "agent/logs/seek.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/timestamp.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

enum { LINES = 500 };

static int make_file(const struct ms_buf *text)
{
    int fd = memfd_create("log", MFD_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text->data, text->len), text->len);
    return fd;
}

/* Lines of all lengths, some without a time, two of each time. */
static void test_first_line_of_a_time(void **state)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf text = {0};
    MS_CLEANUP(ms_cleanup_fd) int fd = -1;
    struct ms_timestamp t = {0};
    uint64_t begins[LINES], start;
    char filler[20000];

    (void)state;
    memset(filler, 'x', sizeof filler);
    for (int i = 0; i < LINES; i++) {
        if (i % 7 == 3)
            ms_buf_printf(&text, "a line without a time\n\n");
        begins[i] = text.len;
        ms_timestamp_set(&t, (1000 + i / 2) * MS_NS_PER_S);
        ms_buf_printf(&text, "%s%.*s\n", t.text, i * 37 % 20000, filler);
    }
    fd = make_file(&text);
    for (int i = 0; i < LINES; i++) {
        int64_t ns = (1000 + i / 2) * MS_NS_PER_S;

        assert_int_equal(ms_log_find_time(fd, text.len, ns, &start), 0);
        assert_int_equal(start, begins[i / 2 * 2]);
        assert_int_equal(ms_log_find_time(fd, text.len, ns - 1, &start), 0);
        assert_int_equal(start, begins[i / 2 * 2]);
    }
    assert_int_equal(ms_log_find_time(fd, text.len, 5000 * MS_NS_PER_S, &start), 0);
    assert_int_equal(start, text.len);
    assert_int_equal(ms_log_find_time(fd, begins[9], 1004 * MS_NS_PER_S, &start), 0);
    assert_int_equal(start, begins[8]); /* what is written meanwhile does not count */
}

static void test_files_without_times(void **state)
{
    static const char *const texts[] = {"", "\n", "hello", "one\ntwo\n\nthree"};

    (void)state;
    for (size_t i = 0; i < MS_COUNT(texts); i++) {
        MS_CLEANUP(ms_buf_finish) struct ms_buf text = {0};
        MS_CLEANUP(ms_cleanup_fd) int fd = -1;
        uint64_t start = 77;

        ms_buf_append(&text, texts[i], strlen(texts[i]));
        fd = make_file(&text);
        assert_int_equal(ms_log_find_time(fd, text.len, 1, &start), 0);
        assert_int_equal(start, text.len);
    }
}

/* What an older version wrote, without times: it is before what has them, and it is not read
 * through line by line. */
static void test_a_file_that_begins_without_times(void **state)
{
    enum { SHORT_LINES = 8 << 20, TIMED = 1000 };
    MS_CLEANUP(ms_buf_finish) struct ms_buf text = {0};
    MS_CLEANUP(ms_cleanup_fd) int fd = -1;
    struct ms_timestamp t = {0};
    uint64_t begins[TIMED], start;
    int64_t began_ns;

    (void)state;
    for (int i = 0; i < SHORT_LINES; i++)
        ms_buf_append(&text, "x\n", 2);
    for (int i = 0; i < TIMED; i++) {
        begins[i] = text.len;
        ms_timestamp_set(&t, (1000 + i) * MS_NS_PER_S);
        ms_buf_printf(&text, "%sy\n", t.text);
    }
    fd = make_file(&text);
    began_ns = ms_now_ns();
    for (int i = 0; i < TIMED; i += 111) {
        assert_int_equal(
            ms_log_find_time(fd, text.len, (1000 + i) * MS_NS_PER_S, &start), 0);
        assert_int_equal(start, begins[i]);
    }
    assert_int_equal(ms_log_find_time(fd, begins[0], 1, &start), 0);
    assert_int_equal(start, begins[0]);                    /* none has one */
    assert_true(ms_now_ns() - began_ns < 2 * MS_NS_PER_S); /* was 8 s for each */
}

static void test_time_of_a_line_without(void **state)
{
    static const char text[] = "first\n1970-01-01T00:00:01.000000Z a\nb\nc\n"
                               "1970-01-01T00:00:02.000000Z d\n";
    struct ms_buf b = {.data = (uint8_t *)(uintptr_t)text, .len = strlen(text)};
    MS_CLEANUP(ms_cleanup_fd) int fd = make_file(&b);

    (void)state;
    assert_int_equal(ms_log_time_before(fd, 0), 0);
    assert_int_equal(ms_log_time_before(fd, 6), 0);
    assert_int_equal(ms_log_time_before(fd, (uint64_t)(strstr(text, "c\n") - text)),
                     MS_NS_PER_S);
    assert_int_equal(ms_log_time_before(fd, b.len), 2 * MS_NS_PER_S);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_first_line_of_a_time),
        cmocka_unit_test(test_files_without_times),
        cmocka_unit_test(test_a_file_that_begins_without_times),
        cmocka_unit_test(test_time_of_a_line_without),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
