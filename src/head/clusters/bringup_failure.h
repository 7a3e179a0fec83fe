/* bringup_failure.h - why workers were not made, as messages */
#ifndef MS_HEAD_CLUSTERS_BRINGUP_FAILURE_H
#define MS_HEAD_CLUSTERS_BRINGUP_FAILURE_H

#include "base/error.h"
#include "cluster/registry.h"

struct ms_head_op;

/* Each is malloc'd; NULL: out of memory. */
Muster__Failure *ms_bringup_died(const Muster__Exit *exit); /* may be NULL */
Muster__Failure *ms_bringup_refused(const struct ms_error *why);
Muster__Failure *ms_bringup_late(int64_t timeout_ns);

/* Of this worker, among op->failure->workers; takes it (NULL: out of memory). The first one
 * is also the operation's own reason. */
void ms_bringup_add_failure(struct ms_head_op *op,
                            const struct ms_slot *slot,
                            Muster__Failure *failure);

#endif
