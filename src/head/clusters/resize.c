/* resize.c - more or fewer ranks of a cluster, while the others go on
 *
 *   more:  places -> slots -> launch of the new ranks
 *   fewer: end the last ranks -> their places are given back
 *
 * If the new ranks cannot be made the cluster is as it was. Those that stay keep their
 * environment: WORLD_SIZE in it is what it was when they started.
 */
#include "base/cleanup.h"
#include "base/name.h"
#include "head/clusters/bringup.h"
#include "head/clusters/clusters_impl.h"
#include "head/clusters/place.h"
#include "head/head_impl.h"
#include "head/kept.h"
#include "head/op.h"
#include "head/request.h"
#include "head/waiting.h"

#include <errno.h>
#include <string.h>

static const Muster__ResizeCluster *wanted(const struct ms_head_op *op)
{
    return op->wanted->resize;
}

static void resize_failed(struct ms_head_op *op)
{
    ms_bringup_destroy(MS_TAKE(op->bringup));
    if (op->cluster) {
        op->cluster->is_busy = false;
        for (size_t i = 0; i < op->cluster->count; i++)
            op->cluster->slots[i].is_changing = false;
    }
    op->cluster = NULL;
}

/* The places of the ranks that there are, no more. */
static void cut_places(struct ms_cluster *c)
{
    while (c->placed->n_ranks > c->count)
        muster__rank_place__free_unpacked(c->placed->ranks[--c->placed->n_ranks], NULL);
}

static void finish(struct ms_head_op *op)
{
    struct ms_head *h = op->head;
    struct ms_cluster *c = op->cluster;
    Muster__ClusterStatus *s = op->why.code ? NULL : ms_head_cluster_status(h, c, NULL);

    if (!op->why.code && !s)
        ms_error_set(&op->why, -ENOMEM, "cluster '%s': out of memory", c->name);
    resize_failed(op);
    op->on_failed = NULL;
    ms_head_keep_spec(h, c);
    ms_head_changed(h);
    if (op->why.code)
        ms_head_op_fail_with(op, &op->why);
    else
        ms_head_op_succeed(op, &s->base);
    ms_head_seek_step(h);
    ms_head_begin_destroys(h, c);
}

static void told(struct ms_head_op *op)
{
    if (ms_list_is_empty(&op->asks))
        finish(op);
}

/* ---- fewer ----------------------------------------------------------------------- */

static void cut(struct ms_head_op *op, size_t count)
{
    struct ms_cluster *c = op->cluster;

    (void)ms_cluster_resize(&op->head->registry, c, NULL, count, ms_now_ns());
    cut_places(c);
    ms_place_settle(op->head, c);
}

static void last_are_gone(struct ms_head_op *op)
{
    if (ms_ending_left(op) > 0) {
        ms_ending_late(op, &op->why);
        finish(op);
        return;
    }
    cut(op, wanted(op)->world_size);
    ms_head_tell_changed(op, op->cluster->name, told);
}

/* The ranks from `first` on; NULL: out of memory. */
static uint32_t *ranks_from(const struct ms_cluster *c, uint32_t first)
{
    uint32_t *ranks = calloc(c->count + 1, sizeof *ranks);

    for (uint32_t i = first; ranks && i < c->count; i++)
        ranks[i - first] = i;
    return ranks;
}

static int shrink(struct ms_head_op *op)
{
    uint32_t first = wanted(op)->world_size;
    MS_CLEANUP(ms_cleanup_free) uint32_t *ranks = ranks_from(op->cluster, first);

    for (size_t i = first; i < op->cluster->count; i++)
        op->cluster->slots[i].is_changing = true;
    if (!ranks)
        return -ENOMEM;
    return ms_ending_begin(op,
                           ranks,
                           op->cluster->count - first,
                           ms_head_grace(wanted(op)->grace_ns),
                           last_are_gone);
}

/* ---- more ------------------------------------------------------------------------ */

