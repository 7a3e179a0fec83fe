/* supervised_test.c - tests of supervised.h: to which supervisor a process
 * belongs, by its environment */
#include "base/cleanup.h"
#include "io/supervised.h"
#include "io/supervised_group.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

/* A process that sleeps, in a session of its own, with that supervisor. */
static pid_t start_sleep(const char *supervisor)
{
    char entry[128];
    char *argv[] = {(char[]){"sleep"}, (char[]){"1001"}, NULL}, *env[] = {entry, NULL};
    pid_t pid;

    snprintf(entry, sizeof entry, MS_SUPERVISOR_VARIABLE "=%s", supervisor);
    pid = fork();
    if (pid == 0) {
        setsid();
        execve("/bin/sleep", argv, env);
        _exit(127);
    }
    assert_true(pid > 0);
    return pid;
}

static void kill_and_reap(pid_t pid)
{
    kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void test_a_name_is_of_one_process(void **state)
{
    char name[MS_SUPERVISOR_NAME_MAX], gone[MS_SUPERVISOR_NAME_MAX];
    pid_t pid = fork();

    (void)state;
    if (pid == 0) {
        pause();
        _exit(0);
    }
    assert_int_equal(ms_supervisor_name(getpid(), name), 0);
    assert_false(ms_supervisor_is_dead(name));
    assert_int_equal(ms_supervisor_name(pid, gone), 0);
    assert_false(ms_supervisor_is_dead(gone));
    assert_int_equal(ms_supervisor_find(gone), pid);
    kill(pid, SIGKILL);
    while (ms_supervisor_name(pid, name) == 0)
        usleep(1000); /* it is a zombie soon, and that is dead */
    assert_true(ms_supervisor_is_dead(gone));
    assert_int_equal(ms_supervisor_find(gone), 0);
    kill_and_reap(pid);
    assert_true(ms_supervisor_is_dead(gone));
}

static void test_what_is_no_name_is_neither_dead_nor_there(void **state)
{
    static const char *const others[] = {
        "", "x", "1-2", "1-2-3-4", "1-2-3x", "0-1-1", "77-4194303-1"};
    char other[MS_SUPERVISOR_NAME_MAX + 1] = "7",
                                        *own = other + 1; /* another namespace */

    (void)state;
    assert_int_equal(ms_supervisor_name(getpid(), own), 0);
    assert_int_equal(ms_supervisor_find(own), getpid());
    assert_int_equal(ms_supervisor_find(other), 0);
    assert_false(ms_supervisor_is_dead(other));
    for (size_t i = 0; i < MS_COUNT(others); i++) {
        assert_false(ms_supervisor_is_dead(others[i])); /* 77: another namespace */
        assert_int_equal(ms_supervisor_find(others[i]), 0);
    }
}

static void test_a_sweep_ends_what_a_dead_one_left(void **state)
{
    char own[MS_SUPERVISOR_NAME_MAX], dead[MS_SUPERVISOR_NAME_MAX];
    pid_t kept, left;
    int status;

    (void)state;
    assert_int_equal(ms_supervisor_name(getpid(), own), 0);
    strcpy(dead, own);
    dead[strlen(dead) - 1] = dead[strlen(dead) - 1] == '1' ? '2' : '1';
    kept = start_sleep(own);
    left = start_sleep(dead);
    while (waitpid(left, &status, WNOHANG) == 0) {
        ms_supervised_sweep(); /* again: it may be within its exec */
        usleep(1000);
    }
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_int_equal(kill(kept, 0), 0);
    assert_int_equal(waitpid(kept, NULL, WNOHANG), 0);
    kill_and_reap(kept);
}

static void test_a_group_ends_with_all_in_it(void **state)
{
    struct ms_supervised_group g;
    char name[MS_SUPERVISOR_NAME_MAX], dir[MS_CGROUP_PATH_MAX];
    struct stat st;
    int status;
    pid_t pid;

    (void)state;
    assert_int_equal(ms_supervisor_name(getpid(), name), 0);
    ms_supervised_group_create(&g, name);
    if (!g.dir[0]) {
        print_message("skipped: no control group can be made here\n");
        skip();
    }
    memcpy(dir, g.dir, sizeof dir);
    pid = ms_supervised_group_fork(&g);
    if (pid == 0) {
        setsid();
        clearenv();
        pause();
        _exit(0);
    }
    assert_true(pid > 0);
    ms_supervised_groups_sweep(); /* its supervisor lives */
    assert_int_equal(stat(dir, &st), 0);
    assert_int_equal(waitpid(pid, NULL, WNOHANG), 0);
    ms_supervised_group_end(&g);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    assert_int_equal(stat(dir, &st), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_name_is_of_one_process),
        cmocka_unit_test(test_what_is_no_name_is_neither_dead_nor_there),
        cmocka_unit_test(test_a_sweep_ends_what_a_dead_one_left),
        cmocka_unit_test(test_a_group_ends_with_all_in_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
