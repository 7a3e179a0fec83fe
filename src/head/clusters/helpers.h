/* helpers.h - the processes of a wide worker on the nodes beyond its first one
 *
 * The helpers of a worker are a cluster of their own, "<cluster>.<rank>.helpers", in which
 * every slot says whom it helps. They end with it, and it ends when one of them does. The
 * worker learns of them by MUSTER_HELPERS in its environment before it does its first step.
 * The head's thread.
 */
#ifndef MS_HEAD_CLUSTERS_HELPERS_H
#define MS_HEAD_CLUSTERS_HELPERS_H

#include "base/error.h"
#include "cluster/registry.h"

struct ms_head;
struct ms_head_op;

/* This rank is on several nodes. */
bool ms_helpers_are_needed(const struct ms_cluster *c, uint32_t rank);

/* Ask nodes to start the helpers of the changing ranks of op->cluster that are wide; their
 * answers are as those of workers. 0; -EBUSY: those of an earlier incarnation have not
 * ended, and nothing was asked; any other failure may come after some were asked. */
int ms_helpers_begin(struct ms_head_op *op, struct ms_error *err);
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

#endif
