/* view.c - nodes, clusters, groups, drivers and keys as JSON */
#include "head/rest/view.h"
#include "base/cleanup.h"
#include "head/rest/message_json.h"

#include <stdio.h>

/* 16 hexadecimal digits: what JSON numbers are too small for. */
static json_t *id_json(uint64_t id)
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

static json_t *resources_json(const Muster__NodeShape *s)
{
    json_t *map = json_object();

    for (size_t i = 0; s && i < s->n_resources; i++)
        json_object_set_new(map,
                            s->resources[i]->name,
                            json_integer((json_int_t)s->resources[i]->amount));
    return map;
}

static json_t *devices_json(const Muster__NodeShape *s)
{
    json_t *list = json_array();

    for (size_t i = 0; s && i < s->n_devices; i++)
        json_array_append_new(list, ms_message_print(&s->devices[i]->base));
    return list;
}

json_t *ms_view_node(const Muster__NodeStatus *n)
{
    json_t *out = ms_message_print_fields(&n->base,
                                          "name alive suspect detail agent_pid cpus "
                                          "memory gpus host_id labels addresses");

    json_object_set_new(out, "state", json_string(ms_view_node_word(n)));
    json_object_set_new(out, "devices", devices_json(n->shape));
    json_object_set_new(out, "resources", resources_json(n->shape));
    return out;
}

static json_t *exit_json(const Muster__Exit *e)
{
    if (!e)
        return json_null();
    return ms_message_print_fields(
        &e->base, "signaled code out_of_memory requested detail last_lines");
}

json_t *ms_view_worker(const char *cluster, const Muster__WorkerStatus *w)
{
    json_t *out =
        ms_message_print_fields(&w->base, "rank pid node address devices log_path");

    json_object_set_new(out, "cluster", ms_json_string(cluster));
    json_object_set_new(out, "uid", id_json(w->uid));
    json_object_set_new(out, "state", json_string(ms_view_worker_word(w->state)));
    json_object_set_new(out, "exit", exit_json(w->exit));
    return out;
}

json_t *ms_view_cluster(const Muster__ClusterStatus *c)
{
    json_t *out = ms_message_print_fields(&c->base, "name detached waits_for");
    json_t *workers = json_array();

    for (size_t i = 0; i < c->n_workers; i++)
        json_array_append_new(workers, ms_view_worker(c->name, c->workers[i]));
    json_object_set_new(out, "driver", id_json(c->driver));
    json_object_set_new(out, "workers", workers);
    if (!c->waits_for[0])
        json_object_set_new(out, "waits_for", json_null());
    return out;
}

json_t *ms_view_changed_cluster(const ProtobufCMessage *cluster, int *status)
{
    (void)status;
    return ms_view_cluster((const Muster__ClusterStatus *)cluster);
}

json_t *ms_view_driver(const Muster__DriverStatus *d)
{
    json_t *out = ms_message_print_fields(&d->base, "pid host script suspect");

    json_object_set_new(out, "id", id_json(d->driver));
    return out;
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

json_t *ms_view_group(const Muster__GroupStatus *g)
{
    json_t *out = ms_message_print_fields(
        &g->base, "name strategy bundles pieces=placement detached clusters");

    json_object_set_new(out, "state", json_string(ms_view_group_word(g->state)));
    json_object_set_new(out, "driver", id_json(g->driver));
    return out;
}

/* ---- the key-value store --------------------------------------------------------- */

json_t *ms_view_kv_entry(const ProtobufCMessage *entry, int *status)
{
    if (((const Muster__KvEntry *)entry)->key[0])
        return ms_message_print_fields(entry, "key value codec revision");
    *status = 404;
    return NULL;
}

json_t *ms_view_kv_keys(const ProtobufCMessage *events, int *status)
{
    const Muster__KvEvents *all = (const Muster__KvEvents *)events;
    json_t *out = ms_message_print_fields(events, "revision");
    json_t *keys = json_array();

    (void)status;
    for (size_t i = 0; i < all->n_entries; i++)
        json_array_append_new(
            keys,
            ms_message_print_fields(&all->entries[i]->base, "key codec revision"));
    json_object_set_new(out, "keys", keys);
    return out;
}
