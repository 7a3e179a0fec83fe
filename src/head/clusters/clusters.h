/* clusters.h - clusters: requests about them, and what happens to their workers
 *
 * The registry (cluster/registry.h) knows slots and incarnations; here it is carried out. A
 * cluster is in the registry from the begin of its creation until all that it had is gone.
 * One that is being created, or of which a rank is being replaced, is not destroyed before
 * that has ended. Nodes report what happens to workers here, and from here the rest of the
 * head hears of it: drivers, the key-value store, barriers, ports, placement.
 * The head's thread.
 *
 * create.c     creating
 * cluster.c    destroying, and what happens to workers; stop_clusters.c: of several
 * replace.c    a new incarnation of a rank; successor.c: who asks for it
 * describe.c   what drivers say of their clusters, for others
 * helpers.c    helpers of workers that are wider than a node
 * ports.h      ports that are held for them
 * place.h      the resource manager
 */
#ifndef MS_HEAD_CLUSTERS_CLUSTERS_H
#define MS_HEAD_CLUSTERS_CLUSTERS_H

#include "cluster/registry.h"
#include "proto/muster.pb-c.h"

struct ms_head;
struct ms_head_op;
struct ms_node;

/* ---- `run` of requests ------------------------------------------------------------- */

void ms_head_create_run(struct ms_head_op *op);
void ms_head_destroy_run(struct ms_head_op *op);
void ms_head_stop_clusters_run(struct ms_head_op *op);
void ms_head_replace_run(struct ms_head_op *op);
void ms_head_open_run(struct ms_head_op *op);
void ms_head_ask_successor_run(struct ms_head_op *op);
void ms_head_describe_run(struct ms_head_op *op);
void ms_head_find_run(struct ms_head_op *op);

/* A node asks for the successor on behalf of a worker there. */
void ms_head_node_asks_successor(struct ms_node *n, uint64_t uid);

/* A rank of it is between two incarnations. */
bool ms_head_is_replacing(const struct ms_cluster *c);

/* ---- what nodes tell, and that one is gone ----------------------------------------- */

void ms_head_worker_exited(struct ms_head *h, uint64_t uid, const Muster__Exit *exit);
void ms_head_workers_lost(struct ms_head *h, struct ms_node *n, const char *why);
/* The cluster's driver, and who else may call it, hears how this worker ended. */
void ms_head_tell_exit(struct ms_head *h, const struct ms_slot *slot);

/* ---- stopping workers, without an answer ------------------------------------------- */

/* Tell a node to stop one of its workers by force. */
void ms_head_tell_stop(struct ms_node *n, uint64_t uid);
/* Tell a node to stop all its workers. */
int ms_head_stop_workers_of(struct ms_head *h, struct ms_node *n, int64_t grace_ns);

#endif
