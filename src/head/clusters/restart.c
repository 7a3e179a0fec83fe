/* restart.c - new incarnations of ranks, in the places of the old ones
 *
 *   end the old ones -> (places for those whose node is gone or has too little memory, a port
 *   for rank 0) -> bring-up
 *
 * All of the ranks together, so that a collective group can form again. A slot has its new
 * uid from the moment at which the old one is known to have ended, so that no word about the
 * old one can reach the new. If one of the new ones cannot be made, all of these ranks stay
 * dead. Whether the driver that made the cluster still lives does not matter.
 */
#include "base/name.h"
#include "base/proto.h"
#include "head/clusters/bringup.h"
#include "head/clusters/clusters_impl.h"
#include "head/clusters/ports.h"
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

static bool has_own_group(const struct ms_cluster *c)
{
    return c->spec->place && c->spec->place->own_group;
}

static bool is_lost(const struct ms_head *h, const struct ms_slot *slot)
{
    const struct ms_node *n = ms_node_find(h, slot->node);

    return !n || n->state == MS_NODE_GONE;
}

static bool is_named(const char *node, char *const *nodes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(nodes[i], node) == 0)
            return true;
    return false;
}

static bool is_elsewhere(const Muster__RestartWorkers *w, uint32_t rank)
{
    for (size_t i = 0; i < w->n_elsewhere; i++)
        if (w->elsewhere[i] == rank)
            return true;
    return false;
}

/* Ranks of certain devices, of several nodes, or with others in their bundles, stay. */
static bool can_move(const struct ms_head_op *op, const struct ms_slot *slot)
{
    const struct ms_cluster *c = op->cluster;

    return !c->spec->beside[0] && !c->spec->place->n_devices &&
           !c->spec->place->n_seats && c->placed->ranks[slot->rank]->n_pieces == 1 &&
           !ms_place_is_shared(op->head, c);
}

/* It could stay, but is to go. */
static bool is_unwanted_here(const struct ms_head_op *op, const struct ms_slot *slot)
{
    const Muster__RestartWorkers *w = what(op);

    return can_move(op, slot) &&
           (is_elsewhere(w, slot->rank) ||
            (w->n_nodes && !is_named(slot->node, w->nodes, w->n_nodes)));
}

/* The nodes on which it may be now; malloc'd. NULL: out of memory. */
static char **
nodes_for(const struct ms_head_op *op, const struct ms_slot *slot, Muster__Scope *scope)
{
    const Muster__RestartWorkers *w = what(op);
    size_t before = scope->n_nodes;
    char **all = w->n_nodes ? w->nodes : scope->nodes;
    size_t count = w->n_nodes ? w->n_nodes : before;
    char **names = calloc(count + 1, sizeof *names);

    scope->n_nodes = 0;
    for (size_t i = 0; names && i < count; i++)
        if (!is_elsewhere(w, slot->rank) || strcmp(all[i], slot->node) != 0)
            names[scope->n_nodes++] = all[i];
    scope->nodes = names;
    return names;
}

static int move_to(struct ms_head_op *op,
                   struct ms_slot *slot,
                   const Muster__PlaceCluster *request);

/* To one of those nodes. */
static int move_among(struct ms_head_op *op, struct ms_slot *slot)
{
    Muster__PlaceCluster request = *op->cluster->spec->place;
    Muster__Scope scope = MUSTER__SCOPE__INIT;
    char **names;
    int rc;

    if (request.scope)
        scope = *request.scope;
    names = nodes_for(op, slot, &scope);
    if (!names)
        return -ENOMEM;
    request.scope = &scope;
    rc = scope.n_nodes ? move_to(op, slot, &request) : -ENOSPC;
    free(names);
    return rc;
}

static void forget_failure(struct ms_head_op *op)
{
    op->error = (struct ms_error){0};
    ms_buf_finish(&op->table);
    ms_buf_init(&op->table);
}

/* Away from its node, which is there, if it can; else it stays. */
static int move_away(struct ms_head_op *op, struct ms_slot *slot)
{
    int rc = move_among(op, slot);

    if (rc == 0 || !is_elsewhere(what(op), slot->rank))
        return rc;
    forget_failure(op);
    return 0;
}

/* Its node is gone: what was asked is placed anew. */
static int move(struct ms_head_op *op, struct ms_slot *slot)
{
    if (what(op)->n_nodes && is_unwanted_here(op, slot))
        return move_away(op, slot);
    if (what(op)->n_nodes && has_own_group(op->cluster))
        return move_among(op, slot);
    return move_to(op, slot, op->cluster->spec->place);
}

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
    Muster__RankPlace *place;
    bool is_same;
    int rc;

    if (c->spec->beside[0])
        return ms_error_set(&op->error,
                            -ENODEV,
                            "%s/%u: node %s is gone, and the worker beside it",
                            c->name,
                            slot->rank,
                            slot->node);
    rc = ms_place_claim(op->head, &claim, &placed, &op->table, &op->error);
    if (rc < 0)
        return ms_error_wrap(&op->error,
                             is_lost(op->head, slot) ? "%s/%u: node %s is gone"
                                                     : "%s/%u: away from node %s",
                             c->name,
                             slot->rank,
                             slot->node);
    place = placed->ranks[0];
    is_same = strcmp(place->pieces[0]->node, slot->node) == 0;
    rc = ms_slot_move(slot,
                      place->pieces[0]->node,
                      place->pieces[0]->devices,
                      place->pieces[0]->n_devices);
    if (rc == 0) {
        placed->ranks[0] = c->placed->ranks[slot->rank];
        c->placed->ranks[slot->rank] = place;
        slot->memory = c->spec->worker->memory_limit;
        if (slot->rank == 0 && c->master && !is_same)
            c->master->port = 0; /* of the node that is gone: another has to be held */
    }
    muster__cluster_placed__free_unpacked(placed, NULL);
    return rc;
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
 * has that on its own nodes, or it moves. */
