/* uplink_ask.c - what a head that has joined another asks it, and the answers */
#include "base/cleanup.h"
#include "head/drivers/uplink_impl.h"
#include "head/head_impl.h"
#include "head/ops/answer.h"
#include "head/ops/op.h"
#include "head/ops/verbs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- asking ---------------------------------------------------------------------- */

static struct ms_head_op *op_of(struct ms_pending *p)
{
    return MS_CONTAINER(p, struct ms_head_op, pending);
}

static int send(struct ms_uplink *u, struct ms_head_op *op)
{
    struct ms_requests *r = &u->requests;
    int rc;

    op->request->answered = ms_requests_watermark(r);
    op->request->n_arrived = r->arrived_count;
    op->request->arrived = r->arrived;
    rc = ms_link_send(u->wire, &op->request->base);
    op->request->n_arrived = 0;
    op->request->arrived = NULL; /* it is not the message's */
    if (rc == 0)
        ms_requests_told(r);
    return rc;
}

/* Whatever way it ends. */
static void on_failed(struct ms_head_op *op)
{
    ms_requests_remove(&op->head->uplink->requests, &op->pending);
    ms_uplink_forget_ends(op->head->uplink);
}

int ms_uplink_ask_run(struct ms_head_op *op)
{
    struct ms_uplink *u = op->head->uplink;
    int rc = 0;

    if (u->state == MS_UPLINK_LOST) {
        op->error = u->why;
        return u->why.code;
    }
    if (ms_requests_add(&u->requests, &op->pending) < 0)
        return -ENOMEM;
    op->request->request = op->pending.number;
    op->on_failed = on_failed;
    if (u->state == MS_UPLINK_READY)
        rc = send(u, op);
    if (rc != -EMSGSIZE && rc != -ENOMEM)
        return 0; /* it was sent, or is when the link is back */
    return ms_error_set(&op->error, rc, "cannot ask the head: %s", strerror(-rc));
}

void ms_uplink_tell(struct ms_uplink *u,
                    Muster__DriverToHead__BodyCase which,
                    const void *body)
{
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;

    m.request = ++u->requests.last;
    m.body_case = which;
    m.hello = (Muster__LinkHello *)(uintptr_t)body;
    ms_link_send(u->wire, &m.base);
}

void ms_uplink_fail_open(struct ms_uplink *u, const struct ms_error *why)
{
    while (!ms_list_is_empty(&u->requests.open)) {
        struct ms_head_op *op =
            op_of(ms_list_first(&u->requests.open, struct ms_pending, link));

        ms_requests_remove(&u->requests, &op->pending);
        if (op != u->head->stop_op)
            ms_head_op_fail_with(op, why);
    }
}

/* Another process of the head may have begun this one: what there is of it ends first. */
static void begin_anew(struct ms_uplink *u, const struct ms_head_op *op)
{
    Muster__DestroyCluster destroy = MUSTER__DESTROY_CLUSTER__INIT;

    destroy.name = op->request->create->spec->name;
    destroy.own = true;
    ms_uplink_tell(u, MUSTER__DRIVER_TO_HEAD__BODY_DESTROY, &destroy);
}

void ms_uplink_resend(struct ms_uplink *u, bool is_new)
{
    if (is_new)
        ms_uplink_restore_groups(u);
    ms_list_each (p, &u->requests.open, struct ms_pending, link) {
        struct ms_head_op *op = op_of(p);

        if (!op->request)
            continue; /* the goodbye goes with its link */
        if (is_new && op->request->body_case == MUSTER__DRIVER_TO_HEAD__BODY_CREATE)
            begin_anew(u, op);
        send(u, op);
    }
}

/* ---- answers --------------------------------------------------------------------- */

/* Takes what workers said out of the answer. */
static void fail(struct ms_head_op *op, Muster__HeadToDriver *m)
{
    const Muster__Failure *f = m->failure;

    ms_buf_append(&op->table, f->traceback, strlen(f->traceback));
    ms_error_set(&op->error, f->code < 0 ? f->code : -EIO, "%s", f->message);
    if (f->n_workers)
        op->failure = MS_TAKE(m->failure);
    ms_head_op_complete(op, NULL);
}

static void succeed(struct ms_head_op *op, Muster__HeadToDriver *m)
{
    const struct ms_verb *v = op->request ? ms_verb_find(op->request->body_case) : NULL;
    ProtobufCMessage *result = NULL;

    if (ms_answer_take(v, m, &result) < 0)
        ms_head_op_fail(op, -EPROTO, "the head gave another answer than was asked for");
    else
        ms_head_op_succeed(op, result);
}

static void on_answer(struct ms_uplink *u, Muster__HeadToDriver *m)
{
    struct ms_pending *p = ms_requests_find(&u->requests, m->request);
    struct ms_head_op *op;

    if (!p)
        return; /* nobody waits for it any more, or it has come twice */
    ms_requests_remove(&u->requests, p);
    op = op_of(p);
    op->on_failed = NULL;
    if (op == u->head->stop_op)
        u->head->stop_op = NULL;
    ms_uplink_note_group(u, op->request, m);
    if (op->request && m->body_case == MUSTER__HEAD_TO_DRIVER__BODY_CREATED)
        ms_uplink_workers_named(u, op->request, m->created);
    ms_uplink_forget_ends(u);
    if (m->body_case == MUSTER__HEAD_TO_DRIVER__BODY_FAILURE)
        fail(op, m);
    else
        succeed(op, m);
}

bool ms_uplink_read(struct ms_uplink *u, const uint8_t *body, size_t len)
{
    Muster__HeadToDriver *m = muster__head_to_driver__unpack(NULL, len, body);
    struct ms_head *h = u->head;

    if (!m)
        return false;
    if (m->body_case == MUSTER__HEAD_TO_DRIVER__BODY_EXITED && m->exited->exit)
        ms_uplink_worker_exited(u, m->exited->uid, m->exited->exit);
    if (m->body_case == MUSTER__HEAD_TO_DRIVER__BODY_CHANGED)
        atomic_fetch_add(&h->changes, 1);
    if (m->body_case == MUSTER__HEAD_TO_DRIVER__BODY_WELCOME)
        ms_uplink_welcomed(u, m->welcome);
    else if (m->body_case == MUSTER__HEAD_TO_DRIVER__BODY_FAILURE &&
             u->state == MS_UPLINK_GREETING)
        ms_uplink_refused(u, m->failure);
    else if (m->body_case == MUSTER__HEAD_TO_DRIVER__BODY_GOODBYE)
        ms_uplink_lose(u, "the head was stopped, and all workers with it");
    else if (m->body_case == MUSTER__HEAD_TO_DRIVER__BODY_NODE && h->on_node)
        h->on_node(h->arg, m->node);
    else if (m->body_case == MUSTER__HEAD_TO_DRIVER__BODY_LOG && h->on_log)
        h->on_log(h->arg, m->log);
    else if (m->request)
        on_answer(u, m);
    muster__head_to_driver__free_unpacked(m, NULL);
    return true;
}
