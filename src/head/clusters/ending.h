/* ending.h - ending ranks of a cluster, in order
 *
 * Used for all ends: of a cluster, of ranks that are restarted, of those that a smaller
 * cluster does not have any more, of what a failed start has begun. Each node is asked to
 * stop its part (SIGTERM, after the grace SIGKILL) and answers when all of that is reaped.
 *
 * The order is that of cluster/end_plan.h.
 *
 * An operation has one ending at a time. The head's thread.
 */
#ifndef MS_HEAD_CLUSTERS_ENDING_H
#define MS_HEAD_CLUSTERS_ENDING_H

#include "base/error.h"
#include "cluster/end_plan.h"

struct ms_head_op;

struct ms_ending {
    struct ms_end_plan plan;
    bool is_over;
    void (*done)(struct ms_head_op *op);
};

/* End the changing ranks of op->cluster (or all), also what dead ones have left. `done` comes
 * once, perhaps before this returns: when they are gone, or MS_STOP_GRACE_NS after the grace
 * with some that even SIGKILL did not end (ms_ending_left). -ENOMEM: nothing has begun. */
int ms_ending_begin(struct ms_head_op *op,
                    bool is_all,
                    int64_t grace_ns,
                    void (*done)(struct ms_head_op *op));

/* How many of them live. */
size_t ms_ending_left(const struct ms_head_op *op);
/* op->error is -ETIMEDOUT, with who does not end. */
void ms_ending_late(struct ms_head_op *op);

#endif
