/* bringup.h - starting ranks of a cluster and having them do their steps
 *
 * One way for all beginnings: of a new cluster, of ranks that are restarted, of those that a
 * larger cluster has more. The slots of these ranks have fresh uids and their places.
 *
 *   START    each node starts its processes; those of other clusters beside which they run
 *   HELPERS  processes on the further nodes of ranks that are wider than one
 *   STEPS    every worker makes its engines and does what else the spec says, all at once
 *
 * All or none: if one fails, dies or takes too long, all of these ranks end. A failure is
 * reported with those of other ranks that come soon after it.
 *
 * An operation has one bring-up at a time; its slots are `is_changing` and its cluster is
 * `is_busy` meanwhile. The head's thread.
 */
#ifndef MS_HEAD_CLUSTERS_BRINGUP_H
#define MS_HEAD_CLUSTERS_BRINGUP_H

#include "base/error.h"
#include "cluster/registry.h"

struct ms_head;
struct ms_head_op;
struct ms_bringup;

struct ms_bringup_options {
    const uint32_t *ranks; /* of op->cluster; copied */
    size_t count;
    int64_t step_timeout_ns; /* 0: as the spec says */
    /* Once, perhaps before ms_bringup_begin returns: all are there (op->why.code is 0), or
     * none of these ranks lives any more. */
    void (*done)(struct ms_head_op *op);
};

void ms_bringup_begin(struct ms_head_op *op, const struct ms_bringup_options *o);
/* Nobody wants them any more: as a failure. */
void ms_bringup_cancel(struct ms_head_op *op, const struct ms_error *why);
/* A cluster of helpers is gone: one that has waited for that goes on. */
void ms_bringup_step(struct ms_head_op *op);
/* What rank 0 answered to its steps; NULL: it was not among these. Borrowed. */
const Muster__StepsDone *ms_bringup_first(const struct ms_bringup *l);

/* The operation has completed. NULL is nothing. */
void ms_bringup_destroy(struct ms_bringup *l);

/* A worker has ended: it may be one that is being brought up. */
void ms_bringup_worker_ended(struct ms_head *h,
                             const struct ms_slot *slot,
                             const Muster__Exit *exit);
/* The workers of a node are lost, and those that are being brought up there with it. */
void ms_bringups_lost(struct ms_head *h, const char *node);
/* The operation that brings up ranks of this cluster; NULL: none does. */
struct ms_head_op *ms_bringup_find(const struct ms_head *h, const struct ms_cluster *c);

#endif
