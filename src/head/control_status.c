/* control_status.c - what there is now, and waiting until that is something else */
#include "base/limits.h"
#include "head/control_impl.h"
#include "head/head_impl.h"
#include "head/op.h"
#include "head/status.h"
#include "head/waiting.h"

#include <errno.h>
#include <stdlib.h>

static void answer(struct ms_head_op *op)
{
    Muster__Status *s = ms_head_status_message(op->head);

    if (s)
        ms_head_op_succeed(op, &s->base);
    else
        ms_head_op_fail(op, -ENOMEM, "out of memory");
}

static void on_late(void *arg)
{
    answer(arg);
}

/* Nothing has changed: it waits until something has. False: it does not. */
static bool hold(struct ms_head_op *op)
{
    const Muster__StatusRequest *asked = op->wanted->status;
    struct ms_head *h = op->head;

    if (asked->wait_ns == 0 || asked->seen != h->status.change ||
        ms_timer_init(&op->deadline, h->loop, on_late, op) < 0)
        return false;
    ms_list_add_tail(&h->status.watching, &op->wait_link);
    ms_timer_set(&op->deadline,
                 asked->wait_ns < MS_HOLD_MAX_NS ? (int64_t)asked->wait_ns
                                                 : MS_HOLD_MAX_NS);
    return true;
}

void ms_head_status_run(struct ms_head_op *op)
{
    if (op->driver && ms_head_wait_for_nodes(op))
        return; /* it would plan with nodes that are not all of them */
    if (!hold(op))
        answer(op);
}

void ms_head_changed(struct ms_head *h)
{
    h->status.change++;
    ms_list_each (op, &h->status.watching, struct ms_head_op, wait_link)
        answer(op);
}

/* ---- for tools ------------------------------------------------------------------- */

/* Takes `asked`. */
static struct ms_head_op *
ask(struct ms_head *h, Muster__StatusRequest *asked, struct ms_request *r)
{
    struct ms_head_op *op = ms_head_op_create(h);
    Muster__DriverToHead *m = op ? malloc(sizeof *m) : NULL;

    if (!m) {
        muster__status_request__free_unpacked(asked, NULL);
        if (op)
            ms_head_op_fail(op, -ENOMEM, "out of memory");
        ms_head_op_unref(op);
        return NULL;
    }
    muster__driver_to_head__init(m);
    m->body_case = MUSTER__DRIVER_TO_HEAD__BODY_STATUS;
    m->status = asked;
    op->wanted = m;
    op->run = ms_head_status_run;
    op->on_done = ms_head_control_answer;
    op->done_arg = r;
    return ms_head_op_submit(op);
}

static void reply_now(struct ms_head *h, struct ms_request *r)
{
    Muster__Status *s = ms_head_status_message(h);

    if (!s) {
        ms_request_fail_text(r, MUSTER__FAILURE__KIND__NO_MEMORY, "out of memory");
        return;
    }
    ms_head_control_reply(r, &s->base);
    muster__status__free_unpacked(s, NULL);
}

void ms_head_control_status(struct ms_head *h, struct ms_request *r)
{
    Muster__StatusRequest *asked =
        muster__status_request__unpack(NULL, r->len, r->body);
    struct ms_head_op *op;

    if (!asked) {
        ms_request_fail_text(
            r, MUSTER__FAILURE__KIND__BAD_ARGUMENT, "the request cannot be read");
    } else if (asked->wait_ns == 0) {
        reply_now(h, r);
        muster__status_request__free_unpacked(asked, NULL);
    } else {
        op = ask(h, asked, r);
        if (op)
            ms_head_op_unref(op);
        else
            ms_request_fail_text(r, MUSTER__FAILURE__KIND__NO_MEMORY, "out of memory");
    }
}
