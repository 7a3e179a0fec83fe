/* restart_test.c - new incarnations of ranks, also on other nodes and without their driver
 *
 * On nodes "a" and "b", whose agents only pretend.
 */
#include "base/cleanup.h"
#include "head/clusters/test_pair.h"
#include "head/head_impl.h"

#include <stdio.h>

/* Two ranks without devices, one on each node, with a step. */
static void actor_spec(struct spec *s)
{
    spec_init(s, "actor", 2);
    spec_add_step(s, "load", "7b");
}

static void create(bool detached)
{
    struct spec s;

    actor_spec(&s);
    s.message.detached = detached;
    ops_expect(spec_create(driver, &s), 0, NULL);
}

static struct ms_head_op *
restart(struct ms_head *h, const uint32_t *ranks, size_t count)
{
    static char name[] = "actor";
    Muster__RestartWorkers m = MUSTER__RESTART_WORKERS__INIT;

    m.cluster = name;
    m.ranks = (uint32_t *)(uintptr_t)ranks;
    m.n_ranks = count;
    return ms_head_restart(h, &m);
}

static struct ms_head_op *restart_one(uint32_t rank)
{
    return restart(driver, &rank, 1);
}

/* Borrowed from `*op`. */
static const Muster__ClusterStatus *find(struct ms_head *h, struct ms_head_op **op)
{
    *op = ops_find_cluster(h, "actor");
    return (const Muster__ClusterStatus *)ops_message(*op);
}

struct worker {
    uint64_t uid;
    uint32_t incarnation;
    Muster__WorkerState state;
    uint64_t memory;
    char node[8];
};

static void look(struct ms_head *h, struct worker out[2])
{
    struct ms_head_op *op;
    const Muster__ClusterStatus *c = find(h, &op);

    assert_int_equal(c->n_workers, 2);
    for (size_t i = 0; i < 2; i++) {
        out[i] = (struct worker){c->workers[i]->uid,
                                 c->workers[i]->incarnation,
                                 c->workers[i]->state,
                                 c->workers[i]->memory,
                                 ""};
        snprintf(out[i].node, sizeof out[i].node, "%s", c->workers[i]->node);
    }
    ms_head_op_unref(op);
}

/* Who has its place; 0: nobody. */
static uint64_t successor(struct ms_head *h, uint64_t uid)
{
    Muster__AskSuccessor ask = MUSTER__ASK_SUCCESSOR__INIT;
    struct ms_head_op *op;
    const Muster__Successor *s;
    uint64_t now;

    ask.uid = uid;
    op = ms_head_request(h, MUSTER__DRIVER_TO_HEAD__BODY_ASK_SUCCESSOR, &ask);
    s = (const Muster__Successor *)ops_message(op);
    now = s->worker ? s->worker->uid : 0;
    ms_head_op_unref(op);
    return now;
}

static void add_step(const char *method, const char *text)
{
    Muster__Step step;
    ProtobufCBinaryData argument;

    step_init(&step, &argument, method, text);
    ops_expect(ops_add_step(driver, "actor", &step, "meta"), 0, NULL);
}

static void assert_steps(struct test_agent *agent, uint64_t uid, const char *wanted)
{
    char steps[64];

    test_agent_steps(agent, uid, steps, sizeof steps);
    assert_string_equal(steps, wanted);
}

#define RUNNING MUSTER__WORKER_STATE__WORKER_RUNNING
#define EXITED  MUSTER__WORKER_STATE__WORKER_EXITED

/* ---- the tests ------------------------------------------------------------------- */

static void test_one_rank(void **state)
{
    struct worker before[2], now[2];

    (void)state;
    create(false);
    add_step("tune", "lora");
    look(driver, before);
    assert_int_equal(before[1].incarnation, 1);
    ops_expect(restart_one(1), 0, NULL);
    look(driver, now);
    assert_int_equal(now[0].uid, before[0].uid);
    assert_int_not_equal(now[1].uid, before[1].uid);
    assert_int_equal(now[1].incarnation, 2);
    assert_int_equal(now[1].state, RUNNING);
    assert_string_equal(now[1].node, "b");
    assert_steps(b, now[1].uid, "load=7b tune=lora");
    assert_steps(a, now[0].uid, "load=7b");
    assert_int_equal(successor(driver, before[1].uid), now[1].uid);
    ops_expect_death(ops_ask_death(driver, before[1].uid), "another one has its place");
    assert_int_equal(test_agent_living(a) + test_agent_living(b), 2);
    assert_int_equal(test_agent_ports(a), 1); /* as before */
    events_wait_exits(&seen, 1);
    assert_int_equal(seen.uids[0], before[1].uid);
    assert_false(seen.requested);
    assert_non_null(strstr(seen.details[0], "ended by a restart"));
}

