/* request_replace.c - asking a head about the places of workers; see request.c */
#include "cluster/copy.h"
#include "head/fields.h"
#include "head/head_impl.h"
#include "head/op.h"
#include "head/request.h"

#include <errno.h>

struct ms_head_op *ms_head_replace(struct ms_head *h,
                                   const char *cluster,
                                   uint32_t rank,
                                   const struct ms_head_rank *start,
                                   uint64_t only,
                                   int64_t grace_ns)
{
    Muster__ReplaceWorker replace = MUSTER__REPLACE_WORKER__INIT;
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;
    Muster__WorkerSpec spec;

    if (start) {
        spec = start->spec;
        spec.cluster = ms_field_text(cluster);
        spec.devices = (uint32_t *)(uintptr_t)start->devices;
        spec.n_devices = start->device_count;
        replace.start = &spec;
    }
    replace.cluster = ms_field_text(cluster);
    replace.rank = rank;
    replace.only = only;
    replace.grace_ns = grace_ns > 0 ? (uint64_t)grace_ns : 0;
    m.body_case = MUSTER__DRIVER_TO_HEAD__BODY_REPLACE;
    m.replace = &replace;
    return ms_head_request(h, &m);
}

struct ms_head_op *ms_head_open_worker(struct ms_head *h, uint64_t uid)
{
    Muster__OpenWorker open = MUSTER__OPEN_WORKER__INIT;
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;

    open.uid = uid;
    m.body_case = MUSTER__DRIVER_TO_HEAD__BODY_OPEN;
    m.open = &open;
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

struct ms_head_op *ms_head_describe_cluster(struct ms_head *h,
                                            const char *name,
                                            const void *meta,
                                            size_t len)
{
    Muster__DescribeCluster describe = MUSTER__DESCRIBE_CLUSTER__INIT;
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;

    describe.cluster = ms_field_text(name);
    describe.meta = (ProtobufCBinaryData){len, (uint8_t *)(uintptr_t)meta};
    m.body_case = MUSTER__DRIVER_TO_HEAD__BODY_DESCRIBE;
    m.describe = &describe;
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
