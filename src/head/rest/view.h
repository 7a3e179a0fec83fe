/* view.h - nodes, clusters, workers, drivers and keys as JSON
 *
 * The command line and the REST interface show the same: fields of the messages, by their names
 * there (message_json.h), and what follows from them. Fields are added, never renamed.
 */
#ifndef MS_HEAD_REST_VIEW_H
#define MS_HEAD_REST_VIEW_H

#include "io/json.h"
#include "proto/muster.pb-c.h"

json_t *ms_view_node(const Muster__NodeStatus *n);
json_t *ms_view_worker(const char *cluster, const Muster__WorkerStatus *w);
json_t *ms_view_cluster(const Muster__ClusterStatus *c);
/* The same of an answer; for rows of head/ops/verbs.c. */
json_t *ms_view_changed_cluster(const ProtobufCMessage *cluster, int *status);
const char *ms_view_group_word(Muster__GroupState state);
json_t *ms_view_group(const Muster__GroupStatus *g);
json_t *ms_view_driver(const Muster__DriverStatus *d);

/* A KvEntry; *status is 404 if there is none. The keys of a KvEvents, without their values.
 * For rows of head/ops/verbs.c. */
json_t *ms_view_kv_entry(const ProtobufCMessage *entry, int *status);
json_t *ms_view_kv_keys(const ProtobufCMessage *events, int *status);

const char *ms_view_node_word(const Muster__NodeStatus *n);
const char *ms_view_worker_word(Muster__WorkerState state);

#endif
