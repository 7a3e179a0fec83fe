/* session_test.c - tests of session.h: the folder of one running Muster on this
 * machine */
#include "base/cleanup.h"
#include "base/name.h"
#include "io/session/session.h"
#include "io/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

static char home[32];

static int setup(void **state)
{
    (void)state;
    strcpy(home, "/tmp/ms-test-XXXXXX");
    return mkdtemp(home) && setenv("MUSTER_HOME", home, 1) == 0 ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    return ms_tree_remove(AT_FDCWD, home);
}

static bool exists(const char *dir, const char *name)
{
    char path[256];
    struct stat st;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    return lstat(path, &st) == 0;
}

static void make_file(const char *dir, const char *name)
{
    char path[256];
    int fd;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
}

static void make_link(const char *to, const char *dir, const char *name)
{
    char path[256];

    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(symlink(to, path), 0);
}

static mode_t mode_of(const char *dir, const char *name)
{
    char path[256];
    struct stat st;

    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(lstat(path, &st), 0);
    return st.st_mode & 0777;
}

static void assert_latest(const char *name)
{
    char path[256], to[128] = {0};

    snprintf(path, sizeof path, "%s/latest", home);
    if (!name) {
        assert_int_equal(readlink(path, to, sizeof to - 1), -1);
        return;
    }
    assert_true(readlink(path, to, sizeof to - 1) > 0);
    assert_string_equal(to, name);
}

static void create(struct ms_session *s, int *lock)
{
    struct ms_error err = {0};

    if (ms_session_create(s, NULL, lock, &err) < 0)
        fail_msg("%s", err.text);
}

/* What is left of others goes when a session is made. */
static void sweep(void)
{
    struct ms_session s;
    int lock = -1;

    create(&s, &lock);
    assert_int_equal(ms_session_remove(s.dir), 0);
    close(lock);
}

