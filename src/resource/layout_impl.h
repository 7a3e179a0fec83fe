/* layout_impl.h - what the files of layouts share
 *
 * layout.c         checks, ranks without devices, holding
 * layout_map.c     ranks on the devices that were named, or are free
 * layout_why.c     the table of a failure, and the nearest change that would fit
 */
#ifndef MS_RESOURCE_LAYOUT_IMPL_H
#define MS_RESOURCE_LAYOUT_IMPL_H

#include "resource/grid.h"
#include "resource/layout.h"

/* What a request wants of one node of the scope. */
struct ms_layout_need {
    uint32_t workers; /* pieces */
    uint32_t room;    /* of them that would fit; UINT32_MAX: any number */
};

/* One attempt. */
struct ms_attempt {
    struct ms_stock *stock;
    const struct ms_layout_request *request;
    struct ms_layout layout;
    struct ms_layout_need *needs; /* [scope->count]; NULL: no node was looked at */
    size_t misfit; /* the first node that does not fit; SIZE_MAX: the request */
    struct ms_error *err;
    uint32_t *ids; /* devices that were chosen, or NULL; */
    /* The request with them, which `request` is then */
    struct ms_layout_request chosen;
};

/* All but holding and the table. 0, -EINVAL, -ENOSPC, -ENOMEM. */
int ms_attempt_run(struct ms_attempt *a);
void ms_attempt_finish(struct ms_attempt *a);

static inline struct ms_stock_node *ms_attempt_node(const struct ms_attempt *a,
                                                    size_t i)
{
    return &a->stock->nodes[a->request->scope->nodes[i]];
}

/* How many workers the CPUs and the memory that are free on a node are enough for;
 * UINT32_MAX: any number. */
uint32_t ms_attempt_room(const struct ms_attempt *a, size_t i);

/* layout_map.c: name free devices for a request that names none; 0, -EINVAL, -ENOSPC,
 * -ENOMEM. */
int ms_attempt_choose(struct ms_attempt *a);

/* Pieces for the devices named; 0, -EINVAL, -ENOSPC, -ENOMEM. */
int ms_attempt_map(struct ms_attempt *a);

/* UINT64_MAX if that is more. */
static inline uint64_t ms_times(uint64_t a, uint64_t b)
{
    uint64_t product;

    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

/* layout_why.c: a table, and a line such as "it fits with 4 GPUs per worker" if one is known.
 * `asked` is the request as it was made. */
int ms_attempt_explain(const struct ms_attempt *a,
                       const struct ms_layout_request *asked,
                       const struct ms_holders *holders,
                       struct ms_buf *table);

#endif
