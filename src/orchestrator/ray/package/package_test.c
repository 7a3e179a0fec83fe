#include "orchestrator/ray/package/package.h"

#include "base/cleanup.h"
#include "io/tree.h"
#include "orchestrator/ray/job/python.h"
#include "orchestrator/ray/job/token.h"
#include "orchestrator/ray/package/libraries.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

static char dir[64], self[PATH_MAX];

static void put(const char *name, const char *text)
{
    char path[PATH_MAX];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static void make_dir(const char *name)
{
    char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(mkdir(path, 0700), 0);
}

static int setup(void **state)
{
    ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);

    (void)state;
    snprintf(dir, sizeof dir, "/tmp/muster-package-XXXXXX");
    assert_non_null(mkdtemp(dir));
    self[len] = 0;
    make_dir("muster");
    make_dir("cloudpickle");
    put("cloudpickle/__init__.py", "x");
    make_dir("muster/__pycache__");
    put("muster/ray_bridge.py", "x");
    put("muster/__pycache__/y.pyc", "y");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return ms_tree_remove(AT_FDCWD, dir);
}

static bool has(const struct ms_package *p, const char *name)
{
    return memmem(p->data, p->len, name, strlen(name)) != NULL;
}

static int make(struct ms_package *p, const char *const *files, struct ms_error *err)
{
    char python_dir[PATH_MAX], cache[PATH_MAX];

    snprintf(python_dir, sizeof python_dir, "%s/muster", dir);
    snprintf(cache, sizeof cache, "%s/cache", dir);
    return ms_package_make(p,
                           &(struct ms_ray_site){.muster = self,
                                                 .python_dir = python_dir,
                                                 .cache_dir = cache},
                           files,
                           err);
}

static void test_is_named_by_what_is_in_it(void **state)
{
    struct ms_package first, again, other;
    struct ms_error err = {0};

    (void)state;
    assert_int_equal(make(&first, NULL, &err), 0);
    assert_true(has(&first, "bin/muster"));
    assert_true(has(&first, "muster/ray_bridge.py"));
    assert_true(has(&first, "cloudpickle/__init__.py"));
    assert_true(has(&first, "lib/libcrypto.so"));
    assert_false(has(&first, "lib/libc.so"));
    assert_false(has(&first, "pyc"));
    assert_true(first.len < MS_PACKAGE_MAX);
    assert_int_equal(make(&again, NULL, &err), 0); /* from the cache */
    assert_string_equal(again.name, first.name);
    assert_int_equal(again.len, first.len);
    assert_memory_equal(again.data, first.data, first.len);
    put("muster/ray_bridge.py", "z");
    assert_int_equal(make(&other, NULL, &err), 0);
    assert_string_not_equal(other.name, first.name);
    ms_package_finish(&first);
    ms_package_finish(&again);
    ms_package_finish(&other);
}

static void test_files_of_a_job(void **state)
{
    char path[PATH_MAX];
    const char *files[] = {"train.yaml", path, NULL};
    struct ms_package p;
    struct ms_error err = {0};

    (void)state;
    snprintf(path, sizeof path, "%s/train.yaml", dir);
    assert_int_equal(make(&p, files, &err), -ENOENT);
    assert_non_null(strstr(err.text, path));
    put("train.yaml", "name: x");
    assert_int_equal(make(&p, files, &err), 0);
    assert_true(has(&p, "job/train.yaml"));
    ms_package_finish(&p);
}

static void test_lines_of_the_loader(void **state)
{
    struct ms_libraries n = {0};
    struct ms_error err = {0};

    (void)state;
    assert_int_equal(ms_libraries_parse(&n, "\tlinux-vdso.so.1 (0x7ff)", &err), 0);
    assert_int_equal(
        ms_libraries_parse(&n, "\tlibx.so.1 => /l/libx.so.1 (0x7ff)", &err), 1);
    assert_int_equal(
        ms_libraries_parse(&n, "\tlibx.so.1 => /l/libx.so.1 (0x7ff)", &err), 0);
    assert_int_equal(
        ms_libraries_parse(&n, "\tlibc.so.6 => /l/libc.so.6 (0x7ff)", &err), 0);
    assert_int_equal(
        ms_libraries_parse(&n, "\t/lib64/ld-linux-x86-64.so.2 (0x7ff)", &err), 0);
    assert_int_equal(ms_libraries_parse(&n, "\tlibgone.so => not found", &err),
                     -ENOENT);
    assert_non_null(strstr(err.text, "libgone.so"));
    assert_int_equal(n.count, 1);
    assert_string_equal(n.at[0].name, "libx.so.1");
    assert_string_equal(n.at[0].path, "/l/libx.so.1");
    ms_libraries_finish(&n);
}

static void test_python_of_a_raylet(void **state)
{
    static const char words[] =
        "raylet\0--x=1\0--python_worker_command=/v/bin/python /v/setup.py a\0--y";
    static const char odd[] = "raylet\0--python_worker_command=python x\0";
    char out[PATH_MAX];

    (void)state;
    assert_int_equal(ms_ray_python_of(words, sizeof words, out), 0);
    assert_string_equal(out, "/v/bin/python");
    assert_int_equal(ms_ray_python_of(odd, sizeof odd, out), -ENOENT);
    assert_int_equal(ms_ray_python_of("a\0b", 3, out), -ENOENT);
}

static void test_tokens(void **state)
{
    char path[PATH_MAX];
    struct ms_error err = {0};
    char *token = NULL;

    (void)state;
    setenv("HOME", dir, 1);
    unsetenv("RAY_AUTH_TOKEN");
    unsetenv("RAY_AUTH_TOKEN_PATH");
    assert_int_equal(ms_ray_find_token(&token, &err), -ENOENT);
    make_dir(".ray");
    put(".ray/auth_token", " abc\n");
    assert_int_equal(ms_ray_find_token(&token, &err), 0);
    assert_string_equal(token, "abc");
    free(MS_TAKE(token));
    snprintf(path, sizeof path, "%s/none", dir);
    setenv("RAY_AUTH_TOKEN_PATH", path, 1);
    assert_true(ms_ray_find_token(&token, &err) < 0);
    setenv("RAY_AUTH_TOKEN", "x\r\nEvil: header", 1);
    assert_int_equal(ms_ray_find_token(&token, &err), -EINVAL);
    assert_null(strstr(err.text, "Evil"));
    setenv("RAY_AUTH_TOKEN", "def", 1);
    assert_int_equal(ms_ray_find_token(&token, &err), 0);
    assert_string_equal(token, "def");
    free(token);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_is_named_by_what_is_in_it),
        TEST(test_files_of_a_job),
        TEST(test_lines_of_the_loader),
        TEST(test_python_of_a_raylet),
        TEST(test_tokens),
    };

    return cmocka_run_group_tests_name("package", tests, NULL, NULL);
}
