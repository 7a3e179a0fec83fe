#include "head/state/journal.h"
#include "io/tree.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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
        ms_journal_open(&rig.d, rig.dir, "state", is_kept, &ops, &rig, NULL), 0);
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

static void test_a_record_that_was_cut_is_passed_over(void **state)
{
    struct stat st;

    (void)state;
    put(0, "whole");
    assert_int_equal(stat(rig.path, &st), 0);
    put(1, "cut short");
    assert_int_equal(truncate(rig.path, st.st_size + 9), 0);
    reopen(true);
    assert_string_equal(rig.values[0], "whole");
    assert_null(rig.values[1]);
    put(1, "again");
    reopen(true);
    assert_string_equal(rig.values[1], "again");
}

static void test_a_file_that_grows_is_written_anew(void **state)
{
    char *big = malloc(VALUE_MAX + 1);
    unsigned before = rig.rewrites;
    struct stat st;

    (void)state;
    assert_non_null(big);
    memset(big, 'x', VALUE_MAX);
    big[VALUE_MAX] = 0;
    for (int i = 0; i < 100; i++)
        put(3, big);
    free(big);
    put(0, "last");
    assert_true(rig.rewrites > before && rig.rewrites < before + 20);
    assert_int_equal(stat(rig.path, &st), 0);
    assert_true(st.st_size < 4 << 20);
    reopen(true);
    assert_int_equal(strlen(rig.values[3]), VALUE_MAX);
    assert_string_equal(rig.values[0], "last");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_changes_come_back, setup, teardown),
        cmocka_unit_test_setup_teardown(
            test_a_record_that_was_cut_is_passed_over, setup, teardown),
        cmocka_unit_test_setup_teardown(
            test_a_file_that_grows_is_written_anew, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
