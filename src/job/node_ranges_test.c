/* node_ranges_test.c - tests of node_ranges.h: nodes of a job that come later */
#include "base/clock.h"
#include "job/node_ranges.h"
#include "orchestrator/sim/sim.h"
#include "orchestrator/whole_nodes.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { NODES_MAX = 16 };

#define SOON_NS (60 * MS_NS_PER_S)

static struct ms_job read_job(const char *nodes)
{
    struct ms_job job;
    struct ms_error err = {0};

    if (ms_job_read(&job, "job.yaml", nodes, strlen(nodes), &err) < 0)
        fail_msg("%s", err.text);
    return job;
}

/* ---- what is asked for ----------------------------------------------------------------- */

static const char mixed[] = "nodes:\n"
                            "- {name: head, cpus: 4}\n"
                            "- {name: n, cpus: 4, count: '2:6:2'}\n"
                            "- {name: m, cpus: 2, count: '1:2'}\n"
                            "- {name: tail, cpus: 4}\n";

static void test_the_least(void **state)
{
    static const uint32_t wanted[] = {0, 1, 2, 7, 9};
    struct ms_job job = read_job(mixed), none = read_job("name: none\n");
    uint32_t nodes[NODES_MAX];

    (void)state;
    assert_int_equal(ms_job_nodes_count(&job), 10);
    assert_int_equal(ms_job_nodes_least(&job, nodes), 5);
    assert_memory_equal(nodes, wanted, sizeof wanted);
    assert_int_equal(ms_job_nodes_count(&none), 1); /* this machine */
    assert_int_equal(ms_job_nodes_least(&none, nodes), 1);
    ms_job_finish(&job);
    ms_job_finish(&none);
}

static void test_more_in_whole_units(void **state)
{
    struct ms_job job = read_job(mixed);
    uint8_t is[NODES_MAX] = {0};
    uint32_t nodes[NODES_MAX];

    (void)state;
    assert_int_equal(ms_job_nodes_more(&job, 0, is, nodes), 0); /* below its least */
    assert_int_equal(ms_job_nodes_held(&job, 0, is), 2);
    /* which of them are there does not matter; a third one is half a unit */
    is[2] = is[4] = is[6] = MS_JOB_NODE_LENT;
    assert_int_equal(ms_job_nodes_more(&job, 0, is, nodes), 1);
    assert_int_equal(nodes[0], 1);
    assert_int_equal(ms_job_nodes_more(&job, 0, is, nodes), 2);
    assert_int_equal(nodes[0], 3);
    assert_int_equal(nodes[1], 5);
    assert_int_equal(ms_job_nodes_more(&job, 0, is, nodes), 0);
    assert_int_equal(ms_job_nodes_held(&job, 0, is), 6);
    is[8] = MS_JOB_NODE_LENT;
    assert_int_equal(ms_job_nodes_more(&job, 1, is, nodes), 1);
    assert_int_equal(nodes[0], 7);
    ms_job_finish(&job);
}

static void test_what_is_lost(void **state)
{
    struct ms_job job = read_job(mixed);
    uint8_t is[NODES_MAX];
    uint32_t node = 99;

    (void)state;
    memset(is, MS_JOB_NODE_LENT, sizeof is);
    assert_false(ms_job_nodes_find_lost(&job, is, &node));
    is[1] = is[3] = is[5] = is[6] = is[8] = MS_JOB_NODE_ABSENT; /* two of n, one of m */
    assert_false(ms_job_nodes_find_lost(&job, is, &node));
    is[4] = MS_JOB_NODE_ENDED; /* it is given back, and asked for again */
    assert_true(ms_job_nodes_find_lost(&job, is, &node));
    assert_int_equal(node, 4);
    is[4] = MS_JOB_NODE_ABSENT; /* one of n is too few */
    assert_true(ms_job_nodes_find_lost(&job, is, &node));
    assert_int_equal(node, 1);
    is[1] = MS_JOB_NODE_ASKED;
    assert_false(ms_job_nodes_find_lost(&job, is, &node));
    is[9] = MS_JOB_NODE_ABSENT; /* it is needed for itself */
    assert_true(ms_job_nodes_find_lost(&job, is, &node));
    assert_int_equal(node, 9);
    ms_job_finish(&job);
}

/* ---- on a simulated backend ------------------------------------------------------------- */

struct sim {
    struct ms_sim *backend;
    struct ms_orchestrator *o;
    struct ms_whole_nodes nodes;
};

struct answer {
    bool is_there;
    int rc;
};

