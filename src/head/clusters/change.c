/* change.c - what creating, restarting and resizing a cluster have in common
 *
 * A change makes its cluster busy and marks the slots that are part of it. It ends in
 * ms_change_finish, whichever way it went: a new cluster that was not made is forgotten, any
 * other one is there as it is now.
 */
#include "base/cleanup.h"
#include "base/name.h"
#include "cluster/status.h"
#include "head/clusters/clusters_impl.h"
#include "head/clusters/ports.h"
#include "head/head_impl.h"
#include "head/nodes/node.h"
#include "head/ops/op.h"
#include "head/state/persist.h"

#include <errno.h>
#include <string.h>

struct ms_cluster *ms_head_find_cluster(struct ms_head_op *op, const char *name)
{
    struct ms_cluster *c = ms_registry_find(&op->head->registry, name);

    if (!c)
        ms_error_set(&op->error, -ENOENT, "there is no cluster '%.64s'", name);
    return c;
}

struct ms_cluster *ms_change_find(struct ms_head_op *op, const char *name)
{
    struct ms_cluster *c = ms_head_find_cluster(op, name);

    if (c && c->state == MS_CLUSTER_STOPPING)
        ms_error_set(&op->error, -ENOENT, "there is no cluster '%.64s'", name);
    else if (c && (!c->is_made || c->is_busy))
        ms_error_set(
            &op->error, -EBUSY, "cluster '%s' is being changed already", c->name);
    else if (c)
        ms_cluster_check_spec(c, &op->error);
    return op->error.code ? NULL : c;
}

int ms_cluster_check_spec(const struct ms_cluster *c, struct ms_error *err)
{
    if (c->spec)
        return 0;
    return ms_error_set(
        err,
        -ENOTSUP,
        "cluster '%s': how its workers were made was lost with an earlier head",
        c->name);
}

/* Others may work on the cluster again; one that was not made is forgotten. */
static void end(struct ms_head_op *op)
{
    struct ms_cluster *c = MS_TAKE(op->cluster);

    ms_bringup_finish(op);
    c->is_busy = false;
    ms_cluster_set_changing(c, c->count);
    if (!c->is_made)
        ms_head_cluster_forget(op->head, c);
}

void ms_change_begin(struct ms_head_op *op, struct ms_cluster *c)
{
    op->cluster = c;
    op->on_failed = end;
    c->is_busy = true;
}

void ms_change_finish(struct ms_head_op *op)
{
    struct ms_head *h = op->head;
    struct ms_cluster *c = op->cluster;
    bool is_new = !c->is_made;
    Muster__ClusterStatus *s = NULL;

    if (!op->error.code &&
        !(s = ms_head_cluster_status(h, c, op->bringup.first, false)))
        ms_error_set(&op->error, -ENOMEM, "cluster '%s': out of memory", c->name);
    if (op->error.code && is_new) {
        ms_head_op_done(op); /* and `end` */
        return;
    }
    c->is_made = true;
    end(op);
    op->on_failed = NULL;
    ms_persist_cluster(h, c);
    ms_head_changed(h);
    ms_head_op_complete(op, s ? &s->base : NULL);
    for (size_t i = 0; is_new && i < c->count; i++)
        if (!ms_slot_is_live(&c->slots[i]))
            ms_head_tell_exit(h, &c->slots[i]);
    ms_successors_step(h);
    ms_head_begin_destroys(h, c);
}

void ms_change_fail(struct ms_head_op *op, int rc)
{
    if (!op->error.code)
        ms_error_sys(&op->error, rc, "cluster '%s'", op->cluster->name);
    ms_change_finish(op);
}

bool ms_change_is_unwanted(struct ms_head_op *op)
{
    if (!ms_head_is_to_end(op->head, op->cluster))
        return false;
    ms_error_set(&op->error,
                 -ECANCELED,
                 "cluster '%s' was destroyed meanwhile",
                 op->cluster->name);
    return true;
}

/* ---- how much memory its ranks may have --------------------------------------------- */

int ms_change_check_memory(const struct ms_cluster *c,
                           uint64_t memory,
                           struct ms_error *err)
{
    const Muster__ClusterSpec *spec = c->spec;

    if (!memory || memory == spec->worker->memory_limit)
        return 0;
    if (!spec->beside[0] && !spec->place->n_seats)
        return 0;
    return ms_error_set(err,
                        -ENOTSUP,
                        "cluster '%s' cannot have another amount of memory: its ranks "
                        "%s",
                        c->name,
                        spec->beside[0] ? "run beside others"
                                        : "have what the bundles of a group hold");
}

void ms_change_memory(struct ms_cluster *c, uint64_t memory)
{
    if (!memory || memory == c->spec->worker->memory_limit)
        return;
    c->spec->worker->memory_limit = memory;
    if (c->spec->place->own_group)
        c->spec->place->own_group->bundles[0]->memory = memory;
    else
        c->spec->place->memory = memory;
}

/* ---- where its ranks meet -------------------------------------------------------- */

static void
port_held(struct ms_head_op *op, struct ms_node *n, Muster__AgentToHead *answer)
{
    ms_timer_finish(&op->deadline);
    if (ms_head_cluster_port_take(op, n, answer) < 0 || ms_change_is_unwanted(op))
        ms_change_finish(op);
    else
        op->next(op);
}

static void
port_refused(struct ms_head_op *op, struct ms_node *n, const struct ms_error *why)
{
    (void)n;
    op->error = *why;
    ms_change_finish(op);
}

static void on_port_late(void *arg)
{
    struct ms_head_op *op = arg;

    ms_head_op_drop_asks(op);
    ms_error_set(&op->error,
                 -ETIMEDOUT,
                 "cluster '%s': the agent on node %s has not held a port in time",
                 op->cluster->name,
                 op->cluster->slots[0].node);
    ms_change_finish(op);
}

void ms_change_hold_port(struct ms_head_op *op, void (*next)(struct ms_head_op *op))
{
    int rc = ms_head_op_set_deadline(
        op, on_port_late, ms_bringup_start_ns(ms_bringup_timeout(op->cluster->spec)));

    op->on_answer = port_held;
    op->on_refused = port_refused;
    op->next = next;
    if (rc == 0)
        rc = ms_head_cluster_port_ask(op);
    if (rc < 0)
        ms_change_fail(op, rc);
}
