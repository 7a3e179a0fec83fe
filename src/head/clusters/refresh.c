/* refresh.c - tells every driver and worker that handles of clusters are out of date
 *
 * A handle looks again when the count of changes that its process knows of has grown. The
 * count is raised everywhere before the caller hears that the change is done.
 */
#include "head/clusters/clusters_impl.h"
#include "head/drivers/driver.h"
#include "head/head_impl.h"
#include "head/nodes/node.h"
#include "head/ops/op.h"
#include "head/ops/waiting.h"

#include <errno.h>

void ms_head_tell_changed(struct ms_head_op *op,
                          char *cluster,
                          void (*next)(struct ms_head_op *op))
{
    Muster__ClusterChanged changed = MUSTER__CLUSTER_CHANGED__INIT;

    changed.cluster = cluster;
    atomic_fetch_add(&op->head->changes, 1);
    ms_drivers_tell_changed(op->head, &changed);
    ms_head_op_gather(op, next);
    ms_nodes_ask(op, MUSTER__HEAD_TO_AGENT__BODY_CHANGED, &changed);
    ms_head_op_gather_end(op);
}

static void told(struct ms_head_op *op)
{
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
        ms_head_tell_changed(op, c->name, told);
}
