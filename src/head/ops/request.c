/* request.c - asking a head: from a function of head.h to a message, and to its verb */
#include "head/ops/request.h"
#include "base/cleanup.h"
#include "base/proto.h"
#include "head/drivers/uplink.h"
#include "head/head_impl.h"
#include "head/ops/op.h"
#include "head/ops/verbs.h"

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

/* ---- what is asked for most ------------------------------------------------------ */

/* `body` is the message of that name in DriverToHead, borrowed. */
static struct ms_head_op *
request(struct ms_head *h, Muster__DriverToHead__BodyCase what, const void *body)
{
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;

    m.body_case = what;
    m.hello = (Muster__LinkHello *)(uintptr_t)body; /* all are pointers in a union */
    return ms_head_request(h, &m);
}

static uint64_t as_unsigned(int64_t ns)
{
    return ns > 0 ? (uint64_t)ns : 0;
}

struct ms_head_op *
ms_head_hold_port_on(struct ms_head *h, const char *node, const char *owner)
{
    Muster__HoldPort hold = MUSTER__HOLD_PORT__INIT;

    hold.owner = ms_field_text(owner);
    hold.node = ms_field_text(node);
    return request(h, MUSTER__DRIVER_TO_HEAD__BODY_HOLD_PORT, &hold);
}

struct ms_head_op *ms_head_hold_port(struct ms_head *h, const char *owner)
{
    return ms_head_hold_port_on(h, NULL, owner);
}

struct ms_head_op *ms_head_drop_port(struct ms_head *h, const char *owner)
{
    Muster__DropPort drop = MUSTER__DROP_PORT__INIT;

    drop.owner = ms_field_text(owner);
    return request(h, MUSTER__DRIVER_TO_HEAD__BODY_DROP_PORT, &drop);
}

struct ms_head_op *ms_head_prepare(struct ms_head *h, const Muster__ZygoteKey *key)
{
    Muster__Prepare prepare = MUSTER__PREPARE__INIT;

    prepare.key = (Muster__ZygoteKey *)(uintptr_t)key;
    return request(h, MUSTER__DRIVER_TO_HEAD__BODY_PREPARE, &prepare);
}

struct ms_head_op *ms_head_status(struct ms_head *h)
{
    const Muster__StatusRequest status = MUSTER__STATUS_REQUEST__INIT;

    return request(h, MUSTER__DRIVER_TO_HEAD__BODY_STATUS, &status);
}

struct ms_head_op *ms_head_create_cluster(struct ms_head *h,
                                          const Muster__ClusterSpec *spec,
                                          int64_t wait_ns)
{
    Muster__CreateCluster create = MUSTER__CREATE_CLUSTER__INIT;

    create.spec = (Muster__ClusterSpec *)(uintptr_t)spec;
    create.wait_ns = as_unsigned(wait_ns);
    return request(h, MUSTER__DRIVER_TO_HEAD__BODY_CREATE, &create);
}

struct ms_head_op *ms_head_destroy_that_cluster(
    struct ms_head *h, const char *name, bool own, uint64_t uid, int64_t grace_ns)
{
    Muster__DestroyCluster destroy = MUSTER__DESTROY_CLUSTER__INIT;

    destroy.name = ms_field_text(name);
    destroy.grace_ns = as_unsigned(grace_ns);
    destroy.own = own;
    destroy.uid = uid;
    return request(h, MUSTER__DRIVER_TO_HEAD__BODY_DESTROY, &destroy);
}

struct ms_head_op *
ms_head_destroy_cluster(struct ms_head *h, const char *name, int64_t grace_ns)
{
    return ms_head_destroy_that_cluster(h, name, false, 0, grace_ns);
}

struct ms_head_op *ms_head_restart(struct ms_head *h,
                                   const Muster__RestartWorkers *what)
{
    return request(h, MUSTER__DRIVER_TO_HEAD__BODY_RESTART, what);
}

struct ms_head_op *ms_head_resize(struct ms_head *h,
                                  const char *cluster,
                                  uint32_t world_size,
                                  int64_t grace_ns)
{
    Muster__ResizeCluster resize = MUSTER__RESIZE_CLUSTER__INIT;

    resize.cluster = ms_field_text(cluster);
    resize.world_size = world_size;
    resize.grace_ns = as_unsigned(grace_ns);
    return request(h, MUSTER__DRIVER_TO_HEAD__BODY_RESIZE, &resize);
}

struct ms_head_op *ms_head_add_step(struct ms_head *h,
                                    const char *cluster,
                                    const Muster__Step *step,
                                    const void *meta,
                                    size_t len)
{
    Muster__AddStep add = MUSTER__ADD_STEP__INIT;

    add.cluster = ms_field_text(cluster);
    add.step = (Muster__Step *)(uintptr_t)step;
    add.meta = (ProtobufCBinaryData){len, (uint8_t *)(uintptr_t)meta};
    return request(h, MUSTER__DRIVER_TO_HEAD__BODY_ADD_STEP, &add);
}

struct ms_head_op *ms_head_find_cluster(struct ms_head *h, const char *name)
{
    Muster__FindCluster find = MUSTER__FIND_CLUSTER__INIT;

    find.name = ms_field_text(name);
    return request(h, MUSTER__DRIVER_TO_HEAD__BODY_FIND, &find);
}

Muster__DriverToHead *ms_head_wants_successor(uint64_t uid)
{
    Muster__AskSuccessor ask = MUSTER__ASK_SUCCESSOR__INIT;
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;

    ask.uid = uid;
    m.body_case = MUSTER__DRIVER_TO_HEAD__BODY_ASK_SUCCESSOR;
    m.ask_successor = &ask;
    return (Muster__DriverToHead *)ms_proto_copy(&m.base);
}

static void on_successor(struct ms_head_op *op)
{
    const Muster__Successor *s = (const Muster__Successor *)op->message;
    struct ms_head *h = op->head;

    if (h->on_successor)
        h->on_successor(h->arg, op->wanted->ask_successor->uid, s ? s->worker : NULL);
}

void ms_head_ask_successor(struct ms_head *h, uint64_t uid)
{
    Muster__DriverToHead *m = ms_head_wants_successor(uid);

    if (!m)
        return;
    ms_head_op_unref(ms_head_ask(h, m, on_successor, NULL));
    muster__driver_to_head__free_unpacked(m, NULL);
}