static void on_answer(void *arg,
                      int rc,
                      const struct ms_error *why,
                      const struct ms_orch_answer *answer)
{
    (void)why;
    (void)answer;
    *(struct answer *)arg = (struct answer){true, rc};
}

static void run(struct sim *s, const struct answer *until)
{
    int64_t end_ns = ms_sim_now_ns(s->backend) + 2 * SOON_NS;

    while (!until->is_there && ms_sim_step(s->backend, end_ns))
        ;
    assert_true(until->is_there);
}

static void reserve(struct sim *s,
                    const char *key,
                    bool is_more,
                    const uint32_t *nodes,
                    size_t count,
                    struct answer *answer)
{
    struct ms_bundle bundles[NODES_MAX];
    struct ms_reserve r = {.key = key,
                           .is_more = is_more,
                           .pieces = {.bundles = bundles,
                                      .count = count,
                                      .strategy = MS_STRATEGY_STRICT_SPREAD},
                           .timeout_ns = SOON_NS};

    for (size_t i = 0; i < count; i++)
        bundles[i] = s->nodes.bundles[nodes[i]];
    *answer = (struct answer){0};
    assert_non_null(s->o->ops->reserve(s->o, &r, on_answer, answer));
}

/* Ask for all that the range lacks, side by side; how many nodes have come. */
static size_t ask_more(struct sim *s, const struct ms_job *job, uint8_t *is)
{
    uint32_t nodes[NODES_MAX][NODES_MAX];
    struct answer answers[NODES_MAX];
    size_t counts[NODES_MAX], asks = 0, came = 0;

    while ((counts[asks] = ms_job_nodes_more(job, 0, is, nodes[asks])) > 0) {
        reserve(s, "job", true, nodes[asks], counts[asks], &answers[asks]);
        asks++;
    }
    for (size_t i = 0; i < asks; i++) {
        run(s, &answers[i]);
        assert_true(answers[i].rc == 0 || answers[i].rc == -ETIMEDOUT);
        for (size_t k = 0; k < counts[i]; k++)
            is[nodes[i][k]] = answers[i].rc ? MS_JOB_NODE_ABSENT : MS_JOB_NODE_LENT;
        came += answers[i].rc ? 0 : counts[i];
    }
    return came;
}

/* Three of four nodes are free, then the fourth. */
static void test_a_node_that_comes_later(void **state)
{
    struct ms_job job = read_job("nodes: [{name: n, cpus: 4, memory: 8GiB, "
                                 "count: '2:4'}]\n");
    struct sim s = {0};
    struct ms_stock stock;
    uint8_t is[NODES_MAX] = {0};
    uint32_t nodes[NODES_MAX];
    struct answer answer;

    (void)state;
    assert_int_equal(ms_whole_nodes_init(&s.nodes,
                                         (const Muster__NodeShape *const *)job.nodes,
                                         job.node_count,
                                         true,
                                         NULL),
                     0);
    assert_int_equal(ms_whole_nodes_stock(&s.nodes, &stock, NULL), 0);
    s.backend = ms_sim_create(&(struct ms_sim_options){
        .seed = 1, .stock = &stock, .faults = {.start_ns = MS_NS_PER_S}});
    s.o = ms_orchestrator_sim(s.backend);
    reserve(&s, "other", false, (uint32_t[]){0}, 1, &answer);
    run(&s, &answer);
    reserve(&s, "job", false, nodes, ms_job_nodes_least(&job, nodes), &answer);
    run(&s, &answer);
    assert_int_equal(answer.rc, 0);
    is[0] = is[1] = MS_JOB_NODE_LENT;
    assert_int_equal(ask_more(&s, &job, is), 1);
    assert_int_equal(ms_job_nodes_held(&job, 0, is), 3);
    assert_int_equal(ask_more(&s, &job, is), 0);
    answer = (struct answer){0};
    assert_non_null(s.o->ops->release(s.o, "other", NULL, 0, on_answer, &answer));
    run(&s, &answer);
    assert_int_equal(ask_more(&s, &job, is), 1);
    assert_int_equal(ms_job_nodes_held(&job, 0, is), 4);
    assert_int_equal(ask_more(&s, &job, is), 0);
    s.o->ops->destroy(s.o);
    ms_sim_destroy(s.backend);
    ms_stock_finish(&stock);
    ms_whole_nodes_finish(&s.nodes);
    ms_job_finish(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_least),
        cmocka_unit_test(test_more_in_whole_units),
        cmocka_unit_test(test_what_is_lost),
        cmocka_unit_test(test_a_node_that_comes_later),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
