/* journal_test.c - tests of journal.h: named records that outlive this process, in
 * one SQLite file */
#include "head/state/journal.h"
#include "io/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { KEYS = 4, VALUE_MAX = 128 << 10 };

/* What an owner has: the values of a few keys, as text. */
static struct {
    char dir[32], path[64];
    struct ms_journal *d;
    char *values[KEYS];
    unsigned rewrites;
} rig;

static void set(unsigned key, const char *value, size_t len)
{
    free(rig.values[key]);
    rig.values[key] = value ? strndup(value, len) : NULL;
}

static void
on_record(void *arg, uint32_t space, const char *key, const uint8_t *data, size_t len)
{
    assert_ptr_equal(arg, &rig);
    assert_int_equal(space, 7);
    set((unsigned)atoi(key), (const char *)data, len);
}

static void on_rewrite(void *arg, struct ms_journal *d)
{
    char key[4];

    (void)arg;
    rig.rewrites++;
    for (int i = 0; i < KEYS; i++)
        if (rig.values[i]) {
            snprintf(key, sizeof key, "%d", i);
            ms_journal_put(d, 7, key, (uint8_t *)rig.values[i], strlen(rig.values[i]));
        }
}

static void reopen(bool is_kept)
{
    static const struct ms_journal_ops ops = {on_record, on_rewrite};

    ms_journal_close(rig.d);
    for (unsigned i = 0; i < KEYS; i++)
        set(i, NULL, 0);
    assert_int_equal(
        ms_journal_open(&rig.d, rig.dir, "state", is_kept, 100, &ops, &rig, NULL), 0);
}

static int setup(void **state)
{
    (void)state;
    memset(&rig, 0, sizeof rig);
    strcpy(rig.dir, "/tmp/ms-durable-XXXXXX");
    if (!mkdtemp(rig.dir))
        return -1;
    snprintf(rig.path, sizeof rig.path, "%s/state", rig.dir);
    reopen(true);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    ms_journal_close(rig.d);
    for (unsigned i = 0; i < KEYS; i++)
        set(i, NULL, 0);
    return ms_tree_remove(AT_FDCWD, rig.dir);
}

static void put(unsigned key, const char *value)
{
    char name[12];

    set(key, value, strlen(value));
    snprintf(name, sizeof name, "%u", key);
    ms_journal_put(rig.d, 7, name, (const uint8_t *)value, strlen(value));
}

