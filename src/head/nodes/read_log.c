/* read_log.c - a piece of a log of one node */
#include "base/cleanup.h"
#include "head/nodes/ask.h"
#include "head/nodes/node.h"
#include "head/ops/op.h"

#include <errno.h>

static void
answered(struct ms_head_op *op, struct ms_node *n, Muster__AgentToHead *answer)
{
    (void)n;
    if (answer->body_case == MUSTER__AGENT_TO_HEAD__BODY_PIECE)
        ms_head_op_succeed(op, &MS_TAKE(answer->piece)->base);
    else
        ms_head_op_fail(op, -EPROTO, "the node gave another answer than was asked for");
}

void ms_head_read_log_run(struct ms_head_op *op)
{
    Muster__ReadLog *want = op->wanted->read_log;
    struct ms_node *n = ms_node_find(op->head, want->node);
    struct ms_error err = {0};

    op->on_answer = answered;
    if (!n)
        ms_head_op_fail(
            op, -ENODEV, "node %.64s is gone, and its logs with it", want->node);
    else if (ms_node_ask(n, op, MUSTER__HEAD_TO_AGENT__BODY_READ_LOG, want, &err) < 0)
        ms_head_op_fail_with(op, &err);
}
