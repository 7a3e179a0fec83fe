/* dialled.h - a node whose agent has dialled
 *
 * Its link may break and come back (node.h, AWAY). An agent that comes back, or comes to a
 * head that was started again, reports its workers and ports, which are taken into the
 * registry. The head's thread.
 */
#ifndef MS_HEAD_NODES_DIALLED_H
#define MS_HEAD_NODES_DIALLED_H

#include "base/error.h"
#include "proto/muster.pb-c.h"

struct ms_head;
struct ms_link;

/* An agent has said who it is; takes the link over. 0, or why it is refused. */
int ms_dialled_attach(struct ms_head *h,
                      struct ms_link *wire,
                      Muster__AgentHello *hello,
                      struct ms_error *err);
/* This node has ended, as who lends it says; if it is there, it is lost. */
void ms_dialled_is_over(struct ms_head *h, const char *name, const char *why);
/* In node->contexts: a driver that it must forget when it comes back. */
void *ms_node_unforgotten(void);

#endif
