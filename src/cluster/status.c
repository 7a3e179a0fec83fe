/* status.c - what is known of clusters and their workers, as messages */
#include "cluster/status.h"
#include "base/proto.h"
#include "cluster/spec.h"

void ms_slot_describe(const struct ms_slot *slot, Muster__WorkerStatus *w)
{
    muster__worker_status__init(w);
    w->uid = slot->now.uid;
    w->rank = slot->rank;
    w->pid = slot->now.pid;
    w->state = slot->now.state;
    w->memory = slot->memory;
    w->cpu_milli = slot->cpu_milli;
    w->incarnation = slot->now.incarnation;
    w->node = ms_field_text(slot->node);
    w->address = ms_field_text(slot->now.address);
    w->log_path = ms_field_text(slot->now.log_path);
    w->devices = slot->devices;
    w->n_devices = slot->device_count;
    w->exit = slot->now.exit;
}

Muster__WorkerStatus *ms_slot_status(const struct ms_slot *slot)
{
    Muster__WorkerStatus w;

    ms_slot_describe(slot, &w);
    return (Muster__WorkerStatus *)ms_proto_copy(&w.base);
}

Muster__ClusterStatus *ms_cluster_status(const struct ms_cluster *c,
                                         const Muster__StepsDone *first,
                                         bool with_meta)
{
    Muster__ClusterStatus like = MUSTER__CLUSTER_STATUS__INIT, *s;

    like.name = ms_field_text(c->name);
    like.driver = c->driver;
    like.detached = c->detached;
    like.is_native = c->spec && ms_cluster_spec_is_native(c->spec);
    if (first) {
        like.answers = first->answers;
        like.n_answers = first->n_answers;
    }
    if (with_meta && c->spec)
        like.meta = c->spec->meta;
    s = (Muster__ClusterStatus *)ms_proto_copy(&like.base);
    for (size_t i = 0; s && i < c->count; i++)
        if (!ms_proto_append(
                &s->workers, &s->n_workers, ms_slot_status(&c->slots[i]))) {
            muster__cluster_status__free_unpacked(s, NULL);
            return NULL;
        }
    return s;
}
