#include "orchestrator/ray/job/rest.h"

#include "base/cleanup.h"

#include <errno.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static struct ms_fetch_answer answer(int status, const char *type, const char *body)
{
    return (struct ms_fetch_answer){
        .status = status, .type = type, .body = body, .len = strlen(body), .local = ""};
}

static int version(int status, const char *type, const char *body, struct ms_error *err)
{
    struct ms_fetch_answer a = answer(status, type, body);
    char text[MS_RAY_VERSION_MAX];

    return ms_ray_read_version(&a, "http://h:8265", text, err);
}

static void test_versions(void **state)
{
    struct ms_error err = {0};

    (void)state;
    assert_int_equal(
        version(200, "application/json", "{\"ray_version\":\"2.57.1\"}", &err), 0);
    assert_int_equal(
        version(200, "application/json", "{\"ray_version\":\"2.40.0\"}", &err), 0);
    assert_int_equal(
        version(200, "application/json", "{\"ray_version\":\"3.0.0.dev0\"}", &err), 0);
    assert_int_equal(
        version(200, "application/json", "{\"ray_version\":\"2.39.0\"}", &err),
        -ENOTSUP);
    assert_non_null(strstr(err.text, "2.39.0"));
    assert_non_null(strstr(err.text, "2.40"));
}

static void test_what_is_not_ray(void **state)
{
    struct ms_error err = {0};

    (void)state;
    assert_int_equal(version(200, "text/html", "<!DOCTYPE html><html>", &err), -EPROTO);
    assert_non_null(strstr(err.text, "page for browsers"));
    assert_int_equal(version(200, "text/plain", " <HTML>hello", &err), -EPROTO);
    assert_int_equal(version(200, "application/json", "[1]", &err), -EPROTO);
    assert_non_null(strstr(err.text, "no version of Ray"));
    assert_int_equal(version(200, "application/json", "{\"ray_ver", &err), -EPROTO);
    assert_int_equal(version(404, "text/plain", "404: Not Found", &err), -EPROTO);
}

static void test_tokens(void **state)
{
    struct ms_error err = {0};
    struct ms_fetch_answer a;

    (void)state;
    assert_int_equal(version(401, "text/plain", "", &err), -EACCES);
    assert_non_null(strstr(err.text, "wants a token"));
    assert_int_equal(version(403, "text/plain", "", &err), -EACCES);
    assert_non_null(strstr(err.text, "does not accept this token"));
    a = answer(200, "application/json", "{\"authentication_mode\":\"token\"}");
    assert_true(ms_ray_wants_token(&a));
    a = answer(200, "application/json", "{\"authentication_mode\":\"disabled\"}");
    assert_false(ms_ray_wants_token(&a));
    a = answer(404, "text/plain", "404: Not Found");
    assert_false(ms_ray_wants_token(&a));
}

static void test_nobody_answers(void **state)
{
    struct ms_fetch_answer a = answer(0, "", "");
    struct ms_error err = {0};
    char text[MS_RAY_VERSION_MAX];

    (void)state;
    a.rc = ms_error_set(&a.why, -ECONNREFUSED, "Connection refused");
    assert_int_equal(ms_ray_read_version(&a, "http://h:8265", text, &err),
                     -ECONNREFUSED);
    assert_non_null(strstr(err.text, "http://h:8265"));
    assert_non_null(strstr(err.text, "Connection refused"));
}

static void test_addresses(void **state)
{
    static const char *const good[][2] = {
        {"head:8265", "http://head:8265"},
        {"http://head:8265///", "http://head:8265"},
        {"https://ray.example/x/", "https://ray.example/x"},
    };
    static const char *const bad[] = {"", "ray://head:10001", "http://", "a b:1", "/x"};
    struct ms_error err = {0};

    (void)state;
    for (size_t i = 0; i < MS_COUNT(good); i++) {
        MS_CLEANUP(ms_cleanup_free) char *url = ms_ray_base_url(good[i][0], &err);

        assert_string_equal(url, good[i][1]);
    }
    for (size_t i = 0; i < MS_COUNT(bad); i++) {
        err = (struct ms_error){0};
        assert_null(ms_ray_base_url(bad[i], &err));
        assert_int_equal(err.code, -EINVAL);
    }
}

