/* files_test.c - files of the user that change after a zygote has imported them */
#include "agent/zygotes/zygote_impl.h"
#include "base/clock.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char path[] = "/tmp/muster-files-XXXXXX";

static int set_up(void **state)
{
    int fd;

    (void)state;
    snprintf(path, sizeof path, "/tmp/muster-files-XXXXXX");
    fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "x = 1\n", 6), 6);
    return close(fd);
}

static int tear_down(void **state)
{
    (void)state;
    unlink(path);
    return 0;
}

/* As it is now. */
static void add(struct ms_zygote_files *files)
{
    Muster__LoadedFile file = MUSTER__LOADED_FILE__INIT;
    struct stat st;

    assert_int_equal(stat(path, &st), 0);
    file.path = path;
    file.size = (uint64_t)st.st_size;
    file.mtime_ns = st.st_mtim.tv_sec * MS_NS_PER_S + st.st_mtim.tv_nsec;
    for (int i = 0; i < 40; i++) /* more than there is room for at first */
        assert_int_equal(ms_zygote_files_add(files, &file), 0);
}

static void test_unchanged(void **state)
{
    struct ms_zygote_files files = {0};

    (void)state;
    assert_null(ms_zygote_files_changed(&files));
    add(&files);
    assert_null(ms_zygote_files_changed(&files));
    ms_zygote_files_finish(&files);
    ms_zygote_files_finish(&files);
}

static void test_another_time(void **state)
{
    struct ms_zygote_files files = {0};
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1, .tv_nsec = 7}};

    (void)state;
    add(&files);
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    assert_string_equal(ms_zygote_files_changed(&files), path);
    ms_zygote_files_finish(&files);
}

static void test_another_size(void **state)
{
    struct ms_zygote_files files = {0};
    struct stat before;
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {0}};

    (void)state;
    add(&files);
    assert_int_equal(stat(path, &before), 0);
    assert_int_equal(truncate(path, 3), 0);
    times[1] = before.st_mtim;
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    assert_string_equal(ms_zygote_files_changed(&files), path);
    ms_zygote_files_finish(&files);
}

static void test_gone(void **state)
{
    struct ms_zygote_files files = {0};

    (void)state;
    add(&files);
    unlink(path);
    assert_string_equal(ms_zygote_files_changed(&files), path);
    ms_zygote_files_finish(&files);
}

#define FILES_TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        FILES_TEST(test_unchanged),
        FILES_TEST(test_another_time),
        FILES_TEST(test_another_size),
        FILES_TEST(test_gone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
