#include "cluster/copy.h"
#include "head/clusters/place_impl.h"
#include "head/drivers/uplink.h"
#include "head/head_impl.h"
#include "head/op.h"
#include "head/request.h"

#include <errno.h>

static const struct {
    Muster__DriverToHead__BodyCase body;
    void (*run)(struct ms_head_op *op);
    bool waits; /* on the head's thread alone */
} table[] = {
    {MUSTER__DRIVER_TO_HEAD__BODY_PLACE_GROUP, ms_place_group_run, false},
    {MUSTER__DRIVER_TO_HEAD__BODY_WAIT_GROUP, ms_place_wait_run, true},
    {MUSTER__DRIVER_TO_HEAD__BODY_REMOVE_GROUP, ms_place_remove_run, false},
    {MUSTER__DRIVER_TO_HEAD__BODY_FIND_GROUP, ms_place_find_run, false},
    {MUSTER__DRIVER_TO_HEAD__BODY_RESTORE_GROUP, ms_place_restore_run, true},
    {MUSTER__DRIVER_TO_HEAD__BODY_PLACE_CLUSTER, ms_place_cluster_run, false},
    {MUSTER__DRIVER_TO_HEAD__BODY_RESOURCES, ms_place_resources_run, false},
};

enum { TABLE_COUNT = sizeof table / sizeof table[0] };

bool ms_place_run(struct ms_head_op *op)
{
    for (size_t i = 0; i < TABLE_COUNT; i++)
        if (table[i].body == op->wanted->body_case) {
            table[i].run(op);
            return true;
        }
    return false;
}

/* Decided here and now; `m` is not kept. */
static struct ms_head_op *decide(struct ms_head_op *op, const Muster__DriverToHead *m)
{
    op->wanted = (Muster__DriverToHead *)(uintptr_t)m;
    ms_place_run(op);
    op->wanted = NULL;
    return op;
}

/* By the head's thread, or by the head elsewhere. */
static struct ms_head_op *
send(struct ms_head *h, struct ms_head_op *op, const Muster__DriverToHead *m)
{
    op->run = h->uplink ? ms_uplink_ask_run : ms_head_request_run;
    op->wanted = (Muster__DriverToHead *)ms_proto_copy(&m->base);
    if (op->wanted)
        return ms_head_op_submit(op);
    ms_head_op_fail(op, -ENOMEM, "out of memory");
    return op;
}

struct ms_head_op *ms_head_place(struct ms_head *h, const Muster__DriverToHead *m)
{
    struct ms_head_op *op = ms_head_op_create(h);

    if (!op)
        return ms_head_op_refused(h);
    for (size_t i = 0; i < TABLE_COUNT; i++)
        if (table[i].body == m->body_case)
            return h->uplink || table[i].waits ? send(h, op, m) : decide(op, m);
    ms_head_op_fail(op, -EINVAL, "this is no request for a place");
    return op;
}
