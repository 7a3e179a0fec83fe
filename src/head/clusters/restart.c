/* restart.c - new incarnations of ranks, in the places of the old ones
 *
 *   end the old ones -> (places for those whose node is gone, a port for rank 0) -> bring-up
 *
 * All of the ranks together, so that a collective group can form again. A slot has its new
 * uid from the moment at which the old one is known to have ended, so that no word about the
 * old one can reach the new. If one of the new ones cannot be made, all of these ranks stay
 * dead. Whether the driver that made the cluster still lives does not matter.
 */
#include "base/cleanup.h"
#include "base/name.h"
#include "head/clusters/bringup.h"
#include "head/clusters/clusters_impl.h"
#include "head/clusters/ports.h"
#include "head/drivers/driver.h"
#include "head/head_impl.h"
#include "head/nodes/node.h"
#include "head/ops/op.h"
#include "head/ops/request.h"
#include "head/ops/waiting.h"
#include "head/place/place.h"
#include "head/state/persist.h"

#include <errno.h>
#include <string.h>

static const Muster__RestartWorkers *wanted(const struct ms_head_op *op)
{
    return op->wanted->restart;
}

static void let_go(struct ms_cluster *c)
{
    c->is_busy = false;
    for (size_t i = 0; i < c->count; i++)
        c->slots[i].is_changing = false;
}

/* The head ends, or there was no memory. */
static void restart_failed(struct ms_head_op *op)
{
    ms_bringup_destroy(MS_TAKE(op->bringup));
    if (op->cluster)
        let_go(op->cluster);
    op->cluster = NULL;
}

/* It is over, this way or that: who has waited for it goes on. */
static void finish(struct ms_head_op *op)
{
    struct ms_head *h = op->head;
    struct ms_cluster *c = op->cluster;
    Muster__ClusterStatus *s =
        op->why.code ? NULL
                     : ms_head_cluster_status(h, c, ms_bringup_first(op->bringup));

    if (!op->why.code && !s)
        ms_error_set(&op->why, -ENOMEM, "cluster '%s': out of memory", c->name);
    restart_failed(op);
    op->on_failed = NULL;
    ms_persist_cluster(h, c);
    if (op->why.code)
        ms_head_op_fail_with(op, &op->why);
    else
        ms_head_op_succeed(op, &s->base);
    ms_successors_step(h);
    ms_head_begin_destroys(h, c);
}

/* ---- the new ones ---------------------------------------------------------------- */

static bool is_lost(const struct ms_head *h, const struct ms_slot *slot)
{
    const struct ms_node *n = ms_node_find(h, slot->node);

    return !n || n->state == MS_NODE_GONE;
}

/* Its node is gone: what was asked is placed anew. */
static int move(struct ms_head_op *op, struct ms_slot *slot, struct ms_buf *table)
{
    struct ms_cluster *c = op->cluster;
    const struct ms_place_claim what = {.request = c->spec->place,
                                        .cluster = c->name,
                                        .driver = c->driver,
                                        .first = slot->rank,
                                        .count = 1,
                                        .is_more = true};
    Muster__ClusterPlaced *placed = NULL;
    Muster__RankPlace *place;
    int rc;

    if (c->spec->beside[0])
        return ms_error_set(&op->why,
                            -ENODEV,
                            "%s/%u: node %s is gone, and the worker beside it",
                            c->name,
                            slot->rank,
                            slot->node);
    rc = ms_place_claim(op->head, &what, &placed, table, &op->why);
    if (rc < 0)
        return ms_error_wrap(
            &op->why, "%s/%u: node %s is gone", c->name, slot->rank, slot->node);
    place = placed->ranks[0];
    rc = ms_slot_move(slot,
                      place->pieces[0]->node,
                      place->pieces[0]->devices,
                      place->pieces[0]->n_devices);
    if (rc == 0) {
        placed->ranks[0] = c->placed->ranks[slot->rank];
        c->placed->ranks[slot->rank] = place;
    }
    muster__cluster_placed__free_unpacked(placed, NULL);
    return rc;
}

