/* clusters.h - clusters: requests about them, and what happens to their workers
 *
 * The registry (cluster/registry.h) knows slots and incarnations; here it is carried out. A
 * cluster is in the registry from the begin of its creation until all that it had is gone.
 * One that is busy (created, restarted, resized) is not destroyed before that was undone.
 * Nodes report what happens to workers here, and from here the rest of the head hears of it:
 * drivers, the key-value store, barriers, ports, placement.
 * The head's thread.
 *
 * create.c     creating: place, port, bring-up
 * restart.c    new incarnations of ranks; resize.c: more or fewer of them
 * change.c     what these three have in common: the begin, the port, the end
 * bringup.h    starting ranks and having them do their steps; start.c: what nodes are asked
 * ending.h     ending ranks, rank 0 last
 * cluster.c    destroying, and what happens to workers; stop_clusters.c: of several
 * steps.c      what is done to clusters since, and who asks for them
 * successor.c  who has a dead worker's place
 * helpers.c    helpers of workers that are wider than a node
 * ports.h      ports that are held for them
 */
#ifndef MS_HEAD_CLUSTERS_CLUSTERS_H
#define MS_HEAD_CLUSTERS_CLUSTERS_H

#include "cluster/registry.h"
#include "proto/muster.pb-c.h"

struct ms_driver;
struct ms_head;
struct ms_head_op;
struct ms_node;

/* Creations that wait for room: something was given back. */
void ms_creations_step(struct ms_head *h);
/* As clusters that have no workers yet, into a Status. False: out of memory. */
bool ms_creations_add_status(const struct ms_head *h, Muster__Status *s);

/* A node asks for the successor on behalf of a worker there. */
void ms_head_node_asks_successor(struct ms_node *n, uint64_t uid);

/* The cluster is no more: operations that wait for that complete, then it is forgotten. */
void ms_head_cluster_forget(struct ms_head *h, struct ms_cluster *c);

/* ---- what nodes tell, and that one is gone ----------------------------------------- */

void ms_head_worker_exited(struct ms_head *h, uint64_t uid, const Muster__Exit *exit);
void ms_head_workers_lost(struct ms_head *h, struct ms_node *n, const char *why);
/* The cluster's driver, and who else may call it, hears how this worker ended. */
void ms_head_tell_exit(struct ms_head *h, const struct ms_slot *slot);

/* ---- stopping workers, without an answer ------------------------------------------- */

/* Tell a node to stop some of its workers; without a grace by force. */
int ms_node_tell_stop(struct ms_node *n,
                      uint64_t *uids,
                      size_t count,
                      int64_t grace_ns);
/* An answer that nobody waits for: workers that it has started and that are none of ours end. */
void ms_head_stop_unwanted(struct ms_node *n, const Muster__AgentToHead *answer);
/* The uids of the living workers that are known to be on this node, malloc'd. NULL: out of
 * memory. */
uint64_t *
ms_head_living_on(const struct ms_head *h, const struct ms_node *n, size_t *count);
/* Tell a node to stop all its workers. */
int ms_head_stop_workers_of(struct ms_head *h, struct ms_node *n, int64_t grace_ns);

#endif
