/* view.h - the part of a stock that a scope shows, as a stock of its own
 *
 * Its nodes are those of the scope, in its order, with as many devices as count there. The
 * view borrows everything: what is taken from it or given back to it is taken from or given
 * back to the real stock when the view is finished, and not before. Nothing else may touch
 * the real one meanwhile.
 */
#ifndef MS_RESOURCE_VIEW_H
#define MS_RESOURCE_VIEW_H

#include "resource/scope.h"

struct ms_view {
    struct ms_stock stock;
    struct ms_stock *real;
    struct ms_scope scope; /* node i of the view is scope.nodes[i] of the real one */
    uint32_t *whole;       /* of each node, as it was */
};

/* 0, or as ms_scope_init. */
int ms_view_init(struct ms_view *v,
                 struct ms_stock *s,
                 const struct ms_scope_request *r,
                 struct ms_error *err);
void ms_view_finish(struct ms_view *v);

#endif
