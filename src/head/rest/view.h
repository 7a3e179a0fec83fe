/* view.h - nodes, clusters, workers, drivers, keys and objects as JSON
 *
 * The command line and the REST interface show the same: fields of the messages, by their names
 * there (message_json.h), and what follows from them. Fields are added, never renamed.
 */
#ifndef MS_HEAD_REST_VIEW_H
#define MS_HEAD_REST_VIEW_H

#include "base/json.h"
#include "proto/muster.pb-c.h"

#include <stdbool.h>

/* Of a NodeStatus, ClusterStatus, GroupStatus, DriverStatus. */
json_t *ms_view_node(const ProtobufCMessage *node);
json_t *ms_view_cluster(const ProtobufCMessage *cluster);
json_t *ms_view_group(const ProtobufCMessage *group);
json_t *ms_view_driver(const ProtobufCMessage *driver);
json_t *ms_view_worker(const char *cluster, const Muster__WorkerStatus *w);

/* All of a status, as `muster status --json` and muster.status() have it. */
json_t *ms_view_status(const Muster__Status *s);

/* A KvEntry; null: there is none. The keys of a KvEvents, without their values. */
json_t *ms_view_kv_entry(const ProtobufCMessage *entry);
json_t *ms_view_kv_keys(const ProtobufCMessage *events);

const char *ms_view_node_word(const Muster__NodeStatus *n);
const char *ms_view_worker_word(Muster__WorkerState state);
const char *ms_view_doing_word(Muster__Doing doing);
/* Whether the worker itself said this; else what it does and has done is not known. */
bool ms_view_is_answer(const Muster__Activity *a);
const char *ms_view_group_word(Muster__GroupState state);

/* ---- objects of all stores --------------------------------------------------------- */

/* One object of one node. */
struct ms_view_object {
    const Muster__StoreStats *at;
    const Muster__StoredStatus *object;
    const char *origin; /* the node that it was made on; "": not known */
    const char *site;   /* which line made it; "": not known */
};

/* All of them, the largest first; freed by the caller, borrows from `all`. NULL: out of
 * memory. */
struct ms_view_object *ms_view_sort_objects(const Muster__Objects *all, size_t *count);

/* "memory", "disk", "copy" (in memory, of another node's), "reference" (no bytes here) or
 * "making". */
const char *ms_view_object_where(const Muster__StoredStatus *o);

/* An Objects: the objects, and how full each store is, or why that is not known. */
json_t *ms_view_all_objects(const ProtobufCMessage *all);
/* An array, in that order. NULL: out of memory. */
json_t *ms_view_objects(const Muster__Objects *all);

#endif