static int change_memory(struct ms_head_op *op, struct ms_slot *slot)
{
    const struct ms_cluster *c = op->cluster;
    const Muster__RankPlace *place = c->placed->ranks[slot->rank];
    uint64_t memory = c->spec->worker->memory_limit;
    int rc = 0;

    if (has_own_group(c)) /* its bundle grows where it is, or moves */
        return what(op)->n_nodes ? move_among(op, slot)
                                 : move_to(op, slot, c->spec->place);
    for (size_t i = 0; rc == 0 && memory > slot->memory && i < place->n_pieces; i++)
        rc = claim_more(op, place->pieces[i]->node, memory - slot->memory);
    if (rc == 0) {
        slot->memory = memory;
        return 0;
    }
    if (rc == -ENOSPC && can_move(op, slot)) {
        forget_failure(op);
        return what(op)->n_nodes ? move_among(op, slot)
                                 : move_to(op, slot, c->spec->place);
    }
    return ms_error_wrap(&op->error, "%s/%u: more memory", c->name, slot->rank);
}

static bool has_to_change(const struct ms_head_op *op, const struct ms_slot *slot)
{
    return is_lost(op->head, slot) || is_unwanted_here(op, slot) ||
           slot->memory != op->cluster->spec->worker->memory_limit;
}

static int place_one(struct ms_head_op *op, struct ms_slot *slot)
{
    int rc = 0;

    if (is_lost(op->head, slot))
        return move(op, slot);
    if (is_unwanted_here(op, slot))
        rc = move_away(op, slot);
    if (rc == 0 && slot->memory != op->cluster->spec->worker->memory_limit)
        rc = change_memory(op, slot);
    return rc;
}

/* All that have to, before any is renewed: one that finds no place leaves all of them dead.
 * What they hold then is where they are, however far that came. */
static int place_all(struct ms_head_op *op)
{
    bool has_changed = false;
    int rc = 0;

    for (struct ms_slot *s = NULL;
         rc == 0 && (s = ms_cluster_next_changing(op->cluster, s));)
        if (has_to_change(op, s)) {
            rc = place_one(op, s);
            has_changed = true;
        }
    if (has_changed && !op->cluster->spec->beside[0])
        ms_place_settle(op->head, op->cluster);
    return rc;
}

static int renew(struct ms_head_op *op)
{
    struct ms_registry *r = &op->head->registry;
    int rc = 0;

    for (struct ms_slot *s = NULL;
         rc == 0 && (s = ms_cluster_next_changing(op->cluster, s));)
        rc = ms_slot_renew(r, s, ms_random_id());
    if (rc == 0)
        return 0;
    ms_error_sys(&op->error, rc, "cluster '%s'", op->cluster->name);
    ms_cluster_end_unstarted(r, op->cluster, false, op->error.text);
    return rc;
}

static void bring_up(struct ms_head_op *op)
{
    if (renew(op) == 0)
        ms_bringup_begin(
            op, ms_head_grace(what(op)->step_timeout_ns), ms_change_finish);
    else
        ms_change_finish(op);
}

/* ---- the old ones ---------------------------------------------------------------- */

static void old_are_gone(struct ms_head_op *op)
{
    const Muster__PortHeld *master;
    int rc = 0;

    if (!ms_change_is_unwanted(op) && ms_ending_left(op) > 0)
        ms_ending_late(op);
    if (what(op)->end_only) {
        ms_change_finish(op);
        return;
    }
    if (!op->error.code) {
        ms_change_memory(op->cluster, what(op)->memory);
        rc = place_all(op);
    }
    master = op->cluster->master;
    if (op->error.code || rc < 0)
        ms_change_fail(op, rc);
    else if (master && !master->port)
        ms_change_hold_port(op, bring_up);
    else
        bring_up(op);
}

/* Calls to them fail with this reason. */
static void say_why(struct ms_slot *slot, bool is_end)
{
    if (!ms_slot_is_live(slot) || slot->now.why)
        return;
    slot->now.why =
        strdup(is_end ? "it was ended, and nothing takes its place"
                      : "it was ended by a restart: another one takes its place");
}

static struct ms_cluster *find(struct ms_head_op *op)
{
    const Muster__RestartWorkers *w = what(op);
    struct ms_cluster *c = ms_change_find(op, w->cluster);

    for (size_t i = 0; c && !op->error.code && i < w->n_ranks; i++)
        if (w->ranks[i] >= c->count)
            ms_error_set(&op->error,
                         -EINVAL,
                         "%s has no rank %u: it has %zu",
                         c->name,
                         w->ranks[i],
                         c->count);
    for (size_t i = 0; c && !op->error.code && i < c->count; i++)
        if (!c->slots[i].now.uid)
            ms_error_set(
                &op->error, -EAGAIN, "nobody has reported %s/%zu yet", c->name, i);
    if (c && !op->error.code)
        ms_change_check_memory(c, w->memory, &op->error);
    return op->error.code ? NULL : c;
}

int ms_head_restart_run(struct ms_head_op *op)
{
    const Muster__RestartWorkers *w = what(op);
    struct ms_cluster *c = find(op);

    if (!c)
        return op->error.code;
    ms_change_begin(op, c);
    ms_cluster_set_changing(c, w->n_ranks ? c->count : 0);
    for (size_t i = 0; i < w->n_ranks; i++)
        c->slots[w->ranks[i]].is_changing = true;
    ms_changing_each (s, c)
        say_why(s, w->end_only);
    return ms_ending_begin(op, false, ms_head_grace(w->grace_ns), old_are_gone);
}
