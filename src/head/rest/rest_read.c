/* rest_read.c - GET: what is read from the Status message */
#include "base/cleanup.h"
#include "head/rest/message_json.h"
#include "head/rest/rest_impl.h"
#include "head/status.h"
#include "head/version.h"
#include "io/http/text.h"

#include <stdio.h>
#include <string.h>

static Muster__Status *status_of(const struct rest_ask *ask)
{
    Muster__Status *s = ms_head_status_message(ask->rest->head);

    if (!s)
        ms_http_conn_fail(ask->conn, 503, "out of memory");
    return s;
}

static void not_found(const struct rest_ask *ask, const char *what)
{
    char text[MS_NAME_MAX + 64];

    snprintf(text, sizeof text, "there is no %s '%.64s'", what, ask->name);
    ms_http_conn_fail(ask->conn, 404, text);
}

void ms_rest_health(const struct rest_ask *ask)
{
    ms_http_reply_json(ask->conn, 200, json_pack("{s:s}", "status", "ok"));
}

void ms_rest_version(const struct rest_ask *ask)
{
    ms_http_reply_json(ask->conn,
                       200,
                       json_pack("{s:s, s:s, s:i}",
                                 "version",
                                 MS_VERSION,
                                 "api",
                                 "v1",
                                 "protocol",
                                 MS_FRAME_VERSION));
}

static json_t *view_status(const Muster__Status *s)
{
    json_t *out = ms_message_print_fields(
        &s->base,
        "session version uptime_ns=uptime_s is_daemon driver_pid=pid addresses");

    json_object_set_new(out, "nodes", json_integer((json_int_t)s->n_nodes));
    json_object_set_new(out, "clusters", json_integer((json_int_t)s->n_clusters));
    json_object_set_new(out, "drivers", json_integer((json_int_t)s->n_drivers));
    return out;
}

void ms_rest_status(const struct rest_ask *ask)
{
    MS_CLEANUP(ms_rest_cleanup_status) Muster__Status *s = status_of(ask);

    if (s)
        ms_http_reply_json(ask->conn, 200, view_status(s));
}

/* ---- lists ------------------------------------------------------------------------- */

/* A field of the status, as `view` shows each of its messages. */
static void reply_list(const struct rest_ask *ask,
                       const char *field,
                       json_t *(*view)(const ProtobufCMessage *m))
{
    MS_CLEANUP(ms_rest_cleanup_status) Muster__Status *s = status_of(ask);
    const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field_by_name(
        &muster__status__descriptor, field);
    json_t *list = s ? json_array() : NULL;

    if (!s)
        return;
    for (size_t i = 0; i < *(size_t *)((char *)s + f->quantifier_offset); i++)
        json_array_append_new(
            list, view((*(ProtobufCMessage ***)((char *)s + f->offset))[i]));
    ms_http_reply_json(ask->conn, 200, json_pack("{s:o}", field, list));
}

static json_t *view_node(const ProtobufCMessage *m)
{
    return ms_view_node((const Muster__NodeStatus *)m);
}

static json_t *view_driver(const ProtobufCMessage *m)
{
    return ms_view_driver((const Muster__DriverStatus *)m);
}

static json_t *view_group(const ProtobufCMessage *m)
{
    return ms_view_group((const Muster__GroupStatus *)m);
}

static json_t *view_cluster(const ProtobufCMessage *m)
{
    return ms_view_cluster((const Muster__ClusterStatus *)m);
}

void ms_rest_nodes(const struct rest_ask *ask)
{
    reply_list(ask, "nodes", view_node);
}

void ms_rest_drivers(const struct rest_ask *ask)
{
    reply_list(ask, "drivers", view_driver);
}

void ms_rest_groups(const struct rest_ask *ask)
{
    reply_list(ask, "groups", view_group);
}

void ms_rest_clusters(const struct rest_ask *ask)
{
    reply_list(ask, "clusters", view_cluster);
}

void ms_rest_node(const struct rest_ask *ask)
{
    MS_CLEANUP(ms_rest_cleanup_status) Muster__Status *s = status_of(ask);

    if (!s)
        return;
    for (size_t i = 0; i < s->n_nodes; i++)
        if (strcmp(s->nodes[i]->name, ask->name) == 0) {
            ms_http_reply_json(ask->conn, 200, ms_view_node(s->nodes[i]));
            return;
        }
    not_found(ask, "node");
}

/* NULL: that was answered. */
static const Muster__ClusterStatus *find_cluster(const struct rest_ask *ask,
                                                 const Muster__Status *s)
{
    for (size_t i = 0; s && i < s->n_clusters; i++)
        if (strcmp(s->clusters[i]->name, ask->name) == 0)
            return s->clusters[i];
    if (s)
        not_found(ask, "cluster");
    return NULL;
}

void ms_rest_cluster(const struct rest_ask *ask)
{
    MS_CLEANUP(ms_rest_cleanup_status) Muster__Status *s = status_of(ask);
    const Muster__ClusterStatus *c = find_cluster(ask, s);

    if (c)
        ms_http_reply_json(ask->conn, 200, ms_view_cluster(c));
}

void ms_rest_workers(const struct rest_ask *ask)
{
    MS_CLEANUP(ms_rest_cleanup_status) Muster__Status *s = status_of(ask);
    const Muster__ClusterStatus *c = find_cluster(ask, s);
    json_t *list = c ? json_array() : NULL;

    for (size_t i = 0; c && i < c->n_workers; i++)
        json_array_append_new(list, ms_view_worker(c->name, c->workers[i]));
    if (c)
        ms_http_reply_json(ask->conn, 200, json_pack("{s:o}", "workers", list));
}

Muster__Status *ms_rest_find_worker(const struct rest_ask *ask,
                                    const Muster__WorkerStatus **w)
{
    MS_CLEANUP(ms_rest_cleanup_status) Muster__Status *s = status_of(ask);
    const Muster__ClusterStatus *c = find_cluster(ask, s);
    uint64_t rank;

    if (!c)
        return NULL;
    if (ms_http_parse_decimal(ask->rank, &rank))
        for (size_t i = 0; i < c->n_workers; i++)
            if (c->workers[i]->rank == rank) {
                *w = c->workers[i];
                return MS_TAKE(s);
            }
    ms_http_conn_fail(ask->conn, 404, "the cluster has no worker of this rank");
    return NULL;
}

void ms_rest_worker(const struct rest_ask *ask)
{
    const Muster__WorkerStatus *w = NULL;
    MS_CLEANUP(ms_rest_cleanup_status) Muster__Status *s = ms_rest_find_worker(ask, &w);

    if (s)
        ms_http_reply_json(ask->conn, 200, ms_view_worker(ask->name, w));
}
