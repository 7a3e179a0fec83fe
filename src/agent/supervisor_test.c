/* supervisor_test.c - tests of supervisor.h: the process above an agent, which
 * outlives it and ends what is left */
#include "agent/supervisor.h"
#include "base/cleanup.h"
#include "io/supervised.h"

#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

enum { PATIENCE_MS = 20000 };

/* A supervisor, and an agent that has started a daemon. All hold the other end of `fd`. */
struct rig {
    pid_t supervisor, agent;
    int fd;
};

static void say(int fd, pid_t pid)
{
    assert_int_equal(write(fd, &pid, sizeof pid), sizeof pid);
}

/* Out of the session, and its parent ends. */
static void start_daemon(void)
{
    pid_t pid = fork();

    if (pid == 0) {
        setsid();
        if (fork() == 0)
            for (;;)
                pause();
        _exit(0);
    }
    waitpid(pid, NULL, 0);
}

static void run_agent(int fd, pid_t end_with)
{
    pid_t supervisor = ms_supervise(end_with);
    sigset_t term;
    int sig;

    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    sigprocmask(SIG_BLOCK, &term, NULL);
    if (supervisor != getppid() || !getenv(MS_SUPERVISOR_VARIABLE))
        _exit(99);
    start_daemon();
    say(fd, getpid());
    sigwait(&term, &sig);
    _exit(7);
}

static void rig_start(struct rig *r, pid_t end_with)
{
    int fds[2];

    assert_int_equal(pipe(fds), 0);
    r->supervisor = fork();
    if (r->supervisor == 0) {
        close(fds[0]);
        dup2(fds[1], 2); /* what the supervisor keeps too */
        run_agent(2, end_with);
    }
    close(fds[1]);
    r->fd = fds[0];
    assert_int_equal(read(r->fd, &r->agent, sizeof r->agent), sizeof r->agent);
}

/* All of them are gone: nobody holds the pipe. How the supervisor ended. */
static int rig_end(struct rig *r)
{
    struct pollfd at = {.fd = r->fd, .events = POLLIN};
    char byte;
    int status;

    assert_int_equal(poll(&at, 1, PATIENCE_MS), 1);
    assert_int_equal(read(r->fd, &byte, 1), 0);
    assert_int_equal(waitpid(r->supervisor, &status, 0), r->supervisor);
    close(r->fd);
    return status;
}

static void test_it_ends_what_a_killed_agent_left(void **state)
{
    struct rig r;
    int status;

    (void)state;
    rig_start(&r, 0);
    kill(r.agent, SIGKILL);
    status = rig_end(&r);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void test_it_passes_on_a_signal_and_the_exit_code(void **state)
{
    struct rig r;
    int status;

    (void)state;
    rig_start(&r, 0);
    kill(r.supervisor, SIGTERM);
    status = rig_end(&r);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

static void test_quit_kills_the_agent(void **state)
{
    struct rig r;
    int status;

    (void)state;
    rig_start(&r, 0);
    kill(r.agent, SIGSTOP);
    kill(r.supervisor, SIGQUIT);
    status = rig_end(&r);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void test_a_stopped_agent_ends_with_its_driver(void **state)
{
    pid_t driver = fork();
    struct rig r;
    int status;

    (void)state;
    if (driver == 0)
        for (;;)
            pause();
    rig_start(&r, driver);
    kill(r.agent, SIGSTOP);
    kill(driver, SIGKILL);
    waitpid(driver, NULL, 0);
    status = rig_end(&r); /* this agent does not see that: it is killed */
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_ends_what_a_killed_agent_left),
        cmocka_unit_test(test_it_passes_on_a_signal_and_the_exit_code),
        cmocka_unit_test(test_quit_kills_the_agent),
        cmocka_unit_test(test_a_stopped_agent_ends_with_its_driver),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
