/* spawn_test.c - tests of spawn.h: start a process from a program with many
 * threads, and know truly how it ended */
#include "base/cleanup.h"
#include "base/clock.h"
#include "io/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

static const char *const no_env[] = {"LC_ALL=C", "GREETING=hello", NULL};

/* Start /bin/sh -c `script` with its output in a pipe and the given mappings. */
static struct ms_process start(const char *script,
                               const struct ms_spawn_fd *more,
                               size_t more_count,
                               bool new_session,
                               int *out)
{
    const char *const argv[] = {"sh", "-c", script, NULL};
    struct ms_spawn_fd fds[4];
    struct ms_process p = {.pidfd = -1};
    struct ms_error err = {0};
    int ends[2];

    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    fds[0] = (struct ms_spawn_fd){ends[1], 1};
    for (size_t i = 0; i < more_count; i++)
        fds[i + 1] = more[i];
    if (ms_spawn(
            &(struct ms_spawn){
                .path = "/bin/sh",
                .argv = argv,
                .env = no_env,
                .working_dir = "/usr",
                .fds = fds,
                .fd_count = more_count + 1,
                .new_session = new_session,
            },
            &p,
            &err) < 0)
        fail_msg("%s", err.text);
    close(ends[1]);
    *out = ends[0];
    return p;
}

/* All it says, and that it ended well. */
static void finish(struct ms_process *p, int out, char *text, size_t room)
{
    struct ms_process_end end;
    size_t len = 0;
    ssize_t n;

    while ((n = read(out, text + len, room - 1 - len)) > 0)
        len += (size_t)n;
    text[len] = 0;
    close(out);
    assert_int_equal(ms_process_wait(p->pidfd, MS_NEVER, &end), 0);
    assert_true(end.known && !end.signaled);
    assert_int_equal(end.code, 0);
    ms_fd_close(&p->pidfd);
}

static void test_child_has_only_what_was_given(void **state)
{
    MS_CLEANUP(ms_cleanup_fd) int leak = open("/dev/null", O_RDONLY); /* not cloexec */
    MS_CLEANUP(ms_cleanup_fd) int high = fcntl(leak, F_DUPFD, 300);
    const struct ms_spawn_fd more[] = {{leak, 5}};
    struct ms_process p;
    char text[256];
    int out;

    (void)state;
    assert_true(high >= 300);
    p = start("ls /proc/$$/fd; pwd; echo $GREETING$HOME", more, 1, false, &out);
    finish(&p, out, text, sizeof text);
    assert_string_equal(text, "0\n1\n2\n5\n/usr\nhello\n");
}

static void test_mappings_may_cross(void **state)
{
    int a[2], b[2], out;
    struct ms_process p;
    char script[64], text[64];

    (void)state;
    assert_int_equal(pipe2(a, O_CLOEXEC), 0);
    assert_int_equal(pipe2(b, O_CLOEXEC), 0);
    assert_true(a[0] < 10 && b[0] < 10); /* what sh can name */
    assert_int_equal(write(a[1], "A\n", 2), 2);
    assert_int_equal(write(b[1], "B\n", 2), 2);
    snprintf(script, sizeof script, "read x <&%d; read y <&%d; echo $x$y", a[0], b[0]);
    p = start(
        script, (struct ms_spawn_fd[]){{a[0], b[0]}, {b[0], a[0]}}, 2, false, &out);
    finish(&p, out, text, sizeof text);
    assert_string_equal(text, "BA\n");
    for (int i = 0; i < 2; i++) {
        close(a[i]);
        close(b[i]);
    }
}

static void test_own_session(void **state)
{
    struct ms_process p;
    char text[64];
    int out;

    (void)state;
    p = start("read a b c d pgrp sid rest </proc/$$/stat; echo $$ $pgrp $sid",
              NULL,
              0,
              true,
              &out);
    finish(&p, out, text, sizeof text);
    assert_int_equal(atoi(text), p.pid);
    assert_int_equal(atoi(strchr(text, ' ')), p.pid);
    assert_int_equal(atoi(strrchr(text, ' ')), p.pid);
}

