/* ports.h - ports that nodes hold for clusters
 *
 * An agent binds the port, so that nobody else gets it; the head remembers which node holds
 * it for whom. A driver calls its owner what it likes: the cluster's name, a colon, and what
 * makes it unique. A driver that is there drops its ports itself; otherwise they go with the
 * cluster, the driver or the node. In head->ports. The head's thread.
 */
#ifndef MS_HEAD_CLUSTERS_PORTS_H
#define MS_HEAD_CLUSTERS_PORTS_H

#include "proto/muster.pb-c.h"

#include <stdint.h>

struct ms_cluster;
struct ms_head;
struct ms_head_op;
struct ms_node;

/* This node holds one already. -ENOMEM */
int ms_head_port_add(struct ms_head *h,
                     const char *owner,
                     uint64_t driver,
                     const struct ms_node *n);
/* By what the owner is called: whose cluster it is for; 0: it has no driver. */
uint64_t ms_head_port_driver(const struct ms_head *h, const char *owner);

/* The port at which the ranks of a cluster meet, on the node of rank 0 from now until the
 * cluster's end: ask for it; op->on_answer takes the answer. -ENODEV, -EPIPE, -ENOMEM. */
int ms_head_cluster_port_ask(struct ms_head_op *op);
/* -EPROTO, -ENOMEM */
int ms_head_cluster_port_take(struct ms_head_op *op,
                              struct ms_node *n,
                              Muster__AgentToHead *answer);

/* Its own port, and what was held for it if its driver cannot drop that any more. */
void ms_head_ports_drop(struct ms_head *h, const struct ms_cluster *c);
/* Ask the nodes to drop what this owner holds, on behalf of the operation. */
void ms_head_ports_ask_drop(struct ms_head_op *op, const char *owner, uint64_t driver);
/* What a driver that ended held for no cluster. */
void ms_head_ports_drop_driver(struct ms_head *h, uint64_t driver);
/* The node is gone, and what it held with it. */
void ms_head_ports_lost(struct ms_head *h, const struct ms_node *n);
void ms_head_ports_finish(struct ms_head *h);

#endif
