/* rest_read.c - GET: what is read from the Status message */
#include "head/rest/message_json.h"
#include "head/rest/rest_impl.h"
#include "head/version.h"
#include "io/http/text.h"

#include <stdio.h>
#include <string.h>

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

void ms_rest_status(const struct rest_ask *ask, const Muster__Status *s)
{
    ms_http_reply_json(ask->conn, 200, view_status(s));
}

/* ---- lists of the status ------------------------------------------------------------ */

static const ProtobufCFieldDescriptor *field_of(const ProtobufCMessageDescriptor *d,
                                                const char *name)
{
    return protobuf_c_message_descriptor_get_field_by_name(d, name);
}

static ProtobufCMessage **
list_of(const Muster__Status *s, const char *field, size_t *count)
{
    const ProtobufCFieldDescriptor *f = field_of(&muster__status__descriptor, field);

    *count = *(const size_t *)((const char *)s + f->quantifier_offset);
    return *(ProtobufCMessage * *const *)((const char *)s + f->offset);
}

/* The one of the list that has the name in the path. NULL: that was answered. */
static const ProtobufCMessage *find(const struct rest_ask *ask, const Muster__Status *s)
{
    const char *field = ask->route->field;
    size_t count = 0;
    ProtobufCMessage **list = list_of(s, field, &count);
    char text[MS_NAME_MAX + 64];

    for (size_t i = 0; i < count; i++) {
        const ProtobufCFieldDescriptor *f = field_of(list[i]->descriptor, "name");

        if (strcmp(*(char **)((char *)list[i] + f->offset), ask->name) == 0)
            return list[i];
    }
    snprintf(text,
             sizeof text,
             "there is no %.*s '%.64s'",
             (int)strlen(field) - 1,
             field,
             ask->name);
    ms_http_conn_fail(ask->conn, 404, text);
    return NULL;
}

void ms_rest_list(const struct rest_ask *ask, const Muster__Status *s)
{
    json_t *all = json_array();
    size_t count;
    ProtobufCMessage **list = list_of(s, ask->route->field, &count);

    for (size_t i = 0; i < count; i++)
        json_array_append_new(all, ask->route->view(list[i]));
    ms_http_reply_json(ask->conn, 200, json_pack("{s:o}", ask->route->field, all));
}

void ms_rest_element(const struct rest_ask *ask, const Muster__Status *s)
{
    const ProtobufCMessage *m = find(ask, s);

    if (m)
        ms_http_reply_json(ask->conn, 200, ask->route->view(m));
}

/* ---- workers ------------------------------------------------------------------------ */

void ms_rest_workers(const struct rest_ask *ask, const Muster__Status *s)
{
    const Muster__ClusterStatus *c = (const Muster__ClusterStatus *)find(ask, s);
    json_t *list = c ? json_array() : NULL;

    for (size_t i = 0; c && i < c->n_workers; i++)
        json_array_append_new(list, ms_view_worker(c->name, c->workers[i]));
    if (c)
        ms_http_reply_json(ask->conn, 200, json_pack("{s:o}", "workers", list));
}

const Muster__WorkerStatus *ms_rest_find_worker(const struct rest_ask *ask,
                                                const Muster__Status *s)
{
    const Muster__ClusterStatus *c = (const Muster__ClusterStatus *)find(ask, s);
    uint64_t rank;

    if (!c)
        return NULL;
    if (ms_http_parse_decimal(ask->rank, &rank))
        for (size_t i = 0; i < c->n_workers; i++)
            if (c->workers[i]->rank == rank)
                return c->workers[i];
    ms_http_conn_fail(ask->conn, 404, "the cluster has no worker of this rank");
    return NULL;
}

void ms_rest_worker(const struct rest_ask *ask, const Muster__Status *s)
{
    const Muster__WorkerStatus *w = ms_rest_find_worker(ask, s);

    if (w)
        ms_http_reply_json(ask->conn, 200, ms_view_worker(ask->name, w));
}
