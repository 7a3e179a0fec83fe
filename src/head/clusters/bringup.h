/* bringup.h - starting ranks of a cluster and having them do their steps
 *
 * Used for the ranks of a new cluster, for ranks that are restarted, and for those that a
 * larger cluster has more: the changing slots of op->cluster, which have fresh uids and their
 * places.
 *
 * What is asked when, and when it has failed, is in cluster/bringup_plan.h. Small steps of
 * workers without helpers travel with the start already. A failure is reported with those of
 * other ranks that come soon after it.
 *
 * An operation has one bring-up at a time. The head's thread.
 */
#ifndef MS_HEAD_CLUSTERS_BRINGUP_H
#define MS_HEAD_CLUSTERS_BRINGUP_H

#include "base/error.h"
#include "base/list.h"
#include "cluster/bringup_plan.h"

struct ms_head;
struct ms_head_op;

struct ms_bringup {
    struct ms_list link; /* head->bringups, while it is under way */
    struct ms_bringup_plan plan;
    Muster__StepsDone
        *first; /* what rank 0 answered to its steps; NULL: not among them */
    void (*done)(struct ms_head_op *op);
};

/* Begin; step_timeout_ns 0: as the spec says. `done` is called once, perhaps before this
 * returns: all are there (op->error.code is 0), or none of these ranks lives any more. */
void ms_bringup_begin(struct ms_head_op *op,
                      int64_t step_timeout_ns,
                      void (*done)(struct ms_head_op *op));
/* Nobody wants them any more: as a failure. */
void ms_bringup_cancel(struct ms_head_op *op, const struct ms_error *why);
/* A cluster of helpers is gone: one that has waited for that goes on. */
void ms_bringup_step(struct ms_head_op *op);
/* The operation has completed. */
void ms_bringup_finish(struct ms_head_op *op);

/* A worker has ended: it may be one that is being brought up. */
void ms_bringup_worker_ended(struct ms_head *h,
                             const struct ms_slot *slot,
                             const Muster__Exit *exit);
/* The workers of a node are lost, and those that are being brought up there with it. */
void ms_bringups_lost(struct ms_head *h, const char *node);
/* The operation that brings up ranks of this cluster; NULL: none does. */
struct ms_head_op *ms_bringup_find(const struct ms_head *h, const struct ms_cluster *c);

#endif
