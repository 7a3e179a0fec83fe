#include "head/rest/view.h"
#include "base/cleanup.h"

#include <stdio.h>

json_t *ms_view_id(uint64_t id)
{
    char text[17];

    snprintf(text, sizeof text, "%016llx", (unsigned long long)id);
    return json_string(text);
}

const char *ms_view_worker_word(Muster__WorkerState state)
{
    static const char *const words[] = {
        [MUSTER__WORKER_STATE__WORKER_UNKNOWN] = "unknown",
        [MUSTER__WORKER_STATE__WORKER_STARTING] = "starting",
        [MUSTER__WORKER_STATE__WORKER_RUNNING] = "running",
        [MUSTER__WORKER_STATE__WORKER_EXITED] = "exited",
    };

    return words[(size_t)state < MS_COUNT(words) ? (size_t)state : 0];
}

const char *ms_view_node_word(const Muster__NodeStatus *n)
{
    if (!n->alive)
        return "gone";
    return n->suspect ? "suspect" : "alive";
}

static json_t *numbers_json(const uint32_t *numbers, size_t count)
{
    json_t *list = json_array();

    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, json_integer(numbers[i]));
    return list;
}

static json_t *device_json(const Muster__Device *d)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:I, s:I, s:i, s:o, s:o}",
                     "kind",
                     ms_json_string(d->kind),
                     "vendor",
                     ms_json_string(d->vendor),
                     "id",
                     ms_json_string(d->id),
                     "variable",
                     ms_json_string(d->variable),
                     "memory",
                     (json_int_t)d->memory,
                     "domain",
                     (json_int_t)d->domain,
                     "numa",
                     (int)d->numa,
                     "pci",
                     ms_json_string(d->pci),
                     "model",
                     ms_json_string(d->model));
}

static json_t *devices_json(const Muster__NodeShape *s)
{
    json_t *list = json_array();

    for (size_t i = 0; s && i < s->n_devices; i++)
        json_array_append_new(list, device_json(s->devices[i]));
    return list;
}

static json_t *resources_json(const Muster__NodeShape *s)
{
    json_t *map = json_object();

    for (size_t i = 0; s && i < s->n_resources; i++)
        json_object_set_new(map,
                            s->resources[i]->name,
                            json_integer((json_int_t)s->resources[i]->amount));
    return map;
}

json_t *ms_view_node(const Muster__NodeStatus *n)
{
    return json_pack(
        "{s:o, s:s, s:b, s:b, s:o, s:i, s:i, s:I, s:i, s:o, s:o, s:o, s:o, "
        "s:o}",
        "name",
        ms_json_string(n->name),
        "state",
        ms_view_node_word(n),
        "alive",
        (int)n->alive,
        "suspect",
        (int)n->suspect,
        "detail",
        ms_json_string(n->detail),
        "agent_pid",
        (int)n->agent_pid,
        "cpus",
        (int)n->cpus,
        "memory",
        (json_int_t)n->memory,
        "gpus",
        (int)n->gpus,
        "host_id",
        ms_json_string(n->host_id),
        "labels",
        ms_json_strings(n->labels, n->n_labels),
        "addresses",
        ms_json_strings(n->addresses, n->n_addresses),
        "devices",
        devices_json(n->shape),
        "resources",
        resources_json(n->shape));
}

static json_t *exit_json(const Muster__Exit *e)
{
    if (!e)
        return json_null();
    return json_pack("{s:b, s:i, s:b, s:b, s:o, s:o}",
                     "signaled",
                     (int)e->signaled,
                     "code",
                     (int)e->code,
                     "out_of_memory",
                     (int)e->out_of_memory,
                     "requested",
                     (int)e->requested,
                     "detail",
                     ms_json_string(e->detail),
                     "last_lines",
                     ms_json_strings(e->last_lines, e->n_last_lines));
}

json_t *ms_view_worker(const char *cluster, const Muster__WorkerStatus *w)
{
    return json_pack("{s:o, s:i, s:o, s:s, s:i, s:o, s:o, s:o, s:o, s:o}",
                     "cluster",
                     ms_json_string(cluster),
                     "rank",
                     (int)w->rank,
                     "uid",
                     ms_view_id(w->uid),
                     "state",
                     ms_view_worker_word(w->state),
                     "pid",
                     (int)w->pid,
                     "node",
                     ms_json_string(w->node),
                     "address",
                     ms_json_string(w->address),
                     "devices",
                     numbers_json(w->devices, w->n_devices),
                     "log_path",
                     ms_json_string(w->log_path),
                     "exit",
                     exit_json(w->exit));
}

json_t *ms_view_cluster(const Muster__ClusterStatus *c)
{
    json_t *workers = json_array();

    for (size_t i = 0; i < c->n_workers; i++)
        json_array_append_new(workers, ms_view_worker(c->name, c->workers[i]));
    return json_pack("{s:o, s:o, s:b, s:o, s:o}",
                     "name",
                     ms_json_string(c->name),
                     "driver",
                     ms_view_id(c->driver),
                     "detached",
                     (int)c->detached,
                     "workers",
                     workers,
                     "waits_for",
                     c->waits_for[0] ? ms_json_string(c->waits_for) : json_null());
}

json_t *ms_view_changed_cluster(const ProtobufCMessage *cluster, int *status)
{
    (void)status;
    return ms_view_cluster((const Muster__ClusterStatus *)cluster);
}

json_t *ms_view_driver(const Muster__DriverStatus *d)
{
    return json_pack("{s:o, s:i, s:o, s:o, s:b}",
                     "id",
                     ms_view_id(d->driver),
                     "pid",
                     (int)d->pid,
                     "host",
                     ms_json_string(d->host),
                     "script",
                     ms_json_string(d->script),
                     "suspect",
                     (int)d->suspect);
}

const char *ms_view_group_word(Muster__GroupState state)
{
    static const char *const words[] = {
        [MUSTER__GROUP_STATE__GROUP_WAITING] = "waiting",
        [MUSTER__GROUP_STATE__GROUP_PLACED] = "placed",
        [MUSTER__GROUP_STATE__GROUP_BROKEN] = "broken",
        [MUSTER__GROUP_STATE__GROUP_FAILED] = "failed",
    };

    return words[(size_t)state < MS_COUNT(words) ? (size_t)state : 0];
}

static json_t *piece_json(const Muster__Piece *p)
{
    return json_pack("{s:o, s:o}",
                     "node",
                     ms_json_string(p->node),
                     "devices",
                     numbers_json(p->devices, p->n_devices));
}

json_t *ms_view_group(const Muster__GroupStatus *g)
{
    json_t *placement = json_array();

    for (size_t i = 0; i < g->n_pieces; i++)
        json_array_append_new(placement, piece_json(g->pieces[i]));
    return json_pack("{s:o, s:s, s:o, s:i, s:o, s:o, s:b, s:o}",
                     "name",
                     ms_json_string(g->name),
                     "state",
                     ms_view_group_word(g->state),
                     "strategy",
                     ms_json_string(g->strategy),
                     "bundles",
                     (int)g->bundles,
                     "placement",
                     placement,
                     "driver",
                     ms_view_id(g->driver),
                     "detached",
                     (int)g->detached,
                     "clusters",
                     ms_json_strings(g->clusters, g->n_clusters));
}
