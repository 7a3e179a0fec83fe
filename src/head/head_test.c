/* head_test.c - a driver's own head: its start, its end, who may ask it */
#include "base/cleanup.h"
#include "head/nodes/fake_agent.h"
#include "head/test_local.h"
#include "wire/client/blocking_call.h"
#include "wire/frame.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* What a busy machine may add to a time that is promised. */
#define BUSY_NS (10 * MS_NS_PER_S)

static void test_start_and_stop(void **state)
{
    char dir[MS_SESSION_DIR_MAX], path[128];
    int before = local_count_fds();
    struct ms_head *h = local_start("");
    struct ms_head_op *op;
    const Muster__Status *s = ops_status(h, &op);

    (void)state;
    strcpy(dir, ms_head_session(h)->dir);
    assert_string_equal(s->session, ms_head_session(h)->name);
    assert_string_equal(s->session_dir, dir);
    assert_string_equal(s->version, "0.1.0");
    assert_int_equal(s->driver_pid, getpid());
    assert_int_equal(s->n_nodes, 1);
    assert_string_equal(s->nodes[0]->name, "here");
    assert_int_equal(s->nodes[0]->cpus, 7);
    assert_int_equal(s->nodes[0]->gpus, 4);
    assert_true(s->nodes[0]->alive);
    assert_int_equal(s->n_clusters, 0);
    ms_head_op_unref(op);
    snprintf(path, sizeof path, "%s/spin", dir);
    assert_int_equal(access(path, R_OK | W_OK), 0);
    ms_head_stop(h, 0);
    local_assert_gone(dir);
    assert_int_equal(local_count_fds(), before);
    assert_int_equal(local_events.lost[0], 0);
    ms_head_stop(NULL, 0);
}

