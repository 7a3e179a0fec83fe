/* layout.h - where every rank of a cluster goes, or why it cannot
 *
 * A pure function from a stock, a scope and a request to a layout, which is then held: no
 * clock, no I/O, and the same input always gives the same layout.
 *
 * The rules:
 *  - With a list of devices (global ids, see scope.h) rank r gets the r-th run of
 *    `devices_per_worker` of them, in the order given. Other clusters may have mapped
 *    the same devices: that is colocation. A device of which a bundle holds a part is
 *    not to be had, and a mapped one is not given to bundles. Within one request a
 *    device appears once.
 *  - A worker may be wider than a node. It then has a piece on each node that has some
 *    of its devices, in the order of the ids: the first is where its process runs, on
 *    each further one there is a helper process.
 *  - Without a list but with devices_per_worker, each worker gets so many devices of one
 *    node that nobody else has. The nodes are filled one after another, in their order.
 *  - Without either, workers have no devices. Rank r goes to the r-th node modulo the
 *    number of nodes; a node without room is passed over.
 *  - CPUs and memory count for each piece on its node, device memory on each of its
 *    devices. Zero asks for nothing. They are never shared between clusters.
 * So for every request that these rules allow a layout is found.
 */
#ifndef MS_RESOURCE_LAYOUT_H
#define MS_RESOURCE_LAYOUT_H

#include "base/buf.h"
#include "base/error.h"
#include "resource/scope.h"

#include <stddef.h>
#include <stdint.h>

#define MS_LAYOUT_WORKERS_MAX ((uint32_t)1 << 20)
#define MS_LAYOUT_LINES_MAX   ((size_t)64) /* nodes in a table */

struct ms_layout_request {
    const char *cluster;
    const struct ms_scope *scope;
    uint32_t world_size;         /* 0: as many as the devices make */
    const uint32_t *devices;     /* global ids */
    size_t device_count;         /* 0: none are named */
    uint32_t devices_per_worker; /* 0: workers without devices */
    uint64_t cpu_milli;          /* each worker, thousandths of a CPU */
    uint64_t memory;             /* each worker, bytes */
    uint64_t device_memory;      /* each worker on each of its devices, bytes */
};

/* What a worker has on one node. */
struct ms_piece {
    uint32_t node;         /* index in the stock */
    uint32_t first, count; /* devices[first .. first + count) of the layout */
};

struct ms_layout {
    uint32_t world_size;
    uint32_t *first; /* [world_size + 1] rank r has pieces[first[r] .. first[r + 1]),
                                at least one */
    struct ms_piece *pieces; /* the first of a rank is where its process runs */
    uint32_t *devices;       /* indexes on the node of the piece */
    uint64_t cpu_milli, memory, device_memory; /* as asked, each piece or device */
    bool in_bundles; /* it stands in placement groups, which hold all this */
};

/* Who holds the devices of a node, for the tables: append as short text for people ("0-3
 * actor, 5 ref"), by global id, the node's first one being `id`; nothing if nobody does. */
struct ms_holders {
    void (*print)(
        void *arg, uint32_t node, uint32_t id, uint32_t count, struct ms_buf *out);
    void *arg;
};

/* Make a layout and hold it. On failure `out` and the stock are untouched, `err` has one
 * sentence, and a table is appended to `table` (may be NULL): what was asked, what each
 * node has free and who holds the rest (`holders` may be NULL), a '>' before the first
 * line that does not fit, and the nearest change that would. -EINVAL: the request
 * contradicts itself, or is beyond a limit above. -ENOSPC: the nodes do not have it.
 * -ENOMEM. */
int ms_layout_make(struct ms_stock *s,
                   const struct ms_layout_request *request,
                   struct ms_layout *out,
                   const struct ms_holders *holders,
                   struct ms_buf *table,
                   struct ms_error *err);

/* Take once more what a layout has, whether it is free or not: for what runs already. */
void ms_layout_hold(struct ms_stock *s, const struct ms_layout *l);
/* Give back exactly what it holds, and free it. */
void ms_layout_release(struct ms_stock *s, struct ms_layout *l);
/* Room for so many; 0 or -ENOMEM, and it is to be finished in both cases. */
int ms_layout_init(struct ms_layout *l, uint32_t ranks, size_t pieces, size_t devices);
/* Free it without giving anything back. */
void ms_layout_finish(struct ms_layout *l);

/* Five cells for the i-th node of the scope: its name, the ids of its devices, who holds
 * them (`holders` may be NULL), the CPUs and the memory that are free. */
struct ms_grid;
void ms_layout_add_node(struct ms_grid *g,
                        const struct ms_stock *s,
                        const struct ms_scope *scope,
                        size_t i,
                        const struct ms_holders *holders);

#endif
