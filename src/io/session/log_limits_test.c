/* log_limits_test.c - tests of log_limits.h: how much stays of the logs of what
 * has ended */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "io/session/log_limits.h"
#include "io/tree.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

static char path[] = "/tmp/muster-kept-XXXXXX";
static int dir;

static int set_up(void **state)
{
    (void)state;
    strcpy(path, "/tmp/muster-kept-XXXXXX");
    if (!mkdtemp(path))
        return -1;
    dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    unsetenv("MUSTER_LOGS_KEPT");
    unsetenv("MUSTER_LOGS_KEPT_SIZE");
    unsetenv("MUSTER_LOGS_KEPT_AGE");
    return dir < 0 ? -1 : mkdirat(dir, "logs", 0700);
}

static int tear_down(void **state)
{
    (void)state;
    close(dir);
    return ms_tree_remove(AT_FDCWD, path);
}

/* A file of this size and age in seconds. */
static void put(const char *name, off_t size, time_t age)
{
    struct timespec then[2] = {{.tv_sec = time(NULL) - age}};
    MS_CLEANUP(ms_cleanup_fd) int logs = ms_tree_open(dir, "logs");
    MS_CLEANUP(ms_cleanup_fd)
    int fd = openat(logs, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    then[1] = then[0];
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, size), 0);
    assert_int_equal(futimens(fd, then), 0);
}

static bool is_there(const char *name)
{
    char file[64];

    snprintf(file, sizeof file, "logs/%s", name);
    return faccessat(dir, file, F_OK, 0) == 0;
}

static void test_limits(void **state)
{
    struct ms_log_limits k;

    (void)state;
    ms_log_limits_init(&k);
    assert_int_equal(k.count_max, MS_SESSIONS_KEPT);
    assert_int_equal(k.size_max, MS_SESSIONS_KEPT_SIZE);
    assert_int_equal(k.age_max_ns, MS_SESSIONS_KEPT_AGE_NS);
    assert_null(k.not_known);
    setenv("MUSTER_LOGS_KEPT", "3", 1);
    setenv("MUSTER_LOGS_KEPT_SIZE", "1MiB", 1);
    setenv("MUSTER_LOGS_KEPT_AGE", "2d12h", 1);
    ms_log_limits_init(&k);
    assert_int_equal(k.count_max, 3);
    assert_int_equal(k.size_max, 1 << 20);
    assert_int_equal(k.age_max_ns, 60 * 3600 * MS_NS_PER_S);
    setenv("MUSTER_LOGS_KEPT_SIZE", "much", 1);
    ms_log_limits_init(&k);
    assert_int_equal(k.size_max, MS_SESSIONS_KEPT_SIZE);
    assert_string_equal(k.not_known, "MUSTER_LOGS_KEPT_SIZE");
}

static void test_count_size_and_age(void **state)
{
    struct ms_log_limits k = {.count_max = 3, .size_max = 100, .age_max_ns = 50};

    (void)state;
    assert_true(ms_log_limits_take(&k, 1000, 10)); /* the newest, whatever its size */
    assert_false(ms_log_limits_take(&k, 1, 10));
    k = (struct ms_log_limits){.count_max = 3, .size_max = 100, .age_max_ns = 50};
    assert_false(ms_log_limits_take(&k, 1, 51));
    assert_true(ms_log_limits_take(&k, 60, 10));
    assert_false(ms_log_limits_take(&k, 41, 20));
    assert_true(ms_log_limits_take(&k, 40, 50));
    assert_true(ms_log_limits_take(&k, 0, 50));
    assert_false(ms_log_limits_take(&k, 0, 50));
}

static void test_a_folder_is_as_old_as_its_last_line(void **state)
{
    struct ms_log_limits k = {
        .count_max = 9, .size_max = 999, .age_max_ns = 100 * MS_NS_PER_S};

    (void)state;
    assert_false(ms_log_limits_take_dir(&k, dir)); /* nothing is in it */
    put("a-0.log", 500, 1000);
    assert_false(ms_log_limits_take_dir(&k, dir));
    put("a-1.log", 100, 10);
    assert_true(ms_log_limits_take_dir(&k, dir));
    assert_int_equal(k.count, 1);
    assert_int_equal(k.size, 600);
    assert_false(ms_log_limits_take_dir(&k, dir)); /* as if another had as much */
}

static void test_what_was_measured_is_remembered(void **state)
{
    struct ms_log_limits k;

    (void)state;
    ms_log_limits_init(&k);
    put("a-0.log", 500, 10);
    assert_true(ms_log_limits_take_dir(&k, dir));
    put("a-1.log", 100, 10); /* which nobody does in a session that has ended */
    assert_true(ms_log_limits_take_dir(&k, dir));
    assert_int_equal(k.size, 1000);
    ms_log_limits_sweep(dir); /* used again */
    assert_true(ms_log_limits_take_dir(&k, dir));
    assert_int_equal(k.size, 1600);
}

static void test_files_of_a_folder_that_stays(void **state)
{
    (void)state;
    setenv("MUSTER_LOGS_KEPT", "1", 1); /* counts sessions, not files */
    setenv("MUSTER_LOGS_KEPT_SIZE", "1000", 1);
    setenv("MUSTER_LOGS_KEPT_AGE", "1h", 1);
    put("newest.log", 400, 10);
    put("older.log", 400, 20);
    put("too-much.log", 400, 30);
    put("small.log", 100, 40);
    put("old.log", 1, 4000);
    ms_log_limits_sweep(dir);
    assert_true(is_there("newest.log"));
    assert_true(is_there("older.log"));
    assert_false(is_there("too-much.log"));
    assert_true(is_there("small.log"));
    assert_false(is_there("old.log"));
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_limits),
        TEST(test_count_size_and_age),
        TEST(test_a_folder_is_as_old_as_its_last_line),
        TEST(test_what_was_measured_is_remembered),
        TEST(test_files_of_a_folder_that_stays),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
