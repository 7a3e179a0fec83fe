/* clusters_impl.h - what the files that create, replace and end clusters share
 *
 * See clusters.h for who does what.
 */
#ifndef MS_HEAD_CLUSTERS_CLUSTERS_IMPL_H
#define MS_HEAD_CLUSTERS_CLUSTERS_IMPL_H

#include "base/error.h"
#include "head/clusters/clusters.h"

struct ms_driver;

/* ---- cluster.c --------------------------------------------------------------------- */

/* Has somebody asked for its end? */
bool ms_head_is_to_end(const struct ms_head *h, const struct ms_cluster *c);
/* It is not busy any more: end it if somebody asked for that meanwhile. */
void ms_head_begin_destroys(struct ms_head *h, struct ms_cluster *c);

/* ---- create.c ---------------------------------------------------------------------- */

/* One of this name that waits for room is not wanted any more; true: there was one of this
 * driver. */
bool ms_head_give_up_waiting(struct ms_head *h,
                             const char *cluster,
                             const struct ms_driver *d);
/* Its status, whole: with helpers, and when it was created with the answers of rank 0. NULL:
 * out of memory. */
Muster__ClusterStatus *ms_head_cluster_status(const struct ms_head *h,
                                              const struct ms_cluster *c,
                                              const Muster__StepsDone *first);

/* ---- restart.c --------------------------------------------------------------------- */

/* May its ranks be restarted, or their number changed? -ENOENT, -EBUSY, -ENOTSUP. */
int ms_head_check_change(const struct ms_cluster *c,
                         const char *name,
                         struct ms_error *err);

/* ---- refresh.c --------------------------------------------------------------------- */

/* Every driver and worker is to look again at its handles of clusters. `step` is called
 * now and with each node's answer; no question is open (op->asks) when all know. */
void ms_head_tell_changed(struct ms_head_op *op,
                          char *cluster,
                          void (*step)(struct ms_head_op *op));

/* ---- successor.c ------------------------------------------------------------------- */

/* Something has changed: who waits for a successor may have one. */
void ms_head_seek_step(struct ms_head *h);

#endif
