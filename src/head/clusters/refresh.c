/* refresh.c - tells every driver and worker that handles of clusters are out of date
 *
 * A handle looks again when the count of changes that its process knows of has grown. The
 * count is raised everywhere before the caller hears that the change is done.
 */
#include "head/clusters/clusters_impl.h"
#include "head/drivers/driver.h"
#include "head/head_impl.h"
#include "head/nodes/node.h"
#include "head/op.h"
#include "head/waiting.h"

#include <errno.h>

void ms_head_tell_changed(struct ms_head_op *op,
                          char *cluster,
                          void (*step)(struct ms_head_op *op))
{
    Muster__ClusterChanged changed = MUSTER__CLUSTER_CHANGED__INIT;
    Muster__HeadToAgent m = MUSTER__HEAD_TO_AGENT__INIT;

    changed.cluster = cluster;
    m.body_case = MUSTER__HEAD_TO_AGENT__BODY_CHANGED;
    m.changed = &changed;
    atomic_fetch_add(&op->head->changes, 1);
    ms_drivers_tell_changed(op->head, &changed);
    ms_head_op_gather(op, step);
    ms_list_each (n, &op->head->nodes, struct ms_node, link)
        if (ms_node_check(n, NULL) == 0)
            ms_node_ask(n, op, &m, NULL);
    step(op);
}

static void finish(struct ms_head_op *op)
{
    if (ms_list_is_empty(&op->asks))
        ms_head_op_succeed(op, NULL);
}

void ms_head_refresh_run(struct ms_head_op *op)
{
    const char *name = op->wanted->refresh->cluster;
    struct ms_cluster *c = ms_registry_find(&op->head->registry, name);

    if (!c && ms_head_wait_for_nodes(op))
        return;
    if (!c)
        ms_head_op_fail(op, -ENOENT, "there is no cluster '%.64s'", name);
    else
        ms_head_tell_changed(op, c->name, finish);
}
