/* request.c - asking a head: from a function of head.h to a message, and to its verb */
#include "head/ops/request.h"
#include "base/proto.h"
#include "head/drivers/uplink.h"
#include "head/head_impl.h"
#include "head/jobs/asked.h"
#include "head/ops/op.h"
#include "head/ops/verbs.h"
#include "head/ops/waiting.h"

#include <errno.h>
#include <string.h>

/* ---- carrying out ---------------------------------------------------------------- */

int64_t ms_head_grace(uint64_t grace_ns)
{
    return grace_ns < INT64_MAX ? (int64_t)grace_ns : INT64_MAX;
}

/* What it names may be there when all nodes are back. */
static bool is_unknown(int rc)
{
    return rc == -ENOENT || rc == -ENODEV || rc == -EAGAIN;
}

int ms_head_request_run(struct ms_head_op *op)
{
    const struct ms_verb *v = ms_verb_check(op->request, op->asker, &op->error);
    bool may_wait; /* on the caller's thread nobody waits */
    int rc;

    if (!v)
        return op->error.code;
    if (v->waits == MS_WAITS_FOR_NODES && op->driver && op->asker != MS_ASKER_TOOL &&
        ms_head_wait_for_nodes(op))
        return 0;
    may_wait = v->waits == MS_WAITS_IF_UNKNOWN && (op->driver || !v->on_any_thread);
    rc = v->is_kept ? ms_asked_run(op, v->run) : v->run(op);
    if (rc >= 0)
        return 0; /* it may be completed, and freed */
    return may_wait && is_unknown(rc) && ms_head_wait_for_nodes(op) ? 0 : rc;
}

/* ---- asking ---------------------------------------------------------------------- */

/* By the head's thread, or by the head elsewhere. */
static void give_up(struct ms_head_op *op)
{
    ms_head_op_end(op, -ENOMEM);
    ms_head_op_unref(op);
}

/* It borrows the body. */
static Muster__DriverToHead message_of(Muster__DriverToHead__BodyCase what,
                                       const void *body)
{
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;

    m.body_case = what;
    m.hello = (Muster__LinkHello *)(uintptr_t)body; /* all are pointers in a union */
    return m;
}

/* NULL: out of memory, or a forked child. */
static struct ms_head_op *
create(struct ms_head *h, Muster__DriverToHead__BodyCase what, const void *body)
{
    struct ms_head_op *op = ms_head_op_create(h);
    const Muster__DriverToHead m = message_of(what, body);

    if (!op)
        return NULL;
    if (h->uplink)
        op->run = ms_uplink_ask_run;
    op->request = (Muster__DriverToHead *)ms_proto_copy(&m.base);
    if (op->request)
        return op;
    give_up(op);
    return NULL;
}

/* Here and now; `body` is not kept. */
static struct ms_head_op *
run_now(struct ms_head *h, Muster__DriverToHead__BodyCase what, const void *body)
{
    struct ms_head_op *op = ms_head_op_create(h);
    Muster__DriverToHead m = message_of(what, body);

    if (!op)
        return NULL;
    op->request = &m;
    ms_head_op_run(op);
    op->request = NULL;
    return op;
}

struct ms_head_op *ms_head_request(struct ms_head *h,
                                   Muster__DriverToHead__BodyCase what,
                                   const void *body)
{
    const struct ms_verb *v = ms_verb_find(what);
    bool is_now = v && v->on_any_thread && !h->uplink;
    struct ms_head_op *op = is_now ? run_now(h, what, body) : create(h, what, body);

    if (!op)
        return ms_head_op_refused(h);
    return is_now ? op : ms_head_op_submit(op);
}

struct ms_head_op *ms_head_request_then(struct ms_head *h,
                                        Muster__DriverToHead__BodyCase what,
                                        const void *body,
                                        void (*on_done)(struct ms_head_op *op,
                                                        void *arg),
                                        void *arg)
{
    struct ms_head_op *op = create(h, what, body);

    if (!op)
        return NULL;
    op->on_done = on_done;
    op->done_arg = arg;
    if (ms_head_op_post(op) == 0)
        return op;
    op->on_done = NULL; /* who gets NULL frees `arg` */
    give_up(op);
    return NULL;
}

/* ---- what is asked for most ------------------------------------------------------ */

static uint64_t as_unsigned(int64_t ns)
{
    return ns > 0 ? (uint64_t)ns : 0;
}

struct ms_head_op *ms_head_status(struct ms_head *h)
{
    const Muster__StatusRequest status = MUSTER__STATUS_REQUEST__INIT;

    return ms_head_request(h, MUSTER__DRIVER_TO_HEAD__BODY_STATUS, &status);
}

struct ms_head_op *ms_head_create_cluster(struct ms_head *h,
                                          const Muster__ClusterSpec *spec,
                                          int64_t wait_ns)
{
    Muster__CreateCluster create = MUSTER__CREATE_CLUSTER__INIT;

    create.spec = (Muster__ClusterSpec *)(uintptr_t)spec;
    create.wait_ns = as_unsigned(wait_ns);
    return ms_head_request(h, MUSTER__DRIVER_TO_HEAD__BODY_CREATE, &create);
}

struct ms_head_op *ms_head_destroy_cluster(
    struct ms_head *h, const char *name, bool own, uint64_t uid, int64_t grace_ns)
{
    Muster__DestroyCluster destroy = MUSTER__DESTROY_CLUSTER__INIT;

    destroy.name = ms_field_text(name);
    destroy.grace_ns = as_unsigned(grace_ns);
    destroy.own = own;
    destroy.uid = uid;
    return ms_head_request(h, MUSTER__DRIVER_TO_HEAD__BODY_DESTROY, &destroy);
}

struct ms_head_op *ms_head_restart(struct ms_head *h,
                                   const Muster__RestartWorkers *what)
{
    return ms_head_request(h, MUSTER__DRIVER_TO_HEAD__BODY_RESTART, what);
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
    return ms_head_request(h, MUSTER__DRIVER_TO_HEAD__BODY_RESIZE, &resize);
}

static void on_successor(struct ms_head_op *op, void *arg)
{
    const Muster__Successor *s = (const Muster__Successor *)op->message;
    struct ms_head *h = arg;

    if (h->on_successor)
        h->on_successor(h->arg, op->request->ask_successor->uid, s ? s->worker : NULL);
}

void ms_head_request_successor(struct ms_head *h,
                               uint64_t uid,
                               void (*on_done)(struct ms_head_op *op, void *arg),
                               void *arg)
{
    Muster__AskSuccessor ask = MUSTER__ASK_SUCCESSOR__INIT;

    ask.uid = uid;
    ms_head_op_unref(ms_head_request_then(
        h, MUSTER__DRIVER_TO_HEAD__BODY_ASK_SUCCESSOR, &ask, on_done, arg));
}

void ms_head_ask_successor(struct ms_head *h, uint64_t uid)
{
    ms_head_request_successor(h, uid, on_successor, h);
}