static void test_create_makes_what_the_header_says(void **state)
{
    MS_CLEANUP(ms_cleanup_fd) int lock = -1;
    struct ms_session s;
    char text[80];
    uint8_t secret[MS_SESSION_SECRET_SIZE];
    int dir;

    (void)state;
    create(&s, &lock);
    assert_int_equal(s.driver_pid, getpid());
    assert_true(s.alive);
    assert_int_equal(mode_of(s.dir, ""), 0700);
    assert_int_equal(mode_of(s.dir, "secret"), 0600);
    assert_int_equal(mode_of(s.dir, "lock"), 0600);
    assert_true(exists(s.dir, "logs") && exists(s.dir, "w"));
    assert_latest(s.name);
    dir = open(s.dir, O_RDONLY | O_CLOEXEC);
    assert_int_equal(ms_tree_read(dir, "secret", text, sizeof text), 64);
    assert_int_equal(ms_unhex(text, secret, sizeof secret), 0);
    assert_memory_equal(secret, s.secret, sizeof secret);
    assert_true(ms_tree_read(dir, "driver", text, sizeof text) > 0);
    assert_int_equal(atoi(text), getpid());
    close(dir);
    assert_int_equal(fcntl(lock, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
    assert_int_equal(ms_session_remove(s.dir), 0);
    assert_false(exists(s.dir, ""));
    assert_latest(NULL);
    assert_int_equal(ms_session_remove(s.dir), 0);
}

static void test_remove_keeps_logs(void **state)
{
    MS_CLEANUP(ms_cleanup_fd) int lock = -1;
    struct ms_session s;

    (void)state;
    create(&s, &lock);
    make_file(s.dir, "logs/agent.log");
    make_file(s.dir, "w/a.sock");
    make_file(s.dir, "head.sock");
    assert_int_equal(ms_session_remove(s.dir), 0);
    assert_true(exists(s.dir, "logs/agent.log"));
    assert_false(exists(s.dir, "w") || exists(s.dir, "secret") ||
                 exists(s.dir, "lock") || exists(s.dir, "head.sock"));
    assert_latest(s.name);
}

static void test_many_in_one_second(void **state)
{
    struct ms_session s, *list = NULL;
    int lock;

    (void)state;
    for (int i = 0; i < 12; i++) {
        create(&s, &lock);
        make_file(s.dir, "logs/x.log");
        close(lock);
        assert_int_equal(ms_session_remove(s.dir), 0);
    }
    assert_int_equal(ms_session_list(&list, NULL), 12);
    assert_string_equal(list[0].name, s.name);
    free(list);
}

static void test_remove_takes_only_sessions(void **state)
{
    char path[64];

    (void)state;
    make_file(home, "mine");
    assert_int_equal(ms_session_remove(home), -EINVAL);
    assert_int_equal(ms_session_remove("/"), -EINVAL);
    assert_int_equal(ms_session_remove(""), -EINVAL);
    snprintf(path, sizeof path, "%s/20261115-203011-", home);
    assert_int_equal(ms_session_remove(path), -EINVAL);
    assert_true(exists(home, "mine"));
    assert_int_equal(ms_session_remove("/nowhere/20261115-203011-1"), 0);
}

static void test_list_is_newest_first_and_knows_the_living(void **state)
{
    MS_CLEANUP(ms_cleanup_fd) int lock_a = -1;
    MS_CLEANUP(ms_cleanup_fd) int lock_b = -1;
    struct ms_session a, b, *list = NULL;

    (void)state;
    create(&a, &lock_a);
    create(&b, &lock_b); /* most likely in the same second */
    make_file(a.dir, "logs/x.log");
    assert_int_equal(ms_session_list(&list, NULL), 2);
    assert_string_equal(list[0].name, b.name);
    assert_string_equal(list[1].name, a.name);
    assert_string_equal(list[1].dir, a.dir);
    assert_memory_equal(list[0].secret, b.secret, sizeof b.secret);
    assert_int_equal(list[0].driver_pid, getpid());
    assert_true(list[0].alive && list[1].alive);
    free(list);
    ms_fd_close(&lock_b);
    assert_int_equal(ms_session_list(&list, NULL), 2);
    assert_false(list[0].alive);
    assert_true(list[1].alive);
    free(list);
    assert_int_equal(ms_session_remove(b.dir), 0);
    assert_latest(a.name);
    assert_int_equal(ms_session_remove(a.dir), 0);
}

/* A session whose process has died. */
static void make_dead(struct ms_session *s)
{
    int lock = -1;

    create(s, &lock);
    make_file(s->dir, "logs/x.log");
    make_file(s->dir, "w/left.sock");
    close(lock);
}

static void test_sweep_removes_the_dead_and_only_them(void **state)
{
    MS_CLEANUP(ms_cleanup_fd) int lock = -1;
    struct ms_session dead, alive;

    (void)state;
    create(&alive, &lock);
    make_dead(&dead);
    sweep();
    assert_false(exists(dead.dir, "secret") || exists(dead.dir, "w") ||
                 exists(dead.dir, "lock"));
    assert_true(exists(dead.dir, "logs/x.log"));
    assert_true(exists(alive.dir, "secret") && exists(alive.dir, "lock"));
    assert_latest(alive.name);
}

static void test_lock_is_held_by_whoever_inherited_it(void **state)
{
    struct ms_session s;
    int lock = -1, copy;

    (void)state;
    create(&s, &lock);
    copy = dup(lock);
    close(lock);
    sweep();
    assert_true(exists(s.dir, "secret"));
    close(copy);
    sweep();
    assert_false(exists(s.dir, ""));
}

static void test_sweep_keeps_the_newest_logs(void **state)
{
    char dir[64];
    unsigned left = 0;

    (void)state;
    for (unsigned i = 0; i < MS_SESSIONS_KEPT + 3; i++) {
        snprintf(dir, sizeof dir, "%s/20260101-0000%02u-7", home, i);
        assert_int_equal(mkdir(dir, 0700), 0);
        make_file(dir, "log");
        snprintf(dir, sizeof dir, "%s/20260101-0000%02u-7/logs", home, i);
        assert_int_equal(mkdir(dir, 0700), 0);
        make_file(dir, "x.log");
    }
    sweep();
    for (unsigned i = 0; i < MS_SESSIONS_KEPT + 3; i++) {
        snprintf(dir, sizeof dir, "%s/20260101-0000%02u-7", home, i);
        assert_int_equal(exists(dir, "logs/x.log"), i >= 3);
        left += exists(dir, "");
    }
    assert_int_equal(left, MS_SESSIONS_KEPT);
}

static void test_sweep_removes_what_was_left_unfinished(void **state)
{
    const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};
    char path[64];

    (void)state;
    snprintf(path, sizeof path, "%s/.new-0123456789abcdef", home);
    assert_int_equal(mkdir(path, 0700), 0);
    sweep();
    assert_true(exists(path, "")); /* it is being made now */
    assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
    make_link("x", home, ".latest-1");
    sweep();
    assert_false(exists(path, ""));
    assert_true(exists(home, ".latest-1"));
}

static void test_links_are_never_followed(void **state)
{
    struct ms_session s;
    char victim[64], path[128];

    (void)state;
    snprintf(victim, sizeof victim, "%s/victim", home);
    assert_int_equal(mkdir(victim, 0700), 0);
    make_file(victim, "precious");
    make_dead(&s);
    make_link(victim, s.dir, "trick");
    make_link(victim, s.dir, "w/deep");
    make_link(victim, home, "20260101-000000-1"); /* a session that is a link */
    snprintf(path, sizeof path, "%s/20260101-000000-1", home);
    assert_int_equal(ms_session_remove(path), -ENOTDIR);
    sweep();
    assert_false(exists(s.dir, "trick") || exists(s.dir, "w"));
    assert_true(exists(victim, "precious"));
}

static void test_root_must_be_ours_alone(void **state)
{
    struct ms_session s;
    struct ms_error err = {0};
    char path[64], root[MS_SESSION_DIR_MAX] = "untouched";
    int lock = -2;

    (void)state;
    assert_int_equal(chmod(home, 0770), 0);
    assert_int_equal(ms_session_create(&s, NULL, &lock, &err), -EPERM);
    assert_non_null(strstr(err.text, "770"));
    assert_int_equal(lock, -2);
    assert_int_equal(ms_session_root(root, NULL), -EPERM);
    assert_string_equal(root, "untouched");
    assert_int_equal(chmod(home, 0700), 0);

    snprintf(path, sizeof path, "%s/link", home);
    assert_int_equal(symlink(home, path), 0);
    setenv("MUSTER_HOME", path, 1);
    assert_int_equal(ms_session_create(&s, NULL, &lock, &err), -EPERM);

    if (geteuid() == 0) {
        snprintf(path, sizeof path, "%s/theirs", home);
        assert_int_equal(mkdir(path, 0700), 0);
        assert_int_equal(chown(path, 65534, 65534), 0);
    } else {
        strcpy(path, "/");
    }
    setenv("MUSTER_HOME", path, 1);
    assert_int_equal(ms_session_create(&s, NULL, &lock, &err), -EPERM);
    assert_non_null(strstr(err.text, "belongs to"));
    if (geteuid() == 0)
        assert_int_equal(chown(path, 0, 0), 0);
}

static void test_root_path_is_checked(void **state)
{
    char root[MS_SESSION_DIR_MAX], path[MS_SESSION_DIR_MAX];
    struct ms_error err = {0};

    (void)state;
    setenv("MUSTER_HOME", "relative", 1);
    assert_int_equal(ms_session_root(root, &err), -EINVAL);
    for (const char *c = " ,\n"; *c; c++) {
        snprintf(path, sizeof path, "%s/a%cb", home, *c);
        setenv("MUSTER_HOME", path, 1);
        assert_int_equal(ms_session_root(root, &err), -EINVAL);
        assert_non_null(strstr(err.text, "space or a comma"));
    }
    memset(path, 'x', sizeof path); /* one more than 71 less "/<time>-<pid>-999" */
    path[0] = '/';
    path[44] = 0;
    setenv("MUSTER_HOME", path, 1);
    assert_int_equal(ms_session_root(root, &err), -ENAMETOOLONG);
    setenv("MUSTER_HOME", "/nowhere/at/all", 1);
    assert_int_equal(ms_session_root(root, &err), -ENOENT);
    snprintf(path, sizeof path, "%s/fresh///", home);
    setenv("MUSTER_HOME", path, 1);
    assert_int_equal(ms_session_root(root, &err), 0);
    assert_int_equal(mode_of(root, ""), 0700);
    assert_string_equal(strrchr(root, '/'), "/fresh");
}

/* One of several processes that begin and end sessions at the same time. */
static int churn(void)
{
    struct ms_session s;
    int lock;

    for (int i = 0; i < 20; i++) {
        if (ms_session_create(&s, NULL, &lock, NULL) < 0)
            return 1;
        sweep();
        if (!exists(s.dir, "secret") || !exists(s.dir, "lock") || !exists(s.dir, "w"))
            return 2;
        if (i % 2 && ms_session_remove(s.dir) < 0)
            return 3;
        close(lock);
    }
    return 0;
}

static void test_many_at_once_never_touch_each_other(void **state)
{
    enum { PROCESSES = 6 };
    pid_t pids[PROCESSES];
    struct ms_session *list = NULL;

    (void)state;
    for (int i = 0; i < PROCESSES; i++) {
        pids[i] = fork();
        assert_true(pids[i] >= 0);
        if (pids[i] == 0)
            _exit(churn());
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status;

        assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
        assert_int_equal(status, 0);
    }
    sweep();
    assert_int_equal(ms_session_list(&list, NULL), 0);
    free(list);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_create_makes_what_the_header_says),
        TEST(test_remove_keeps_logs),
        TEST(test_many_in_one_second),
        TEST(test_remove_takes_only_sessions),
        TEST(test_list_is_newest_first_and_knows_the_living),
        TEST(test_sweep_removes_the_dead_and_only_them),
        TEST(test_lock_is_held_by_whoever_inherited_it),
        TEST(test_sweep_keeps_the_newest_logs),
        TEST(test_sweep_removes_what_was_left_unfinished),
        TEST(test_links_are_never_followed),
        TEST(test_root_must_be_ours_alone),
        TEST(test_root_path_is_checked),
        TEST(test_many_at_once_never_touch_each_other),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
