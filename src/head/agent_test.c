/* agent_test.c - the head with the real agent of this build ($MUSTER_CLI) */
#include "base/cleanup.h"
#include "head/test_events.h"
#include "head/test_ops.h"
#include "head/test_spec.h"
#include "io/addr.h"
#include "io/test_ended.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

static struct test_events seen;

static int setup(void **state)
{
    events_init(&seen);
    return ops_home_make(state);
}

static struct ms_head *start(struct ms_error *err)
{
    return ms_head_start(
        &(struct ms_head_options){
            .agent_path = getenv("MUSTER_CLI"),
            .node_name = "here",
            .num_gpus = 2,
            .num_cpus = -1,
            .env = (const char *const *)environ,
            .working_dir = "/",
            .on_exit = events_exit,
            .arg = &seen,
        },
        err);
}

/* `count` workers that run /bin/sh -c `script`. */
static struct ms_head_op *create(struct ms_head *h, const char *script, uint32_t count)
{
    struct spec s;

    spec_init(&s, "actor", count);
    spec_set_script(&s, script);
    return spec_create(h, &s);
}

static bool exists(const char *dir, const char *name)
{
    char path[128];

    snprintf(path, sizeof path, "%s/%s", dir, name);
    return access(path, F_OK) == 0;
}

static void assert_only_logs(const char *dir)
{
    static const char *const gone[] = {
        "lock", "secret", "driver", "head.sock", "w", "spin"};

    for (size_t i = 0; i < MS_COUNT(gone); i++)
        if (exists(dir, gone[i]))
            fail_msg("%s/%s is still there", dir, gone[i]);
}

/* Whether its unix socket, the first of its addresses, is there. */
static bool has_socket(const Muster__WorkerStatus *w)
{
    struct ms_addr_list list;

    assert_int_equal(ms_addr_list_parse(w->address, &list, NULL), 0);
    assert_true(list.at[0].is_unix);
    return access(list.at[0].name, F_OK) == 0;
}

static void test_start_and_stop(void **state)
{
    struct ms_error err = {0};
    struct ms_head *h = start(&err);
    struct ms_head_op *op;
    const Muster__Status *s;
    char dir[MS_SESSION_DIR_MAX];
    pid_t agent;

    (void)state;
    if (!h)
        fail_msg("%s", err.text);
    strcpy(dir, ms_head_session(h)->dir);
    s = ops_status(h, &op);
    assert_int_equal(s->nodes[0]->gpus, 2);
    assert_true(s->nodes[0]->cpus > 0 && s->nodes[0]->memory > 0);
    agent = s->nodes[0]->agent_pid;
    ms_head_op_unref(op);
    assert_false(test_has_ended(agent));
    ms_head_stop(h, 0);
    assert_true(test_has_ended(agent));
    assert_only_logs(dir);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
}

static void test_workers_live_and_die(void **state)
{
    struct ms_error err = {0};
    struct ms_head *h = start(&err);
    struct ms_head_op *op;
    const Muster__ClusterStatus *c;
    char dir[MS_SESSION_DIR_MAX];
    pid_t pids[2];

    (void)state;
    if (!h)
        fail_msg("%s", err.text);
    strcpy(dir, ms_head_session(h)->dir);
    op = create(h, "exec sleep 600", 2);
    c = (const Muster__ClusterStatus *)ops_message(op);
    for (int i = 0; i < 2; i++) {
        pids[i] = c->workers[i]->pid;
        assert_false(test_has_ended(pids[i]));
        assert_true(has_socket(c->workers[i]));
    }
    ms_head_op_unref(op);
    assert_int_equal(kill(pids[1], SIGKILL), 0);
    events_wait_exits(&seen, 1);
    assert_true(seen.signaled && !seen.requested);
    assert_int_equal(seen.codes[seen.exits - 1], SIGKILL);
    ops_expect(ops_destroy(h, "actor", MS_NS_PER_S), 0, NULL);
    assert_int_equal(seen.exits, 2);
    assert_true(seen.requested);
    assert_true(test_has_ended(pids[0]));

    ops_expect(create(h, "echo last words; exit 3", 1), 0, NULL);
    events_wait_exits(&seen, 3);
    assert_int_equal(seen.codes[seen.exits - 1], 3);
    assert_string_equal(seen.last_words, "last words");
    ms_head_stop(h, 0);
    assert_only_logs(dir);
    assert_true(exists(dir, "logs/actor-0.log"));
}

