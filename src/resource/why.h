/* why.h - why a group could not be placed, for people
 *
 *   group 'actor': 4 bundles, PACK
 *     bundle 0-3  4 gpus, 2 CPUs
 *     node     CPUs    memory              gpus    fits  why not
 *   > n0       1 of 8  64.0 of 64.0 GiB    4 of 4  0     2 CPUs are asked for, 1 is free
 *     n1 - n3  8 of 8  64.0 of 64.0 GiB    4 of 4  1
 *   it fits with 3 bundles, or with 1 CPU for each
 *
 * Nodes that look alike share a line; beyond MS_WHY_LINES_MAX lines the rest is counted.
 * A '>' stands before the first nodes on which not even one bundle fits, or before the
 * group if there are none. With holders there is a column of who holds the devices.
 */
#ifndef MS_RESOURCE_WHY_H
#define MS_RESOURCE_WHY_H

#include "base/buf.h"
#include "resource/layout.h"
#include "resource/place.h"

enum { MS_WHY_LINES_MAX = 24 };

/* Append the text. The stock is used for trying changes, and left as it was. 0, -ENOMEM. */
int ms_place_explain(struct ms_stock *s,
                     const struct ms_place_request *r,
                     const struct ms_holders *holders,
                     struct ms_buf *out);

/* The nearest change with which the group can be placed, as a sentence without a full
 * stop ("it fits with 4 gpus for each"); nothing if none is known. 0, -ENOMEM. */
int ms_place_suggest(struct ms_stock *s,
                     const struct ms_place_request *r,
                     struct ms_buf *out);

/* "4 gpus, 2 CPUs, 16.0 GiB, zone in a|b" */
void ms_bundle_print(const struct ms_stock *s,
                     const struct ms_bundle *b,
                     struct ms_buf *out);

#endif
