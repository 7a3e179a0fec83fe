#include "head/request.h"
#include "base/cleanup.h"
#include "cluster/copy.h"
#include "head/clusters/clusters.h"
#include "head/clusters/place.h"
#include "head/clusters/ports.h"
#include "head/control.h"
#include "head/drivers/driver.h"
#include "head/drivers/uplink.h"
#include "head/fields.h"
#include "head/fleet/fleet.h"
#include "head/head_impl.h"
#include "head/kv/barrier.h"
#include "head/kv/kv_ask.h"
#include "head/nodes/node.h"
#include "head/op.h"
#include "head/status.h"
#include "head/waiting.h"

#include <errno.h>
#include <string.h>

/* ---- carrying out ---------------------------------------------------------------- */

int64_t ms_head_grace(uint64_t grace_ns)
{
    return grace_ns < INT64_MAX ? (int64_t)grace_ns : INT64_MAX;
}

/* A node that cannot prepare says so again when it has to start something. */
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

static void run_prepare(struct ms_head_op *op)
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

void ms_head_request_run(struct ms_head_op *op)
{
    static const struct {
        Muster__DriverToHead__BodyCase body;
        void (*run)(struct ms_head_op *op);
    } table[] = {
        {MUSTER__DRIVER_TO_HEAD__BODY_CREATE, ms_head_create_run},
        {MUSTER__DRIVER_TO_HEAD__BODY_DESTROY, ms_head_destroy_run},
        {MUSTER__DRIVER_TO_HEAD__BODY_HOLD_PORT, ms_head_hold_port_run},
        {MUSTER__DRIVER_TO_HEAD__BODY_DROP_PORT, ms_head_drop_port_run},
        {MUSTER__DRIVER_TO_HEAD__BODY_PREPARE, run_prepare},
        {MUSTER__DRIVER_TO_HEAD__BODY_STATUS, ms_head_status_run},
        {MUSTER__DRIVER_TO_HEAD__BODY_ASK_DEATH, ms_head_ask_death_run},
        {MUSTER__DRIVER_TO_HEAD__BODY_RESTART, ms_head_restart_run},
        {MUSTER__DRIVER_TO_HEAD__BODY_RESIZE, ms_head_resize_run},
        {MUSTER__DRIVER_TO_HEAD__BODY_ADD_STEP, ms_head_add_step_run},
        {MUSTER__DRIVER_TO_HEAD__BODY_ASK_SUCCESSOR, ms_head_ask_successor_run},
        {MUSTER__DRIVER_TO_HEAD__BODY_FIND, ms_head_find_run},
        {MUSTER__DRIVER_TO_HEAD__BODY_READ_LOG, ms_head_read_log_run},
        {MUSTER__DRIVER_TO_HEAD__BODY_KV_PUT, ms_head_kv_put_run},
        {MUSTER__DRIVER_TO_HEAD__BODY_KV_GET, ms_head_kv_get_run},
        {MUSTER__DRIVER_TO_HEAD__BODY_KV_DELETE, ms_head_kv_delete_run},
        {MUSTER__DRIVER_TO_HEAD__BODY_KV_KEYS, ms_head_kv_keys_run},
        {MUSTER__DRIVER_TO_HEAD__BODY_KV_WATCH, ms_head_kv_watch_run},
        {MUSTER__DRIVER_TO_HEAD__BODY_BARRIER, ms_head_barrier_run},
        {MUSTER__DRIVER_TO_HEAD__BODY_RESERVE, ms_fleet_reserve_run},
        {MUSTER__DRIVER_TO_HEAD__BODY_RELEASE_PIECES, ms_fleet_release_run},
        {MUSTER__DRIVER_TO_HEAD__BODY_RESERVATION, ms_fleet_describe_run},
    };

    for (size_t i = 0; i < MS_COUNT(table); i++)
        if (table[i].body == op->wanted->body_case) {
            table[i].run(op);
            return;
        }
    if (ms_place_run(op))
        return;
    ms_head_op_fail(op, -ENOSYS, "the head does not know this request");
}

/* ---- asking ---------------------------------------------------------------------- */

struct ms_head_op *ms_head_ask(struct ms_head *h,
                               const Muster__DriverToHead *m,
                               void (*on_done)(struct ms_head_op *op))
{
    struct ms_head_op *op = ms_head_op_create(h);

    if (!op)
        return ms_head_op_refused(h);
    op->run = h->uplink ? ms_uplink_ask_run : ms_head_request_run;
    op->wanted = (Muster__DriverToHead *)ms_proto_copy(&m->base);
    if (!op->wanted) {
        ms_head_op_fail(op, -ENOMEM, "out of memory");
        return op;
    }
    op->on_done = on_done;
    return ms_head_op_submit(op);
}

static struct ms_head_op *ask(struct ms_head *h, const Muster__DriverToHead *m)
{
    return ms_head_ask(h, m, NULL);
}

struct ms_head_op *ms_head_request(struct ms_head *h, const Muster__DriverToHead *m)
{
    return ask(h, m);
}

static void call_then(struct ms_head_op *op)
{
    op->then(op->then_arg);
}

struct ms_head_op *ms_head_request_then(struct ms_head *h,
                                        const Muster__DriverToHead *m,
                                        void (*done)(void *arg),
                                        void *arg)
{
    struct ms_head_op *op = ms_head_op_create(h);

    if (!op)
        return NULL;
    op->run = h->uplink ? ms_uplink_ask_run : ms_head_request_run;
    op->on_done = call_then;
    op->then = done;
    op->then_arg = arg;
    op->wanted = (Muster__DriverToHead *)ms_proto_copy(&m->base);
    if (op->wanted)
        return ms_head_op_submit(op);
    ms_head_op_fail(op, -ENOMEM, "out of memory");
    return op;
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
    return ask(h, &m);
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
    return ask(h, &m);
}

struct ms_head_op *ms_head_prepare(struct ms_head *h, const Muster__ZygoteKey *key)
{
    Muster__Prepare prepare = MUSTER__PREPARE__INIT;
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;

    prepare.key = (Muster__ZygoteKey *)(uintptr_t)key;
    m.body_case = MUSTER__DRIVER_TO_HEAD__BODY_PREPARE;
    m.prepare = &prepare;
    return ask(h, &m);
}

struct ms_head_op *ms_head_status(struct ms_head *h)
{
    Muster__StatusRequest status = MUSTER__STATUS_REQUEST__INIT;
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;

    m.body_case = MUSTER__DRIVER_TO_HEAD__BODY_STATUS;
    m.status = &status;
    return ask(h, &m);
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
    return ask(h, &m);
}

struct ms_head_op *
ms_head_destroy_cluster(struct ms_head *h, const char *name, int64_t grace_ns)
{
    return ms_head_destroy_that_cluster(h, name, false, 0, grace_ns);
}