/* All that have to, before any is renewed: one that finds no place leaves all of them dead.
 * The number of those that have moved, or a negative errno. */
static int move_all(struct ms_head_op *op, struct ms_buf *table)
{
    int moved = 0;

    for (size_t i = 0; i < op->cluster->count; i++) {
        struct ms_slot *slot = &op->cluster->slots[i];
        int rc;

        if (!slot->is_changing || !is_lost(op->head, slot))
            continue;
        rc = move(op, slot, table);
        if (rc < 0)
            return rc;
        moved++;
    }
    if (moved)
        ms_place_settle(op->head, op->cluster);
    return moved;
}

/* Those that have no process yet, and will have none. */
static void take_back(struct ms_head_op *op)
{
    Muster__Exit exit = MUSTER__EXIT__INIT;

    exit.code = -1;
    exit.detail = op->why.text;
    for (size_t i = 0; i < op->cluster->count; i++) {
        const struct ms_slot *slot = &op->cluster->slots[i];

        if (slot->is_changing && ms_slot_is_live(slot))
            ms_registry_exited(&op->head->registry, slot->now.uid, &exit, ms_now_ns());
    }
}

static int renew(struct ms_head_op *op)
{
    struct ms_registry *r = &op->head->registry;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < op->cluster->count; i++)
        if (op->cluster->slots[i].is_changing)
            rc = ms_slot_renew(r, &op->cluster->slots[i], ms_random_id(), ms_now_ns());
    if (rc == 0)
        return 0;
    ms_error_sys(&op->why, rc, "cluster '%s'", op->cluster->name);
    take_back(op);
    return rc;
}

/* The ranks that change; NULL: out of memory. */
static uint32_t *changing(const struct ms_cluster *c, size_t *count)
{
    uint32_t *ranks = calloc(c->count + 1, sizeof *ranks);

    *count = 0;
    for (uint32_t i = 0; ranks && i < c->count; i++)
        if (c->slots[i].is_changing)
            ranks[(*count)++] = i;
    return ranks;
}

static void launch(struct ms_head_op *op)
{
    MS_CLEANUP(ms_cleanup_free) uint32_t *ranks = NULL;
    struct ms_bringup_options o = {
        .step_timeout_ns = ms_head_grace(wanted(op)->step_timeout_ns), .done = finish};

    ranks = changing(op->cluster, &o.count);
    o.ranks = ranks;
    if (!ranks)
        ms_error_set(&op->why, -ENOMEM, "out of memory");
    if (ranks && renew(op) == 0)
        ms_bringup_begin(op, &o);
    else
        finish(op);
}

/* ---- where they meet ------------------------------------------------------------- */

static void cancel_if_destroyed(struct ms_head_op *op)
{
    if (ms_head_is_to_end(op->head, op->cluster))
        ms_error_set(&op->why,
                     -ECANCELED,
                     "cluster '%s' was destroyed meanwhile",
                     op->cluster->name);
}

static void
port_held(struct ms_head_op *op, struct ms_node *n, Muster__AgentToHead *answer)
{
    if (ms_head_cluster_port_take(op->cluster, n, answer, &op->why) == 0)
        cancel_if_destroyed(op);
    if (op->why.code)
        finish(op);
    else
        launch(op);
}

static void
port_refused(struct ms_head_op *op, struct ms_node *n, const struct ms_error *why)
{
    (void)n;
    op->why = *why;
    finish(op);
}

/* Rank 0 is on another node now. */
static void move_port(struct ms_head_op *op)
{
    op->on_answer = port_held;
    op->on_refused = port_refused;
    if (ms_head_cluster_port_ask(op, &op->why) < 0)
        finish(op);
}

/* ---- the old ones ---------------------------------------------------------------- */

