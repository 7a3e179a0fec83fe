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
#include "head/clusters/helpers.h"
#include "head/clusters/ports.h"
#include "head/head_impl.h"
#include "head/nodes/node.h"
#include "head/ops/op.h"
#include "head/state/persist.h"

#include <errno.h>
#include <string.h>

int ms_change_check(const struct ms_cluster *c, const char *name, struct ms_error *err)
{
    if (!c || c->state == MS_CLUSTER_STOPPING)
        return ms_error_set(err, -ENOENT, "there is no cluster '%.64s'", name);
    if (!c->is_made || c->is_busy)
        return ms_error_set(
            err, -EBUSY, "cluster '%s' is being changed already", c->name);
    return ms_cluster_check_spec(c, err);
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

    if (!op->why.code && !(s = ms_head_cluster_status(h, c, op->bringup.first, false)))
        ms_error_set(&op->why, -ENOMEM, "cluster '%s': out of memory", c->name);
    if (op->why.code && is_new) {
        ms_head_op_fail_with(op, &op->why); /* and `end` */
        return;
    }
    c->is_made = true;
    end(op);
    op->on_failed = NULL;
    ms_persist_cluster(h, c);
    ms_head_changed(h);
    ms_head_op_complete(op, &op->why, s ? &s->base : NULL);
    for (size_t i = 0; is_new && i < c->count; i++)
        if (!ms_slot_is_live(&c->slots[i]))
            ms_head_tell_exit(h, &c->slots[i]);
    ms_successors_step(h);
    ms_head_begin_destroys(h, c);
}

void ms_change_fail(struct ms_head_op *op, int rc)
{
    if (!op->why.code)
        ms_error_sys(&op->why, rc, "cluster '%s'", op->cluster->name);
    ms_change_finish(op);
}

void ms_change_set_table(struct ms_head_op *op, struct ms_buf *table)
{
    free(op->table);
    op->table = table->len && ms_buf_str(table) ? strdup(ms_buf_str(table)) : NULL;
}

bool ms_change_is_unwanted(struct ms_head_op *op)
{
    if (!ms_head_is_to_end(op->head, op->cluster))
        return false;
    ms_error_set(&op->why,
                 -ECANCELED,
                 "cluster '%s' was destroyed meanwhile",
                 op->cluster->name);
    return true;
}

/* ---- where its ranks meet -------------------------------------------------------- */

static void
port_held(struct ms_head_op *op, struct ms_node *n, Muster__AgentToHead *answer)
{
    ms_timer_finish(&op->deadline);
    if (ms_head_cluster_port_take(op->cluster, n, answer, &op->why) < 0 ||
        ms_change_is_unwanted(op))
        ms_change_finish(op);
    else
        op->next(op);
}

static void
port_refused(struct ms_head_op *op, struct ms_node *n, const struct ms_error *why)
{
    (void)n;
    op->why = *why;
    ms_change_finish(op);
}

static void on_port_late(void *arg)
{
    struct ms_head_op *op = arg;

    ms_head_op_drop_asks(op);
    ms_error_set(&op->why,
                 -ETIMEDOUT,
                 "cluster '%s': the agent on node %s has not held a port in time",
                 op->cluster->name,
                 op->cluster->slots[0].node);
    ms_change_finish(op);
}

static int64_t port_ns(const Muster__ClusterSpec *spec)
{
    return ms_bringup_start_ns(spec->step_timeout_ns && spec->step_timeout_ns <
                                                            (uint64_t)MS_CALL_TIMEOUT_NS
                                   ? (int64_t)spec->step_timeout_ns
                                   : MS_CALL_TIMEOUT_NS);
}

void ms_change_hold_port(struct ms_head_op *op, void (*next)(struct ms_head_op *op))
{
    int rc = ms_head_op_set_deadline(op, on_port_late, port_ns(op->cluster->spec));

    op->on_answer = port_held;
    op->on_refused = port_refused;
    op->next = next;
    if (rc == 0)
        rc = ms_head_cluster_port_ask(op, &op->why);
    if (rc < 0)
        ms_change_fail(op, rc);
}
