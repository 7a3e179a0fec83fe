/* objects.h - what the steps of a cluster refer to in the stores of nodes
 *
 * A constructor's big arguments, and the Refs among them, are objects of a store. The driver
 * that gave them may end before the cluster does, so the head has them held, by the store of
 * the node on which each was made, under a number that is the cluster's. They are given back
 * with the cluster. The head's thread.
 */
#ifndef MS_HEAD_CLUSTERS_OBJECTS_H
#define MS_HEAD_CLUSTERS_OBJECTS_H

#include "cluster/registry.h"

struct ms_head;
struct ms_head_op;

/* Ask all nodes to keep what the step names, on behalf of the operation, whose on_answer and
 * on_refused are set; none if it names nothing. */
void ms_objects_ask_keep(struct ms_head_op *op,
                         struct ms_cluster *c,
                         const Muster__Step *step);
/* The cluster is no more. */
void ms_objects_drop(struct ms_head *h, const struct ms_cluster *c);

#endif
