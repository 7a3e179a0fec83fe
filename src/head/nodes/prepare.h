/* prepare.h - warm the zygotes of all nodes. The head's thread. */
#ifndef MS_HEAD_NODES_PREPARE_H
#define MS_HEAD_NODES_PREPARE_H

struct ms_head_op;

/* `run` of a request: completes when every node has answered, with the last failure if
 * there was one. A node that cannot prepare says so again when it has to start something. */
void ms_head_prepare_run(struct ms_head_op *op);

#endif
