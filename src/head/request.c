#include "head/request.h"
#include "base/cleanup.h"
#include "base/proto.h"
#include "head/drivers/uplink.h"
#include "head/fields.h"
#include "head/head_impl.h"
#include "head/op.h"
#include "head/verbs.h"

#include <errno.h>
#include <string.h>

/* ---- carrying out ---------------------------------------------------------------- */

int64_t ms_head_grace(uint64_t grace_ns)
{
    return grace_ns < INT64_MAX ? (int64_t)grace_ns : INT64_MAX;
}

void ms_head_request_run(struct ms_head_op *op)
{
    struct ms_error err = {0};
    const struct ms_verb *v = ms_verb_check(op->wanted, op->asker, &err);

    if (v)
        v->run(op);
    else
        ms_head_op_fail_with(op, &err);
}

/* ---- asking ---------------------------------------------------------------------- */

/* By the head's thread, or by the head elsewhere. */
static struct ms_head_op *submit(struct ms_head_op *op, const Muster__DriverToHead *m)
{
    op->run = op->head->uplink ? ms_uplink_ask_run : ms_head_request_run;
    op->wanted = (Muster__DriverToHead *)ms_proto_copy(&m->base);
    if (op->wanted)
        return ms_head_op_submit(op);
    ms_head_op_fail(op, -ENOMEM, "out of memory");
    return op;
}

/* Here and now; `m` is not kept. */
static struct ms_head_op *run_now(struct ms_head_op *op, const Muster__DriverToHead *m)
{
    op->wanted = (Muster__DriverToHead *)(uintptr_t)m;
    ms_head_request_run(op);
    op->wanted = NULL;
    return op;
}

struct ms_head_op *ms_head_request(struct ms_head *h, const Muster__DriverToHead *m)
{
    const struct ms_verb *v = ms_verb_find(m->body_case);
    struct ms_head_op *op = ms_head_op_create(h);

    if (!op)
        return ms_head_op_refused(h);
    return v && v->on_any_thread && !h->uplink ? run_now(op, m) : submit(op, m);
}

struct ms_head_op *ms_head_ask(struct ms_head *h,
                               const Muster__DriverToHead *m,
                               void (*on_done)(struct ms_head_op *op),
                               void *arg)
{
    struct ms_head_op *op = ms_head_op_create(h);

    if (!op)
        return NULL;
    op->on_done = on_done;
    op->done_arg = arg;
    return submit(op, m);
}

static void call_then(struct ms_head_op *op)
{
    op->then(op->done_arg);
}

struct ms_head_op *ms_head_request_then(struct ms_head *h,
                                        const Muster__DriverToHead *m,
                                        void (*done)(void *arg),
                                        void *arg)
{
    struct ms_head_op *op = ms_head_op_create(h);

    if (!op)
        return NULL;
    op->on_done = call_then;
    op->then = done;
    op->done_arg = arg;
    return submit(op, m);
}

struct ms_head_op *
ms_head_hold_port_on(struct ms_head *h, const char *node, const char *owner)
{
    Muster__HoldPort hold = MUSTER__HOLD_PORT__INIT;
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;

    hold.owner = ms_field_text(owner);
    hold.node = ms_field_text(node);
    m.body_case = MUSTER__DRIVER_TO_HEAD__BODY_HOLD_PORT;
    m.hold_port = &hold;
    return ms_head_request(h, &m);
}

struct ms_head_op *ms_head_hold_port(struct ms_head *h, const char *owner)
{
    return ms_head_hold_port_on(h, NULL, owner);
}

struct ms_head_op *ms_head_drop_port(struct ms_head *h, const char *owner)
{
    Muster__DropPort drop = MUSTER__DROP_PORT__INIT;
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;

    drop.owner = ms_field_text(owner);
    m.body_case = MUSTER__DRIVER_TO_HEAD__BODY_DROP_PORT;
    m.drop_port = &drop;
    return ms_head_request(h, &m);
}

struct ms_head_op *ms_head_prepare(struct ms_head *h, const Muster__ZygoteKey *key)
{
    Muster__Prepare prepare = MUSTER__PREPARE__INIT;
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;

    prepare.key = (Muster__ZygoteKey *)(uintptr_t)key;
    m.body_case = MUSTER__DRIVER_TO_HEAD__BODY_PREPARE;
    m.prepare = &prepare;
    return ms_head_request(h, &m);
}

struct ms_head_op *ms_head_status(struct ms_head *h)
{
    Muster__StatusRequest status = MUSTER__STATUS_REQUEST__INIT;
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;

    m.body_case = MUSTER__DRIVER_TO_HEAD__BODY_STATUS;
    m.status = &status;
    return ms_head_request(h, &m);
}

struct ms_head_op *ms_head_destroy_that_cluster(
    struct ms_head *h, const char *name, bool own, uint64_t uid, int64_t grace_ns)
{
    Muster__DestroyCluster destroy = MUSTER__DESTROY_CLUSTER__INIT;
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;

    destroy.name = ms_field_text(name);
    destroy.grace_ns = grace_ns > 0 ? (uint64_t)grace_ns : 0;
    m.body_case = MUSTER__DRIVER_TO_HEAD__BODY_DESTROY;
    m.destroy = &destroy;
    destroy.own = own;
    destroy.uid = uid;
    return ms_head_request(h, &m);
}

struct ms_head_op *
ms_head_destroy_cluster(struct ms_head *h, const char *name, int64_t grace_ns)
{
    return ms_head_destroy_that_cluster(h, name, false, 0, grace_ns);
}