static void test_all_ranks(void **state)
{
    struct worker before[2], now[2];
    struct ms_head_op *op;

    (void)state;
    create(false);
    look(driver, before);
    test_agent_exit(b, before[1].uid, 9); /* also one that is dead already */
    events_wait_exits(&seen, 1);
    op = restart(driver, NULL, 0);
    assert_int_equal(((const Muster__ClusterStatus *)ops_message(op))->n_answers,
                     1); /* of rank 0 */
    ms_head_op_unref(op);
    look(driver, now);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(now[i].incarnation, 2);
        assert_int_equal(now[i].state, RUNNING);
        assert_int_equal(successor(driver, before[i].uid), now[i].uid);
    }
    ops_expect(restart_one(0), 0, NULL);
    assert_int_not_equal(successor(driver, before[0].uid), now[0].uid);
    look(driver, now);
    assert_int_equal(now[0].incarnation, 3);
    assert_int_equal(successor(driver, before[0].uid), now[0].uid); /* two before */
    ops_expect(ms_head_destroy_cluster(driver, "actor", true, before[0].uid, 0),
               0,
               NULL); /* it is still that one */
}

static void test_a_failure_leaves_these_ranks_dead(void **state)
{
    struct worker before[2], now[2];
    struct ms_head_op *op;

    (void)state;
    create(false);
    look(driver, before);
    test_agent_set_mode(b, TEST_AGENT_STEPS_FAIL);
    op = restart_one(1);
    assert_int_equal(ops_finish(op, NULL), -EREMOTEIO);
    assert_string_equal(ms_head_op_failure(op)->workers[0]->where, "actor/1@b");
    ms_head_op_unref(op);
    look(driver, now);
    assert_int_equal(now[0].uid, before[0].uid);
    assert_int_equal(now[0].state, RUNNING);
    assert_int_equal(now[1].state, EXITED);
    assert_int_equal(successor(driver, before[1].uid), 0);
    assert_int_equal(test_agent_living(b), 0);
    test_agent_set_mode(b, TEST_AGENT_FAILS); /* not even a process */
    ops_expect(restart_one(1), -EIO, "no zygote today");
    look(driver, now);
    assert_int_equal(now[1].state, EXITED);
    assert_int_equal(test_agent_living(a), 1);
    test_agent_set_mode(b, TEST_AGENT_HONEST);
    ops_expect(restart_one(1), 0, NULL);
    look(driver, now);
    assert_int_equal(now[1].incarnation, 4);
    assert_int_equal(successor(driver, before[1].uid), now[1].uid);
}

static void test_what_cannot_be_restarted(void **state)
{
    const uint32_t two = 2;
    struct ms_head_op *op;

    (void)state;
    ops_expect(restart_one(0), -ENOENT, "no cluster 'actor'");
    create(false);
    ops_expect(restart(driver, &two, 1), -EINVAL, "actor has no rank 2: it has 2");
    test_agent_set_mode(b, TEST_AGENT_STEPS_NEVER);
    op = restart_one(1);
    test_agent_wait_runs(b, 2);
    ops_expect(restart_one(0), -EBUSY, "being changed already");
    ops_expect(ms_head_resize(driver, "actor", 1, 0), -EBUSY, NULL);
    ops_expect(ops_destroy(driver, "actor", 0), 0, NULL);
    ops_expect(op, -ECANCELED, "destroyed meanwhile");
    test_agent_wait_living(a, 0);
    test_agent_wait_living(b, 0);
    test_agent_wait_ports(a, 0);
    assert_int_equal(serve_count(), 0);
}

/* The question waits until the new one has done its steps. */
static void test_successors_are_asked_meanwhile(void **state)
{
    Muster__AskSuccessor ask = MUSTER__ASK_SUCCESSOR__INIT;
    struct ms_head_op *op, *question;
    struct worker before[2], now[2];

    (void)state;
    create(false);
    look(driver, before);
    test_agent_set_mode(b, TEST_AGENT_KEEPS);
    op = restart_one(1);
    test_agent_wait_started(b, 2);
    ask.uid = before[1].uid;
    question =
        ms_head_request(driver, MUSTER__DRIVER_TO_HEAD__BODY_ASK_SUCCESSOR, &ask);
    ops_expect(ms_head_status(driver), 0, NULL); /* it has arrived */
    assert_int_equal(ms_head_op_result(question, NULL), -EINPROGRESS);
    test_agent_answer(b);
    test_agent_set_mode(b, TEST_AGENT_HONEST);
    ops_expect(op, 0, NULL);
    look(driver, now);
    assert_int_equal(((const Muster__Successor *)ops_message(question))->worker->uid,
                     now[1].uid);
    ms_head_op_unref(question);
}

