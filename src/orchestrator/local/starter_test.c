/* starter_test.c - tests of starter.h: agents as child processes of ours, on this
 * host */
#include "base/cleanup.h"
#include "io/tree.h"
#include "orchestrator/local/starter.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

static char dir[32], log_path[64];
static struct ms_loop *loop;

static struct {
    int started, ended, rc, link_fd;
    pid_t pid;
    struct ms_error why;
    struct ms_process_end end;
} seen;

static void
on_started(void *arg, int rc, int link_fd, pid_t pid, const struct ms_error *why)
{
    assert_ptr_equal(arg, &seen);
    seen.started++;
    seen.rc = rc;
    seen.link_fd = link_fd;
    seen.pid = pid;
    if (why)
        seen.why = *why;
}

static void on_ended(void *arg, const struct ms_process_end *end)
{
    assert_ptr_equal(arg, &seen);
    seen.ended++;
    seen.end = *end;
}

static int setup(void **state)
{
    (void)state;
    memset(&seen, 0, sizeof seen);
    seen.link_fd = -1;
    strcpy(dir, "/tmp/ms-test-XXXXXX");
    if (!mkdtemp(dir))
        return -1;
    snprintf(log_path, sizeof log_path, "%s/agent.log", dir);
    loop = ms_loop_create();
    return loop ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    ms_fd_close(&seen.link_fd);
    ms_loop_destroy(loop);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* nobody is left */
    return ms_tree_remove(AT_FDCWD, dir);
}

static struct ms_local_agent *start(const char *path, const char *mode, int lock_fd)
{
    static const struct ms_agent_events events = {
        .on_started = on_started,
        .on_ended = on_ended,
    };
    char text[64];
    const char *const env[] = {text, NULL};
    const struct ms_agent_spec spec = {
        .path = path, .env = env, .log_path = log_path, .lock_fd = lock_fd};
    struct ms_local_agent *a;

    snprintf(text, sizeof text, "FAKE_AGENT=%s", mode);
    a = ms_local_agent_start(loop, &spec, &events, &seen);
    assert_non_null(a);
    assert_int_equal(seen.started, 0); /* never before it has returned */
    return a;
}

static void run_until(const int *counter)
{
    while (*counter == 0)
        assert_int_equal(ms_loop_run_once(loop, true), 0);
}

static void read_log(char *out, size_t room)
{
    assert_true(ms_tree_read(AT_FDCWD, log_path, out, room) >= 0);
}

static void test_agent_has_its_descriptors(void **state)
{
    MS_CLEANUP(ms_cleanup_fd) int lock = open("/dev/null", O_RDONLY | O_CLOEXEC);
    struct ms_local_agent *a = start("/proc/self/exe", "hello", lock);
    struct pollfd p = {.events = POLLIN};
    char text[128];

    (void)state;
    run_until(&seen.started);
    assert_int_equal(seen.rc, 0);
    assert_true(seen.pid > 0);
    p.fd = seen.link_fd;
    assert_int_equal(poll(&p, 1, -1), 1);
    assert_int_equal(read(seen.link_fd, text, sizeof text), 5);
    run_until(&seen.ended);
    assert_true(seen.end.known && !seen.end.signaled);
    assert_int_equal(seen.end.code, 7);
    read_log(text, sizeof text);
    assert_string_equal(text, "lock is there, own session\n");
    ms_local_agent_release(a);
    assert_int_equal(seen.started, 1);
    assert_int_equal(seen.ended, 1);
}

static void test_stop_kills(void **state)
{
    struct ms_local_agent *a = start("/proc/self/exe", "stay", -1);

    (void)state;
    run_until(&seen.started);
    ms_local_agent_stop(a);
    run_until(&seen.ended);
    assert_true(seen.end.signaled);
    assert_int_equal(seen.end.code, SIGQUIT); /* a supervisor passes on SIGKILL */
    ms_local_agent_stop(a);                   /* harmless */
    ms_local_agent_release(a);
}

static void test_stop_kills_what_does_not_react(void **state)
{
    struct ms_local_agent *a = start("/proc/self/exe", "ignore", -1);
    struct pollfd p = {.events = POLLIN};

    (void)state;
    run_until(&seen.started);
    p.fd = seen.link_fd;
    assert_int_equal(poll(&p, 1, -1), 1);
    ms_local_agent_stop(a);
    run_until(&seen.ended);
    assert_true(seen.end.signaled);
    assert_int_equal(seen.end.code, SIGKILL);
    ms_local_agent_release(a);
}

static void test_failures_complete_once(void **state)
{
    struct ms_local_agent *a = start("/nowhere/muster", "", -1);

    (void)state;
    run_until(&seen.started);
    assert_int_equal(seen.rc, -ENOENT);
    assert_int_equal(seen.link_fd, -1);
    assert_non_null(strstr(seen.why.text, "/nowhere/muster"));
    ms_local_agent_stop(a);
    ms_local_agent_release(a);

    seen.started = 0;
    strcpy(log_path, "/nowhere/agent.log");
    a = start("/bin/true", "", -1);
    run_until(&seen.started);
    assert_int_equal(seen.rc, -ENOENT);
    assert_non_null(strstr(seen.why.text, "/nowhere/agent.log"));
    ms_local_agent_release(a);
    assert_int_equal(seen.ended, 0);
}

static void test_release_means_silence(void **state)
{
    (void)state;
    ms_local_agent_release(start("/proc/self/exe", "stay", -1));
    assert_int_equal(ms_loop_run_once(loop, false), 0);
    assert_int_equal(seen.started, 0);
    assert_int_equal(seen.ended, 0);
    ms_local_agent_release(NULL);
}

/* ---- this program as an agent ---------------------------------------------------- */

static int agent_main(char **argv)
{
    struct stat st;

    if (strcmp(argv[2], "--fd") != 0 || strcmp(argv[3], "3") != 0)
        return 90;
    if (strcmp(getenv("FAKE_AGENT"), "stay") == 0)
        return pause();
    signal(SIGQUIT, SIG_IGN);
    if (write(3, "hello", 5) != 5)
        return 91;
    if (strcmp(getenv("FAKE_AGENT"), "ignore") == 0)
        return pause();
    printf("lock is %s, %s session\n",
           fstat(4, &st) == 0 ? "there" : "missing",
           getsid(0) == getpid() ? "own" : "shared");
    return fflush(stdout) == 0 ? 7 : 92;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(test_agent_has_its_descriptors),
        TEST(test_stop_kills),
        TEST(test_stop_kills_what_does_not_react),
        TEST(test_failures_complete_once),
        TEST(test_release_means_silence),
    };

    if (argc > 3)
        return agent_main(argv);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
