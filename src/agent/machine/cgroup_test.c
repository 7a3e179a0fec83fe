/* cgroup_test.c - tests of cgroup.h: a memory limit for a worker, by a control
 * group of its own */
#include "agent/machine/cgroup.h"
#include "base/cleanup.h"
#include "base/name.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

/* A machine where we may make none shows it, and has nothing to test. */
#define NEED_CGROUPS(g)                                                                \
    do {                                                                               \
        ms_cgroups_init(&(g), "test-session");                                         \
        if (!(g).base[0]) {                                                            \
            print_message("# no control groups here: %s\n", (g).why_not);              \
            skip();                                                                    \
        }                                                                              \
    } while (0)

/* A child that enters the group and then does what it is told. It is in when this
 * returns. */
static pid_t enter(const struct ms_cgroup *c, void (*body)(void))
{
    int fd = ms_cgdir_open_procs(c->dir), fds[2];
    pid_t pid;
    char byte;

    assert_true(fd >= 0);
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        if (write(fd, "0", 1) != 1)
            _exit(99);
        close(fds[0]);
        close(fds[1]);
        body();
        _exit(0);
    }
    close(fd);
    close(fds[1]);
    assert_int_equal(read(fds[0], &byte, 1), 0);
    close(fds[0]);
    return pid;
}

static void use_too_much(void)
{
    size_t size = (size_t)256 << 20;
    char *at =
        mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    memset(at, 1, size);
}

static void wait_for_ever(void)
{
    pause();
}

static void test_limit_kills_and_is_told(void **state)
{
    struct ms_cgroups g;
    struct ms_cgroup c = {0};
    struct ms_error err = {0};
    int status;
    pid_t pid;

    (void)state;
    NEED_CGROUPS(g);
    assert_int_equal(ms_cgroup_create(&c, &g, ms_random_id(), 32 << 20, &err), 0);
    assert_int_equal(ms_cgroup_kill_count(&c), 0);
    pid = enter(&c, use_too_much);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGKILL);
    assert_int_equal(ms_cgroup_kill_count(&c), 1);
    assert_int_equal(ms_cgroup_remove(&c), 0);
    assert_int_equal(ms_cgroup_remove(&c), 0);
    assert_false(ms_cgroups_killed_here(&g));
}

static void test_kill_and_remove(void **state)
{
    struct ms_cgroups g;
    struct ms_cgroup c = {0};
    uint64_t uid = ms_random_id();
    pid_t pid;

    (void)state;
    NEED_CGROUPS(g);
    assert_int_equal(ms_cgroup_create(&c, &g, uid, 64 << 20, NULL), 0);
    assert_int_equal(ms_cgroup_create(&c, &g, uid, 64 << 20, NULL), -EEXIST);
    pid = enter(&c, wait_for_ever);
    assert_int_equal(ms_cgroup_remove(&c), -EBUSY);
    ms_cgroup_kill(&c);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(ms_cgroup_remove(&c), 0);
}

static int is_alive(const char *session)
{
    return !strncmp(session, "dead-", 5) ? 0 : !strncmp(session, "alive-", 6) ? 1 : -1;
}

static bool make_group(const struct ms_cgroups *g, const char *session, char *out)
{
    int n = snprintf(out,
                     MS_CGROUP_PATH_MAX,
                     "%s/muster-%s-%d-00000000deadbeef",
                     g->base,
                     session,
                     (int)getpid());

    return n < MS_CGROUP_PATH_MAX && mkdir(out, 0755) == 0;
}

static void test_sweep(void **state)
{
    struct ms_cgroups g;
    char dead[MS_CGROUP_PATH_MAX], alive[MS_CGROUP_PATH_MAX],
        unknown[MS_CGROUP_PATH_MAX];

    (void)state;
    NEED_CGROUPS(g);
    assert_true(make_group(&g, "dead", dead));
    assert_true(make_group(&g, "alive", alive));
    assert_true(make_group(&g, "of-somebody", unknown));
    ms_cgroups_sweep(&g, is_alive);
    assert_int_equal(access(dead, F_OK), -1);
    assert_int_equal(rmdir(alive), 0);
    assert_int_equal(rmdir(unknown), 0); /* new: it was left alone */
}

static void test_no_groups_here(void **state)
{
    struct ms_cgroups g = {.why_not = "nothing is mounted"};
    struct ms_cgroup c = {0};
    struct ms_error err = {0};

    (void)state;
    assert_int_equal(ms_cgroup_create(&c, &g, 1, 1 << 20, &err), -EOPNOTSUPP);
    assert_string_equal(err.text,
                        "memory limits cannot be had here: nothing is mounted");
    assert_int_equal(ms_cgroup_kill_count(&c), 0);
    ms_cgroup_kill(&c);
    assert_int_equal(ms_cgroup_remove(&c), 0);
    ms_cgroups_sweep(&g, is_alive);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limit_kills_and_is_told),
        cmocka_unit_test(test_kill_and_remove),
        cmocka_unit_test(test_sweep),
        cmocka_unit_test(test_no_groups_here),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
