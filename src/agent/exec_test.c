/* exec_test.c - tests of exec.h: fork and execute a child with exactly what it is
 * to have */
#include "agent/exec.h"
#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

static char sh[] = "sh", dash_c[] = "-c", path[] = "PATH=/usr/bin:/bin",
            name[] = "NAME=x";
static char *env[] = {path, name, NULL};

/* Run a shell command line with its stdout in `out`; what waitpid says. */
static int run(struct ms_exec l, const char *script, char *out, size_t room)
{
    char *argv[] = {sh, dash_c, (char *)(uintptr_t)script, NULL};
    struct ms_error err = {0};
    int fds[2], problem, status;
    size_t len = 0;
    ssize_t n;
    pid_t pid;

    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    l.argv = argv;
    l.env = env;
    l.fds[0] = -1;
    l.fds[1] = fds[1];
    l.fds[2] = fds[1];
    pid = ms_exec_start(&l, &problem, &err);
    assert_true(pid > 0);
    close(fds[1]);
    while ((n = read(fds[0], out + len, room - 1 - len)) > 0)
        len += (size_t)n;
    out[len] = 0;
    close(fds[0]);
    assert_int_equal(ms_exec_result(problem, &err), 0);
    close(problem);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status;
}

static const struct ms_exec plain = {.fds = {-1, -1, -1, -1, -1, -1}, .cgroup_fd = -1};

static void test_environment_folder_and_exit_code(void **state)
{
    struct ms_exec l = plain;
    char out[256];
    int status;

    (void)state;
    l.working_dir = "/usr";
    status = run(l, "pwd; echo $NAME; exit 7", out, sizeof out);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 7);
    assert_string_equal(out, "/usr\nx\n");
}

static void test_own_group_or_session(void **state)
{
    /* fields of stat behind the name: state, parent, group, session */
    const char *script = "read -r line </proc/$$/stat; set -- ${line##*)}; "
                         "[ $3 = $$ ] && echo group; [ $4 = $$ ] && echo session";
    struct ms_exec l = plain;
    char out[256];

    (void)state;
    run(l, script, out, sizeof out);
    assert_string_equal(out, "group\n");
    l.new_session = true;
    run(l, script, out, sizeof out);
    assert_string_equal(out, "group\nsession\n");
}

static void test_signals_are_as_new(void **state)
{
    struct ms_exec l = plain;
    sigset_t mask, before;
    char out[256];
    int status;

    (void)state;
    sigemptyset(&mask);
    sigaddset(&mask, SIGTERM);
    sigprocmask(SIG_BLOCK, &mask, &before);
    signal(SIGTERM, SIG_IGN);
    status = run(l, "kill -TERM $$; echo still here", out, sizeof out);
    signal(SIGTERM, SIG_DFL);
    sigprocmask(SIG_SETMASK, &before, NULL);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(WTERMSIG(status), SIGTERM);
    assert_string_equal(out, "");
}

static void test_descriptors_are_those_asked_for(void **state)
{
    struct ms_exec l = plain;
    char out[256];
    int fds[2];

    (void)state;
    assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
    l.fds[3] = fds[1];
    run(l,
        "for i in 0 1 2 3 4 5 6 7; do [ -e /proc/$$/fd/$i ] && echo $i; done; echo x "
        ">&3",
        out,
        sizeof out);
    assert_string_equal(out, "0\n1\n2\n3\n");
    assert_int_equal(read(fds[0], out, sizeof out), 2);
    close(fds[0]);
    close(fds[1]);
}

static void test_limit_of_descriptors(void **state)
{
    struct rlimit limit;
    struct ms_exec l = plain;
    char out[64];

    (void)state;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = 77;
    l.nofile = &limit;
    run(l, "ulimit -n", out, sizeof out);
    assert_string_equal(out, "77\n");
}

static void run_to_failure(struct ms_exec *l, struct ms_error *err)
{
    int problem, status, rc;
    pid_t pid = ms_exec_start(l, &problem, err);
    struct pollfd p = {.fd = problem, .events = POLLIN};

    assert_true(pid > 0);
    assert_int_equal(poll(&p, 1, 5000), 1);
    rc = ms_exec_result(problem, err);
    assert_true(rc < 0 && rc != -EAGAIN);
    assert_int_equal(rc, err->code);
    close(problem);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(WEXITSTATUS(status), 127);
}

static void test_failures_say_what_and_why(void **state)
{
    char missing[] = "/no/such/program", folder[] = "/tmp";
    char *argv[] = {missing, NULL};
    struct ms_exec l = plain;
    struct ms_error err = {0};

    (void)state;
    l.argv = argv;
    l.env = env;
    run_to_failure(&l, &err);
    assert_int_equal(err.code, -ENOENT);
    assert_string_equal(err.text,
                        "cannot execute '/no/such/program': No such file or directory");
    argv[0] = folder;
    run_to_failure(&l, &err);
    assert_int_equal(err.code, -EACCES);
    argv[0] = sh;
    l.working_dir = "/no/such/folder";
    run_to_failure(&l, &err);
    assert_string_equal(
        err.text,
        "cannot enter the working folder '/no/such/folder': No such file or directory");
    l.working_dir = NULL;
    l.cgroup_fd = open("/dev/full", O_WRONLY | O_CLOEXEC);
    run_to_failure(&l, &err);
    close(l.cgroup_fd);
    assert_int_equal(err.code, -ENOSPC);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_environment_folder_and_exit_code),
        cmocka_unit_test(test_own_group_or_session),
        cmocka_unit_test(test_signals_are_as_new),
        cmocka_unit_test(test_descriptors_are_those_asked_for),
        cmocka_unit_test(test_limit_of_descriptors),
        cmocka_unit_test(test_failures_say_what_and_why),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
