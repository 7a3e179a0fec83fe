/* cluster_test.c - clusters of a driver's own head, and an agent that dies or misbehaves */
#include "base/cleanup.h"
#include "base/limits.h"
#include "head/nodes/fake_agent.h"
#include "head/test_local.h"
#include "io/test_ended.h"

#include <signal.h>
#include <stdio.h>

/* ---- clusters -------------------------------------------------------------------- */

static void test_life_of_a_cluster(void **state)
{
    struct ms_head *h = local_start("");
    struct ms_head_op *op = local_create(h, "actor", 2);
    const Muster__ClusterStatus *c;
    struct spec many;
    pid_t pid;

    (void)state;
    c = (const Muster__ClusterStatus *)ops_message(op);
    assert_string_equal(c->name, "actor");
    assert_int_equal(c->n_workers, 2);
    assert_int_equal(c->workers[1]->rank, 1);
    assert_string_equal(c->workers[1]->address, "/w/x.sock");
    assert_int_equal(c->workers[1]->devices[0], 1);
    assert_int_equal(c->workers[1]->state, MUSTER__WORKER_STATE__WORKER_RUNNING);
    pid = c->workers[1]->pid;
    assert_int_equal(kill(pid, 0), 0);
    ms_head_op_unref(op);

    ops_expect(local_create(h, "actor", 1), -EEXIST, "'actor'");
    ops_expect(local_create(h, "a b", 1), -EINVAL, "cluster");
    ops_expect(local_create(h, "none", 0), -EINVAL, "'none'");
    spec_init(&many, "many", 70000);
    ops_expect(spec_create(h, &many), -ENOSPC, "65536");
    ops_expect(ops_destroy(h, "other", 0), -ENOENT, "'other'");
    ops_expect(ops_destroy(h, NULL, 0), -EINVAL, NULL);
    ops_expect(ops_destroy(h, "actor", MS_NS_PER_S), 0, NULL);
    events_wait_exits(&local_events, 2);
    assert_int_equal(kill(pid, 0), -1);
    ops_expect(local_create(h, "actor", 1), 0, NULL); /* the name is free again */
    ms_head_stop(h, MS_NS_PER_S);
}

static void test_spec_must_be_one(void **state)
{
    struct ms_head *h = local_start("");
    char *big = malloc(MS_SPEC_MAX + 1);
    struct spec s;

    (void)state;
    ops_expect(ms_head_create_cluster(h, NULL, 0), -EINVAL, "without a specification");
    spec_init(&s, "a", 1);
    s.message.worker = NULL;
    ops_expect(spec_create(h, &s), -EINVAL, "no way to start it");
    spec_init(&s, "a", 1);
    s.message.place = NULL;
    ops_expect(spec_create(h, &s), -EINVAL, "either placed or beside");
    memset(big, 'x', MS_SPEC_MAX);
    big[MS_SPEC_MAX] = 0;
    spec_init(&s, "a", 1);
    s.worker.working_dir = big;
    ops_expect(spec_create(h, &s), -E2BIG, "'a'");
    free(big);
    ms_head_stop(h, 0);
}

static void test_a_failed_creation_leaves_no_trace(void **state)
{
    struct ms_head *h = local_start("failure");
    struct ms_head_op *op;

    (void)state;
    ops_expect(local_create(h, "actor", 2), -EIO, "no zygote today");
    assert_int_equal(ops_status(h, &op)->n_clusters, 0);
    ms_head_op_unref(op);
    assert_int_equal(local_events.exits, 0);
    ms_head_stop(h, 0);

    h = local_start("partial");
    ops_expect(local_create(h, "actor", 2), -EPROTO, "every worker");
    assert_int_equal(ops_status(h, &op)->n_clusters, 0);
    ms_head_op_unref(op);
    ms_head_stop(h, 0);
    assert_int_equal(local_events.exits, 0);
}

static void test_exit_before_the_answer_is_told_after_it(void **state)
{
    struct ms_head *h = local_start("early");
    struct ms_head_op *op = local_create(h, "actor", 2);
    const Muster__ClusterStatus *c;

    (void)state;
    c = (const Muster__ClusterStatus *)ops_message(op);
    assert_int_equal(c->workers[1]->state, MUSTER__WORKER_STATE__WORKER_EXITED);
    assert_int_equal(c->workers[1]->exit->code, 5);
    events_wait_exits(&local_events, 1);
    assert_int_equal(local_events.codes[0], 5);
    assert_int_equal(local_events.uids[0], c->workers[1]->uid);
    ms_head_op_unref(op);
    ms_head_stop(h, 0);
}

static void assert_no_cluster(struct ms_head *h)
{
    struct ms_head_op *op;

    assert_int_equal(ops_status(h, &op)->n_clusters, 0);
    ms_head_op_unref(op);
}

