/* node_dir_test.c - tests of node_dir.h: the folder of an agent that has joined a
 * head on another machine */
#include "base/cleanup.h"
#include "io/session/node_dir.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char root[] = "/tmp/muster-node-XXXXXX";

static int set_up(void **state)
{
    (void)state;
    strcpy(root, "/tmp/muster-node-XXXXXX");
    assert_non_null(mkdtemp(root));
    setenv("MUSTER_HOME", root, 1);
    return 0;
}

static int tear_down(void **state)
{
    char command[64];

    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

static bool is_there(const struct ms_node_dir *d, const char *name)
{
    char path[160];

    snprintf(path, sizeof path, "%s/%s", d->dir, name);
    return access(path, F_OK) == 0;
}

static void put(const struct ms_node_dir *d, const char *name)
{
    char path[160];
    FILE *f;

    snprintf(path, sizeof path, "%s/%s", d->dir, name);
    f = fopen(path, "we");
    assert_non_null(f);
    fclose(f);
}

static void test_life(void **state)
{
    struct ms_node_dir d = {.lock_fd = -1}, again = {.lock_fd = -1};
    struct ms_error err = {0};
    struct stat st;
    char want[96];

    (void)state;
    assert_int_equal(ms_node_dir_open(&d, "train", "node-b", &err), 0);
    snprintf(want, sizeof want, "%s/train@node-b", root);
    assert_string_equal(d.dir, want);
    assert_int_equal(stat(d.dir, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_true(is_there(&d, "w") && is_there(&d, "logs") && is_there(&d, "spin"));
    put(&d, "w/left.sock");
    put(&d, "logs/actor-0.log");
    assert_int_equal(ms_node_dir_open(&again, "train", "node-b", &err), -EBUSY);
    assert_non_null(strstr(err.text, "node-b"));
    assert_int_equal(again.lock_fd, -1);
    ms_node_dir_close(&d);
    assert_false(is_there(&d, "w") || is_there(&d, "spin"));
    assert_true(is_there(&d, "logs/actor-0.log"));
    ms_node_dir_close(&d);
}

static void test_what_the_dead_left_goes(void **state)
{
    struct ms_node_dir d = {.lock_fd = -1};

    (void)state;
    assert_int_equal(ms_node_dir_open(&d, "train", "b", NULL), 0);
    put(&d, "w/left.sock");
    put(&d, "logs/actor-0.log");
    ms_fd_close(&d.lock_fd); /* as a kill does */
    assert_int_equal(ms_node_dir_open(&d, "train", "b", NULL), 0);
    assert_false(is_there(&d, "w/left.sock"));
    assert_true(is_there(&d, "logs/actor-0.log"));
    ms_node_dir_close(&d);
}

static void test_long_names_stay_apart(void **state)
{
    struct ms_node_dir a = {.lock_fd = -1}, b = {.lock_fd = -1};
    char session[MS_NAME_MAX + 1], node[MS_NAME_MAX + 1];

    (void)state;
    memset(session, 's', MS_NAME_MAX);
    memset(node, 'n', MS_NAME_MAX);
    session[MS_NAME_MAX] = node[MS_NAME_MAX] = 0;
    assert_int_equal(ms_node_dir_open(&a, session, node, NULL), 0);
    assert_true(strlen(a.dir) < MS_SESSION_DIR_MAX);
    node[MS_NAME_MAX - 1] = 'm';
    assert_int_equal(ms_node_dir_open(&b, session, node, NULL), 0);
    assert_string_not_equal(a.dir, b.dir);
    ms_node_dir_close(&a);
    ms_node_dir_close(&b);
}

static void test_tricks_with_names(void **state)
{
    static const char *const bad[] = {"", "..", "a/b", "../x", ".x", "a@b"};
    struct ms_node_dir d = {.lock_fd = -1};

    (void)state;
    for (size_t i = 0; i < MS_COUNT(bad); i++) {
        assert_int_equal(ms_node_dir_open(&d, bad[i], "node", NULL), -EINVAL);
        assert_int_equal(ms_node_dir_open(&d, "session", bad[i], NULL), -EINVAL);
    }
    assert_int_equal(d.lock_fd, -1);
}

#define DIR_TEST(fn) cmocka_unit_test_setup_teardown(fn, set_up, tear_down)

/* What jobs have left: as many as of sessions, the newest, and nothing of others. */
static void test_old_ones_go(void **state)
{
    struct ms_node_dir d = {.lock_fd = -1}, named = {.lock_fd = -1};
    struct ms_node_dir living = {.lock_fd = -1};
    char session[40], first[MS_SESSION_DIR_MAX] = "";

    (void)state;
    assert_int_equal(ms_node_dir_open(&named, "head", "n", NULL), 0);
    ms_node_dir_close(&named);
    assert_int_equal(ms_node_dir_open(&living, "20261115-000000-1", "n", NULL), 0);
    for (unsigned i = 0; i < MS_SESSIONS_KEPT + 2; i++) {
        snprintf(session, sizeof session, "20261116-0000%02u-17", i);
        assert_int_equal(ms_node_dir_open(&d, session, "n", NULL), 0);
        put(&d, "logs/x.log");
        if (i == 0)
            strcpy(first, d.dir);
        assert_int_equal(access(first, F_OK), i <= MS_SESSIONS_KEPT ? 0 : -1);
        ms_node_dir_close(&d);
    }
    assert_true(is_there(&named, "logs"));
    assert_true(is_there(&living, "spin"));
    ms_node_dir_close(&living);
}

/* One that stays has logs of drivers before: the old ones go. */
static void test_old_logs_of_one_that_stays_go(void **state)
{
    const struct timespec long_ago[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    struct ms_node_dir d = {.lock_fd = -1};
    char path[160];

    (void)state;
    assert_int_equal(ms_node_dir_open(&d, "head", "n", NULL), 0);
    put(&d, "logs/old-0.log");
    put(&d, "logs/new-0.log");
    snprintf(path, sizeof path, "%s/logs/old-0.log", d.dir);
    assert_int_equal(utimensat(AT_FDCWD, path, long_ago, 0), 0);
    ms_node_dir_close(&d);
    assert_true(is_there(&d, "logs/old-0.log"));
    assert_int_equal(ms_node_dir_open(&d, "head", "n", NULL), 0);
    assert_false(is_there(&d, "logs/old-0.log"));
    assert_true(is_there(&d, "logs/new-0.log"));
    ms_node_dir_close(&d);
}

/* A sweeper holds the lock, for a moment: that is not an agent. */
static void test_a_sweeper_is_waited_for(void **state)
{
    struct ms_node_dir d = {.lock_fd = -1}, again = {.lock_fd = -1};
    pid_t pid;
    int status;

    (void)state;
    assert_int_equal(ms_node_dir_open(&d, "train", "n", NULL), 0);
    pid = fork();
    if (pid == 0) { /* holds it too, until it ends */
        usleep(50000);
        _exit(0);
    }
    close(d.lock_fd);
    assert_int_equal(ms_node_dir_open(&again, "train", "n", NULL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    ms_node_dir_close(&again);
}

/* Open one after another; each sweeps what it finds, also what others are just making. */
static int open_many(int process)
{
    enum { ROUNDS = 100 };
    int failed = 0;

    for (int i = 0; i < ROUNDS; i++) {
        struct ms_node_dir d = {.lock_fd = -1};
        char node[32];

        snprintf(node, sizeof node, "n%d-%d", process, i);
        if (ms_node_dir_open(&d, "20261116-000000-17", node, NULL) < 0 ||
            !is_there(&d, "logs") || !is_there(&d, "spin"))
            failed++;
        ms_node_dir_close(&d);
    }
    return failed;
}

static void test_many_at_once(void **state)
{
    enum { PROCESSES = 4 };
    int status;

    (void)state;
    for (int p = 0; p < PROCESSES; p++)
        if (fork() == 0)
            _exit(open_many(p) != 0);
    for (int p = 0; p < PROCESSES; p++) {
        assert_true(wait(&status) > 0);
        assert_int_equal(status, 0);
    }
}

/* A sweeper was killed after it had given the folder another name. */
static void test_what_a_sweeper_left_goes(void **state)
{
    struct ms_node_dir d = {.lock_fd = -1};
    char swept[MS_SESSION_DIR_MAX + 8];

    (void)state;
    assert_int_equal(ms_node_dir_open(&d, "20261116-000000-17", "n", NULL), 0);
    ms_node_dir_close(&d);
    snprintf(swept, sizeof swept, "%s~swept", d.dir);
    assert_int_equal(rename(d.dir, swept), 0);
    assert_int_equal(ms_node_dir_open(&d, "train", "n", NULL), 0);
    assert_int_equal(access(swept, F_OK), -1);
    ms_node_dir_close(&d);
}

/* Of one session, and of those that are dead. */
static void test_sweep_of_a_session(void **state)
{
    struct ms_node_dir dead = {.lock_fd = -1}, other = {.lock_fd = -1};
    struct ms_node_dir living = {.lock_fd = -1};

    (void)state;
    assert_int_equal(ms_node_dir_open(&dead, "20261116-000000-1", "a", NULL), 0);
    assert_int_equal(ms_node_dir_open(&living, "20261116-000000-1", "b", NULL), 0);
    assert_int_equal(ms_node_dir_open(&other, "20261116-000000-17", "a", NULL), 0);
    close(dead.lock_fd); /* as if they were killed */
    close(other.lock_fd);
    ms_node_dirs_sweep("20261116-000000-1");
    assert_false(is_there(&dead, "spin"));
    assert_true(is_there(&dead, "logs"));
    assert_true(is_there(&living, "spin"));
    assert_true(is_there(&other, "spin"));
    ms_node_dir_close(&living);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        DIR_TEST(test_life),
        DIR_TEST(test_old_ones_go),
        DIR_TEST(test_old_logs_of_one_that_stays_go),
        DIR_TEST(test_sweep_of_a_session),
        DIR_TEST(test_a_sweeper_is_waited_for),
        DIR_TEST(test_many_at_once),
        DIR_TEST(test_what_a_sweeper_left_goes),
        DIR_TEST(test_what_the_dead_left_goes),
        DIR_TEST(test_long_names_stay_apart),
        DIR_TEST(test_tricks_with_names),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
