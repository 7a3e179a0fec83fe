/* ask.h - requests that nodes answer
 *
 * The head's thread.
 */
#ifndef MS_HEAD_NODES_ASK_H
#define MS_HEAD_NODES_ASK_H

struct ms_head_op;

/* Completes when every node has answered, with the last failure if there was one. A node
 * that cannot prepare says so again when it has to start something. */
int ms_head_prepare_run(struct ms_head_op *op);
/* -ENODEV: the node is gone. */
int ms_head_read_log_run(struct ms_head_op *op);
/* Completes sooner or later: nodes that do not answer in MS_STORE_SHOW_NS say why not. */
int ms_head_objects_run(struct ms_head_op *op);

#endif
