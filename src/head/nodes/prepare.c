/* prepare.c - warming a zygote on every node */
#include "head/drivers/driver.h"
#include "head/head_impl.h"
#include "head/nodes/ask.h"
#include "head/nodes/node.h"
#include "head/ops/op.h"

static void prepared(struct ms_head_op *op)
{
    ms_head_op_complete(op, &op->why, NULL);
}

static void
not_prepared(struct ms_head_op *op, struct ms_node *n, const struct ms_error *why)
{
    (void)n;
    op->why = *why;
    ms_head_op_gather_end(op);
}

void ms_head_prepare_run(struct ms_head_op *op)
{
    Muster__Prepare *prepare = op->wanted->prepare;

    ms_head_op_gather(op, prepared);
    op->on_refused = not_prepared;
    prepare->driver = ms_driver_id(op->driver);
    ms_list_each (n, &op->head->nodes, struct ms_node, link)
        if (ms_driver_introduce(op->driver, n, &op->why) == 0)
            ms_node_ask(n, op, MUSTER__HEAD_TO_AGENT__BODY_PREPARE, prepare, &op->why);
    ms_head_op_gather_end(op);
}
