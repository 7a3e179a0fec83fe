/* resize.c - more or fewer ranks of a cluster, while the others go on
 *
 *   memory: the new ranks may have another amount of it
 *   drain: those that will go are taken out of all handles, and work on what they have
 *
 * If the new ranks cannot be made the cluster is as it was. Those that stay keep their
 * environment: WORLD_SIZE in it is what it was when they started. What is done in which order:
 * cluster/change_plan.h.
 */
#include "base/cleanup.h"
#include "cluster/place_plan.h"
#include "head/clusters/clusters_impl.h"
#include "head/drivers/driver.h"
#include "head/head_impl.h"
#include "head/nodes/node.h"
#include "head/ops/op.h"
#include "head/ops/request.h"
#include "head/ops/waiting.h"
#include "head/place/place.h"

#include <errno.h>

static const Muster__ResizeCluster *what(const struct ms_head_op *op)
{
    return op->request->resize;
}

int ms_resize_cut(struct ms_head_op *op)
{
    ms_cluster_cut(&op->head->registry, op->cluster, op->plan.size);
    ms_place_settle(op->head, op->cluster);
    ms_change_go_on(op);
    return 0;
}

/* ---- more ------------------------------------------------------------------------ */

static int add_slots(struct ms_head_op *op, const Muster__ClusterPlaced *more)
{
    struct ms_cluster *c = op->cluster;
    MS_CLEANUP(ms_cleanup_free)
    struct ms_slot_spec *slots = ms_start_slots(c->spec, more);

    if (!slots)
        return -ENOMEM;
    return ms_cluster_resize(&op->head->registry, c, slots, c->count + more->n_ranks);
}

/* Places for the ranks that there are not yet. */
static int claim(struct ms_head_op *op, Muster__ClusterPlaced **more)
{
    const struct ms_cluster *c = op->cluster;
    uint32_t first = (uint32_t)c->count;
    Muster__PlaceCluster request = *c->spec->place;
    Muster__Scope scope = MUSTER__SCOPE__INIT;
    const struct ms_place_claim claim = {.request = &request,
                                         .cluster = c->name,
                                         .driver = c->driver,
                                         .first = first,
                                         .count = what(op)->world_size - first,
                                         .is_more = true};

    if (what(op)->memory)
        request.memory = what(op)->memory;
    if (what(op)->n_nodes) {
        if (request.scope)
            scope = *request.scope;
        scope.nodes = what(op)->nodes;
        scope.n_nodes = what(op)->n_nodes;
        request.scope = &scope;
    }
    return ms_place_claim(op->head, &claim, more, &op->table, &op->error);
}

int ms_resize_add(struct ms_head_op *op)
{
    struct ms_cluster *c = op->cluster;
    Muster__ClusterPlaced *more = NULL;
    int rc = claim(op, &more);

    if (rc < 0)
        return rc;
    ms_cluster_set_memory(c, what(op)->memory);
    rc = add_slots(op, more);
    ms_change_plan_mark(&op->plan, c);
    if (rc == 0)
        rc = ms_cluster_add_places(c, more);
    muster__cluster_placed__free_unpacked(more, NULL);
    if (rc < 0) {
        ms_cluster_cut(&op->head->registry, c, op->plan.size);
        ms_place_settle(op->head, c);
        return rc;
    }
    ms_change_go_on(op);
    return 0;
}

/* ---- what is asked --------------------------------------------------------------- */

int ms_head_resize_run(struct ms_head_op *op)
{
    const Muster__ResizeCluster *w = what(op);
    struct ms_cluster *c = ms_change_find(op, w->cluster);
    int rc;

    if (!c)
        return op->error.code;
    rc = ms_change_plan_resize(&op->plan, c, w, &op->error);
    if (rc == 0 && ms_head_wait_for_nodes(op)) { /* places are on all of them */
        ms_change_plan_finish(&op->plan);
        return 0;
    }
    if (rc < 0)
        return rc;
    c->drained = w->drain && w->world_size < c->count ? w->world_size : 0;
    if (w->drain) {
        ms_head_tell_changed(op, c->name, ms_head_op_done);
        return 0;
    }
    ms_change_begin(op, c);
    ms_change_go_on(op);
    return 0;
}
