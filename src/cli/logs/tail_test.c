/* tail_test.c - tests of tail.h: a log file from its last lines on, through
 * renames */
#include "base/buf.h"
#include "base/cleanup.h"
#include "cli/logs/tail.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

struct folder {
    char path[32];
    int fd;
};

static int set_up(void **state)
{
    struct folder *f = calloc(1, sizeof *f);

    if (!f)
        return -1;
    strcpy(f->path, "/tmp/muster-test-XXXXXX");
    if (!mkdtemp(f->path))
        return -1;
    f->fd = open(f->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    struct folder *f = *state;

    unlinkat(f->fd, "x.log", 0);
    unlinkat(f->fd, "x.log.1", 0);
    close(f->fd);
    rmdir(f->path);
    free(f);
    return 0;
}

static void append(const struct folder *f, const char *name, const char *text)
{
    MS_CLEANUP(ms_cleanup_fd)
    int fd = openat(f->fd, name, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
}

static void check_read(struct ms_tailfile *t, const char *wanted)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf got = {0};
    char block[777];
    int n;

    while ((n = ms_tailfile_read(t, block, sizeof block)) > 0)
        ms_buf_append(&got, block, (size_t)n);
    assert_int_equal(n, 0);
    assert_string_equal(ms_buf_str(&got), wanted);
}

/* Open, read once, close. */
static void
check_since(const struct folder *f, long lines_max, int64_t since_s, const char *wanted)
{
    MS_CLEANUP(ms_tailfile_close) struct ms_tailfile t;

    assert_int_equal(ms_tailfile_open(&t, f->fd, "x.log"), 0);
    assert_int_equal(ms_tailfile_start(&t, lines_max, since_s * 1000000000), 0);
    check_read(&t, wanted);
}

static void check_first(const struct folder *f, long lines_max, const char *wanted)
{
    check_since(f, lines_max, 0, wanted);
}

static void test_last_lines(void **state)
{
    struct folder *f = *state;

    append(f, "x.log", "");
    check_first(f, -1, "");
    check_first(f, 3, "");
    append(f, "x.log", "a\nb\n\nc\n");
    check_first(f, -1, "a\nb\n\nc\n");
    check_first(f, 0, "");
    check_first(f, 1, "c\n");
    check_first(f, 2, "\nc\n");
    check_first(f, 4, "a\nb\n\nc\n");
    check_first(f, 99, "a\nb\n\nc\n");
    append(f, "x.log", "unfinished");
    check_first(f, 1, "unfinished");
    check_first(f, 2, "c\nunfinished");
}

/* Lines and blocks of the backward search do not line up. */
static void test_last_lines_of_a_big_file(void **state)
{
    struct folder *f = *state;
    MS_CLEANUP(ms_buf_finish) struct ms_buf all = {0};

    for (int i = 0; i < 40000; i++)
        assert_int_equal(ms_buf_printf(&all, "line %d\n", i), 0);
    append(f, "x.log", ms_buf_str(&all));
    for (int lines = 1; lines < 40000; lines += 3333) {
        char first[32];
        char *from;

        snprintf(first, sizeof first, "line %d\n", 40000 - lines);
        from = strstr(ms_buf_str(&all), first);
        assert_non_null(from);
        check_first(f, lines, from);
    }
}

static void test_the_renamed_file_comes_first(void **state)
{
    struct folder *f = *state;

    append(f, "x.log.1", "a\nb\nc\n");
    append(f, "x.log", "d\ne\n");
    check_first(f, -1, "a\nb\nc\nd\ne\n");
    check_first(f, 1, "e\n");
    check_first(f, 2, "d\ne\n");
    check_first(f, 3, "c\nd\ne\n");
    check_first(f, 9, "a\nb\nc\nd\ne\n");
}

/* A second each. */
#define AT(s) "1970-01-01T00:00:0" #s ".000000Z "

static void test_since_a_time(void **state)
{
    struct folder *f = *state;

    append(f, "x.log.1", AT(1) "a\n" AT(2) "b\n" AT(3) "c\n");
    append(f, "x.log", AT(4) "d\n" AT(5) "e\n");
    check_since(f, -1, 6, "");
    check_since(f, -1, 5, AT(5) "e\n");
    check_since(f, -1, 4, AT(4) "d\n" AT(5) "e\n");
    check_since(f, -1, 3, AT(3) "c\n" AT(4) "d\n" AT(5) "e\n");
    check_since(f, 1, 3, AT(5) "e\n");
    check_since(f, 3, 1, AT(3) "c\n" AT(4) "d\n" AT(5) "e\n");
    check_since(f, 4, 3, AT(3) "c\n" AT(4) "d\n" AT(5) "e\n");
    check_since(f, 0, 3, "");
}

static void test_growth_and_rename(void **state)
{
    struct folder *f = *state;
    MS_CLEANUP(ms_tailfile_close) struct ms_tailfile t;

    append(f, "x.log", "a\nb\n");
    assert_int_equal(ms_tailfile_open(&t, f->fd, "x.log"), 0);
    assert_int_equal(ms_tailfile_start(&t, 1, 0), 0);
    check_read(&t, "b\n");
    check_read(&t, "");
    append(f, "x.log", "c");
    check_read(&t, "c");
    append(f, "x.log", "c\nd\n");
    assert_int_equal(renameat(f->fd, "x.log", f->fd, "x.log.1"), 0);
    append(f, "x.log", "e\n");
    check_read(&t, "c\nd\ne\n");
    check_read(&t, "");
}

static void test_no_file(void **state)
{
    struct folder *f = *state;
    struct ms_tailfile t;

    assert_int_equal(ms_tailfile_open(&t, f->fd, "x.log"), -ENOENT);
    ms_tailfile_close(&t);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_last_lines),
        TEST(test_last_lines_of_a_big_file),
        TEST(test_the_renamed_file_comes_first),
        TEST(test_since_a_time),
        TEST(test_growth_and_rename),
        TEST(test_no_file),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
