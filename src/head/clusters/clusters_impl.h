/* clusters_impl.h - what the files that create, replace and end clusters share
 *
 * See clusters.h for who does what.
 */
#ifndef MS_HEAD_CLUSTERS_CLUSTERS_IMPL_H
#define MS_HEAD_CLUSTERS_CLUSTERS_IMPL_H

#include "base/error.h"
#include "head/clusters/clusters.h"

/* ---- cluster.c --------------------------------------------------------------------- */

/* The cluster is no more: whoever waits for that is told, then it is forgotten. */
void ms_head_cluster_forget(struct ms_head *h, struct ms_cluster *c);
/* Ask each of its nodes to stop what it has of the cluster: all that was ever there, or
 * only what lives. The number of questions asked, or a negative errno. */
int ms_head_cluster_ask_stop(struct ms_head_op *op,
                             struct ms_cluster *c,
                             bool also_dead,
                             int64_t grace_ns);
/* It is created now: end it if somebody asked for that meanwhile. */
void ms_head_begin_destroys(struct ms_head *h, struct ms_cluster *c);

/* ---- describe.c -------------------------------------------------------------------- */

/* Nothing that was said of a cluster of this name stays. */
void ms_head_meta_remove(const struct ms_head *h, const char *cluster);

/* ---- successor.c ------------------------------------------------------------------- */

/* Something has changed: who waits for a successor may have one. */
void ms_head_seek_step(struct ms_head *h);

/* ---- helpers.c: of workers that are wider than a node ------------------------------ */

int ms_helpers_check(struct ms_head *h,
                     const Muster__CreateCluster *create,
                     struct ms_error *err);
void ms_helpers_created(struct ms_head *h, const struct ms_cluster *c);
/* This worker has ended: its helpers end too, and whom it helped. */
void ms_helpers_exited(struct ms_head *h,
                       const struct ms_slot *slot,
                       const Muster__Exit *exit);
/* A cluster of helpers of which none is left: to be forgotten. */
bool ms_helpers_are_over(const struct ms_cluster *c);

#endif
