/* resource.h - which nodes and devices clusters are placed on */
#ifndef MUSTER_RESOURCE_H
#define MUSTER_RESOURCE_H

#include <muster/common.h>
#include <muster/error.h>
#include <muster/session.h>

struct muster_resources;

MUSTER_BEGIN

/* Over the nodes of the session, or those `num_nodes` (0: all) of them that have
 * `num_gpus_per_node` devices (-1: what they have). Device g of a device mapping is device
 * g % num_gpus_per_node of node g / num_gpus_per_node. NULL with the reason: kind
 * PLACEMENT if there are not so many. */
MUSTER_API struct muster_resources *
muster_resources_create(struct muster_session *session,
                        int32_t num_gpus_per_node,
                        uint32_t num_nodes,
                        struct muster_error *err);
/* Clusters that were made with it do not need it any more. NULL does nothing. */
MUSTER_API void muster_resources_destroy(struct muster_resources *r);

MUSTER_API uint32_t muster_resources_nodes(const struct muster_resources *r);
MUSTER_API uint32_t muster_resources_gpus_per_node(const struct muster_resources *r);
MUSTER_API const char *muster_resources_node_name(const struct muster_resources *r,
                                                  uint32_t index); /* borrowed */

MUSTER_END

#endif
