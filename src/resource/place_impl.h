/* place_impl.h - what the files of placement share
 *
 * place.c        checks, holding, releasing
 * place_equal.c  bundles of one kind
 * place_mixed.c  bundles of several kinds
 */
#ifndef MS_RESOURCE_PLACE_IMPL_H
#define MS_RESOURCE_PLACE_IMPL_H

#include "resource/place.h"

/* The domains of nodes, by their value of the label `same`: domain_of[i] is the first node that
 * has the value of node i, UINT32_MAX if node i has none; 0 for all without a label. */

/* Fill p->nodes for equal bundles, holding nothing: 0, -ENOSPC, -ENOMEM. */
int ms_place_equal(const struct ms_stock *s,
                   const struct ms_place_request *r,
                   const uint32_t *domain_of,
                   struct ms_placement *p);

/* Fill p->nodes and p->devices, for any bundles, and hold them. 0; -ENOSPC, -EAGAIN,
 * -ENOMEM, with the stock as it was. `*steps` is how many were made. */
int ms_place_mixed(struct ms_stock *s,
                   const struct ms_place_request *r,
                   const uint32_t *domain_of,
                   struct ms_placement *p,
                   uint64_t *steps);

#endif
