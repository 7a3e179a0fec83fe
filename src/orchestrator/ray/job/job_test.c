/* job_test.c - tests of job.h: one job on a Ray cluster, from the first question
 * to its end */
#include "orchestrator/ray/job/job.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "io/tree.h"
#include "orchestrator/ray/fake_ray.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

struct rig {
    struct ms_loop *loop;
    struct fake_ray ray;
    struct ms_ray_job *job;
    char dir[64], python_dir[PATH_MAX], log[4096];
    bool is_submitted, is_silent;
    int ended, rc, code;
    struct ms_error why;
};

static void on_submitted(void *arg)
{
    ((struct rig *)arg)->is_submitted = true;
}

static void on_log(void *arg, const char *text, size_t len)
{
    struct rig *r = arg;

    strncat(r->log, text, len < 1000 ? len : 1000);
}

static void on_silent(void *arg, const struct ms_error *why)
{
    ((struct rig *)arg)->is_silent = why != NULL;
}

static void on_ended(void *arg, int rc, int code, const struct ms_error *why)
{
    struct rig *r = arg;

    r->ended++;
    r->rc = rc;
    r->code = code;
    if (rc < 0)
        r->why = *why;
}

static const struct ms_ray_job_events events = {.on_submitted = on_submitted,
                                                .on_log = on_log,
                                                .on_silent = on_silent,
                                                .on_ended = on_ended};

static void start_at(struct rig *r, const char *address, const char *entrypoint)
{
    struct ms_error err = {0};

    snprintf(r->python_dir, sizeof r->python_dir, "%s/muster", r->dir);
    r->job = ms_ray_job_create(
        &(struct ms_ray_job_spec){.loop = r->loop,
                                  .site = {.address = address,
                                           .muster = "/bin/true",
                                           .python_dir = r->python_dir,
                                           .cache_dir = r->dir},
                                  .id = "job-1",
                                  .entrypoint = entrypoint},
        &events,
        r,
        &err);
    assert_non_null(r->job);
}

static void start(struct rig *r, const char *entrypoint)
{
    start_at(r, r->ray.address, entrypoint);
}

static void run_until(struct rig *r, bool (*is)(const struct rig *r))
{
    int64_t until_ns = ms_now_ns() + 50 * MS_NS_PER_S;

    while (!is(r)) {
        assert_true(ms_now_ns() < until_ns);
        assert_int_equal(ms_loop_run_once(r->loop, true), 0);
    }
}

static bool has_ended(const struct rig *r)
{
    return r->ended > 0;
}

static bool has_said(const struct rig *r)
{
    return strstr(r->log, "here") != NULL;
}

static bool is_deleted(const struct rig *r)
{
    return r->ray.deletions > 0;
}

static int setup(void **state)
{
    struct rig *r = calloc(1, sizeof *r);

    snprintf(r->dir, sizeof r->dir, "/tmp/muster-job-XXXXXX");
    assert_non_null(mkdtemp(r->dir));
    fake_ray_make_python_dir(r->dir);
    unsetenv("RAY_AUTH_TOKEN");
    unsetenv("RAY_AUTH_TOKEN_PATH");
    setenv("HOME", r->dir, 1);
    unsetenv("http_proxy");
    r->loop = ms_loop_create();
    fake_ray_start(&r->ray, r->loop, r->dir);
    *state = r;
    return 0;
}

static int teardown(void **state)
{
    struct rig *r = *state;

    ms_ray_job_leave(r->job);
    fake_ray_finish(&r->ray);
    ms_loop_destroy(r->loop);
    assert_int_equal(ms_tree_remove(AT_FDCWD, r->dir), 0);
    free(r);
    return 0;
}

static void test_runs_and_is_deleted(void **state)
{
    struct rig *r = *state;

    start(r, "echo here");
    run_until(r, has_ended);
    assert_int_equal(r->rc, 0);
    assert_int_equal(r->code, 0);
    assert_string_equal(r->log, "here\n");
    assert_int_equal(r->ray.uploads, 1);
    run_until(r, is_deleted);
    assert_int_equal(r->ended, 1);
    assert_int_equal(r->ray.stops, 0);
}

static void test_second_job_uploads_nothing(void **state)
{
    struct rig *r = *state;

    start(r, "true");
    run_until(r, has_ended);
    ms_ray_job_leave(r->job);
    r->ended = 0;
    start(r, "true");
    run_until(r, has_ended);
    assert_int_equal(r->rc, 0);
    assert_int_equal(r->ray.uploads, 1);
    assert_int_equal(r->ray.submissions, 2);
}