static void test_a_rank_moves_when_its_node_is_gone(void **state)
{
    struct worker before[2], now[2];

    (void)state;
    create(false);
    look(driver, before);
    test_agent_end(b);
    events_wait_exits(&seen, 1);
    ops_expect(restart_one(1), 0, NULL);
    look(driver, now);
    assert_string_equal(now[1].node, "a");
    assert_int_equal(now[1].incarnation, 2);
    assert_int_equal(test_agent_living(a), 2);
    assert_steps(a, now[1].uid, "load=7b");
    assert_int_equal(now[0].uid, before[0].uid);
}

/* Others meet at rank 0: the cluster's port goes where it goes. */
static void test_the_port_moves_with_rank_0(void **state)
{
    struct worker now[2];
    char env[32];

    (void)state;
    create(false);
    test_agent_end(a);
    events_wait_exits(&seen, 1);
    ops_expect(restart(driver, NULL, 0), 0, NULL);
    look(driver, now);
    assert_string_equal(now[0].node, "b");
    assert_int_equal(test_agent_ports(b), 1);
    test_agent_env(b, now[1].uid, "MASTER_ADDR", env, sizeof env);
    assert_string_equal(env, "b.host");
    ops_expect(ops_destroy(driver, "actor", 0), 0, NULL);
    test_agent_wait_ports(b, 0);
}

/* A device that was named is on that node, and nowhere else. */
static void test_a_mapped_device_does_not_move(void **state)
{
    struct worker now[2];
    struct ms_head_op *op;
    struct ms_error err = {0};
    struct spec s;

    (void)state;
    serve_spec(&s, "actor");
    ops_expect(spec_create(driver, &s), 0, NULL);
    test_agent_end(b);
    events_wait_exits(&seen, 1);
    op = restart(driver, NULL, 0);
    assert_int_equal(ops_finish(op, &err), -ENOSPC);
    if (!strstr(err.text, "actor/1: node b is gone"))
        fail_msg("%s", err.text);
    assert_non_null(ms_head_op_table(op));
    ms_head_op_unref(op);
    look(driver, now);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(now[i].state, EXITED);
    ops_expect(restart_one(0), 0, NULL); /* whose node is there */
    b = serve_agent("b");
    ops_expect(restart_one(1), 0, NULL); /* it is back */
    look(driver, now);
    assert_string_equal(now[1].node, "b");
    ops_expect(ops_destroy(driver, "actor", 0), 0, NULL);
}

/* ---- more memory: nodes have 1 GiB each --------------------------------------------- */

#define MIB(n) ((uint64_t)(n) << 20)

static struct ms_head_op *
create_of(const char *name, const char *node, uint32_t ranks, uint64_t memory)
{
    struct spec s;

    spec_init(&s, name, ranks);
    s.place.memory = s.worker.memory_limit = memory;
    if (node)
        spec_add_node(&s, node);
    return spec_create(driver, &s);
}

static struct ms_head_op *restart_with(uint32_t rank, uint64_t memory)
{
    static char name[] = "actor";
    Muster__RestartWorkers m = MUSTER__RESTART_WORKERS__INIT;

    m.cluster = name;
    m.ranks = &rank;
    m.n_ranks = 1;
    m.memory = memory;
    return ms_head_restart(driver, &m);
}

/* So much is free there, and no more. */
static void assert_free(const char *node, uint64_t memory)
{
    ops_expect(create_of("probe", node, 1, memory + 1), -ENOSPC, "memory");
    ops_expect(create_of("probe", node, 1, memory), 0, NULL);
    ops_expect(ops_destroy(driver, "probe", 0), 0, NULL);
}