static void test_changes_come_back(void **state)
{
    struct stat st;

    (void)state;
    put(0, "a");
    put(1, "b");
    put(0, "c");
    put(2, "");
    set(1, NULL, 0);
    ms_journal_delete(rig.d, 7, "1");
    reopen(true);
    assert_string_equal(rig.values[0], "c");
    assert_null(rig.values[1]);
    assert_string_equal(rig.values[2], "");
    assert_int_equal(stat(rig.path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    reopen(true); /* written anew by that one */
    assert_string_equal(rig.values[0], "c");
    reopen(false);
    assert_null(rig.values[0]);
}

/* A copy of the file as it is now is what a process that is killed leaves behind. */
static void test_a_process_that_is_killed(void **state)
{
    pid_t child;
    int status;

    (void)state;
    put(0, "before");
    ms_journal_close(rig.d);
    rig.d = NULL;
    child = fork();
    if (child == 0) {
        reopen(true);
        for (unsigned i = 0; i < 100; i++)
            put(1, "again and again");
        put(2, "last");
        kill(getpid(), SIGKILL);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
    reopen(true);
    assert_string_equal(rig.values[0], "before");
    assert_string_equal(rig.values[2], "last");
}

static int reopen_fails(struct ms_error *err)
{
    static const struct ms_journal_ops ops = {on_record, on_rewrite};

    ms_journal_close(rig.d);
    rig.d = NULL;
    return ms_journal_open(&rig.d, rig.dir, "state", true, 100, &ops, &rig, err);
}

static void test_a_file_that_was_cut_or_damaged(void **state)
{
    struct ms_error err = {0};
    int fd;

    (void)state;
    for (unsigned i = 0; i < 200; i++)
        put(i % KEYS, "some text that fills a few pages of the file, again and again");
    ms_journal_close(rig.d);
    rig.d = NULL;
    fd = open(rig.path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, "garbage garbage garbage", 23, 0), 23);
    assert_int_equal(reopen_fails(&err), -EBADMSG);
    assert_non_null(strstr(err.text, "is damaged"));
    assert_non_null(strstr(err.text, rig.path));
    assert_int_equal(ftruncate(fd, 100), 0);
    assert_int_equal(reopen_fails(&err), -EBADMSG);
    assert_int_equal(ftruncate(fd, 0), 0); /* not one that is to be begun */
    assert_int_equal(reopen_fails(&err), -EBADMSG);
    assert_non_null(strstr(err.text, "it is empty"));
    close(fd);
}

static void test_a_newer_version_is_not_touched(void **state)
{
    uint8_t version[4] = {0, 0, 0, 9}, after[4];
    struct ms_error err = {0};
    int fd;

    (void)state;
    put(0, "kept");
    ms_journal_close(rig.d);
    rig.d = NULL;
    fd = open(rig.path, O_RDWR);
    assert_int_equal(pwrite(fd, version, 4, 60), 4); /* user_version */
    assert_int_equal(reopen_fails(&err), -ENOTSUP);
    assert_non_null(strstr(err.text, "newer Muster (format 9"));
    assert_int_equal(pread(fd, after, 4, 60), 4);
    assert_memory_equal(version, after, 4);
    close(fd);
}

static void test_two_controllers(void **state)
{
    static const struct ms_journal_ops ops = {on_record, on_rewrite};
    struct ms_journal *second = NULL;
    struct ms_error err = {0};

    (void)state;
    put(0, "first");
    assert_int_equal(
        ms_journal_open(&second, rig.dir, "state", true, 100, &ops, &rig, &err),
        -EBUSY);
    assert_non_null(strstr(err.text, "another process has it open"));
    assert_null(second);
}

/* As on a full disk: the next change that fits writes what was lost. */
static void test_what_cannot_be_written(void **state)
{
    struct rlimit before, small = {0};
    struct ms_error err = {0};
    char *big = malloc(VALUE_MAX + 1);

    (void)state;
    assert_non_null(big);
    memset(big, 'x', VALUE_MAX);
    big[VALUE_MAX] = 0;
    put(0, "small");
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_IGN);
    small.rlim_cur = 64 << 10;
    small.rlim_max = before.rlim_max;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_true(ms_journal_write(rig.d, 7, "1", (uint8_t *)big, VALUE_MAX, &err) < 0);
    assert_non_null(strstr(err.text, "cannot write the journal"));
    put(2, big); /* lost */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    free(big);
    put(3, "fits");
    assert_int_equal(rig.rewrites, 1);
    reopen(true);
    assert_string_equal(rig.values[0], "small");
    assert_null(rig.values[1]);
    assert_int_equal(strlen(rig.values[2]), VALUE_MAX);
    assert_string_equal(rig.values[3], "fits");
}

static void count_record(void *arg, const char *key, const uint8_t *data, size_t len)
{
    (void)data;
    (void)len;
    strcat(arg, key);
    strcat(arg, " ");
}

/* No file can grow; the limits before. */
static struct rlimit fill_disk(void)
{
    struct rlimit before, full;
    struct stat st;
    char path[80];

    snprintf(path, sizeof path, "%s-wal", rig.path);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, SIG_IGN);
    full = (struct rlimit){(rlim_t)st.st_size, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &full), 0);
    return before;
}

/* What was deleted meanwhile goes too, and what is not the owner's stays. */
static void test_a_deletion_that_cannot_be_written(void **state)
{
    struct rlimit before;
    char seen[16] = "";

    (void)state;
    put(0, "goes");
    put(1, "stays");
    assert_int_equal(
        ms_journal_write(rig.d, 100, "lasts", (const uint8_t *)"x", 1, NULL), 0);
    before = fill_disk();
    set(0, NULL, 0);
    ms_journal_delete(rig.d, 7, "0"); /* lost */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    /* its owner may have it a moment later */
    ms_journal_put(rig.d, 7, "2", (const uint8_t *)"new", 3);
    assert_int_equal(rig.rewrites, 1);
    assert_int_equal(ms_journal_read(rig.d, 100, "", count_record, seen, NULL), 0);
    assert_string_equal(seen, "lasts ");
    assert_int_equal(ms_journal_drop(rig.d, 100, "", NULL, NULL), 0);
    reopen(true);
    assert_null(rig.values[0]);
    assert_string_equal(rig.values[1], "stays");
    assert_string_equal(rig.values[2], "new");
    before = fill_disk();
    put(3, "lost");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    ms_journal_delete(rig.d, 7, "3"); /* before its owner has forgotten it */
    reopen(true);
    assert_null(rig.values[3]);
}