static void old_are_gone(struct ms_head_op *op)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf table = {0};
    const struct ms_slot *first = &op->cluster->slots[0];
    bool is_first_lost = first->is_changing && is_lost(op->head, first);

    cancel_if_destroyed(op);
    if (!op->why.code && ms_ending_left(op) > 0)
        ms_ending_late(op, &op->why);
    if (!op->why.code && move_all(op, &table) < 0 && !op->why.code)
        ms_error_sys(&op->why, -ENOMEM, "cluster '%s'", op->cluster->name);
    if (table.len && ms_buf_str(&table))
        op->table = strdup(ms_buf_str(&table));
    if (op->why.code)
        finish(op);
    else if (is_first_lost && op->cluster->master)
        move_port(op);
    else
        launch(op);
}

/* Calls to them fail with this reason. */
static void say_why(struct ms_slot *slot)
{
    if (!ms_slot_is_live(slot) || slot->now.why)
        return;
    slot->now.why = strdup("it was ended by a restart: another one takes its place");
}

static void begin(struct ms_head_op *op)
{
    MS_CLEANUP(ms_cleanup_free) uint32_t *ranks = NULL;
    struct ms_cluster *c = op->cluster;
    size_t count;

    c->is_busy = true;
    op->on_failed = restart_failed;
    for (size_t i = 0; i < c->count; i++)
        c->slots[i].is_changing = wanted(op)->n_ranks == 0;
    for (size_t i = 0; i < wanted(op)->n_ranks; i++)
        c->slots[wanted(op)->ranks[i]].is_changing = true;
    for (size_t i = 0; i < c->count; i++)
        if (c->slots[i].is_changing)
            say_why(&c->slots[i]);
    ranks = changing(c, &count);
    if (!ranks ||
        ms_ending_begin(
            op, ranks, count, ms_head_grace(wanted(op)->grace_ns), old_are_gone) < 0)
        ms_head_op_fail(op, -ENOMEM, "out of memory");
}

/* ---- what is asked --------------------------------------------------------------- */

int ms_head_check_change(const struct ms_cluster *c,
                         const char *name,
                         struct ms_error *err)
{
    if (!c || c->state == MS_CLUSTER_STOPPING)
        return ms_error_set(err, -ENOENT, "there is no cluster '%.64s'", name);
    if (!c->is_made || c->is_busy)
        return ms_error_set(
            err, -EBUSY, "cluster '%s' is being changed already", c->name);
    if (!c->spec)
        return ms_error_set(err,
                            -ENOTSUP,
                            "cluster '%s': how its workers were made was lost with an "
                            "earlier head",
                            c->name);
    return 0;
}

static int check(const struct ms_head_op *op, struct ms_error *err)
{
    const Muster__RestartWorkers *w = wanted(op);
    const struct ms_cluster *c = ms_registry_find(&op->head->registry, w->cluster);
    int rc = ms_head_check_change(c, w->cluster, err);

    for (size_t i = 0; rc == 0 && i < w->n_ranks; i++)
        if (w->ranks[i] >= c->count)
            rc = ms_error_set(err,
                              -EINVAL,
                              "%s has no rank %u: it has %zu",
                              c->name,
                              w->ranks[i],
                              c->count);
    for (size_t i = 0; rc == 0 && i < c->count; i++)
        if (!c->slots[i].now.uid)
            rc = ms_error_set(
                err, -EAGAIN, "nobody has reported %s/%zu yet", c->name, i);
    return rc;
}

void ms_head_restart_run(struct ms_head_op *op)
{
    struct ms_error err = {0};
    int rc = check(op, &err);

    if ((rc == -ENOENT || rc == -EAGAIN) && ms_head_wait_for_nodes(op))
        return;
    if (rc < 0) {
        ms_head_op_fail_with(op, &err);
        return;
    }
    op->cluster = ms_registry_find(&op->head->registry, wanted(op)->cluster);
    begin(op);
}