static void test_more_memory_where_it_is(void **state)
{
    struct worker before[2], now[2];

    (void)state;
    ops_expect(create_of("actor", NULL, 2, MIB(200)), 0, NULL);
    look(driver, before);
    ops_expect(restart_with(1, MIB(300)), 0, NULL);
    look(driver, now);
    assert_string_equal(now[1].node, "b");
    assert_int_equal(now[1].memory, MIB(300));
    assert_int_equal(test_agent_memory(b, now[1].uid), MIB(300));
    assert_int_equal(now[0].uid, before[0].uid); /* and its limit, are as they were */
    assert_int_equal(now[0].memory, MIB(200));
    assert_free("a", MIB(1024 - 200));
    assert_free("b", MIB(1024 - 300));
    ops_expect(restart_one(0), 0, NULL); /* what is new has what was asked for last */
    look(driver, now);
    assert_int_equal(now[0].memory, MIB(300));
    assert_int_equal(test_agent_memory(a, now[0].uid), MIB(300));
    assert_free("a", MIB(1024 - 300));
    ops_expect(ops_destroy(driver, "actor", 0), 0, NULL);
    assert_free("a", MIB(1024));
    assert_free("b", MIB(1024));
}

static void test_more_memory_elsewhere(void **state)
{
    struct worker now[2];

    (void)state;
    ops_expect(create_of("actor", NULL, 2, MIB(200)), 0, NULL);
    ops_expect(create_of("other", "b", 1, MIB(500)), 0, NULL);
    ops_expect(restart_with(1, MIB(600)), 0, NULL);
    look(driver, now);
    assert_string_equal(now[1].node, "a"); /* "b" has 524 for it */
    assert_int_equal(now[1].memory, MIB(600));
    assert_free("a", MIB(1024 - 800));
    assert_free("b", MIB(1024 - 500));
    ops_expect(restart_with(1, MIB(900)), -ENOSPC, "memory"); /* nowhere */
    look(driver, now);
    assert_int_equal(now[1].state, EXITED);
    assert_int_equal(now[0].state, RUNNING);
    assert_free("a", MIB(1024 - 800)); /* its place is kept */
    ops_expect(restart_with(1, MIB(700)), 0, NULL);
    look(driver, now);
    assert_int_equal(now[1].state, RUNNING);
    assert_int_equal(now[1].memory, MIB(700));
    assert_free("a", MIB(1024 - 900));
}

/* A rank of a certain device stays where that is, or waits. */
static void test_more_memory_beside_a_device(void **state)
{
    struct worker now[2];
    struct spec s;

    (void)state;
    serve_spec(&s, "actor");
    s.place.memory = s.worker.memory_limit = MIB(200);
    ops_expect(spec_create(driver, &s), 0, NULL);
    ops_expect(restart_with(1, MIB(1000)), 0, NULL);
    look(driver, now);
    assert_string_equal(now[1].node, "b");
    assert_int_equal(now[1].memory, MIB(1000));
    ops_expect(restart_with(1, MIB(2000)), -ENOSPC, "actor/1");
    ops_expect(restart_with(1, MIB(1000)), 0, NULL);
    ops_expect(ops_destroy(driver, "actor", 0), 0, NULL);
}

static uint64_t place_group(uint32_t count, uint64_t memory)
{
    Muster__BundleSpec bundle = MUSTER__BUNDLE_SPEC__INIT, *list[] = {&bundle};
    Muster__PlaceGroup group = MUSTER__PLACE_GROUP__INIT;
    struct ms_head_op *op;
    uint64_t id;

    bundle.memory = memory;
    bundle.count = count;
    group.bundles = list;
    group.n_bundles = 1;
    op = ms_head_request(driver, MUSTER__DRIVER_TO_HEAD__BODY_PLACE_GROUP, &group);
    id = ((const Muster__GroupStatus *)ops_message(op))->id;
    ms_head_op_unref(op);
    return id;
}

/* What a group holds is what its ranks can have. */
static void test_no_more_memory_in_a_bundle(void **state)
{
    Muster__Seat seats[2], *list[] = {&seats[0], &seats[1]};
    uint64_t group = place_group(2, MIB(200));
    struct worker now[2];
    struct spec s;

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        muster__seat__init(&seats[i]);
        seats[i].group = group;
        seats[i].bundle = i;
    }
    spec_init(&s, "actor", 2);
    s.place.memory = s.worker.memory_limit = MIB(200);
    s.place.seats = list;
    s.place.n_seats = 2;
    ops_expect(spec_create(driver, &s), 0, NULL);
    ops_expect(restart_with(1, MIB(300)), -ENOTSUP, "what the bundles of a group hold");
    ops_expect(restart_with(1, MIB(200)), 0, NULL); /* as it is */
    look(driver, now);
    assert_int_equal(now[1].state, RUNNING);
}

