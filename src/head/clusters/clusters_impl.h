/* clusters_impl.h - what the files that create, replace and end clusters share
 *
 * See clusters.h for who does what.
 */
#ifndef MS_HEAD_CLUSTERS_CLUSTERS_IMPL_H
#define MS_HEAD_CLUSTERS_CLUSTERS_IMPL_H

#include "base/error.h"
#include "cluster/plan.h"
#include "head/clusters/clusters.h"

struct ms_driver;

/* ---- cluster.c --------------------------------------------------------------------- */

/* Does an operation wait to destroy it? */
bool ms_head_is_to_end(const struct ms_head *h, const struct ms_cluster *c);
/* Its rank 0 neither is nor was that worker; 0: it may be any. Not all of those before may be
 * known: in doubt it is the one. */
bool ms_head_is_another(const struct ms_head *h,
                        const struct ms_cluster *c,
                        uint64_t uid);
/* It is not busy any more: end it if that was asked for meanwhile. */
void ms_head_begin_destroys(struct ms_head *h, struct ms_cluster *c);

/* End it by force, on behalf of the head; creations that wait look again behind it. */
void ms_head_end_cluster(struct ms_head *h, const struct ms_cluster *c);

/* ---- create.c ---------------------------------------------------------------------- */

/* One of this name that waits for room is not wanted any more; true: there was one of this
 * driver. */
bool ms_head_give_up_waiting(struct ms_head *h,
                             const char *cluster,
                             const struct ms_driver *d);

/* ---- change.c: creating, restarting, resizing --------------------------------------- */

/* NULL with the reason in op->error: -ENOENT. */
struct ms_cluster *ms_head_find_cluster(struct ms_head_op *op, const char *name);
/* The same, of one whose ranks can be restarted, or their number changed: -EBUSY, -ENOTSUP. */
struct ms_cluster *ms_change_find(struct ms_head_op *op, const char *name);
/* This operation changes the cluster from now on. If it fails before its plan is over, a
 * cluster that is new is forgotten. */
void ms_change_begin(struct ms_head_op *op, struct ms_cluster *c);
/* Carry out the next act of op->plan: the one before is done, or op->error says why it is not.
 * When the plan is over the operation has completed, and the cluster can be changed again. */
void ms_change_go_on(struct ms_head_op *op);

/* Acts: each calls ms_change_go_on when it is done, or fails at once with nothing done. */
int ms_create_keep(struct ms_head_op *op);
int ms_restart_place(struct ms_head_op *op);
int ms_resize_add(struct ms_head_op *op);
int ms_resize_cut(struct ms_head_op *op);

/* ---- start.c: what nodes are asked to start ----------------------------------------- */

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

/* ---- helpers.c ----------------------------------------------------------------------
 *
 * The processes of a wide worker on the nodes beyond its first one are a cluster of their
 * own, "<cluster>.<rank>.helpers", in which every slot says whom it helps. They end with it,
 * and it ends when one of them does. The worker learns of them by MUSTER_HELPERS in its
 * environment before it does its first step.
 */

/* This rank is on several nodes. */
bool ms_helpers_are_needed(const struct ms_cluster *c, uint32_t rank);

/* Ask nodes to start the helpers of the changing ranks of op->cluster that are wide; their
 * answers are as those of workers. 0; -EBUSY: those of an earlier incarnation have not
 * ended, and nothing was asked; any other failure may come after some were asked. */
int ms_helpers_begin(struct ms_head_op *op);
/* Tell a worker of its helpers before anything else. 0 or -ENOMEM. */
int ms_helpers_add_step(const struct ms_head *h,
                        const struct ms_slot *worker,
                        Muster__RunSteps *run);
/* The changing ranks were not made: their helpers end by force. */
void ms_helpers_end(struct ms_head *h, const struct ms_cluster *c);
/* Some of any of its workers have not ended. */
bool ms_helpers_are_left(const struct ms_head *h, const struct ms_cluster *c);
/* Helpers whose worker has ended before they were there end too. */
void ms_helpers_settle(struct ms_head *h, const struct ms_cluster *c);

/* This worker has ended: its helpers end too, and whom it helped. */
void ms_helpers_exited(struct ms_head *h,
                       const struct ms_slot *slot,
                       const Muster__Exit *exit);
/* A cluster of helpers of which none is left: to be forgotten. */
bool ms_helpers_are_over(const struct ms_cluster *c);
/* As ms_cluster_status (cluster/status.h), with helpers. */
Muster__ClusterStatus *ms_head_cluster_status(const struct ms_head *h,
                                              const struct ms_cluster *c,
                                              const Muster__StepsDone *first,
                                              bool with_meta);

/* ---- steps.c ----------------------------------------------------------------------- */

/* A constructor's big arguments, and the Refs among them, are objects of a store. The driver
 * that gave them may end before the cluster does, so the head has them held, by the store of
 * the node on which each was made, under a number that is the cluster's, until its end.
 *
 * Ask all nodes to keep what the step names, on behalf of the operation, whose on_answer and
 * on_refused are set; none if it names nothing. */
void ms_objects_ask_keep(struct ms_head_op *op,
                         struct ms_cluster *c,
                         const Muster__Step *step);
/* The cluster is no more. */
void ms_objects_drop(struct ms_head *h, const struct ms_cluster *c);
/* Every driver and worker is to look again at its handles of clusters; then `next`. */
void ms_head_tell_changed(struct ms_head_op *op,
                          char *cluster,
                          void (*next)(struct ms_head_op *op));

/* ---- successor.c ------------------------------------------------------------------- */

/* Something has changed: who waits for a successor may have one. */
void ms_successors_step(struct ms_head *h);

#endif