static void test_signals_are_at_their_defaults(void **state)
{
    struct ms_process p;
    struct ms_process_end end;
    sigset_t all, before;
    char text[64];
    int out;

    (void)state;
    sigfillset(&all);
    signal(SIGPIPE, SIG_IGN);
    assert_int_equal(pthread_sigmask(SIG_BLOCK, &all, &before), 0);
    p = start("echo up; exec sleep 60", NULL, 0, false, &out);
    assert_int_equal(pthread_sigmask(SIG_SETMASK, &before, NULL), 0);
    signal(SIGPIPE, SIG_DFL);
    assert_int_equal(read(out, text, sizeof text), 3);
    assert_int_equal(ms_process_signal(p.pidfd, SIGPIPE), 0);
    assert_int_equal(ms_process_wait(p.pidfd, MS_NEVER, &end), 0);
    assert_true(end.known && end.signaled);
    assert_int_equal(end.code, SIGPIPE);
    assert_string_equal(ms_process_end_print(&end, text, sizeof text),
                        "was killed by signal 13 (Broken pipe)");
    close(out);
    close(p.pidfd);
}

static void test_exec_failure_names_the_path(void **state)
{
    const char *const argv[] = {"x", NULL};
    struct ms_process p = {.pid = 77, .pidfd = 78};
    struct ms_error err = {0};

    (void)state;
    assert_int_equal(
        ms_spawn(
            &(struct ms_spawn){.path = "/nowhere/muster", .argv = argv, .env = no_env},
            &p,
            &err),
        -ENOENT);
    assert_non_null(strstr(err.text, "/nowhere/muster"));
    assert_int_equal(
        ms_spawn(&(struct ms_spawn){.path = "/etc/passwd", .argv = argv, .env = no_env},
                 &p,
                 &err),
        -EACCES);
    assert_int_equal(ms_spawn(&(struct ms_spawn){.path = "/bin/true",
                                                 .argv = argv,
                                                 .env = no_env,
                                                 .working_dir = "/nowhere"},
                              &p,
                              &err),
                     -ENOENT);
    assert_int_equal(p.pid, 77);
    assert_int_equal(p.pidfd, 78);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* no child was left */
}

static void test_bad_mappings_are_refused(void **state)
{
    const char *const argv[] = {"x", NULL};
    const struct ms_spawn_fd high = {0, MS_SPAWN_FDS_MAX}, closed = {999, 3};
    struct ms_spawn s = {
        .path = "/bin/true", .argv = argv, .env = no_env, .fd_count = 1};
    struct ms_process p;

    (void)state;
    s.fds = &high;
    assert_int_equal(ms_spawn(&s, &p, NULL), -EINVAL);
    s.fds = &closed;
    assert_int_equal(ms_spawn(&s, &p, NULL), -EBADF);
}

static void test_the_end_of_a_process(void **state)
{
    struct ms_process p;
    struct ms_process_end end;
    char text[64];
    int out;

    (void)state;
    p = start("exec sleep 60", NULL, 0, false, &out);
    assert_int_equal(ms_process_reap(p.pidfd, &end), -EAGAIN);
    assert_int_equal(ms_process_wait(p.pidfd, ms_now_ns() + MS_NS_PER_MS, &end),
                     -ETIMEDOUT);
    assert_int_equal(ms_process_signal(p.pidfd, SIGKILL), 0);
    assert_int_equal(ms_process_wait(p.pidfd, MS_NEVER, &end), 0);
    assert_int_equal(end.code, SIGKILL);
    assert_int_equal(ms_process_reap(p.pidfd, &end), -ECHILD);
    assert_false(end.known);
    assert_string_equal(ms_process_end_print(&end, text, sizeof text), "ended");
    assert_int_equal(ms_process_signal(p.pidfd, SIGKILL), -ESRCH);
    close(out);
    close(p.pidfd);

    p = start("exit 7", NULL, 0, false, &out);
    assert_int_equal(ms_process_wait(p.pidfd, MS_NEVER, &end), 0);
    assert_string_equal(ms_process_end_print(&end, text, sizeof text),
                        "exited with code 7");
    close(out);
    close(p.pidfd);
}

static void test_a_status_that_somebody_else_took(void **state)
{
    struct ms_process p;
    struct ms_process_end end = {.known = true};
    int out;

    (void)state;
    p = start("exit 7", NULL, 0, false, &out);
    assert_int_equal(waitpid(-1, NULL, 0), p.pid);
    assert_int_equal(ms_process_wait(p.pidfd, MS_NEVER, &end), -ECHILD);
    assert_false(end.known);
    close(out);
    close(p.pidfd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_child_has_only_what_was_given),
        cmocka_unit_test(test_mappings_may_cross),
        cmocka_unit_test(test_own_session),
        cmocka_unit_test(test_signals_are_at_their_defaults),
        cmocka_unit_test(test_exec_failure_names_the_path),
        cmocka_unit_test(test_bad_mappings_are_refused),
        cmocka_unit_test(test_the_end_of_a_process),
        cmocka_unit_test(test_a_status_that_somebody_else_took),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
