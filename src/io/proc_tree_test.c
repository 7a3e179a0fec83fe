/* proc_tree_test.c - what is said of processes that nobody can ask */
#include "base/cleanup.h"
#include "io/proc_tree.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* A shell with a child, both of which wait; *fd ends them. It says when the child is there. */
static pid_t start_shell(int *fd)
{
    int in[2], out[2];
    char byte;
    pid_t pid;

    assert_int_equal(pipe(in) | pipe(out), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        dup2(in[0], 3);
        dup2(out[1], 1);
        close(in[1]);
        execl("/bin/sh", "sh", "-c", "cat <&3 >/dev/null & echo; wait; :", NULL);
        _exit(127);
    }
    close(in[0]);
    close(out[1]);
    assert_int_equal(read(out[0], &byte, 1), 1);
    close(out[0]);
    *fd = in[1];
    return pid;
}

static void test_a_process_and_its_child(void **state)
{
    int fd;
    pid_t pid = start_shell(&fd);
    MS_CLEANUP(ms_cleanup_free) char *text = NULL;
    char line[64];

    (void)state;
    text = ms_proc_tree(pid);
    assert_non_null(text);
    snprintf(line, sizeof line, "process %d: sh -c cat <&3", (int)pid);
    assert_ptr_equal(strstr(text, line), text);
    assert_non_null(strstr(text + 1, "\nprocess ")); /* cat, or what becomes it */
    snprintf(line, sizeof line, "\n  thread %d (sh): ", (int)pid);
    assert_non_null(strstr(text, line));
    kill(pid, SIGSTOP);
    assert_int_equal(waitpid(pid, NULL, WUNTRACED), pid);
    free(text);
    text = ms_proc_tree(pid);
    snprintf(line, sizeof line, "\n  thread %d (sh): stopped by a signal", (int)pid);
    assert_non_null(strstr(text, line));
    kill(pid, SIGCONT);
    close(fd);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_null(ms_proc_tree(pid));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_process_and_its_child),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