static void launched(struct ms_head_op *op)
{
    size_t before = op->cluster->count - op->bringup_count;

    if (op->why.code) {
        cut(op, before);
        finish(op);
    } else {
        op->cluster->is_busy = true; /* until all have been told */
        ms_head_tell_changed(op, op->cluster->name, told);
    }
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
    struct ms_slot_spec *slots = calloc(more->n_ranks + 1, sizeof *slots);

    if (!slots)
        return -ENOMEM;
    for (size_t i = 0; i < more->n_ranks; i++) {
        const Muster__Piece *p = more->ranks[i]->pieces[0];

        slots[i] = (struct ms_slot_spec){
            .uid = ms_random_id(),
            .node = p->node,
            .devices = p->devices,
            .device_count = p->n_devices,
            .memory = c->spec->worker->memory_limit,
            .cpu_milli = c->spec->worker->cpu_milli,
            .device_memory = p->n_devices ? c->spec->place->device_memory : 0};
    }
    return ms_cluster_resize(
        &op->head->registry, c, slots, c->count + more->n_ranks, ms_now_ns());
}

static int launch(struct ms_head_op *op, uint32_t first)
{
    MS_CLEANUP(ms_cleanup_free) uint32_t *ranks = ranks_from(op->cluster, first);
    struct ms_bringup_options o = {ranks, op->cluster->count - first, 0, launched};

    if (!ranks)
        return -ENOMEM;
    op->bringup_count = o.count;
    ms_bringup_begin(op, &o);
    return 0;
}

static int grow(struct ms_head_op *op)
{
    struct ms_cluster *c = op->cluster;
    uint32_t first = (uint32_t)c->count;
    const struct ms_place_claim what = {.request = c->spec->place,
                                        .cluster = c->name,
                                        .driver = c->driver,
                                        .first = first,
                                        .count = wanted(op)->world_size - first,
                                        .is_more = true};
    MS_CLEANUP(ms_buf_finish) struct ms_buf table = {0};
    Muster__ClusterPlaced *more = NULL;
    int rc = ms_place_claim(op->head, &what, &more, &table, &op->why);

    if (rc < 0 && table.len && ms_buf_str(&table))
        op->table = strdup(ms_buf_str(&table));
    if (rc < 0)
        return rc;
    rc = add_slots(op, more);
    if (rc == 0)
        rc = add_places(c, more);
    muster__cluster_placed__free_unpacked(more, NULL);
    if (rc == 0)
        rc = launch(op, first);
    if (rc < 0)
        cut(op, first);
    return rc;
}

/* ---- what is asked --------------------------------------------------------------- */

static int check(const struct ms_head_op *op, struct ms_error *err)
{
    const Muster__ResizeCluster *w = wanted(op);
    const struct ms_cluster *c = ms_registry_find(&op->head->registry, w->cluster);
    int rc = ms_head_check_change(c, w->cluster, err);

    if (rc < 0)
        return rc;
    if (w->world_size == 0 || w->world_size > MS_CLUSTER_WORKERS_MAX)
        return ms_error_set(err,
                            -EINVAL,
                            "cluster '%s' cannot have %u workers; from 1 to %u are "
                            "possible",
                            c->name,
                            w->world_size,
                            MS_CLUSTER_WORKERS_MAX);
    if (!c->spec->can_resize || c->spec->beside[0])
        return ms_error_set(
            err,
            -ENOTSUP,
            "cluster '%s' cannot change its size: its ranks have places "
            "in a mesh (tp, pp, cp or ep), or run beside others",
            c->name);
    return 0;
}

void ms_head_resize_run(struct ms_head_op *op)
{
    struct ms_error err = {0};
    int rc = check(op, &err);

    if (rc == -ENOENT && ms_head_wait_for_nodes(op))
        return;
    if (rc < 0) {
        ms_head_op_fail_with(op, &err);
        return;
    }
    op->cluster = ms_registry_find(&op->head->registry, wanted(op)->cluster);
    op->cluster->is_busy = true;
    op->on_failed = resize_failed;
    if (wanted(op)->world_size == op->cluster->count) {
        finish(op);
        return;
    }
    rc = wanted(op)->world_size < op->cluster->count ? shrink(op) : grow(op);
    if (rc == 0)
        return;
    if (!op->why.code)
        ms_error_sys(&op->why, rc, "cluster '%s'", op->cluster->name);
    finish(op);
}
