/* cgpath_test.c - tests of cgpath.h: where a process's control groups are, from
 * what /proc says */
#include "io/cgpath.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const char v1_cgroup[] =
    "9:name=systemd:/\n4:memory:/jobs/a\n2:cpu,cpuacct:/c\n0::/u\n";
static const char v1_mounts[] =
    "25 1 0:22 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n"
    "26 25 0:23 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid - cgroup cgroup rw,cpu,cpuacct\n"
    "27 25 0:24 / /sys/fs/cgroup/memory rw shared:5 - cgroup cgroup rw,memory\n"
    "28 25 0:25 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

static const char v2_cgroup[] = "0::/user.slice/app.scope\n";
static const char v2_mounts[] =
    "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate";

static int
find(const char *cgroup, const char *mounts, const char *what, char *out, bool *v2)
{
    return ms_cgpath_find(cgroup, mounts, what, out, 64, v2);
}

static void test_version_1_and_hybrid(void **state)
{
    char out[64];
    bool is_v2;

    (void)state;
    assert_int_equal(find(v1_cgroup, v1_mounts, "memory", out, &is_v2), 0);
    assert_string_equal(out, "/sys/fs/cgroup/memory/jobs/a");
    assert_false(is_v2);
    assert_int_equal(find(v1_cgroup, v1_mounts, "cpu", out, &is_v2), 0);
    assert_string_equal(out, "/sys/fs/cgroup/cpu,cpuacct/c");
    /* a controller that version 1 does not have */
    assert_int_equal(find(v1_cgroup, v1_mounts, "hugetlb", out, &is_v2), 0);
    assert_string_equal(out, "/sys/fs/cgroup/unified/u");
    assert_true(is_v2);
}

static void test_version_2(void **state)
{
    char out[64];
    bool is_v2;

    (void)state;
    assert_int_equal(find(v2_cgroup, v2_mounts, "memory", out, &is_v2), 0);
    assert_string_equal(out, "/sys/fs/cgroup/user.slice/app.scope");
    assert_true(is_v2);
    assert_int_equal(find("0::/\n", v2_mounts, "memory", out, &is_v2), 0);
    assert_string_equal(out, "/sys/fs/cgroup");
}

static void test_container_sees_a_part(void **state)
{
    const char *mounts =
        "27 25 0:24 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup "
        "rw,memory\n";
    char out[64];
    bool is_v2;

    (void)state;
    assert_int_equal(find("4:memory:/docker/abc\n", mounts, "memory", out, &is_v2), 0);
    assert_string_equal(out, "/sys/fs/cgroup/memory");
    assert_int_equal(find("4:memory:/docker/abc/x\n", mounts, "memory", out, &is_v2),
                     0);
    assert_string_equal(out, "/sys/fs/cgroup/memory/x");
}

static void test_nothing_or_nonsense(void **state)
{
    char out[64];
    bool is_v2;

    (void)state;
    assert_int_equal(find("", "", "memory", out, &is_v2), -ENOENT);
    assert_int_equal(find("::::\n\n:", "- - -\n - \n", "memory", out, &is_v2), -ENOENT);
    assert_int_equal(find(v1_cgroup, "", "memory", out, &is_v2), -ENOENT);
    assert_int_equal(ms_cgpath_find(v2_cgroup, v2_mounts, "memory", out, 8, &is_v2),
                     -ENAMETOOLONG);
}

static void test_numbers(void **state)
{
    const char *text = "low 0\noom 3\noom_kill 2\n";

    (void)state;
    assert_int_equal(ms_cgpath_number(text, "oom_kill"), 2);
    assert_int_equal(ms_cgpath_number(text, "oom"), 3);
    assert_int_equal(ms_cgpath_number(text, "kill"), -1);
    assert_int_equal(ms_cgpath_number("", "oom"), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_version_1_and_hybrid),
        cmocka_unit_test(test_version_2),
        cmocka_unit_test(test_container_sees_a_part),
        cmocka_unit_test(test_nothing_or_nonsense),
        cmocka_unit_test(test_numbers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