/* For each of a space it reads what another space has of it. */
static void read_more(void *arg, const char *key, const uint8_t *data, size_t len)
{
    count_record(arg, key, data, len);
    assert_int_equal(ms_journal_read(rig.d, 10, key, count_record, arg, NULL), 0);
}

static void test_reading_while_reading(void **state)
{
    static const char *const keys[] = {"a", "b", "c"};
    char seen[64] = "";

    (void)state;
    for (size_t i = 0; i < 3; i++)
        for (uint32_t space = 9; space <= 10; space++)
            assert_int_equal(
                ms_journal_write(rig.d, space, keys[i], (const uint8_t *)"x", 1, NULL),
                0);
    assert_int_equal(ms_journal_read(rig.d, 9, "", read_more, seen, NULL), 0);
    assert_string_equal(seen, "a a b b c c ");
    assert_int_equal(ms_journal_drop(rig.d, 9, "", NULL, NULL), 0);
    assert_int_equal(ms_journal_drop(rig.d, 10, "", NULL, NULL), 0);
}

static void test_all_or_nothing(void **state)
{
    char seen[64] = "";

    (void)state;
    assert_int_equal(ms_journal_write(rig.d, 9, "old", (const uint8_t *)"x", 1, NULL),
                     0);
    for (int rc = -EIO; rc <= 0; rc += EIO) {
        assert_int_equal(ms_journal_begin(rig.d, NULL), 0);
        assert_int_equal(ms_journal_drop(rig.d, 9, "", NULL, NULL), 0);
        assert_int_equal(
            ms_journal_write(rig.d, 9, "new", (const uint8_t *)"x", 1, NULL), 0);
        assert_int_equal(ms_journal_commit(rig.d, rc, NULL), rc);
        assert_int_equal(ms_journal_read(rig.d, 9, "", count_record, seen, NULL), 0);
    }
    assert_string_equal(seen, "old new ");
    assert_int_equal(ms_journal_drop(rig.d, 9, "", NULL, NULL), 0);
}

static void test_ranges(void **state)
{
    static const char *const keys[] = {"a/1", "a/2", "a/3", "ab/1", "b/1"};
    char seen[64] = "";

    (void)state;
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(
            ms_journal_write(rig.d, 9, keys[i], (const uint8_t *)"x", 1, NULL), 0);
    assert_int_equal(
        ms_journal_read_some(rig.d, 9, "a/", "a/2", 1, count_record, seen, NULL), 0);
    assert_string_equal(seen, "a/2 ");
    assert_int_equal(
        ms_journal_read_some(rig.d, 9, "a/", "a/20", 9, count_record, seen, NULL), 0);
    assert_string_equal(seen, "a/2 a/3 "); /* and nothing of "ab/" */
    seen[0] = 0;
    assert_int_equal(ms_journal_read(rig.d, 9, "a/", count_record, seen, NULL), 0);
    assert_string_equal(seen, "a/1 a/2 a/3 ");
    assert_int_equal(ms_journal_drop(rig.d, 9, "a/", "a/3", NULL), 0);
    assert_int_equal(ms_journal_drop(rig.d, 9, "ab/", NULL, NULL), 0);
    seen[0] = 0;
    assert_int_equal(ms_journal_read(rig.d, 9, "", count_record, seen, NULL), 0);
    assert_string_equal(seen, "a/3 b/1 ");
    assert_int_equal(ms_journal_drop(rig.d, 9, "", NULL, NULL), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_changes_come_back, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_process_that_is_killed, setup, teardown),
        cmocka_unit_test_setup_teardown(
            test_a_file_that_was_cut_or_damaged, setup, teardown),
        cmocka_unit_test_setup_teardown(
            test_a_newer_version_is_not_touched, setup, teardown),
        cmocka_unit_test_setup_teardown(test_two_controllers, setup, teardown),
        cmocka_unit_test_setup_teardown(test_what_cannot_be_written, setup, teardown),
        cmocka_unit_test_setup_teardown(
            test_a_deletion_that_cannot_be_written, setup, teardown),
        cmocka_unit_test_setup_teardown(test_ranges, setup, teardown),
        cmocka_unit_test_setup_teardown(test_all_or_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_reading_while_reading, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
