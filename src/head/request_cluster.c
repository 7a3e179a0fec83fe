/* request_cluster.c - asking a head about clusters and their workers; see request.c */
#include "base/proto.h"
#include "head/fields.h"
#include "head/head_impl.h"
#include "head/op.h"
#include "head/request.h"

#include <errno.h>

static uint64_t as_unsigned(int64_t ns)
{
    return ns > 0 ? (uint64_t)ns : 0;
}

struct ms_head_op *ms_head_create_cluster(struct ms_head *h,
                                          const Muster__ClusterSpec *spec,
                                          int64_t wait_ns)
{
    Muster__CreateCluster create = MUSTER__CREATE_CLUSTER__INIT;
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;

    create.spec = (Muster__ClusterSpec *)(uintptr_t)spec;
    create.wait_ns = as_unsigned(wait_ns);
    m.body_case = MUSTER__DRIVER_TO_HEAD__BODY_CREATE;
    m.create = &create;
    return ms_head_request(h, &m);
}

struct ms_head_op *ms_head_restart(struct ms_head *h,
                                   const Muster__RestartWorkers *what)
{
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;

    m.body_case = MUSTER__DRIVER_TO_HEAD__BODY_RESTART;
    m.restart = (Muster__RestartWorkers *)(uintptr_t)what;
    return ms_head_request(h, &m);
}

struct ms_head_op *ms_head_resize(struct ms_head *h,
                                  const char *cluster,
                                  uint32_t world_size,
                                  int64_t grace_ns)
{
    Muster__ResizeCluster resize = MUSTER__RESIZE_CLUSTER__INIT;
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;

    resize.cluster = ms_field_text(cluster);
    resize.world_size = world_size;
    resize.grace_ns = as_unsigned(grace_ns);
    m.body_case = MUSTER__DRIVER_TO_HEAD__BODY_RESIZE;
    m.resize = &resize;
    return ms_head_request(h, &m);
}

struct ms_head_op *ms_head_add_step(struct ms_head *h,
                                    const char *cluster,
                                    const Muster__Step *step,
                                    const void *meta,
                                    size_t len)
{
    Muster__AddStep add = MUSTER__ADD_STEP__INIT;
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;

    add.cluster = ms_field_text(cluster);
    add.step = (Muster__Step *)(uintptr_t)step;
    add.meta = (ProtobufCBinaryData){len, (uint8_t *)(uintptr_t)meta};
    m.body_case = MUSTER__DRIVER_TO_HEAD__BODY_ADD_STEP;
    m.add_step = &add;
    return ms_head_request(h, &m);
}

struct ms_head_op *ms_head_find_cluster(struct ms_head *h, const char *name)
{
    Muster__FindCluster find = MUSTER__FIND_CLUSTER__INIT;
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;

    find.name = ms_field_text(name);
    m.body_case = MUSTER__DRIVER_TO_HEAD__BODY_FIND;
    m.find = &find;
    return ms_head_request(h, &m);
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
