/* resize.c - more or fewer ranks of a cluster, while the others go on
 *
 *   more:  places -> slots -> bring-up of the new ranks
 *   fewer: end the last ranks -> their places are given back
 *
 *   memory: the new ranks may have another amount of it
 *   drain: those that will go are taken out of all handles, and work on what they have
 *
 * If the new ranks cannot be made the cluster is as it was. Those that stay keep their
 * environment: WORLD_SIZE in it is what it was when they started.
 */
#include "base/cleanup.h"
#include "head/clusters/bringup.h"
#include "head/clusters/clusters_impl.h"
#include "head/drivers/driver.h"
#include "head/head_impl.h"
#include "head/nodes/node.h"
#include "head/ops/op.h"
#include "head/ops/request.h"
#include "head/place/place.h"

#include <errno.h>
#include <string.h>

static const Muster__ResizeCluster *what(const struct ms_head_op *op)
{
    return op->request->resize;
}

/* The places of the ranks that there are, no more. */
static void cut_places(struct ms_cluster *c)
{
    while (c->placed->n_ranks > c->count)
        muster__rank_place__free_unpacked(c->placed->ranks[--c->placed->n_ranks], NULL);
}

/* Who has handles of it learns it before the end of the operation is known. */
static void tell_all(struct ms_head_op *op)
{
    ms_head_tell_changed(op, op->cluster->name, ms_change_finish);
}

/* ---- fewer ----------------------------------------------------------------------- */

static void cut(struct ms_head_op *op, size_t count)
{
    struct ms_cluster *c = op->cluster;

    ms_cluster_end_unstarted(&op->head->registry, c, false, "it was not started");
    (void)ms_cluster_resize(&op->head->registry, c, NULL, count);
    cut_places(c);
    ms_place_settle(op->head, c);
}

static void last_are_gone(struct ms_head_op *op)
{
    if (ms_ending_left(op) > 0) {
        ms_ending_late(op);
        ms_change_finish(op);
        return;
    }
    cut(op, what(op)->world_size);
    tell_all(op);
}

static int shrink(struct ms_head_op *op)
{
    ms_cluster_set_changing(op->cluster, what(op)->world_size);
    return ms_ending_begin(op, false, ms_head_grace(what(op)->grace_ns), last_are_gone);
}

/* ---- more ------------------------------------------------------------------------ */

static void brought_up(struct ms_head_op *op)
{
    if (!op->error.code) {
        tell_all(op);
        return;
    }
    cut(op, op->size_before);
    ms_change_finish(op);
}

/* Behind those that there are; the message is left empty. */
static int add_places(struct ms_cluster *c, Muster__ClusterPlaced *more)
{
    size_t count = c->placed->n_ranks + more->n_ranks;
    Muster__RankPlace **all =
        realloc(c->placed->ranks, count * sizeof(Muster__RankPlace *));

    if (!all)
        return -ENOMEM;
    c->placed->ranks = all;
    memcpy(all + c->placed->n_ranks,
           more->ranks,
           more->n_ranks * sizeof(Muster__RankPlace *));
    c->placed->n_ranks = count;
    more->n_ranks = 0;
    return 0;
}

static int add_slots(struct ms_head_op *op, const Muster__ClusterPlaced *more)
{
    struct ms_cluster *c = op->cluster;
    MS_CLEANUP(ms_cleanup_free)
    struct ms_slot_spec *slots = ms_start_slots(c->spec, more);

    if (!slots)
        return -ENOMEM;
    return ms_cluster_resize(&op->head->registry, c, slots, c->count + more->n_ranks);
}

static int grow(struct ms_head_op *op)
{
    struct ms_cluster *c = op->cluster;
    uint32_t first = (uint32_t)c->count;
    Muster__PlaceCluster request = *c->spec->place;
    Muster__Scope scope = MUSTER__SCOPE__INIT;
    const struct ms_place_claim claim = {.request = &request,
                                         .cluster = c->name,
                                         .driver = c->driver,
                                         .first = first,
                                         .count = what(op)->world_size - first,
                                         .is_more = true};
    Muster__ClusterPlaced *more = NULL;
    int rc;

    if (what(op)->memory)
        request.memory = what(op)->memory;
    if (what(op)->n_nodes) {
        if (request.scope)
            scope = *request.scope;
        scope.nodes = what(op)->nodes;
        scope.n_nodes = what(op)->n_nodes;
        request.scope = &scope;
    }
    rc = ms_place_claim(op->head, &claim, &more, &op->table, &op->error);
    if (rc < 0)
        return rc;
    ms_change_memory(c, what(op)->memory);
    rc = add_slots(op, more);
    ms_cluster_set_changing(c, first);
    if (rc == 0)
        rc = add_places(c, more);
    muster__cluster_placed__free_unpacked(more, NULL);
    if (rc < 0) {
        cut(op, first);
        return rc;
    }
    op->size_before = first;
    ms_bringup_begin(op, 0, brought_up);
    return 0;
}

/* ---- what is asked --------------------------------------------------------------- */

static struct ms_cluster *find(struct ms_head_op *op)
{
    const Muster__ResizeCluster *w = what(op);
    struct ms_cluster *c = ms_change_find(op, w->cluster);

    if (c && (w->world_size == 0 || w->world_size > MS_CLUSTER_WORKERS_MAX))
        ms_error_set(&op->error,
                     -EINVAL,
                     "cluster '%s' cannot have %u workers; from 1 to %u are possible",
                     c->name,
                     w->world_size,
                     MS_CLUSTER_WORKERS_MAX);
    else if (c && (!c->spec->can_resize || c->spec->beside[0]))
        ms_error_set(&op->error,
                     -ENOTSUP,
                     "cluster '%s' cannot change its size: its ranks have places "
                     "in a mesh (tp, pp, cp or ep), or run beside others",
                     c->name);
    else if (c)
        ms_change_check_memory(c, w->memory, &op->error);
    return op->error.code ? NULL : c;
}

int ms_head_resize_run(struct ms_head_op *op)
{
    struct ms_cluster *c = find(op);
    uint32_t count = what(op)->world_size;
    int rc = 0;

    if (!c)
        return op->error.code;
    c->drained = what(op)->drain && count < c->count ? count : 0;
    if (what(op)->drain) {
        ms_head_tell_changed(op, c->name, ms_head_op_done);
        return 0;
    }
    ms_change_begin(op, c);
    if (count > c->count)
        rc = grow(op);
    else if (count < c->count)
        rc = shrink(op);
    else
        ms_change_finish(op);
    if (rc < 0)
        ms_change_fail(op, rc);
    return 0;
}
