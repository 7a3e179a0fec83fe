/* view_objects.c - objects of all stores, sorted, and as JSON */
#include "head/rest/view_objects.h"
#include "head/rest/message_json.h"

#include <stdlib.h>
#include <string.h>

const char *ms_view_object_where(const Muster__StoredStatus *o)
{
    if (o->is_spilled)
        return "disk";
    if (o->has_bytes)
        return o->is_replica ? "copy" : "memory";
    return o->is_replica ? "reference" : "making";
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
    json_t *out = ms_message_print_fields(&o->base, "len=nbytes age_ns=age_s");
    json_t *holders = json_array();

    for (size_t i = 0; i < o->n_holders; i++)
        json_array_append_new(
            holders,
            ms_message_print_fields(&o->holders[i]->base,
                                    "name pid count since_ns=since_s"));
    json_object_set_new(out, "node", ms_json_string(v->at->node_name));
    json_object_set_new(out, "origin", ms_json_string(v->origin));
    json_object_set_new(out, "id", json_integer((json_int_t)o->id));
    json_object_set_new(out, "where", json_string(ms_view_object_where(o)));
    json_object_set_new(out, "site", ms_json_string(v->site));
    json_object_set_new(out, "holders", holders);
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

/* How full each store is, or why that is not known. */
static json_t *stores_json(const Muster__Objects *all)
{
    json_t *list = json_array();

    for (size_t i = 0; i < all->n_nodes; i++)
        json_array_append_new(list, store_json(all->nodes[i]));
    return list;
}

json_t *ms_view_all_objects(const ProtobufCMessage *all, int *status)
{
    const Muster__Objects *objects = (const Muster__Objects *)all;

    (void)status;
    return json_pack("{s:o, s:o}",
                     "objects",
                     ms_view_objects(objects),
                     "nodes",
                     stores_json(objects));
}
