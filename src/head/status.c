/* status.c - the Status message, and who waits for another one */
#include "cluster/status.h"
#include "base/limits.h"
#include "base/proto.h"
#include "head/clusters/clusters.h"
#include "head/drivers/driver.h"
#include "head/head_impl.h"
#include "head/nodes/node.h"
#include "head/ops/op.h"
#include "head/place/place.h"
#include "head/rest/rest.h"
#include "head/status.h"
#include "head/version.h"

#include <string.h>

Muster__NodeStatus *ms_node_status(const struct ms_node *n)
{
    const Muster__AgentReady *r = n->ready;
    Muster__NodeStatus s = MUSTER__NODE_STATUS__INIT;

    s.name = ms_field_text(n->name);
    s.agent_pid = n->pid;
    s.cpus = n->cpus;
    s.alive = n->state == MS_NODE_READY || n->state == MS_NODE_AWAY;
    s.suspect = n->suspect;
    s.detail = ms_field_text(n->gone);
    if (r) { /* what its agent has said of it */
        s.shape = r->shape;
        s.host_id = r->host_id;
        s.session_dir = r->session_dir;
        s.addresses = r->addresses;
        s.n_addresses = r->n_addresses;
    }
    if (s.shape) {
        s.memory = s.shape->memory;
        s.gpus = (uint32_t)s.shape->n_devices;
        s.labels = s.shape->labels;
        s.n_labels = s.shape->n_labels;
    }
    return (Muster__NodeStatus *)ms_proto_copy(&s.base);
}

bool ms_nodes_add_status(const struct ms_head *h,
                         Muster__NodeStatus ***list,
                         size_t *count)
{
    ms_list_each (n, &h->nodes, struct ms_node, link)
        if (!ms_proto_append(list, count, ms_node_status(n)))
            return false;
    return true;
}

Muster__DriverStatus *ms_driver_status(const struct ms_driver *d)
{
    Muster__DriverStatus s = MUSTER__DRIVER_STATUS__INIT;

    s.driver = d->id;
    s.suspect = d->suspect || d->state == MS_DRIVER_EXPECTED;
    if (d->hello) {
        s.pid = d->hello->pid;
        s.host = d->hello->host;
        s.script = d->hello->script;
    }
    return (Muster__DriverStatus *)ms_proto_copy(&s.base);
}

static bool add_drivers(Muster__Status *s, const struct ms_head *h)
{
    const struct ms_driver *d;
    size_t at = 0;

    while ((d = ms_map_next(&h->drivers, &at)))
        if (ms_driver_asker(d) == MS_ASKER_DRIVER &&
            !ms_proto_append(&s->drivers, &s->n_drivers, ms_driver_status(d)))
            return false;
    return true;
}

static bool add_clusters(Muster__Status *s, const struct ms_head *h)
{
    ms_list_each (c, &h->registry.clusters, struct ms_cluster, link)
        if (!ms_proto_append(
                &s->clusters, &s->n_clusters, ms_cluster_status(c, NULL, false)))
            return false;
    return ms_creations_add_status(h, s);
}

Muster__Status *ms_head_status_message(struct ms_head *h)
{
    Muster__Status like = MUSTER__STATUS__INIT, *s;

    like.driver_pid = h->session.driver_pid;
    like.is_daemon = h->is_daemon;
    like.change = h->status.change;
    like.uptime_ns = (uint64_t)(ms_now_ns() - h->started_ns);
    like.session = h->session.name;
    like.session_dir = h->session.dir;
    like.version = ms_field_text(MS_VERSION);
    like.http_address = ms_field_text(ms_rest_address(h->rest));
    like.addresses = h->addresses;
    like.n_addresses = ms_field_count((const char *const *)h->addresses);
    s = (Muster__Status *)ms_proto_copy(&like.base);
    if (s && ms_nodes_add_status(h, &s->nodes, &s->n_nodes) && add_clusters(s, h) &&
        ms_place_add_groups(h, s) && add_drivers(s, h))
        return s;
    muster__status__free_unpacked(s, NULL);
    return NULL;
}

/* ---- who asks, and waits for another one ------------------------------------------- */

/* Nothing has changed: it waits until something has. */
static bool answer(struct ms_head_op *op, bool is_last)
{
    Muster__Status *s;

    if (!is_last && op->request->status->seen == op->head->status.change)
        return false;
    s = ms_head_status_message(op->head);
    ms_head_op_answer(op, s ? &s->base : NULL);
    return true;
}

int ms_head_status_run(struct ms_head_op *op)
{
    uint64_t wait_ns = op->request->status->wait_ns;

    if (op->request->status->activity)
        return ms_head_activity_run(op);
    return ms_head_op_wait_in(op,
                              &op->head->status.watching,
                              answer,
                              wait_ns < MS_HOLD_MAX_NS ? (int64_t)wait_ns
                                                       : MS_HOLD_MAX_NS);
}

void ms_head_changed(struct ms_head *h)
{
    h->status.change++;
    ms_head_op_retry_all(&h->status.watching);
}