static void test_jobs(void **state)
{
    struct ms_fetch_answer a =
        answer(200,
               "application/json",
               "{\"status\":\"FAILED\",\"message\":\"m\",\"driver_exit_code\":3}");
    struct ms_ray_details d;
    struct ms_error err = {0};

    (void)state;
    assert_int_equal(ms_ray_read_job(&a, "h", &d, &err), 0);
    assert_int_equal(d.status, MS_RAY_FAILED);
    assert_int_equal(d.exit_code, 3);
    assert_string_equal(d.message, "m");
    a = answer(200,
               "application/json",
               "{\"status\":\"PENDING\",\"message\":null,\"driver_exit_code\":null}");
    assert_int_equal(ms_ray_read_job(&a, "h", &d, &err), 0);
    assert_int_equal(d.status, MS_RAY_PENDING);
    assert_int_equal(d.exit_code, -1);
    a = answer(404, "text/plain", "Job x does not exist");
    assert_int_equal(ms_ray_read_job(&a, "h", &d, &err), -ENOENT);
    a = answer(
        404, "text/html", "<html>no such page</html>"); /* of a proxy, not of Ray */
    assert_int_equal(ms_ray_read_job(&a, "h", &d, &err), -EPROTO);
    a = answer(500, "text/plain", "Traceback:\n  x\nValueError: no\n");
    assert_int_equal(ms_ray_read_job(&a, "h", &d, &err), -EPROTO);
    assert_non_null(strstr(err.text, "ValueError: no"));
    a = answer(200, "application/json", "{\"status\":\"ODD\"}");
    assert_int_equal(ms_ray_read_job(&a, "h", &d, &err), -EPROTO);
}

static void test_submission(void **state)
{
    static const char *const env[] = {"A=b=c", "Q=\"x\"", NULL};
    MS_CLEANUP(ms_cleanup_free)
    char *text = ms_ray_submission("id", "run", "p.zip", env);
    json_t *o = json_loads(text, 0, NULL), *re = json_object_get(o, "runtime_env"),
           *vars = json_object_get(re, "env_vars");

    (void)state;
    assert_string_equal(json_string_value(json_object_get(re, "working_dir")),
                        "gcs://p.zip");
    assert_string_equal(json_string_value(json_object_get(vars, "A")), "b=c");
    assert_string_equal(json_string_value(json_object_get(vars, "Q")), "\"x\"");
    assert_string_equal(json_string_value(json_object_get(o, "submission_id")), "id");
    json_decref(o);
}

static void test_last_lines(void **state)
{
    struct ms_error err = {0};
    char log[5000];

    (void)state;
    memset(log, 'x', sizeof log);
    for (size_t i = 49; i < sizeof log; i += 50)
        log[i] = '\n';
    memcpy(log + sizeof log - 50, "the very end", 12);
    ms_error_set(&err, -ECHILD, "it failed");
    ms_ray_add_log(&err, log, sizeof log);
    assert_non_null(strstr(err.text, "it failed. Its log ends: x"));
    assert_non_null(strstr(err.text, "|the very end"));
    assert_null(strchr(err.text, '\n'));
    ms_error_set(&err, -ECHILD, "it failed");
    ms_ray_add_log(&err, "\n \n", 3);
    assert_string_equal(err.text, "it failed");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_what_is_not_ray),
        cmocka_unit_test(test_tokens),
        cmocka_unit_test(test_nobody_answers),
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_jobs),
        cmocka_unit_test(test_submission),
        cmocka_unit_test(test_last_lines),
    };

    return cmocka_run_group_tests_name("rest", tests, NULL, NULL);
}
