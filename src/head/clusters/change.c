/* change.c - creating, restarting and resizing a cluster: the acts of a plan, carried out
 *
 * A change makes its cluster busy. Its plan (cluster/change_plan.h) says what to do, act after
 * act. Whichever way it went, a new cluster that was not made is forgotten in the end, any
 * other one is there as it is now.
 */
#include "base/cleanup.h"
#include "base/name.h"
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

    if (c)
        ms_cluster_check_change(c, &op->error);
    return op->error.code ? NULL : c;
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

/* It is over: with the cluster's status, or with op->error. */
static int finish(struct ms_head_op *op)
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
        return 0;
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
    return 0;
}

/* ---- where its ranks meet -------------------------------------------------------- */

static void
port_held(struct ms_head_op *op, struct ms_node *n, Muster__AgentToHead *answer)
{
    ms_timer_finish(&op->deadline);
    ms_head_cluster_port_take(op, n, answer);
    ms_change_go_on(op);
}

static void
port_refused(struct ms_head_op *op, struct ms_node *n, const struct ms_error *why)
{
    (void)n;
    op->error = *why;
    ms_change_go_on(op);
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
    ms_change_go_on(op);
}

static int hold_port(struct ms_head_op *op)
{
    int64_t step_ns = ms_bringup_step_ns(op->cluster->spec);

    if (ms_head_op_set_deadline(op, on_port_late, ms_bringup_process_ns(step_ns)) < 0)
        return -ENOMEM;
    op->on_answer = port_held;
    op->on_refused = port_refused;
    return ms_head_cluster_port_ask(op);
}

/* ---- the other acts -------------------------------------------------------------- */

static int end_ranks(struct ms_head_op *op)
{
    ms_change_plan_mark(&op->plan, op->cluster);
    ms_changing_each (s, op->cluster)
        if (op->plan.why && ms_slot_is_live(s) && !s->now.why)
            s->now.why = strdup(op->plan.why);
    return ms_ending_begin(op, false, op->plan.grace_ns, ms_change_go_on);
}

static int start(struct ms_head_op *op)
{
    struct ms_cluster *c = op->cluster;
    int rc = 0;

    ms_change_plan_mark(&op->plan, c);
    if (op->plan.renews)
        rc = ms_cluster_renew(&op->head->registry, c, ms_random_id, &op->error);
    if (rc == 0)
        ms_bringup_begin(op, op->plan.step_timeout_ns, ms_change_go_on);
    return rc;
}

/* Who has handles of it learns it before the end of the operation is known. */
static int tell(struct ms_head_op *op)
{
    ms_head_tell_changed(op, op->cluster->name, ms_change_go_on);
    return 0;
}

/* Each goes on by itself when it is done, or fails at once. */
static int (*const acts[])(struct ms_head_op *op) = {
    [MS_ACT_DONE] = finish,
    [MS_ACT_KEEP] = ms_create_keep,
    [MS_ACT_HOLD_PORT] = hold_port,
    [MS_ACT_END] = end_ranks,
    [MS_ACT_PLACE] = ms_restart_place,
    [MS_ACT_ADD] = ms_resize_add,
    [MS_ACT_START] = start,
    [MS_ACT_CUT] = ms_resize_cut,
    [MS_ACT_TELL] = tell,
};

void ms_change_go_on(struct ms_head_op *op)
{
    struct ms_cluster *c = op->cluster;
    enum ms_act act =
        ms_change_plan_next(&op->plan, c, ms_head_is_to_end(op->head, c), &op->error);
    int rc = acts[act](op);

    if (rc == 0)
        return;
    if (!op->error.code)
        ms_error_sys(&op->error, rc, "cluster '%s'", c->name);
    ms_change_go_on(op);
}
