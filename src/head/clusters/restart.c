/* restart.c - new incarnations of ranks, in the places of the old ones or in new ones
 *
 * All of the ranks together, so that a collective group can form again. A slot has its new
 * uid from the moment at which the old one is known to have ended, so that no word about the
 * old one can reach the new. Whether the driver that made the cluster still lives does not
 * matter. What is done in which order: cluster/change_plan.h; where each rank goes:
 * cluster/place_plan.h.
 */
#include "base/cleanup.h"
#include "base/proto.h"
#include "cluster/place_plan.h"
#include "head/clusters/clusters_impl.h"
#include "head/drivers/driver.h"
#include "head/head_impl.h"
#include "head/nodes/node.h"
#include "head/ops/op.h"
#include "head/ops/request.h"
#include "head/place/place.h"

#include <errno.h>
#include <string.h>

static const Muster__RestartWorkers *what(const struct ms_head_op *op)
{
    return op->request->restart;
}

/* ---- the new ones ---------------------------------------------------------------- */

static bool is_lost(const struct ms_head *h, const struct ms_slot *slot)
{
    const struct ms_node *n = ms_node_find(h, slot->node);

    return !n || n->state == MS_NODE_GONE;
}

static void forget_failure(struct ms_head_op *op)
{
    op->error = (struct ms_error){0};
    ms_buf_finish(&op->table);
    ms_buf_init(&op->table);
}

/* Places for it elsewhere, as was asked or among other nodes. */
static int move_to(struct ms_head_op *op,
                   struct ms_slot *slot,
                   const Muster__PlaceCluster *request)
{
    struct ms_cluster *c = op->cluster;
    const struct ms_place_claim claim = {.request = request,
                                         .cluster = c->name,
                                         .driver = c->driver,
                                         .first = slot->rank,
                                         .count = 1,
                                         .is_more = true};
    Muster__ClusterPlaced *placed = NULL;
    int rc = ms_place_claim(op->head, &claim, &placed, &op->table, &op->error);

    if (rc < 0)
        return ms_error_wrap(&op->error,
                             is_lost(op->head, slot) ? "%s/%u: node %s is gone"
                                                     : "%s/%u: away from node %s",
                             c->name,
                             slot->rank,
                             slot->node);
    rc = ms_cluster_move(slot, &placed->ranks[0]);
    muster__cluster_placed__free_unpacked(placed, NULL);
    return rc;
}

/* To one of the nodes that the plan allows. */
static int move_among(struct ms_head_op *op, struct ms_slot *slot)
{
    Muster__PlaceCluster request = *op->cluster->spec->place;
    Muster__Scope scope = MUSTER__SCOPE__INIT;
    MS_CLEANUP(ms_cleanup_free) char **names = NULL;

    if (request.scope)
        scope = *request.scope;
    names = ms_place_plan_nodes(what(op), slot, &scope);
    if (!names)
        return -ENOMEM;
    request.scope = &scope;
    return scope.n_nodes ? move_to(op, slot, &request) : -ENOSPC;
}

/* So many bytes beside what the cluster holds on this node. */
static int claim_more(struct ms_head_op *op, const char *node, uint64_t memory)
{
    char *nodes[] = {ms_field_text(node)};
    Muster__Scope scope = MUSTER__SCOPE__INIT;
    Muster__PlaceCluster request = MUSTER__PLACE_CLUSTER__INIT;
    const struct ms_place_claim claim = {.request = &request,
                                         .cluster = op->cluster->name,
                                         .driver = op->cluster->driver,
                                         .is_more = true};
    Muster__ClusterPlaced *placed = NULL;
    int rc;

    scope.nodes = nodes;
    scope.n_nodes = 1;
    request.scope = &scope;
    request.world_size = 1;
    request.memory = memory;
    rc = ms_place_claim(op->head, &claim, &placed, &op->table, &op->error);
    muster__cluster_placed__free_unpacked(placed, NULL);
    return rc;
}

/* The cluster's ranks may have another amount of memory than this one was started with: it
 * has that on its own nodes. */
static int change_memory(struct ms_head_op *op, struct ms_slot *slot)
{
    const struct ms_cluster *c = op->cluster;
    const Muster__RankPlace *place = c->placed->ranks[slot->rank];
    uint64_t memory = c->spec->worker->memory_limit;
    int rc = 0;

    for (size_t i = 0; rc == 0 && memory > slot->memory && i < place->n_pieces; i++)
        rc = claim_more(op, place->pieces[i]->node, memory - slot->memory);
    if (rc < 0)
        return ms_error_wrap(&op->error, "%s/%u: more memory", c->name, slot->rank);
    slot->memory = memory;
    return 0;
}

static int try(struct ms_head_op *op, struct ms_slot *slot, enum ms_place_try how)
{
    switch (how) {
    case MS_PLACE_MEMORY:
        return change_memory(op, slot);
    case MS_PLACE_AMONG:
        return move_among(op, slot);
    case MS_PLACE_ANYWHERE:
        return move_to(op, slot, op->cluster->spec->place);
    default:
        return 0;
    }
}

/* 1: it has another place, or more memory there. */
static int place_one(struct ms_head_op *op, struct ms_slot *slot)
{
    struct ms_place_plan plan;
    const struct ms_place_facts facts = {.is_lost = is_lost(op->head, slot),
                                         .is_shared =
                                             ms_place_is_shared(op->head, op->cluster)};
    int rc = ms_place_plan_init(&plan, slot, what(op), &facts, &op->error);

    if (rc < 0 || ms_place_plan_is_empty(&plan))
        return rc;
    while ((rc = try(op, slot, plan.tries[plan.at])) < 0 &&
           ms_place_plan_goes_on(&plan, rc))
        forget_failure(op);
    return rc < 0 ? rc : 1;
}

/* All that have to, before any is renewed: one that finds no place leaves all of them dead.
 * What they hold then is where they are, however far that came. */
int ms_restart_place(struct ms_head_op *op)
{
    bool has_changed = false;
    int rc = 0;

    ms_cluster_set_memory(op->cluster, what(op)->memory);
    for (struct ms_slot *s = NULL;
         rc >= 0 && (s = ms_cluster_next_changing(op->cluster, s));) {
        rc = place_one(op, s);
        has_changed = has_changed || rc != 0;
    }
    if (has_changed && !op->cluster->spec->beside[0])
        ms_place_settle(op->head, op->cluster);
    if (rc < 0)
        return rc;
    ms_change_go_on(op);
    return 0;
}

int ms_head_restart_run(struct ms_head_op *op)
{
    const Muster__RestartWorkers *w = what(op);
    struct ms_cluster *c = ms_change_find(op, w->cluster);
    int rc = c ? ms_change_plan_restart(&op->plan, c, w, &op->error) : op->error.code;

    if (rc < 0)
        return rc;
    ms_change_begin(op, c);
    ms_change_go_on(op);
    return 0;
}
