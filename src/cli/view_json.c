#include "cli/view.h"

#include <string.h>

json_t *ms_view_text(const char *text)
{
    return ms_out_text(text, text ? strlen(text) : 0);
}

json_t *ms_view_id(uint64_t id)
{
    char text[17];

    snprintf(text, sizeof text, "%016llx", (unsigned long long)id);
    return json_string(text);
}

static json_t *texts(char *const *at, size_t count)
{
    json_t *list = json_array();

    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, ms_view_text(at[i]));
    return list;
}

json_t *ms_view_node(const Muster__NodeStatus *n)
{
    return json_pack("{s:o, s:s, s:b, s:b, s:o, s:i, s:i, s:I, s:i, s:o, s:o, s:o}",
                     "name",
                     ms_view_text(n->name),
                     "state",
                     ms_view_node_state(n).name,
                     "alive",
                     (int)n->alive,
                     "suspect",
                     (int)n->suspect,
                     "detail",
                     ms_view_text(n->detail),
                     "agent_pid",
                     (int)n->agent_pid,
                     "cpus",
                     (int)n->cpus,
                     "memory",
                     (json_int_t)n->memory,
                     "gpus",
                     (int)n->gpus,
                     "host_id",
                     ms_view_text(n->host_id),
                     "labels",
                     texts(n->labels, n->n_labels),
                     "addresses",
                     texts(n->addresses, n->n_addresses));
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
                     ms_view_text(e->detail),
                     "last_lines",
                     texts(e->last_lines, e->n_last_lines));
}

json_t *ms_view_worker(const Muster__ClusterStatus *c, const Muster__WorkerStatus *w)
{
    json_t *devices = json_array();

    for (size_t i = 0; i < w->n_devices; i++)
        json_array_append_new(devices, json_integer(w->devices[i]));
    return json_pack("{s:o, s:i, s:o, s:s, s:i, s:o, s:o, s:o, s:o, s:o}",
                     "cluster",
                     ms_view_text(c->name),
                     "rank",
                     (int)w->rank,
                     "uid",
                     ms_view_id(w->uid),
                     "state",
                     ms_view_worker_state(w).name,
                     "pid",
                     (int)w->pid,
                     "node",
                     ms_view_text(w->node),
                     "address",
                     ms_view_text(w->address),
                     "devices",
                     devices,
                     "log_path",
                     ms_view_text(w->log_path),
                     "exit",
                     exit_json(w->exit));
}

json_t *ms_view_cluster(const Muster__ClusterStatus *c)
{
    json_t *workers = json_array();

    for (size_t i = 0; i < c->n_workers; i++)
        json_array_append_new(workers, ms_view_worker(c, c->workers[i]));
    return json_pack("{s:o, s:o, s:b, s:o}",
                     "name",
                     ms_view_text(c->name),
                     "driver",
                     ms_view_id(c->driver),
                     "detached",
                     (int)c->detached,
                     "workers",
                     workers);
}

json_t *ms_view_driver(const Muster__DriverStatus *d)
{
    return json_pack("{s:o, s:i, s:o, s:o, s:b}",
                     "id",
                     ms_view_id(d->driver),
                     "pid",
                     (int)d->pid,
                     "host",
                     ms_view_text(d->host),
                     "script",
                     ms_view_text(d->script),
                     "suspect",
                     (int)d->suspect);
}

json_t *ms_view_nodes(const Muster__Status *s)
{
    json_t *list = json_array();

    for (size_t i = 0; i < s->n_nodes; i++)
        json_array_append_new(list, ms_view_node(s->nodes[i]));
    return list;
}

json_t *ms_view_clusters(const Muster__Status *s)
{
    json_t *list = json_array();

    for (size_t i = 0; i < s->n_clusters; i++)
        json_array_append_new(list, ms_view_cluster(s->clusters[i]));
    return list;
}

json_t *ms_view_workers(const Muster__Status *s)
{
    json_t *list = json_array();

    for (size_t i = 0; i < s->n_clusters; i++)
        for (size_t k = 0; k < s->clusters[i]->n_workers; k++)
            json_array_append_new(
                list, ms_view_worker(s->clusters[i], s->clusters[i]->workers[k]));
    return list;
}

json_t *ms_view_drivers(const Muster__Status *s)
{
    json_t *list = json_array();

    for (size_t i = 0; i < s->n_drivers; i++)
        json_array_append_new(list, ms_view_driver(s->drivers[i]));
    return list;
}