static void test_failure_shows_the_log(void **state)
{
    struct rig *r = *state;

    start(r, "echo first; echo the reason; exit 7");
    run_until(r, has_ended);
    assert_int_equal(r->rc, -ECHILD);
    assert_int_equal(r->code, 7);
    assert_non_null(strstr(r->why.text, "exit code 7"));
    assert_non_null(strstr(r->why.text, "first|the reason"));
}

static void expect_stopped(struct rig *r)
{
    ms_ray_job_stop(r->job);
    run_until(r, has_ended);
    assert_int_equal(r->rc, -ECANCELED);
    assert_int_equal(r->ray.stops, 1);
}

static void test_stop(void **state)
{
    struct rig *r = *state;

    start(r, "echo here; exec sleep 1000");
    run_until(r, has_said);
    expect_stopped(r);
}

static bool is_taken(const struct rig *r)
{
    return r->ray.submissions > 0;
}

/* Nobody has said that it is there: it is, and is ended. */
static void test_stop_when_the_answer_was_lost(void **state)
{
    struct rig *r = *state;

    r->ray.lose_answers = 1;
    start(r, "exec sleep 1000");
    run_until(r, is_taken);
    expect_stopped(r);
}

static void expect(struct rig *r, int rc, const char *words)
{
    run_until(r, has_ended);
    assert_int_equal(r->rc, rc);
    if (!strstr(r->why.text, words))
        fail_msg("'%s' is not in: %s", words, r->why.text);
    assert_int_equal(r->ray.submissions, 0);
    assert_false(r->is_submitted);
}

static void test_nobody_there(void **state)
{
    start_at(*state, "127.0.0.1:1", "true");
    expect(*state, -ECONNREFUSED, "no Ray dashboard answers at http://127.0.0.1:1");
}

static void test_html(void **state)
{
    struct rig *r = *state;

    r->ray.is_html = true;
    start(r, "true");
    expect(r, -EPROTO, "is not the dashboard of Ray");
}

static void test_too_old(void **state)
{
    struct rig *r = *state;

    r->ray.version = "2.9.3";
    start(r, "true");
    expect(r, -ENOTSUP, "is version 2.9.3; Muster needs 2.40");
}

static void test_no_token(void **state)
{
    struct rig *r = *state;

    r->ray.token = "right";
    start(r, "true");
    expect(r, -EACCES, "there is none: set RAY_AUTH_TOKEN");
}

static void test_wrong_token(void **state)
{
    struct rig *r = *state;

    r->ray.token = "right";
    setenv("RAY_AUTH_TOKEN", "wrong", 1);
    start(r, "true");
    expect(r, -EACCES, "does not accept this token");
    assert_null(strstr(r->why.text, "wrong"));
}

static void test_right_token(void **state)
{
    struct rig *r = *state;

    r->ray.token = "right";
    setenv("RAY_AUTH_TOKEN", "right", 1);
    start(r, "true");
    run_until(r, has_ended);
    assert_int_equal(r->rc, 0);
}

static void test_cut_upload_is_tried_again(void **state)
{
    struct rig *r = *state;

    r->ray.refuse_uploads = 2;
    start(r, "echo here");
    run_until(r, has_ended);
    assert_int_equal(r->rc, 0);
    assert_int_equal(r->ray.uploads, 1);
}

static void test_upload_that_is_always_cut(void **state)
{
    struct rig *r = *state;

    r->ray.refuse_uploads = 100;
    start(r, "true");
    expect(r, -EPROTO, "failed 3 times");
}

static void test_ray_started_anew(void **state)
{
    struct rig *r = *state;

    start(r, "echo here; exec sleep 1000");
    run_until(r, has_said);
    r->ray.is_forgetful = true;
    run_until(r, has_ended);
    assert_int_equal(r->rc, -ECHILD);
    assert_non_null(strstr(r->why.text, "does not know the job"));
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_runs_and_is_deleted),
        TEST(test_second_job_uploads_nothing),
        TEST(test_failure_shows_the_log),
        TEST(test_stop),
        TEST(test_nobody_there),
        TEST(test_html),
        TEST(test_too_old),
        TEST(test_no_token),
        TEST(test_wrong_token),
        TEST(test_right_token),
        TEST(test_stop_when_the_answer_was_lost),
        TEST(test_cut_upload_is_tried_again),
        TEST(test_upload_that_is_always_cut),
        TEST(test_ray_started_anew),
    };

    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests_name("job", tests, NULL, NULL);
}
