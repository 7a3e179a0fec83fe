#include "base/cleanup.h"
#include "head/rest/rest_impl.h"
#include "head/status.h"
#include "head/version.h"
#include "io/http/text.h"

#include <stdio.h>
#include <string.h>

static void cleanup_status(Muster__Status **s)
{
    muster__status__free_unpacked(*s, NULL);
}

#define OWNED MS_CLEANUP(cleanup_status)

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
    return json_pack("{s:o, s:o, s:f, s:b, s:i, s:i, s:i, s:i, s:o}",
                     "session",
                     ms_json_string(s->session),
                     "version",
                     ms_json_string(s->version),
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
                     ms_json_strings(s->addresses, s->n_addresses));
}

void ms_rest_status(const struct rest_ask *ask)
{
    OWNED Muster__Status *s = status_of(ask);

    if (s)
        ms_http_reply_json(ask->conn, 200, view_status(s));
}

void ms_rest_nodes(const struct rest_ask *ask)
{
    OWNED Muster__Status *s = status_of(ask);
    json_t *list = s ? json_array() : NULL;

    for (size_t i = 0; s && i < s->n_nodes; i++)
        json_array_append_new(list, ms_view_node(s->nodes[i]));
    if (s)
        ms_http_reply_json(ask->conn, 200, json_pack("{s:o}", "nodes", list));
}

void ms_rest_node(const struct rest_ask *ask)
{
    OWNED Muster__Status *s = status_of(ask);

    if (!s)
        return;
    for (size_t i = 0; i < s->n_nodes; i++)
        if (strcmp(s->nodes[i]->name, ask->name) == 0) {
            ms_http_reply_json(ask->conn, 200, ms_view_node(s->nodes[i]));
            return;
        }
    not_found(ask, "node");
}

void ms_rest_drivers(const struct rest_ask *ask)
{
    OWNED Muster__Status *s = status_of(ask);
    json_t *list = s ? json_array() : NULL;

    for (size_t i = 0; s && i < s->n_drivers; i++)
        json_array_append_new(list, ms_view_driver(s->drivers[i]));
    if (s)
        ms_http_reply_json(ask->conn, 200, json_pack("{s:o}", "drivers", list));
}

void ms_rest_groups(const struct rest_ask *ask)
{
    OWNED Muster__Status *s = status_of(ask);
    json_t *list = s ? json_array() : NULL;

    for (size_t i = 0; s && i < s->n_groups; i++)
        json_array_append_new(list, ms_view_group(s->groups[i]));
    if (s)
        ms_http_reply_json(ask->conn, 200, json_pack("{s:o}", "groups", list));
}

void ms_rest_clusters(const struct rest_ask *ask)
{
    OWNED Muster__Status *s = status_of(ask);
    json_t *list = s ? json_array() : NULL;

    for (size_t i = 0; s && i < s->n_clusters; i++)
        json_array_append_new(list, ms_view_cluster(s->clusters[i]));
    if (s)
        ms_http_reply_json(ask->conn, 200, json_pack("{s:o}", "clusters", list));
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
    OWNED Muster__Status *s = status_of(ask);
    const Muster__ClusterStatus *c = find_cluster(ask, s);

    if (c)
        ms_http_reply_json(ask->conn, 200, ms_view_cluster(c));
}

void ms_rest_workers(const struct rest_ask *ask)
{
    OWNED Muster__Status *s = status_of(ask);
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
    OWNED Muster__Status *s = status_of(ask);
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
    OWNED Muster__Status *s = ms_rest_find_worker(ask, &w);

    if (s)
        ms_http_reply_json(ask->conn, 200, ms_view_worker(ask->name, w));
}