static void test_stop_takes_the_workers_along(void **state)
{
    struct ms_error err = {0};
    struct ms_head *h = start(&err);
    struct ms_head_op *op;
    pid_t pid;

    (void)state;
    if (!h)
        fail_msg("%s", err.text);
    op = create(h, "trap '' TERM; sleep 600 & wait; exec sleep 600", 1);
    pid = ((const Muster__ClusterStatus *)ops_message(op))->workers[0]->pid;
    ms_head_op_unref(op);
    ms_head_stop(h, 50 * MS_NS_PER_MS);
    assert_true(test_has_ended(pid));
    assert_int_equal(kill(-pid, 0), -1); /* and its group */
}

static void test_a_killed_agent_leaves_nothing(void **state)
{
    struct ms_error err = {0};
    struct ms_head *h = start(&err);
    struct ms_head_op *op;
    const Muster__ClusterStatus *c;
    char dir[MS_SESSION_DIR_MAX];
    pid_t agent, workers[2];

    (void)state;
    if (!h)
        fail_msg("%s", err.text);
    strcpy(dir, ms_head_session(h)->dir);
    op = create(h, "exec sleep 600", 2); /* which knows nothing of agents */
    c = (const Muster__ClusterStatus *)ops_message(op);
    for (int i = 0; i < 2; i++)
        workers[i] = c->workers[i]->pid;
    ms_head_op_unref(op);
    agent = ops_status(h, &op)->nodes[0]->agent_pid;
    ms_head_op_unref(op);
    assert_int_equal(kill(agent, SIGKILL), 0);
    events_wait_exits(&seen, 2);
    assert_int_equal(seen.codes[seen.exits - 1], -1); /* nobody saw how */
    ms_head_stop(h, 0);
    assert_true(test_has_ended(workers[0]) && test_has_ended(workers[1]));
    assert_only_logs(dir);
}

/* ---- a driver that is killed ----------------------------------------------------- */

struct told {
    char dir[MS_SESSION_DIR_MAX];
    pid_t agent, worker;
};

static void doomed_driver(int out)
{
    struct ms_error err = {0};
    struct ms_head *h = start(&err);
    struct ms_head_op *op = h ? create(h, "exec sleep 600", 1) : NULL;
    struct told t = {0};

    if (!op || ops_finish(op, NULL) < 0)
        _exit(1);
    strcpy(t.dir, ms_head_session(h)->dir);
    t.worker = ((const Muster__ClusterStatus *)ms_head_op_message(op))->workers[0]->pid;
    op = ms_head_status(h);
    if (ops_finish(op, NULL) < 0)
        _exit(2);
    t.agent = ((const Muster__Status *)ms_head_op_message(op))->nodes[0]->agent_pid;
    if (write(out, &t, sizeof t) != sizeof t)
        _exit(3);
    for (;;)
        pause();
}

static void test_a_killed_driver_leaves_nothing(void **state)
{
    int ends[2];
    struct told t;
    pid_t driver;

    (void)state;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    driver = fork();
    assert_true(driver >= 0);
    if (driver == 0)
        doomed_driver(ends[1]);
    close(ends[1]);
    assert_int_equal(read(ends[0], &t, sizeof t), sizeof t);
    close(ends[0]);
    assert_int_equal(kill(driver, SIGKILL), 0);
    assert_int_equal(waitpid(driver, NULL, 0), driver);
    test_wait_ended(t.worker);
    test_wait_ended(t.agent);
    assert_only_logs(t.dir);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, ops_home_remove)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_start_and_stop),
        TEST(test_workers_live_and_die),
        TEST(test_stop_takes_the_workers_along),
        TEST(test_a_killed_agent_leaves_nothing),
        TEST(test_a_killed_driver_leaves_nothing),
    };

    if (!getenv("MUSTER_CLI")) {
        printf("1..0 # SKIP there is no muster command in this build\n");
        return 0;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
