/* start.h - asking nodes to start processes of a cluster
 *
 * What each is started with follows from the cluster's spec and places (cluster/plan.h);
 * the head adds uid, incarnation and whose context it has. The head's thread.
 */
#ifndef MS_HEAD_CLUSTERS_START_H
#define MS_HEAD_CLUSTERS_START_H

#include "cluster/plan.h"
#include "cluster/registry.h"

struct ms_head;
struct ms_head_op;
struct ms_node;

/* What new slots of ranks in these places are given, malloc'd; it borrows from the placement.
 * NULL: out of memory. */
struct ms_slot_spec *ms_start_slots(const Muster__ClusterSpec *spec,
                                    const Muster__ClusterPlaced *placed);

/* Ask for the processes of the changing ranks of op->cluster, whose slots are STARTING: one
 * question to each node, or to each worker beside which one is to run. On failure some may
 * have been asked. */
int ms_start_ask(struct ms_head_op *op);

/* The plan of op->cluster; to be finished. 0 or -ENOMEM. */
int ms_start_plan(const struct ms_head_op *op, struct ms_plan *out);

/* Ask one node, with the context of op->cluster; `what` is borrowed. */
int ms_start_ask_node(struct ms_head_op *op,
                      struct ms_node *n,
                      Muster__StartWorkers *what);
/* What the registry knows of a slot, in the description of its process. */
void ms_start_fill(const struct ms_head_op *op,
                   const struct ms_slot *slot,
                   Muster__WorkerSpec *spec);

#endif
