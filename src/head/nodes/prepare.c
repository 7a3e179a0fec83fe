#include "head/drivers/driver.h"
#include "head/head_impl.h"
#include "head/nodes/ask.h"
#include "head/nodes/node.h"
#include "head/ops/op.h"

static void prepare_step(struct ms_head_op *op)
{
    if (!ms_list_is_empty(&op->asks))
        return;
    if (op->why.code)
        ms_head_op_fail_with(op, &op->why);
    else
        ms_head_op_succeed(op, NULL);
}

static void
prepared(struct ms_head_op *op, struct ms_node *n, Muster__AgentToHead *answer)
{
    (void)n;
    (void)answer;
    prepare_step(op);
}

static void
not_prepared(struct ms_head_op *op, struct ms_node *n, const struct ms_error *why)
{
    (void)n;
    op->why = *why;
    prepare_step(op);
}

void ms_head_prepare_run(struct ms_head_op *op)
{
    Muster__HeadToAgent m = MUSTER__HEAD_TO_AGENT__INIT;

    op->on_answer = prepared;
    op->on_refused = not_prepared;
    m.body_case = MUSTER__HEAD_TO_AGENT__BODY_PREPARE;
    m.prepare = op->wanted->prepare;
    m.prepare->driver = ms_driver_id(op->driver);
    ms_list_each (n, &op->head->nodes, struct ms_node, link)
        if (ms_driver_introduce(op->driver, n, &op->why) == 0)
            ms_node_ask(n, op, &m, &op->why);
    prepare_step(op);
}
