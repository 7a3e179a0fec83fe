/* ending.c - ending ranks of a cluster in order, rank 0 last */
#include "head/clusters/ending.h"
#include "base/cleanup.h"
#include "base/name.h"
#include "head/head_impl.h"
#include "head/nodes/node.h"
#include "head/ops/op.h"
#include "wire/frame.h"

#include <errno.h>
#include <string.h>

size_t ms_ending_left(const struct ms_head_op *op)
{
    return ms_end_plan_left(&op->ending.plan, op->cluster);
}

void ms_ending_late(struct ms_head_op *op)
{
    ms_end_plan_late(&op->ending.plan, op->cluster, &op->error);
}

static void finish(struct ms_head_op *op)
{
    ms_timer_finish(&op->deadline);
    op->on_answer = NULL;
    op->on_refused = NULL;
    op->ending.is_over = true;
    op->ending.done(op);
}

/* ---- asking ---------------------------------------------------------------------- */

static size_t uids_on(const struct ms_head_op *op,
                      const struct ms_end_wave *wave,
                      const char *node,
                      uint64_t *out)
{
    const struct ms_cluster *c = op->cluster;
    size_t n = 0;

    for (size_t i = 0; i < c->count; i++)
        if (ms_end_plan_asks(&op->ending.plan, wave, &c->slots[i]) &&
            strcmp(c->slots[i].node, node) == 0)
            out[n++] = c->slots[i].now.uid;
    return n;
}

/* The number of nodes that were asked, or -ENOMEM. */
static int ask(struct ms_head_op *op, const struct ms_end_wave *wave)
{
    MS_CLEANUP(ms_cleanup_free)
    uint64_t *uids = calloc(op->cluster->count + 1, sizeof *uids);
    Muster__StopWorkers stop = MUSTER__STOP_WORKERS__INIT;
    int asked = 0;

    if (!uids)
        return -ENOMEM;
    stop.uids = uids;
    stop.grace_ns = (uint64_t)wave->grace_ns;
    ms_list_each (n, &op->head->nodes, struct ms_node, link) {
        int rc = -EPIPE;

        stop.n_uids = uids_on(op, wave, n->name, uids);
        if (stop.n_uids)
            rc = ms_node_ask(n, op, MUSTER__HEAD_TO_AGENT__BODY_STOP, &stop, NULL);
        if (rc == -ENOMEM)
            return rc;
        asked += rc == 0;
    }
    return asked;
}

/* ---- in order -------------------------------------------------------------------- */

static void on_late(void *arg)
{
    struct ms_head_op *op = arg;

    ms_head_op_drop_asks(op);
    finish(op);
}

/* The next wave. Nodes that are gone have ended their workers; others that live are seen. What
 * cannot be asked for want of memory is looked at when the time is up. */
static void stop_next(struct ms_head_op *op)
{
    struct ms_end_wave wave;

    if (!ms_end_plan_next(&op->ending.plan, ms_now_ns(), &wave)) {
        finish(op);
        return;
    }
    ms_head_op_gather(op, stop_next);
    if (ask(op, &wave) == 0)
        stop_next(op);
}

/* Its engines clean up now, as those of the others do; nobody waits for the answer. */
static void clean_first(struct ms_head_op *op)
{
    const struct ms_slot *first = &op->cluster->slots[0];
    struct ms_node *n = ms_node_find(op->head, first->node);
    Muster__RunSteps run = MUSTER__RUN_STEPS__INIT;
    Muster__Step step = MUSTER__STEP__INIT, *steps[] = {&step};
    ProtobufCBinaryData null = {0, NULL}; /* in plain data */

    step.op = MS_OP_FINISH;
    step.codec = MS_CODEC_PLAIN;
    step.arguments = &null;
    step.n_arguments = 1;
    run.uid = first->now.uid;
    run.run = ms_random_id();
    run.steps = steps;
    run.n_steps = 1;
    if (n)
        ms_node_tell(n, MUSTER__HEAD_TO_AGENT__BODY_RUN_STEPS, &run);
}

int ms_ending_begin(struct ms_head_op *op,
                    bool is_all,
                    int64_t grace_ns,
                    void (*done)(struct ms_head_op *op))
{
    struct ms_end_plan *plan = &op->ending.plan;

    op->ending.is_over = false;
    op->ending.done = done;
    ms_end_plan_init(plan, op->cluster, is_all, grace_ns, ms_now_ns());
    if (ms_head_op_set_deadline(op, on_late, ms_end_plan_time_ns(plan)) < 0)
        return -ENOMEM;
    if (plan->cleans_first)
        clean_first(op);
    stop_next(op);
    return 0;
}
