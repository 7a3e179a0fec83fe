#include "base/cleanup.h"
#include "cluster/copy.h"
#include "head/control_impl.h"
#include "head/nodes/node.h"
#include "head/op.h"

#include <errno.h>

/* ---- asking a node ---------------------------------------------------------------- */

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
    Muster__HeadToAgent m = MUSTER__HEAD_TO_AGENT__INIT;
    struct ms_error err = {0};

    m.body_case = MUSTER__HEAD_TO_AGENT__BODY_READ_LOG;
    m.read_log = want;
    op->on_answer = answered;
    if (!n)
        ms_head_op_fail(
            op, -ENODEV, "node %.64s is gone, and its logs with it", want->node);
    else if (ms_node_check(n, &err) < 0 || ms_node_ask(n, op, &m, &err) < 0)
        ms_head_op_fail_with(op, &err);
}

struct ms_head_op *ms_head_read_log(struct ms_head *h,
                                    const Muster__ReadLog *want,
                                    void (*on_done)(struct ms_head_op *op),
                                    void *arg)
{
    struct ms_head_op *op = ms_head_op_create(h);
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;

    if (!op)
        return NULL;
    m.body_case = MUSTER__DRIVER_TO_HEAD__BODY_READ_LOG;
    m.read_log = (Muster__ReadLog *)(uintptr_t)want;
    op->wanted = (Muster__DriverToHead *)ms_proto_copy(&m.base);
    op->run = ms_head_read_log_run;
    if (!op->wanted) {
        ms_head_op_fail(op, -ENOMEM, "out of memory");
        ms_head_op_unref(op);
        return NULL;
    }
    op->on_done = on_done;
    op->done_arg = arg;
    return ms_head_op_submit(op);
}

/* ---- `muster logs` ---------------------------------------------------------------- */

void ms_head_control_read_log(struct ms_head *h, struct ms_request *r)
{
    Muster__ReadLog *want = muster__read_log__unpack(NULL, r->len, r->body);
    struct ms_head_op *op =
        want ? ms_head_read_log(h, want, ms_head_control_answer, r) : NULL;

    if (op)
        ms_head_op_unref(op);
    else
        ms_request_fail_text(
            r, MUSTER__FAILURE__KIND__BAD_ARGUMENT, "the request cannot be read");
    if (want)
        muster__read_log__free_unpacked(want, NULL);
}
