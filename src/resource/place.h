/* place.h - a placement group: bundles placed all or none
 *
 * A pure function from a stock and a request to nodes and devices, which are then held;
 * or to the reason why not, and then nothing has changed. The same input always gives
 * the same answer.
 *
 * Strategies:
 *   PACK           as few nodes as possible
 *   SPREAD         as many as possible, as evenly as possible
 *   STRICT_PACK    all on one node
 *   STRICT_SPREAD  each on a node of its own
 * With `same` ("rack"), all nodes of the group have the same value of that label.
 *
 * Equal bundles are placed exactly: if there is a way it is found, in time linear in the
 * nodes. They are given to the chosen nodes in node order. Bundles of several kinds are
 * placed greedily, the biggest first; if that fails all ways are tried, for
 * MS_PLACE_STEPS_MAX steps. Only if every way was tried is the answer -ENOSPC; else it
 * is -EAGAIN: none was found.
 */
#ifndef MS_RESOURCE_PLACE_H
#define MS_RESOURCE_PLACE_H

#include "resource/bundle.h"
#include "resource/scope.h"

#define MS_PLACE_BUNDLES_MAX ((size_t)1 << 20)
#define MS_PLACE_STEPS_MAX   UINT64_C(200000)
#define MS_PLACE_SEARCH_MAX  ((size_t)4096) /* bundles; more are only placed greedily */

enum ms_strategy {
    MS_STRATEGY_PACK,
    MS_STRATEGY_SPREAD,
    MS_STRATEGY_STRICT_PACK,
    MS_STRATEGY_STRICT_SPREAD
};

/* "PACK" and so on; -EINVAL. */
int ms_strategy_parse(const char *text, enum ms_strategy *out, struct ms_error *err);
const char *ms_strategy_name(enum ms_strategy s);

struct ms_place_request {
    const char *name; /* of the group, for errors */
    const struct ms_bundle *bundles;
    size_t count;
    enum ms_strategy strategy;
    const char *same;   /* a label; NULL: none */
    uint64_t steps_max; /* 0: MS_PLACE_STEPS_MAX */
    /* Only there, in the order of names; NULL: all nodes, in the order of the stock. */
    const struct ms_scope_request *scope;
    /* What a copy (ms_place_request_copy) points to; else NULL */
    struct ms_place_request_block *owned;
};

/* Where each bundle is. */
struct ms_placement {
    size_t count;
    uint32_t *nodes;   /* [count] index in the stock */
    uint32_t *first;   /* [count + 1] bundle i has devices[first[i] .. first[i + 1]) */
    uint32_t *devices; /* indexes on the node */
};

/* Place and hold. 0; -EINVAL (the request contradicts itself), -ENOSPC (the nodes do not
 * have it), -EAGAIN (none was found in that many steps), -ENOMEM. */
int ms_place(struct ms_stock *s,
             const struct ms_place_request *r,
             struct ms_placement *out,
             struct ms_error *err);

/* Hold once more what a placement has, whether it is free or not: for what is so already. */
void ms_place_hold(struct ms_stock *s,
                   const struct ms_place_request *r,
                   const struct ms_placement *p);

/* Give back what the placement of `r` holds, exactly. */
void ms_place_release(struct ms_stock *s,
                      const struct ms_place_request *r,
                      struct ms_placement *p);

/* Free it without giving anything back. */
void ms_placement_finish(struct ms_placement *p);

/* A deep copy, which owns all that it points to; equal bundles that stand side by side share
 * their parts. 0, -ENOMEM. */
int ms_place_request_copy(struct ms_place_request *to,
                          const struct ms_place_request *from);
/* Free a copy. */
void ms_place_request_finish(struct ms_place_request *r);

#endif
