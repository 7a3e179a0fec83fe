/* find_test.c - tests of find.h: which head a driver means, and the file with its
 * secret */
#include "session/find.h"

#include "head/head.h"
#include "io/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char home[] = "/tmp/muster-find-XXXXXX";
static struct ms_found_head found;
static struct ms_error err;

static int set_up(void **state)
{
    (void)state;
    unsetenv("MUSTER_ADDRESS");
    unsetenv("MUSTER_SECRET_FILE");
    return mkdtemp(home) ? setenv("MUSTER_HOME", home, 1) : -1;
}

static int tear_down(void **state)
{
    (void)state;
    return ms_tree_remove(AT_FDCWD, home);
}

static struct ms_head *serve(const char *name)
{
    static const char *const listen[] = {"127.0.0.1:0", NULL};
    struct ms_head *h = ms_head_serve(
        &(struct ms_head_serve_options){.name = name, .listen = listen}, &err);

    if (!h)
        fail_msg("%s", err.text);
    return h;
}

static void expect(const char *address, const char *secret_file)
{
    if (!address) {
        assert_null(found.address);
        assert_null(found.secret_file);
        return;
    }
    assert_string_equal(found.address, address);
    assert_string_equal(found.secret_file, secret_file);
    ms_found_head_finish(&found);
}

static void test_what_is_said(void **state)
{
    (void)state;
    assert_int_equal(ms_find_head(NULL, NULL, &found, &err), 0);
    expect(NULL, NULL);
    assert_int_equal(ms_find_head("h:1", "/s", &found, &err), 0);
    expect("h:1", "/s");
    setenv("MUSTER_ADDRESS", "e:2", 1);
    setenv("MUSTER_SECRET_FILE", "/e", 1);
    assert_int_equal(ms_find_head(NULL, NULL, &found, &err), 0);
    expect("e:2", "/e");
    assert_int_equal(ms_find_head("local", "/s", &found, &err), 0);
    expect(NULL, NULL);
    unsetenv("MUSTER_ADDRESS");
    unsetenv("MUSTER_SECRET_FILE");
}

static void test_the_one_that_runs_here(void **state)
{
    char address[128], secret[128];
    struct ms_head *one, *two;

    (void)state;
    assert_int_equal(ms_find_head("auto", NULL, &found, &err), -ENOENT);
    assert_non_null(strstr(err.text, "no head runs here"));
    one = serve("one");
    snprintf(address, sizeof address, "%s/one/head.sock", home);
    snprintf(secret, sizeof secret, "%s/one/secret", home);
    assert_int_equal(ms_find_head("auto", NULL, &found, &err), 0);
    expect(address, secret);
    assert_int_equal(ms_find_head("auto", "/other", &found, &err), 0);
    expect(address, "/other");
    assert_int_equal(ms_find_head("h:1", NULL, &found, &err), 0);
    expect("h:1", secret);
    two = serve("two");
    assert_int_equal(ms_find_head("auto", NULL, &found, &err), -ENOTUNIQ);
    assert_non_null(strstr(err.text, "one"));
    assert_non_null(strstr(err.text, "two"));
    assert_int_equal(ms_find_head("h:1", NULL, &found, &err), -ENOTUNIQ);
    assert_non_null(strstr(err.text, "where is its secret?"));
    ms_head_stop(one, 0);
    ms_head_stop(two, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_said),
        cmocka_unit_test(test_the_one_that_runs_here),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
