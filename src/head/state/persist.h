/* persist.h - what a daemon head knows that nobody else could tell it again
 *
 * Agents and drivers report to a head that was started again what they have. The rest
 * stands in the session's folder (journal.h): the key-value store, the specs of clusters,
 * placement groups that are detached, and the names of nodes. Other heads keep nothing:
 * `journal` is NULL and all of this does nothing. The head's thread, or before it runs.
 *
 * After a crash the nodes of the head before are expected back for MS_RECOVERY_NS; what needs
 * nodes waits so long (ops/waiting.h).
 */
#ifndef MS_HEAD_STATE_PERSIST_H
#define MS_HEAD_STATE_PERSIST_H

#include "base/error.h"
#include "base/list.h"
#include "io/loop.h"
#include "proto/muster.pb-c.h"

#include <stdbool.h>
#include <stdint.h>

struct ms_cluster;
struct ms_journal;
struct ms_head;

/* Spaces of the journal that are of rendezvous/ and shards/. */
enum { MS_PERSIST_RENDEZVOUS = 6, MS_PERSIST_SHARDS = 7 };

/* Spaces of the journal that are of jobs/: what was submitted, by name; events of cores, by
 * "name/number"; snapshots of cores, by name; lines of the explanation, by "name/number";
 * incarnations, by "name/role"; changes that were asked over links, by "driver/number". */
enum {
    MS_PERSIST_JOB = 16,
    MS_PERSIST_JOB_EVENT,
    MS_PERSIST_JOB_CORE,
    MS_PERSIST_JOB_LINE,
    MS_PERSIST_JOB_ROLE,
    MS_PERSIST_JOB_ASKED,
};

struct ms_persist {
    struct ms_journal *journal; /* NULL: nothing is kept */
    struct ms_list groups;      /* ms_kept_group: detached ones, as they stand there */
    struct ms_list nodes;       /* of the head before that have not come back */
    uint64_t kv_revision;       /* up to which the key-value store stands there */
    struct ms_timer timer;      /* owners that have not come back by then are gone */
    bool is_expecting;          /* until then */
};

/* Without memory it is not kept until the journal is written anew. */
void ms_persist_put(struct ms_journal *j,
                    uint32_t space,
                    const char *key,
                    const ProtobufCMessage *m);

/* Reads what the head before has left, if there was one. */
int ms_persist_open(struct ms_head *h, struct ms_error *err);
void ms_persist_close(struct ms_head *h);

/* The key-value store has changed. */
void ms_persist_kv(struct ms_head *h);
/* A group has changed, or is new; `group` NULL: it is not. What is not detached is not kept. */
void ms_persist_group(struct ms_head *h,
                      const Muster__PlaceGroup *group,
                      const Muster__GroupStatus *status);
void ms_persist_forget_group(struct ms_head *h, uint64_t id);
/* The spec of this cluster, its places or its incarnations have changed. */
void ms_persist_cluster(struct ms_head *h, const struct ms_cluster *c);
void ms_persist_forget_cluster(struct ms_head *h, const char *cluster);
/* This node is there, or has gone for good. */
void ms_persist_node(struct ms_head *h, const char *name);
void ms_persist_forget_node(struct ms_head *h, const char *name);
/* All who could report workers of this cluster have done so: those of the head before that
 * nobody has are lost, and if it has none at all it is forgotten. */
void ms_persist_settle(struct ms_head *h, const char *cluster);
/* How long to wait for nodes that are missing; 0: none is, or for too long. */
int64_t ms_persist_left_ns(const struct ms_head *h);
/* A node has come: groups that wait for it are placed there again. */
void ms_persist_restore_groups(struct ms_head *h);

#endif
