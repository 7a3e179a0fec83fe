#include "head/rest_impl.h"

#include <stdio.h>
#include <string.h>

json_t *ms_rest_text(const char *text, size_t len)
{
    json_t *json = json_stringn(text ? text : "", text ? len : 0);
    char *copy;

    if (json)
        return json;
    copy = malloc(len + 1);
    if (!copy)
        return NULL;
    for (size_t i = 0; i < len; i++)
        copy[i] = (unsigned char)text[i] < 0x80 ? text[i] : '?';
    json = json_stringn(copy, len);
    free(copy);
    return json;
}

static json_t *text_of(const char *text)
{
    return ms_rest_text(text, text ? strlen(text) : 0);
}

static json_t *id_of(uint64_t id)
{
    char text[17];

    snprintf(text, sizeof text, "%016llx", (unsigned long long)id);
    return json_string(text);
}

static json_t *texts(char *const *at, size_t count)
{
    json_t *list = json_array();

    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, text_of(at[i]));
    return list;
}

const char *ms_rest_worker_state(Muster__WorkerState state)
{
    switch (state) {
    case MUSTER__WORKER_STATE__WORKER_STARTING:
        return "starting";
    case MUSTER__WORKER_STATE__WORKER_RUNNING:
        return "running";
    case MUSTER__WORKER_STATE__WORKER_EXITED:
        return "exited";
    default:
        return "unknown";
    }
}

const char *ms_rest_node_state(const Muster__NodeStatus *n)
{
    if (!n->alive)
        return "gone";
    return n->suspect ? "suspect" : "alive";
}

json_t *ms_rest_view_node(const Muster__NodeStatus *n)
{
    return json_pack("{s:o, s:s, s:o, s:i, s:i, s:I, s:i, s:o, s:o}",
                     "name",
                     text_of(n->name),
                     "state",
                     ms_rest_node_state(n),
                     "detail",
                     text_of(n->detail),
                     "agent_pid",
                     (int)n->agent_pid,
                     "cpus",
                     (int)n->cpus,
                     "memory",
                     (json_int_t)n->memory,
                     "gpus",
                     (int)n->gpus,
                     "labels",
                     texts(n->labels, n->n_labels),
                     "addresses",
                     texts(n->addresses, n->n_addresses));
}

static json_t *exit_of(const Muster__Exit *e)
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
                     text_of(e->detail),
                     "last_lines",
                     texts(e->last_lines, e->n_last_lines));
}

json_t *ms_rest_view_worker(const char *cluster, const Muster__WorkerStatus *w)
{
    json_t *devices = json_array();

    for (size_t i = 0; i < w->n_devices; i++)
        json_array_append_new(devices, json_integer(w->devices[i]));
    return json_pack("{s:o, s:i, s:o, s:s, s:i, s:o, s:o, s:o, s:o, s:o}",
                     "cluster",
                     text_of(cluster),
                     "rank",
                     (int)w->rank,
                     "uid",
                     id_of(w->uid),
                     "state",
                     ms_rest_worker_state(w->state),
                     "pid",
                     (int)w->pid,
                     "node",
                     text_of(w->node),
                     "address",
                     text_of(w->address),
                     "devices",
                     devices,
                     "log_path",
                     text_of(w->log_path),
                     "exit",
                     exit_of(w->exit));
}

json_t *ms_rest_view_cluster(const Muster__ClusterStatus *c)
{
    json_t *workers = json_array();

    for (size_t i = 0; i < c->n_workers; i++)
        json_array_append_new(workers, ms_rest_view_worker(c->name, c->workers[i]));
    return json_pack("{s:o, s:o, s:b, s:o}",
                     "name",
                     text_of(c->name),
                     "driver",
                     id_of(c->driver),
                     "detached",
                     (int)c->detached,
                     "workers",
                     workers);
}

json_t *ms_rest_view_driver(const Muster__DriverStatus *d)
{
    return json_pack("{s:o, s:i, s:o, s:o, s:b}",
                     "id",
                     id_of(d->driver),
                     "pid",
                     (int)d->pid,
                     "host",
                     text_of(d->host),
                     "script",
                     text_of(d->script),
                     "suspect",
                     (int)d->suspect);
}

json_t *ms_rest_view_status(const Muster__Status *s)
{
    return json_pack("{s:o, s:o, s:f, s:b, s:i, s:i, s:i, s:i, s:o}",
                     "session",
                     text_of(s->session),
                     "version",
                     text_of(s->version),
                     "uptime_s",
                     (double)s->uptime_ns / (double)MS_NS_PER_S,
                     "is_daemon",
                     (int)s->is_daemon,
                     "pid",
                     (int)s->driver_pid,
                     "nodes",
                     (int)s->n_nodes,
                     "clusters",
                     (int)s->n_clusters,
                     "drivers",
                     (int)s->n_drivers,
                     "addresses",
                     texts(s->addresses, s->n_addresses));
}
