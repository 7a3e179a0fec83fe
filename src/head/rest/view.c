/* view.c - nodes, clusters, groups, drivers, keys and objects as JSON */
#include "head/rest/view.h"
#include "base/cleanup.h"
#include "head/rest/message_json.h"

#include <stdio.h>
#include <string.h>

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

const char *ms_view_doing_word(Muster__Doing doing)
{
    static const char *const words[] = {
        [MUSTER__DOING__DOING_UNKNOWN] = "unknown",
        [MUSTER__DOING__DOING_STARTING] = "starting",
        [MUSTER__DOING__DOING_CONSTRUCTING] = "constructing",
        [MUSTER__DOING__DOING_IDLE] = "idle",
        [MUSTER__DOING__DOING_CALL] = "busy",
        [MUSTER__DOING__DOING_SILENT] = "silent",
        [MUSTER__DOING__DOING_STOPPED] = "stopped",
    };

    return words[(size_t)doing < MS_COUNT(words) ? (size_t)doing : 0];
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

static json_t *store_json(const Muster__StoreStats *s)
{
    json_t *out = ms_message_print_fields(
        &s->base,
        "node_name=node limit used committed object_count=objects spilled "
        "spill_dir=spill spill_limit why");

    if (!s->why[0])
        json_object_set_new(out, "why", json_null());
    return out;
}

json_t *ms_view_node(const ProtobufCMessage *node)
{
    const Muster__NodeStatus *n = (const Muster__NodeStatus *)node;
    json_t *out = ms_message_print_fields(node,
                                          "name alive suspect detail agent_pid cpus "
                                          "memory gpus host_id labels addresses");

    json_object_set_new(out, "state", json_string(ms_view_node_word(n)));
    json_object_set_new(out, "devices", devices_json(n->shape));
    json_object_set_new(out, "resources", resources_json(n->shape));
    json_object_set_new(out, "store", n->store ? store_json(n->store) : json_null());
    return out;
}

bool ms_view_is_answer(const Muster__Activity *a)
{
    return a->doing == MUSTER__DOING__DOING_IDLE ||
           a->doing == MUSTER__DOING__DOING_CALL ||
           a->doing == MUSTER__DOING__DOING_CONSTRUCTING;
}

/* null: it has ended, or its node does not answer. */
static json_t *activity_json(const Muster__Activity *a)
{
    static const char *const counts[] = {
        "calls_running", "calls_queued", "calls_done", "calls_failed"};
    json_t *out, *fields;

    if (!a)
        return json_null();
    out = MS_JSON({"doing", json_string(ms_view_doing_word(a->doing))});
    fields = ms_message_print_fields(
        &a->base,
        "for_ns=for_s method calls_running calls_queued calls_done calls_failed memory "
        "cpu_ns=cpu_s device_memory methods(method calls failed total_ns=total_s "
        "took)");
    json_object_update(out, fields);
    json_decref(fields);
    if (!a->method[0])
        json_object_set_new(out, "method", json_null());
    for (size_t i = 0; !ms_view_is_answer(a) && i < MS_COUNT(counts); i++)
        json_object_set_new(out, counts[i], json_null());
    if (!a->has_device_memory)
        json_object_set_new(out, "device_memory", json_null());
    return out;
}

json_t *ms_view_worker(const char *cluster, const Muster__WorkerStatus *w)
{
    json_t *out = ms_message_print_fields(
        &w->base,
        "rank pid node address devices log_path "
        "exit(signaled code out_of_memory requested detail last_lines)");

    json_object_set_new(out, "cluster", ms_json_string(cluster));
    json_object_set_new(out, "uid", id_json(w->uid));
    json_object_set_new(out, "state", json_string(ms_view_worker_word(w->state)));
    json_object_set_new(out, "activity", activity_json(w->activity));
    return out;
}

json_t *ms_view_cluster(const ProtobufCMessage *cluster)
{
    const Muster__ClusterStatus *c = (const Muster__ClusterStatus *)cluster;
    json_t *out = ms_message_print_fields(cluster, "name detached waits_for");
    json_t *workers = json_array();

    for (size_t i = 0; i < c->n_workers; i++)
        json_array_append_new(workers, ms_view_worker(c->name, c->workers[i]));
    json_object_set_new(out, "driver", id_json(c->driver));
    json_object_set_new(out, "workers", workers);
    if (!c->waits_for[0])
        json_object_set_new(out, "waits_for", json_null());
    return out;
}

json_t *ms_view_driver(const ProtobufCMessage *driver)
{
    json_t *out = ms_message_print_fields(driver, "pid host script suspect");

    json_object_set_new(
        out, "id", id_json(((const Muster__DriverStatus *)driver)->driver));
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

json_t *ms_view_group(const ProtobufCMessage *group)
{
    const Muster__GroupStatus *g = (const Muster__GroupStatus *)group;
    json_t *out = ms_message_print_fields(
        group, "name strategy bundles pieces=placement detached clusters");

    json_object_set_new(out, "state", json_string(ms_view_group_word(g->state)));
    json_object_set_new(out, "driver", id_json(g->driver));
    return out;
}

/* ---- the whole -------------------------------------------------------------------- */

json_t *ms_view_status(const Muster__Status *s)
{
    json_t *out = ms_message_print_fields(
        &s->base,
        "session session_dir is_daemon driver_pid version addresses http_address");
    json_t *nodes = json_array(), *drivers = json_array();
    json_t *groups = json_array(), *clusters = json_array();

    for (size_t i = 0; i < s->n_nodes; i++)
        json_array_append_new(nodes, ms_view_node(&s->nodes[i]->base));
    for (size_t i = 0; i < s->n_drivers; i++)
        json_array_append_new(drivers, ms_view_driver(&s->drivers[i]->base));
    for (size_t i = 0; i < s->n_groups; i++)
        json_array_append_new(groups, ms_view_group(&s->groups[i]->base));
    for (size_t i = 0; i < s->n_clusters; i++)
        json_array_append_new(clusters, ms_view_cluster(&s->clusters[i]->base));
    json_object_set_new(out, "uptime_ns", json_integer((json_int_t)s->uptime_ns));
    json_object_set_new(out, "nodes", nodes);
    json_object_set_new(out, "drivers", drivers);
    json_object_set_new(out, "groups", groups);
    json_object_set_new(out, "clusters", clusters);
    return out;
}

/* ---- the key-value store --------------------------------------------------------- */

json_t *ms_view_kv_entry(const ProtobufCMessage *entry)
{
    return ((const Muster__KvEntry *)entry)->key[0]
               ? ms_message_print_fields(entry, "key value codec revision")
               : json_null();
}

json_t *ms_view_kv_keys(const ProtobufCMessage *events)
{
    return ms_message_print_fields(events, "revision entries=keys(key codec revision)");
}

/* ---- objects --------------------------------------------------------------------- */

const char *ms_view_object_where(const Muster__StoredStatus *o)
{
    if (o->is_spilled)
        return "disk";
    if (o->has_bytes)
        return o->is_copy ? "copy" : "memory";
    return o->is_copy ? "reference" : "making";
}

static const Muster__StoreStats *find_store(const Muster__Objects *all, uint64_t node)
{
    for (size_t i = 0; i < all->n_nodes; i++)
        if (all->nodes[i]->node == node)
            return all->nodes[i];
    return NULL;
}

/* A copy does not know which line made it: its node does. */
static const char *site_of(const Muster__StoreStats *origin,
                           const Muster__StoredStatus *o)
{
    for (size_t i = 0; !o->site[0] && origin && i < origin->n_objects; i++)
        if (origin->objects[i]->node == o->node && origin->objects[i]->id == o->id)
            return origin->objects[i]->site;
    return o->site;
}

static int compare(const void *a, const void *b)
{
    const struct ms_view_object *x = a, *y = b;

    if (x->object->len != y->object->len)
        return x->object->len > y->object->len ? -1 : 1;
    if (x->object->age_ns != y->object->age_ns)
        return x->object->age_ns > y->object->age_ns ? -1 : 1;
    return strcmp(x->at->node_name, y->at->node_name);
}

struct ms_view_object *ms_view_sort_objects(const Muster__Objects *all, size_t *count)
{
    struct ms_view_object *list;
    size_t room = 1, n = 0;

    for (size_t i = 0; i < all->n_nodes; i++)
        room += all->nodes[i]->n_objects;
    list = calloc(room, sizeof *list);
    if (!list)
        return NULL;
    for (size_t i = 0; i < all->n_nodes; i++)
        for (size_t k = 0; k < all->nodes[i]->n_objects; k++) {
            const Muster__StoredStatus *o = all->nodes[i]->objects[k];
            const Muster__StoreStats *origin = find_store(all, o->node);

            list[n++] =
                (struct ms_view_object){.at = all->nodes[i],
                                        .object = o,
                                        .origin = origin ? origin->node_name : "",
                                        .site = site_of(origin, o)};
        }
    qsort(list, n, sizeof *list, compare);
    *count = n;
    return list;
}

static json_t *object_json(const struct ms_view_object *v)
{
    const Muster__StoredStatus *o = v->object;
    json_t *out = ms_message_print_fields(
        &o->base, "len=nbytes age_ns=age_s holders(name pid count since_ns=since_s)");

    json_object_set_new(out, "node", ms_json_string(v->at->node_name));
    json_object_set_new(out, "origin", ms_json_string(v->origin));
    json_object_set_new(out, "id", json_integer((json_int_t)o->id));
    json_object_set_new(out, "where", json_string(ms_view_object_where(o)));
    json_object_set_new(out, "site", ms_json_string(v->site));
    return out;
}

json_t *ms_view_objects(const Muster__Objects *all)
{
    size_t count = 0;
    struct ms_view_object *sorted = ms_view_sort_objects(all, &count);
    json_t *list = sorted ? json_array() : NULL;

    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, object_json(&sorted[i]));
    free(sorted);
    return list;
}

json_t *ms_view_all_objects(const ProtobufCMessage *all)
{
    const Muster__Objects *objects = (const Muster__Objects *)all;
    json_t *stores = json_array();

    for (size_t i = 0; i < objects->n_nodes; i++)
        json_array_append_new(stores, store_json(objects->nodes[i]));
    return json_pack(
        "{s:o, s:o}", "objects", ms_view_objects(objects), "nodes", stores);
}
