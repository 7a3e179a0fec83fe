#include "base/cleanup.h"
#include "head/state.h"

#include <errno.h>

/* `r` is an operation of its own: the node is asked, its answer is the reply. */
struct read {
    struct ms_request *request;
    Muster__ReadLog *want;
};

static void
answered(struct ms_head_op *op, struct ms_node *n, Muster__AgentToHead *answer)
{
    (void)n;
    if (answer->body_case == MUSTER__AGENT_TO_HEAD__BODY_PIECE)
        ms_head_op_succeed(op, &MS_TAKE(answer->piece)->base);
    else
        ms_head_op_fail(op, -EPROTO, "the node gave another answer than was asked for");
}

static void on_done(struct ms_head_op *op)
{
    struct read *r = op->done_arg;
    struct ms_error err = {0};

    if (ms_head_op_result(op, &err) < 0)
        ms_request_fail_text(
            r->request, MUSTER__FAILURE__KIND__REFUSED, "%s", err.text);
    else
        ms_head_control_reply(r->request, ms_head_op_message(op));
    muster__read_log__free_unpacked(r->want, NULL);
    free(r);
}

static void run(struct ms_head_op *op)
{
    struct read *r = op->done_arg;
    struct ms_node *n = ms_node_find(op->head, r->want->node);
    Muster__HeadToAgent m = MUSTER__HEAD_TO_AGENT__INIT;
    struct ms_error err = {0};

    m.body_case = MUSTER__HEAD_TO_AGENT__BODY_READ_LOG;
    m.read_log = r->want;
    op->on_answer = answered;
    if (!n)
        ms_head_op_fail(
            op, -ENODEV, "node %s is gone, and its logs with it", r->want->node);
    else if (ms_node_check(n, &err) < 0 || ms_node_ask(n, op, &m, &err) < 0)
        ms_head_op_fail_with(op, &err);
}

void ms_head_control_read_log(struct ms_head *h, struct ms_request *r)
{
    struct read *read = calloc(1, sizeof *read);
    struct ms_head_op *op = read ? ms_head_op_create(h) : NULL;

    if (read)
        read->want = muster__read_log__unpack(NULL, r->len, r->body);
    if (!op || !read->want) {
        ms_request_fail_text(
            r, MUSTER__FAILURE__KIND__BAD_ARGUMENT, "the request cannot be read");
        if (op) {
            ms_head_op_fail(op, -EINVAL, "the request cannot be read");
            ms_head_op_unref(op);
        }
        free(read);
        return;
    }
    read->request = r;
    op->done_arg = read;
    op->on_done = on_done;
    op->run = run;
    ms_head_op_unref(ms_head_op_submit(op));
}
