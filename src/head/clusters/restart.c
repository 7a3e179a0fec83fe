/* restart.c - new incarnations of ranks, in the places of the old ones
 *
 *   end the old ones -> (places for those whose node is gone, a port for rank 0) -> bring-up
 *
 * All of the ranks together, so that a collective group can form again. A slot has its new
 * uid from the moment at which the old one is known to have ended, so that no word about the
 * old one can reach the new. If one of the new ones cannot be made, all of these ranks stay
 * dead. Whether the driver that made the cluster still lives does not matter.
 */
#include "base/name.h"
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

/* It could stay, but is to go. Ranks of certain devices, or of several nodes, stay. */
static bool is_unwanted_here(const struct ms_head_op *op, const struct ms_slot *slot)
{
    const Muster__RestartWorkers *w = what(op);
    const struct ms_cluster *c = op->cluster;

    if (c->spec->beside[0] || c->spec->place->n_devices || c->spec->place->n_seats ||
        c->placed->ranks[slot->rank]->n_pieces != 1)
        return false;
    return is_elsewhere(w, slot->rank) ||
           (w->n_nodes && !is_named(slot->node, w->nodes, w->n_nodes));
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

/* Away from its node, which is there, if it can; else it stays. */
static int move_away(struct ms_head_op *op, struct ms_slot *slot)
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
    if (rc == 0 || !is_elsewhere(what(op), slot->rank))
        return rc;
    op->error = (struct ms_error){0};
    ms_buf_finish(&op->table);
    ms_buf_init(&op->table);
    return 0;
}

/* Its node is gone: what was asked is placed anew. */
static int move(struct ms_head_op *op, struct ms_slot *slot)
{
    if (what(op)->n_nodes && is_unwanted_here(op, slot))
        return move_away(op, slot);
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
    rc = ms_slot_move(slot,
                      place->pieces[0]->node,
                      place->pieces[0]->devices,
                      place->pieces[0]->n_devices);
    if (rc == 0) {
        placed->ranks[0] = c->placed->ranks[slot->rank];
        c->placed->ranks[slot->rank] = place;
        if (slot->rank == 0 && c->master)
            c->master->port = 0; /* of the node that is gone: another has to be held */
    }
    muster__cluster_placed__free_unpacked(placed, NULL);
    return rc;
}

/* All that have to, before any is renewed: one that finds no place leaves all of them dead. */
static int move_all(struct ms_head_op *op)
{
    bool has_moved = false;
    int rc = 0;

    for (struct ms_slot *s = NULL;
         rc == 0 && (s = ms_cluster_next_changing(op->cluster, s));)
        if (is_lost(op->head, s) || is_unwanted_here(op, s)) {
            rc = is_lost(op->head, s) ? move(op, s) : move_away(op, s);
            has_moved = true;
        }
    if (rc == 0 && has_moved)
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
    if (!op->error.code)
        rc = move_all(op);
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
