/* private_map.h - a part of an object that this process may write, for itself alone
 *
 * A private map of the object's pages. What is read is the page that all share; a page
 * that is written is copied first, for this process alone. So what arrived can be given to
 * code that may write it (torch has no read-only tensors) without a copy, and costs one only
 * for the pages that are written.
 *
 * ms_store_client_find_memory finds the object behind such memory for as long as nothing of the
 * part that is asked for was written: then it is sent on by its name.
 */
#ifndef MS_STORE_PRIVATE_MAP_H
#define MS_STORE_PRIVATE_MAP_H

#include "store/client/client.h"

struct ms_private_map {
    uint8_t *bytes;
    uint64_t len;

    /* of private_map.c alone */
    struct ms_list link; /* of its client's */
    struct ms_held *held;
    uint64_t offset; /* in the object */
    uint8_t *map;    /* whole pages */
    size_t map_len;
};

/* [offset, offset + len) of an object whose bytes are here; holds it. NULL: it is not here,
 * there are MS_STORE_PRIVATE_MAX already, or the kernel gives no map: make a copy instead. */
struct ms_private_map *
ms_private_map_create(struct ms_held *h, uint64_t offset, uint64_t len);
/* Unmaps it. */
void ms_private_map_destroy(struct ms_private_map *o);

#endif
