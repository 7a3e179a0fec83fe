/* offer.h - the nodes of this host as a stock, and the part of one that an agent lends
 *
 * An agent lends what its pieces hold of the node: their CPUs, memory, devices and
 * resources by name. CPUs or memory that none of them asks for are not counted: it then
 * lends those of the node. Of a device that is held in shares it lends the whole.
 */
#ifndef MS_ORCHESTRATOR_LOCAL_OFFER_H
#define MS_ORCHESTRATOR_LOCAL_OFFER_H

#include "proto/muster.pb-c.h"
#include "resource/bundle.h"

/* Nodes as they were described, or (a count of 0) this host as it is found; what a
 * description leaves open is looked for. The stock gets the same nodes in the same
 * order. */
struct ms_offers {
    Muster__NodeShape **nodes;
    size_t count;
};

int ms_offers_init(struct ms_offers *o,
                   const Muster__NodeShape *const *nodes,
                   size_t count,
                   struct ms_stock *stock,
                   struct ms_error *err);
void ms_offers_finish(struct ms_offers *o);

/* What an agent of that name is to lend of a node for these bundles, bundle i being on
 * devices[i]; packed and malloc'd. NULL: out of memory. */
uint8_t *ms_offer_pack(const Muster__NodeShape *node,
                       const char *name,
                       const struct ms_bundle *const *bundles,
                       const uint32_t *const *devices,
                       size_t count,
                       size_t *len);

#endif
