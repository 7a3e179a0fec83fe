/* scope.h - which nodes count, in which order, and the global ids of their devices
 *
 * Nodes are in the order of their names ("n2" before "n10"), so the same nodes have the
 * same order wherever and whenever they came. Devices have global ids: node after node,
 * device after device, counted on over unequal nodes. A scope may be less than all: some
 * nodes by name, or the first ones that have so many devices, of which only so many count.
 *
 * A scope is made from a stock and valid while no node is added to it. Pure.
 */
#ifndef MS_RESOURCE_SCOPE_H
#define MS_RESOURCE_SCOPE_H

#include "base/buf.h"
#include "resource/stock.h"

#define MS_ALL_DEVICES UINT32_MAX

/* What to take. All zero: every node that is not gone, with none of its devices; mostly
 * devices_per_node is MS_ALL_DEVICES. */
struct ms_scope_request {
    size_t num_nodes; /* the first so many; 0: all */
    /* Nodes that have at least so many, and only so many of each; MS_ALL_DEVICES: any
     * node, with all it has. */
    uint32_t devices_per_node;
    /* NULL: any. Else exactly these, which may be gone, and num_nodes means nothing. */
    const char *const *names;
    size_t name_count;
};

struct ms_scope {
    size_t count;
    uint32_t *nodes; /* [count] index in the stock, in the order of names */
    /* [count + 1] global id of the node's first device; the last: all */
    uint32_t *first;
};

/* 0; -ENOSPC: there are not so many such nodes, and `table` (may be NULL) gets those that
 * there are; -ENOENT: no node of that name; -EINVAL (a name twice), -ENOMEM. */
int ms_scope_init(struct ms_scope *out,
                  const struct ms_stock *s,
                  const struct ms_scope_request *r,
                  struct ms_buf *table,
                  struct ms_error *err);
void ms_scope_finish(struct ms_scope *s);

/* How many devices there are: the ids are 0 to that, less one. */
uint32_t ms_scope_devices(const struct ms_scope *s);

/* How many of the devices of its i-th node count. */
uint32_t ms_scope_devices_of(const struct ms_scope *s, size_t i);

/* Where a device is: which of the scope's nodes, and its index on it. False: no such id. */
bool ms_scope_find(const struct ms_scope *s,
                   uint32_t id,
                   size_t *node,
                   uint32_t *index);

/* ---- a view --------------------------------------------------------------------------
 *
 * The part of a stock that a scope shows, as a stock of its own. Its nodes are those of the
 * scope, in its order, with as many devices as count there. It borrows everything: what is
 * taken from it or given back to it is taken from or given back to the real stock when the
 * view is finished, and not before. Nothing else may touch the real one meanwhile.
 */
struct ms_stock_view {
    struct ms_stock stock;
    struct ms_stock *real;
    struct ms_scope scope; /* node i of the view is scope.nodes[i] of the real one */
};

/* 0, or as ms_scope_init. */
int ms_stock_view_init(struct ms_stock_view *v,
                       struct ms_stock *s,
                       const struct ms_scope_request *r,
                       struct ms_error *err);
void ms_stock_view_finish(struct ms_stock_view *v);

#endif