/* Its processes are begun: they are known, and ended, when the agent has said so. */
static void test_destroy_interrupts_a_start(void **state)
{
    struct ms_head *h = local_start("late");
    struct ms_head_op *made = local_create(h, "actor", 2), *first, *second;

    (void)state;
    ops_expect(
        ops_hold_port(h, NULL, "x"), 0, NULL); /* behind the cluster's own port */
    first = ops_destroy(h, "actor", 0);
    second = ops_destroy(h, "actor", 0);
    assert_int_equal(ms_head_op_wait(first, ms_now_ns()), -ETIMEDOUT);
    assert_int_equal(ms_head_op_result(first, NULL), -EINPROGRESS);
    ops_expect(ops_hold_port(h, NULL, "go"), 0, NULL); /* the agent answers it now */
    ops_expect(made, -ECANCELED, "destroyed meanwhile");
    ops_expect(first, 0, NULL);
    ops_expect(second, 0, NULL);
    ops_expect(ops_destroy(h, "actor", 0), -ENOENT, NULL);
    assert_no_cluster(h);
    assert_int_equal(local_events.exits, 0);
    ms_head_stop(h, 0);
}

/* At once, perhaps before its port is held. */
static void test_destroy_interrupts_a_beginning(void **state)
{
    struct ms_head *h = local_start("");

    (void)state;
    for (int i = 0; i < 20; i++) {
        struct ms_head_op *made = local_create(h, "actor", 2);
        struct ms_head_op *end = ops_destroy(h, "actor", 0);

        ops_expect(end, 0, NULL);
        ops_expect(made, -ECANCELED, "destroyed meanwhile");
    }
    ops_expect(local_create(h, "actor", 2), 0, NULL);
    ms_head_stop(h, 0);
}

static void test_destroy_has_a_deadline(void **state)
{
    struct ms_head *h = local_start("deaf");

    (void)state;
    ops_expect(local_create(h, "actor", 2), 0, NULL);
    ops_expect(ops_destroy(h, "actor", 0), -ETIMEDOUT, "2 of 2 workers");
    ms_head_stop(h, 0);
}

/* ---- an agent that dies ---------------------------------------------------------- */

static void test_agent_dies_in_the_middle_of_a_request(void **state)
{
    struct ms_head *h = local_start("die");
    char dir[MS_SESSION_DIR_MAX];

    (void)state;
    strcpy(dir, ms_head_session(h)->dir);
    ops_expect(local_create(h, "actor", 2), -EPIPE, "was killed by signal 9 (Killed)");
    events_wait_lost(&local_events);
    assert_non_null(strstr(local_events.lost, "the agent on node here"));
    assert_int_equal(local_events.exits, 0); /* there was no such cluster yet */
    ops_expect(local_create(h, "actor", 1), -EPIPE, "signal 9");
    ops_expect(ops_hold_port(h, NULL, "x"), -EPIPE, "signal 9");
    ms_head_stop(h, MS_NS_PER_S);
    local_assert_gone(dir);
}

static void test_workers_of_a_dead_agent(void **state)
{
    struct ms_head *h = local_start("deaf");
    struct ms_head_op *op = local_create(h, "actor", 2), *destroy;
    const Muster__ClusterStatus *c;
    const Muster__Status *s;
    pid_t worker;

    (void)state;
    c = (const Muster__ClusterStatus *)ops_message(op);
    worker = c->workers[0]->pid;
    ops_expect(local_create(h, "critic", 1), 0, NULL);
    destroy = ops_destroy(h, "critic", 0);
    assert_int_equal(kill(local_agent_pid(h), SIGKILL), 0);
    events_wait_lost(&local_events);
    assert_int_equal(local_events.exits_before_lost, 3);
    assert_int_equal(local_events.uids[1], c->workers[1]->uid);
    assert_non_null(strstr(local_events.details[1], "the agent on node here"));
    assert_non_null(strstr(local_events.details[1], "signal 9"));
    ms_head_op_unref(op);
    ops_expect(destroy, 0, NULL); /* they are dead, as was wanted */

    s = ops_status(h, &op);
    assert_false(s->nodes[0]->alive);
    assert_int_equal(s->n_clusters, 1); /* the other one was to go anyway */
    assert_int_equal(s->clusters[0]->workers[0]->state,
                     MUSTER__WORKER_STATE__WORKER_EXITED);
    ms_head_op_unref(op);
    ops_expect(ops_destroy(h, "actor", 0), 0, NULL);
    ms_head_stop(h, 0);
    assert_true(test_has_ended(worker)); /* though it knows nothing of agents */
}

static void test_agent_that_hangs_up_or_talks_nonsense(void **state)
{
    Muster__ZygoteKey key = MUSTER__ZYGOTE_KEY__INIT;
    struct ms_head *h = local_start("hangup");

    (void)state;
    ops_expect(ops_prepare(h, &key), -EPIPE, "closed its link and was killed");
    ms_head_stop(h, 0);
    h = local_start("garbage");
    ops_expect(ops_prepare(h, &key), -EPIPE, "broke its link");
    ms_head_stop(h, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, local_setup, ops_home_remove)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(test_life_of_a_cluster),
        TEST(test_spec_must_be_one),
        TEST(test_a_failed_creation_leaves_no_trace),
        TEST(test_exit_before_the_answer_is_told_after_it),
        TEST(test_destroy_interrupts_a_start),
        TEST(test_destroy_interrupts_a_beginning),
        TEST(test_destroy_has_a_deadline),
        TEST(test_agent_dies_in_the_middle_of_a_request),
        TEST(test_workers_of_a_dead_agent),
        TEST(test_agent_that_hangs_up_or_talks_nonsense),
    };

    if (argc > 1 && strcmp(argv[1], "agent") == 0)
        return fake_agent_main();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