/* ---- without its driver, and with another head ------------------------------------- */

static void test_without_its_driver(void **state)
{
    struct worker before[2], now[2];

    (void)state;
    create(true);
    look(driver, before);
    ms_head_stop(MS_TAKE(driver), 0);
    test_agent_wait_contexts(a, 0);
    ops_expect(restart(serve_head, NULL, 0), 0, NULL);
    look(serve_head, now);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(now[i].incarnation, 2);
        assert_int_equal(successor(serve_head, before[i].uid), now[i].uid);
    }
    test_agent_wait_contexts(a, 0); /* told for that start alone */
    assert_steps(a, now[0].uid, "load=7b");
}

/* It crashes, and one that is started again goes on where it was. */
static void crash(void)
{
    ms_head_crash(serve_head);
    serve_begin(serve_address);
    assert_true(test_agent_come_back(a, serve_address));
    assert_true(test_agent_come_back(b, serve_address));
}

static void test_after_a_crash_of_the_head(void **state)
{
    struct worker before[2], between[2], now[2];
    struct ms_head_op *op;
    const Muster__ClusterStatus *c;

    (void)state;
    create(true);
    look(driver, before);
    add_step("tune", "lora");
    ops_expect(restart_one(1), 0, NULL);
    look(driver, between);
    crash();
    assert_int_equal(successor(driver, before[1].uid), between[1].uid); /* kept */
    c = find(driver, &op);
    assert_int_equal(c->meta.len, 4);
    assert_true(c->detached);
    ms_head_op_unref(op);
    ops_expect(restart(driver, NULL, 0), 0, NULL);
    look(driver, now);
    assert_int_equal(now[0].incarnation, 2);
    assert_int_equal(now[1].incarnation, 3);
    assert_steps(b, now[1].uid, "load=7b tune=lora");
    assert_int_equal(successor(driver, before[0].uid), now[0].uid);
    assert_int_equal(successor(driver, before[1].uid), now[1].uid);
    assert_int_equal(test_agent_living(a) + test_agent_living(b), 2);
    ops_expect(ops_destroy(driver, "actor", 0), 0, NULL);
    test_agent_wait_ports(a, 0);
}

static void test_after_a_crash_without_its_driver(void **state)
{
    struct worker before[2], now[2];

    (void)state;
    create(true);
    look(driver, before);
    ms_head_stop(MS_TAKE(driver), 0);
    crash();
    ops_expect(restart(serve_head, NULL, 0), 0, NULL);
    look(serve_head, now);
    assert_int_equal(now[1].incarnation, 2);
    assert_int_equal(successor(serve_head, before[1].uid), now[1].uid);
    ops_expect(ops_destroy(serve_head, "actor", 0), 0, NULL);
    assert_int_equal(serve_count(), 0);
    crash();
    assert_int_equal(serve_count(), 0); /* nothing of it is kept */
}

/* What drivers tell each other of a cluster just fits into the message that sets it, and not
 * into the one that has the workers too. */
static void test_an_answer_that_no_link_carries(void **state)
{
    size_t len = MS_CONTROL_MAX - 128;
    char *meta = malloc(len + 1);
    Muster__Step step;
    ProtobufCBinaryData argument;

    (void)state;
    create(false);
    memset(meta, 'x', len);
    meta[len] = 0;
    step_init(&step, &argument, "m", "1");
    ops_expect(ops_add_step(driver, "actor", &step, meta), 0, NULL);
    ops_expect(ops_find_cluster(driver, "actor"), -EMSGSIZE, "'find' has more than");
    free(meta);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_one_rank),
        TEST(test_an_answer_that_no_link_carries),
        TEST(test_all_ranks),
        TEST(test_a_failure_leaves_these_ranks_dead),
        TEST(test_what_cannot_be_restarted),
        TEST(test_successors_are_asked_meanwhile),
        TEST(test_a_rank_moves_when_its_node_is_gone),
        TEST(test_the_port_moves_with_rank_0),
        TEST(test_a_mapped_device_does_not_move),
        TEST(test_more_memory_where_it_is),
        TEST(test_more_memory_elsewhere),
        TEST(test_more_memory_beside_a_device),
        TEST(test_no_more_memory_in_a_bundle),
        TEST(test_without_its_driver),
        TEST(test_after_a_crash_of_the_head),
        TEST(test_after_a_crash_without_its_driver),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
