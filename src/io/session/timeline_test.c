/* timeline_test.c - tests of timeline.h: what happened when, as lines of a file */
#include "io/session/timeline.h"

#include "base/json.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

struct fixture {
    char path[64];
    struct ms_timeline t;
};

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);

    strcpy(f->path, "/tmp/muster-timeline-XXXXXX");
    close(mkstemp(f->path));
    ms_timeline_init(&f->t);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;

    ms_timeline_finish(&f->t);
    unlink(f->path);
    free(f);
    return 0;
}

/* All lines of the file, each of which must be an object. */
static json_t *lines_of(const struct fixture *f)
{
    FILE *file = fopen(f->path, "re");
    json_t *all = json_array();
    char line[4096];

    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        json_t *one = json_loads(line, 0, NULL);

        assert_true(json_is_object(one));
        json_array_append_new(all, one);
    }
    fclose(file);
    return all;
}

static json_int_t number(const json_t *all, size_t i, const char *name)
{
    json_t *value = json_object_get(json_array_get(all, i), name);

    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

static void test_lines(void **state)
{
    struct fixture *f = *state;
    json_t *all;

    assert_int_equal(ms_timeline_start(&f->t, f->path, NULL), 0);
    assert_true(ms_timeline_is_on(&f->t));
    assert_int_equal(
        ms_timeline_add(&f->t,
                        &(struct ms_timeline_event){.track = "actor/0@n",
                                                    .name = "a \"name\"\n",
                                                    .begin_ns = 5,
                                                    .end_ns = 9,
                                                    .flow = 7,
                                                    .args = "{\"x\": [1]}"}),
        0);
    assert_int_equal(
        ms_timeline_add(&f->t,
                        &(struct ms_timeline_event){.kind = MS_TIMELINE_COUNT,
                                                    .track = "live",
                                                    .name = "requests",
                                                    .begin_ns = 6,
                                                    .value = 2.5}),
        0);
    all = lines_of(f);
    assert_int_equal(json_array_size(all), 3);
    assert_true(number(all, 0, "unix_ns") > number(all, 0, "now_ns"));
    assert_int_equal(number(all, 1, "begin"), 5);
    assert_int_equal(number(all, 1, "end"), 9);
    assert_int_equal(number(all, 1, "flow"), 7);
    assert_string_equal(
        json_string_value(json_object_get(json_array_get(all, 1), "name")),
        "a \"name\"\n");
    assert_int_equal(number(all, 2, "at"), 6);
    assert_null(json_object_get(json_array_get(all, 2), "end"));
    json_decref(all);
}

static void test_wrong_arguments_write_nothing(void **state)
{
    struct fixture *f = *state;
    struct ms_timeline_event e = {.track = "a", .name = "b", .args = "[1]"};
    struct ms_error err = {0};
    json_t *all;

    assert_int_equal(ms_timeline_add(&f->t, &e), 0); /* it is off */
    assert_int_equal(ms_timeline_start(&f->t, "/tmp/none/there", &err), -ENOENT);
    assert_non_null(strstr(err.text, "/tmp/none/there"));
    assert_false(ms_timeline_is_on(&f->t));
    assert_int_equal(ms_timeline_start(&f->t, f->path, NULL), 0);
    assert_int_equal(ms_timeline_add(&f->t, &e), -EINVAL);
    e.args = "{\"x\": ";
    assert_int_equal(ms_timeline_add(&f->t, &e), -EINVAL);
    all = lines_of(f);
    assert_int_equal(json_array_size(all), 1);
    json_decref(all);
}

static void test_a_file_has_a_limit(void **state)
{
    struct fixture *f = *state;
    struct ms_timeline_event e = {.track = "a", .name = "b"};
    off_t size = (off_t)MS_TIMELINE_SIZE_MAX - 200;
    int fd = open(f->path, O_RDWR | O_CLOEXEC);

    assert_int_equal(ftruncate(fd, size), 0); /* it takes no room on the disk */
    assert_int_equal(ms_timeline_start(&f->t, f->path, NULL), 0);
    for (int i = 0; i < 100; i++)
        assert_int_equal(ms_timeline_add(&f->t, &e), 0);
    size = lseek(fd, 0, SEEK_END);
    assert_true(size > (off_t)MS_TIMELINE_SIZE_MAX - 60);
    assert_true(size <= (off_t)MS_TIMELINE_SIZE_MAX);
    close(fd);
}

static void test_a_forked_child_writes_nothing(void **state)
{
    struct fixture *f = *state;
    json_t *all;
    int status;
    pid_t pid;

    assert_int_equal(ms_timeline_start(&f->t, f->path, NULL), 0);
    pid = fork();
    if (pid == 0) {
        ms_timeline_forget(&f->t);
        ms_timeline_add(&f->t, &(struct ms_timeline_event){.track = "a", .name = "b"});
        _exit(ms_timeline_is_on(&f->t));
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    all = lines_of(f);
    assert_int_equal(json_array_size(all), 1);
    json_decref(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_lines, setup, teardown),
        cmocka_unit_test_setup_teardown(
            test_wrong_arguments_write_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(test_a_file_has_a_limit, setup, teardown),
        cmocka_unit_test_setup_teardown(
            test_a_forked_child_writes_nothing, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
