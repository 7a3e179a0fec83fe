/* file_test.c - tests of file.h: a file that lines are appended to, whatever
 * happens to the disk */
#include "agent/logs/file.h"
#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

struct place {
    char dir[64], path[96], old[96];
};

static int set_up(void **state)
{
    static struct place p;

    strcpy(p.dir, "/tmp/muster-logfile-XXXXXX");
    if (!mkdtemp(p.dir))
        return -1;
    snprintf(p.path, sizeof p.path, "%s/a.log", p.dir);
    snprintf(p.old, sizeof p.old, "%s/a.log.1", p.dir);
    *state = &p;
    return 0;
}

static int tear_down(void **state)
{
    struct place *p = *state;

    unlink(p->path);
    unlink(p->old);
    return rmdir(p->dir);
}

static const char *content(const char *path)
{
    static char text[4096];
    MS_CLEANUP(ms_cleanup_fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);

    if (n < 0)
        return NULL;
    text[n] = 0;
    return text;
}

static void test_appends_and_rotates(void **state)
{
    struct place *p = *state;
    struct ms_log_file f;

    assert_int_equal(ms_log_file_open(&f, p->path, 10), 0);
    assert_int_equal(ms_log_file_write(&f, "12345\n", 6), 0);
    assert_null(content(p->old));
    assert_int_equal(ms_log_file_write(&f, "67890\n", 6), 0);
    assert_string_equal(content(p->old), "12345\n");
    assert_string_equal(content(p->path), "67890\n");
    ms_log_file_close(&f);
    ms_log_file_close(&f);
    /* a later one counts what is there */
    assert_int_equal(ms_log_file_open(&f, p->path, 10), 0);
    assert_int_equal(ms_log_file_write(&f, "abcde\n", 6), 0);
    assert_string_equal(content(p->old), "67890\n");
    ms_log_file_close(&f);
}

static void test_full_disk_loses_counts_and_says(void **state)
{
    struct place *p = *state;
    struct ms_log_file f;

    assert_int_equal(ms_log_file_open(&f, "/dev/full", 1000), 0);
    assert_int_equal(ms_log_file_write(&f, "12345\n", 6), -ENOSPC);
    assert_int_equal(ms_log_file_write(&f, "12345\n", 6), -ENOSPC);
    assert_int_equal(f.lost, 12);
    /* room again */
    close(f.fd);
    f.fd = open(p->path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    assert_int_equal(ms_log_file_write(&f, "after\n", 6), 0);
    assert_int_equal(f.lost, 0);
    assert_string_equal(
        content(p->path),
        "\n[muster: the disk was full, 12 bytes are lost here]\nafter\n");
    ms_log_file_close(&f);
}

static void test_file_that_cannot_be_opened_is_tried_again(void **state)
{
    struct place *p = *state;
    struct ms_log_file f;

    assert_int_equal(mkdir(p->path, 0700), 0);
    assert_int_equal(ms_log_file_open(&f, p->path, 1000), 0);
    assert_int_equal(ms_log_file_write(&f, "x\n", 2), -EISDIR);
    assert_int_equal(rmdir(p->path), 0);
    assert_int_equal(ms_log_file_write(&f, "y\n", 2), 0);
    assert_non_null(strstr(content(p->path), "2 bytes are lost here]\ny\n"));
    ms_log_file_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_appends_and_rotates, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_full_disk_loses_counts_and_says, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_file_that_cannot_be_opened_is_tried_again, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
