/* whole_nodes.h - described nodes, each of them wholly, as the pieces of a gang
 *
 * What a description leaves open is looked for on this machine; or, for nodes that are
 * elsewhere, not asked for at all.
 */
#ifndef MS_ORCHESTRATOR_WHOLE_NODES_H
#define MS_ORCHESTRATOR_WHOLE_NODES_H

#include "proto/muster.pb-c.h"
#include "resource/place.h"

struct ms_whole_nodes {
    Muster__NodeShape **shapes;
    size_t count;
    struct ms_stock stock; /* the same nodes */
    struct ms_place_request
        pieces; /* each is all of one of them, on a node of its own */
    struct ms_bundle *bundles;
};

/* Of nodes that are elsewhere: as if there were this much of what is not said. */
#define MS_WHOLE_NODES_OPEN_CPUS   ((int32_t)1 << 20)
#define MS_WHOLE_NODES_OPEN_MEMORY (UINT64_C(1) << 50)

/* 0, or -EINVAL, -E2BIG, -ENOMEM with the reason. Finish it in any case. A count of 0: this
 * machine, "localhost". */
int ms_whole_nodes_init(struct ms_whole_nodes *w,
                        const Muster__NodeShape *const *nodes,
                        size_t count,
                        bool are_here,
                        struct ms_error *err);
void ms_whole_nodes_finish(struct ms_whole_nodes *w);

/* Another stock of these nodes. */
int ms_whole_nodes_stock(const struct ms_whole_nodes *w,
                         struct ms_stock *out,
                         struct ms_error *err);

#endif
