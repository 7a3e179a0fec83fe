/* proc_test.c - tests of proc.h: this process and those around it, by the kernel's
 * word */
#include "base/cleanup.h"
#include "io/proc.h"
#include "io/sock.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <cmocka.h>

/* A child that executes cat with this environment; it ends when *fd is closed. */
static pid_t start_cat(char *const env[], int *fd)
{
    char *argv[] = {(char[]){"cat"}, NULL};
    int pair[2];
    char byte = 'x';
    pid_t pid;

    assert_int_equal(ms_unix_pair(SOCK_STREAM, pair), 0);
    fcntl(pair[0], F_SETFL, 0);
    fcntl(pair[1], F_SETFL, 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        setpgid(0, 0);
        dup2(pair[1], 0);
        dup2(pair[1], 1);
        execve("/bin/cat", argv, env);
        _exit(127);
    }
    close(pair[1]);
    /* its echo says that it runs */
    assert_int_equal(write(pair[0], &byte, 1), 1);
    assert_int_equal(read(pair[0], &byte, 1), 1);
    *fd = pair[0];
    return pid;
}

static bool has(const pid_t *pids, int count, pid_t pid)
{
    for (int i = 0; i < count; i++)
        if (pids[i] == pid)
            return true;
    return false;
}

static void test_children_are_listed(void **state)
{
    char *env[] = {NULL};
    int fd_a, fd_b;
    pid_t a = start_cat(env, &fd_a), b = start_cat(env, &fd_b);
    MS_CLEANUP(ms_cleanup_free) pid_t *pids = NULL;
    int count = ms_proc_children(&pids);

    (void)state;
    assert_int_equal(count, 2);
    assert_true(has(pids, count, a) && has(pids, count, b));
    assert_int_equal(ms_proc_group_kill(a, SIGKILL), 0);
    close(fd_a);
    close(fd_b);
    assert_int_equal(waitpid(a, NULL, 0), a);
    assert_int_equal(waitpid(b, NULL, 0), b);
    assert_int_equal(ms_proc_group_kill(a, SIGKILL), -ESRCH);
}

static void test_no_children(void **state)
{
    pid_t *pids = (pid_t *)8;

    (void)state;
    assert_int_equal(ms_proc_children(&pids), 0);
    assert_null(pids);
}

static void test_environment_of_another(void **state)
{
    char a[] = "XMUSTER_UID=no", b[] = "MUSTER_UID=00ff",
         c[] = "EMPTY=", d[] = "MUSTER_U=1";
    char *env[] = {a, d, b, c, NULL};
    char out[8] = "";
    siginfo_t info;
    int fd;
    pid_t pid = start_cat(env, &fd);

    (void)state;
    assert_int_equal(ms_proc_env(pid, "MUSTER_UID", out, sizeof out), 0);
    assert_string_equal(out, "00ff");
    assert_int_equal(ms_proc_env(pid, "EMPTY", out, sizeof out), 0);
    assert_string_equal(out, "");
    assert_int_equal(ms_proc_env(pid, "MUSTER", out, sizeof out), -ENOENT);
    assert_int_equal(ms_proc_env(pid, "MUSTER_UID", out, 4), -ENAMETOOLONG);
    assert_false(ms_proc_is_ending(pid));
    close(fd);
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT), 0);
    assert_true(ms_proc_is_ending(pid)); /* dead, not reaped */
    waitpid(pid, NULL, 0);
    assert_true(ms_proc_is_ending(pid));
    assert_int_equal(ms_proc_env(pid, "MUSTER_UID", out, sizeof out), -ENOENT);
}

/* Whoever waits for an exec goes on before the new environment is there. */
static void test_environment_within_an_exec(void **state)
{
    enum { TIMES = 200 };
    char uid[] = "MUSTER_UID=00ff", name[] = "cat", out[8];
    char *env[] = {uid, NULL}, *none[] = {NULL}, *argv[] = {name, NULL};

    (void)state;
    for (int i = 0; i < TIMES; i++) {
        char *const *given = i % 2 ? none : env;
        posix_spawn_file_actions_t actions;
        int rc, fds[2];
        pid_t pid;

        assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_adddup2(&actions, fds[0], 0);
        assert_int_equal(posix_spawn(&pid, "/bin/cat", &actions, NULL, argv, given), 0);
        posix_spawn_file_actions_destroy(&actions);
        while ((rc = ms_proc_env(pid, "MUSTER_UID", out, sizeof out)) == -EAGAIN)
            sched_yield(); /* it gives no sign when it is through */
        assert_int_equal(rc, given == none ? -ENOENT : 0);
        close(fds[0]);
        close(fds[1]);
        assert_int_equal(waitpid(pid, NULL, 0), pid);
    }
}

static void test_dangerous_groups_are_refused(void **state)
{
    (void)state;
    assert_int_equal(ms_proc_group_kill(0, 0), -EINVAL);
    assert_int_equal(ms_proc_group_kill(1, 0), -EINVAL);
    assert_int_equal(ms_proc_group_kill(-1, 0), -EINVAL);
    assert_int_equal(ms_proc_group_kill(getpgrp(), 0), -EINVAL);
}

static int close_others_and_count(void)
{
    int keep[] = {9, 5};

    for (int fd = 3; fd < 40; fd++)
        dup2(2, fd);
    ms_proc_close_others(keep, MS_COUNT(keep));
    for (int fd = 3; fd < 60; fd++)
        if ((fcntl(fd, F_GETFD) >= 0) != (fd == 5 || fd == 9))
            return fd;
    return 0;
}

static void test_close_others(void **state)
{
    pid_t pid = fork();
    int status;

    (void)state;
    if (pid == 0)
        _exit(close_others_and_count());
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

static void test_cloexec(void **state)
{
    int fd = dup(2);

    (void)state;
    assert_int_equal(ms_fd_set_cloexec(fd, true), 0);
    assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
    assert_int_equal(ms_fd_set_cloexec(fd, false), 0);
    assert_int_equal(fcntl(fd, F_GETFD), 0);
    close(fd);
    assert_int_equal(ms_fd_set_cloexec(fd, true), -EBADF);
}

static void test_nofile(void **state)
{
    struct rlimit original, now;

    (void)state;
    assert_int_equal(ms_nofile_raise(&original), 0);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &now), 0);
    assert_int_equal(now.rlim_cur, now.rlim_max);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &original), 0);
}

static void test_name_and_threads(void **state)
{
    char name[16];

    (void)state;
    ms_proc_set_name("a-name-that-is-too-long");
    assert_int_equal(prctl(PR_GET_NAME, name), 0);
    assert_string_equal(name, "a-name-that-is-");
    assert_int_equal(ms_proc_threads(), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_children),
        cmocka_unit_test(test_children_are_listed),
        cmocka_unit_test(test_environment_of_another),
        cmocka_unit_test(test_environment_within_an_exec),
        cmocka_unit_test(test_dangerous_groups_are_refused),
        cmocka_unit_test(test_close_others),
        cmocka_unit_test(test_cloexec),
        cmocka_unit_test(test_nofile),
        cmocka_unit_test(test_name_and_threads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
