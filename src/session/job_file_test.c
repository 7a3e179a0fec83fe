/* job_file_test.c - tests of job_file.h: the description of a job, from a file */
#include "session/job_file.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static void test_a_file(void **state)
{
    char path[] = "/tmp/muster-job-XXXXXX";
    struct ms_error err = {0};
    struct ms_job job;
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    dprintf(fd, "name: first\nroles: {reward: {world_size: 8}}\n");
    assert_int_equal(ms_job_file_read(&job, path, &err), 0);
    assert_string_equal(job.name, "first");
    assert_string_equal(job.source, path);
    ms_job_finish(&job);
    dprintf(fd, "color: blue\n");
    assert_int_equal(ms_job_file_read(&job, path, &err), -EINVAL);
    assert_non_null(strstr(err.text, path));
    assert_non_null(strstr(err.text, ":3:1: a job has no key 'color'"));
    assert_int_equal(ftruncate(fd, (off_t)MS_YAML_FILE_MAX + 1), 0);
    assert_int_equal(ms_job_file_read(&job, path, &err), -EFBIG);
    close(fd);
    unlink(path);
}

static void test_no_file(void **state)
{
    struct ms_error err = {0};
    struct ms_job job;

    (void)state;
    assert_int_equal(ms_job_file_read(&job, "/nowhere/x.yaml", &err), -ENOENT);
    assert_non_null(strstr(err.text, "/nowhere/x.yaml"));
    assert_int_equal(ms_job_file_read(&job, "/", &err), -EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_file),
        cmocka_unit_test(test_no_file),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