/* Within so long, or 0: long enough for every machine. */
static void expect_no_start_within(
    int64_t timeout_ns, const char *path, const char *mode, int code, const char *in)
{
    struct ms_error err = {0};
    int before = local_count_fds();

    assert_null(local_start_with(path, mode, timeout_ns, &err));
    assert_int_equal(err.code, code);
    if (!strstr(err.text, in))
        fail_msg("'%s' is not in '%s'", in, err.text);
    assert_int_equal(local_count_fds(), before);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

static void
expect_no_start(const char *path, const char *mode, int code, const char *in)
{
    expect_no_start_within(0, path, mode, code, in);
}

static void test_failed_starts_say_why(void **state)
{
    struct ms_session *list = NULL;

    (void)state;
    expect_no_start(NULL, "", -EINVAL, "agent_path");
    expect_no_start("/nowhere/muster", "", -ENOENT, "'/nowhere/muster'");
    expect_no_start("/proc/self/exe", "exit", -EPIPE, "exited with code 3");
    expect_no_start("/proc/self/exe", "exit", -EPIPE, "| cannot find my shoes");
    expect_no_start("/proc/self/exe", "refuse", -EIO, "no room for me");
    expect_no_start_within(
        300 * MS_NS_PER_MS, "/proc/self/exe", "mute", -ETIMEDOUT, "within 0.3 s");
    for (int i = ms_session_list(&list, NULL) - 1; i >= 0; i--)
        assert_false(list[i].alive);
    free(list);
}

static void test_no_descriptor_left(void **state)
{
    struct rlimit before, few;
    struct ms_error err = {0};

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = before;
    few.rlim_cur = (rlim_t)local_count_fds() + 5;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    assert_null(local_start_with("/proc/self/exe", "", 0, &err));
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(err.code, -EMFILE);
    assert_non_null(strstr(err.text, "ulimit -n"));
}

/* It would not end by itself: that the head has is the point, and not much later than it
 * says, however busy the machine is. */
static void test_a_stubborn_agent_is_killed_in_time(void **state)
{
    const int64_t grace_ns = 10 * MS_NS_PER_MS;
    struct ms_head *h = local_start("stubborn");
    char dir[MS_SESSION_DIR_MAX];
    int64_t before_ns;

    (void)state;
    strcpy(dir, ms_head_session(h)->dir);
    ops_expect(local_create(h, "actor", 1), 0, NULL);
    before_ns = ms_now_ns();
    ms_head_stop(h, grace_ns);
    assert_true(ms_now_ns() - before_ns <= MS_STOP_GRACE_NS + grace_ns + BUSY_NS);
    local_assert_gone(dir);
}

static void test_stop_ends_what_is_under_way(void **state)
{
    struct ms_head *h = local_start("silent");
    struct ms_head_op *op = local_create(h, "actor", 2), *port;
    char dir[MS_SESSION_DIR_MAX];

    (void)state;
    strcpy(dir, ms_head_session(h)->dir);
    port = ops_hold_port(h, NULL, "x");
    ops_expect(port, 0, NULL);
    ms_head_stop(h, 0);
    ops_expect(op, -EPIPE, "exited with code 0");
    local_assert_gone(dir);
}

/* ---- who asks it ----------------------------------------------------------------- */

static void test_ports_and_zygotes(void **state)
{
    Muster__ZygoteKey key = MUSTER__ZYGOTE_KEY__INIT;
    struct ms_head *h = local_start("");
    struct ms_head_op *op = ops_hold_port(h, NULL, "actor");
    const Muster__PortHeld *port;

    (void)state;
    port = (const Muster__PortHeld *)ops_message(op);
    assert_int_equal(port->port, 4711);
    assert_string_equal(port->host, "127.0.0.1");
    ms_head_op_unref(op);
    ops_expect(ops_drop_port(h, "actor"), 0, NULL);
    ops_expect(ops_prepare(h, &key), 0, NULL);
    ms_head_stop(h, 0);
}

/* Ask for an operation of the head's control socket. */
static int ask(const struct ms_session *s,
               const uint8_t *secret,
               uint16_t op,
               uint8_t **reply,
               size_t *len,
               struct ms_error *err)
{
    char path[128];

    snprintf(path, sizeof path, "%s/head.sock", s->dir);
    return ms_blocking_call(path, secret, op, "", 0, 5 * MS_NS_PER_S, reply, len, err);
}

static void test_control_socket(void **state)
{
    struct ms_head *h = local_start("");
    const struct ms_session *s = ms_head_session(h);
    uint8_t *reply = NULL, wrong[32] = {0};
    size_t len = 0;
    struct ms_error err = {0};
    Muster__Health *health;

    (void)state;
    assert_int_equal(ask(s, s->secret, MS_OP_HEALTH, &reply, &len, &err), 0);
    health = muster__health__unpack(NULL, len, reply);
    free(reply);
    assert_string_equal(health->status, "ok");
    muster__health__free_unpacked(health, NULL);
    assert_int_equal(ask(s, s->secret, MS_OP_STACK, &reply, &len, &err), -EREMOTEIO);
    assert_non_null(strstr(err.text, "no operation"));
    assert_int_equal(ask(s, wrong, MS_OP_HEALTH, &reply, &len, NULL), -EACCES);
    ms_head_stop(h, 0);
}

/* One who only asks, also a head that is part of a driver. */
static struct ms_head *join_as_tool(const struct ms_session *s)
{
    struct ms_error err = {0};
    struct ms_head *tool;
    char path[128];

    snprintf(path, sizeof path, "%s/head.sock", s->dir);
    tool = ms_head_join(&(struct ms_head_options){.tool = true},
                        &(struct ms_head_address){path, s->secret, MS_TLS_AUTO},
                        &err);
    if (!tool)
        fail_msg("%s", err.text);
    return tool;
}

static void test_what_tools_may_ask(void **state)
{
    struct ms_head *h = local_start("");
    struct ms_head *tool = join_as_tool(ms_head_session(h));
    Muster__HoldPort hold = MUSTER__HOLD_PORT__INIT;
    const Muster__Status *st;
    struct ms_head_op *op;

    (void)state;
    ops_expect(local_create(h, "actor", 2), 0, NULL);
    st = ops_status(tool, &op);
    assert_string_equal(st->session, ms_head_session(h)->name);
    assert_int_equal(st->clusters[0]->n_workers, 2);
    assert_int_equal(st->n_drivers, 0);
    ms_head_op_unref(op);
    ops_expect(ops_request(tool, MUSTER__DRIVER_TO_HEAD__BODY_HOLD_PORT, &hold),
               -EPERM,
               "a tool may not ask for 'hold_port'");
    ms_head_stop(tool, 0);
    ops_expect(ops_destroy(h, "actor", 0), 0, NULL); /* it was not the tool's */
    ms_head_stop(h, 0);
}

/* How many open descriptors lead to a socket, a process, or into the session. */
static int count_ties(void)
{
    char path[64], to[256];
    int n = 0;

    for (int fd = 3; fd < 256; fd++) {
        ssize_t len;

        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        len = readlink(path, to, sizeof to - 1);
        to[len > 0 ? len : 0] = 0;
        if (strstr(to, "socket:") || strstr(to, "pidfd") || strstr(to, ops_home))
            n++;
    }
    return n;
}

/* What a forked child of the driver sees; its exit code. */
static int in_child(struct ms_head *h)
{
    struct ms_head_op *op;

    ms_head_forget(h);
    ms_head_forget(h);
    if (count_ties() != 0)
        return 1;
    op = ms_head_status(h);
    if (ms_head_op_result(op, NULL) != -EPERM)
        return 2;
    ms_head_op_unref(op);
    ms_head_stop(h, 0); /* must do nothing */
    return 0;
}

static void test_a_forked_child_forgets(void **state)
{
    int code = -1;
    struct ms_head *h = local_start("");
    struct ms_head_op *op;
    pid_t pid;

    (void)state;
    ops_expect(local_create(h, "actor", 1), 0, NULL);
    assert_true(count_ties() >= 4); /* link, listening socket, agent, lock */
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        _exit(in_child(h));
    assert_int_equal(waitpid(pid, &code, 0), pid);
    assert_int_equal(code, 0);
    assert_int_equal(ops_status(h, &op)->clusters[0]->n_workers, 1); /* ours goes on */
    ms_head_op_unref(op);
    ops_expect(ops_destroy(h, "actor", 0), 0, NULL);
    ms_head_stop(h, 0);
}

static void *hammer(void *arg)
{
    struct ms_head *h = arg;

    for (int i = 0; i < 50; i++) {
        struct ms_head_op *port = ops_hold_port(h, NULL, "x"), *s = ms_head_status(h);

        ms_head_op_unref(ops_drop_port(h, "x")); /* given up at once */
        if (ms_head_op_wait(port, MS_NEVER) < 0 || ms_head_op_wait(s, MS_NEVER) < 0 ||
            ms_head_op_result(port, NULL) < 0 || ms_head_op_result(s, NULL) < 0)
            return arg;
        ms_head_op_unref(port);
        ms_head_op_unref(s);
    }
    return NULL;
}

static void test_any_thread_may_ask(void **state)
{
    struct ms_head *h = local_start("");
    pthread_t threads[4];

    (void)state;
    for (size_t i = 0; i < MS_COUNT(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, hammer, h), 0);
    for (size_t i = 0; i < MS_COUNT(threads); i++) {
        void *failed;

        pthread_join(threads[i], &failed);
        assert_null(failed);
    }
    ms_head_stop(h, 0);
}

static void test_two_heads_at_once(void **state)
{
    struct ms_head *a = local_start(""), *b = local_start("");
    char dir[MS_SESSION_DIR_MAX];

    (void)state;
    strcpy(dir, ms_head_session(b)->dir);
    ops_expect(local_create(a, "actor", 1), 0, NULL);
    ops_expect(local_create(b, "actor", 1), 0, NULL);
    ms_head_stop(a, 0);
    ops_expect(ops_destroy(b, "actor", 0), 0, NULL);
    ms_head_stop(b, 0);
    local_assert_gone(dir);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, local_setup, ops_home_remove)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(test_start_and_stop),
        TEST(test_failed_starts_say_why),
        TEST(test_no_descriptor_left),
        TEST(test_a_stubborn_agent_is_killed_in_time),
        TEST(test_stop_ends_what_is_under_way),
        TEST(test_ports_and_zygotes),
        TEST(test_control_socket),
        TEST(test_what_tools_may_ask),
        TEST(test_a_forked_child_forgets),
        TEST(test_any_thread_may_ask),
        TEST(test_two_heads_at_once),
    };

    if (argc > 1 && strcmp(argv[1], "agent") == 0)
        return fake_agent_main();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
