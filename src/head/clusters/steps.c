/* steps.c - what was done to a cluster since, who looks for it, and handles that are out of date
 *
 * A handle looks again when the count of changes that its process knows of has grown. The
 * count is raised everywhere before the caller hears that the change is done.
 */
#include "base/name.h"
#include "cluster/spec.h"
#include "head/clusters/clusters_impl.h"
#include "head/drivers/driver.h"
#include "head/head_impl.h"
#include "head/nodes/node.h"
#include "head/ops/op.h"
#include "head/ops/waiting.h"
#include "head/state/persist.h"

#include <assert.h>
#include <errno.h>

/* ---- what steps refer to in the stores of nodes ---------------------------------- */

void ms_objects_ask_keep(struct ms_head_op *op,
                         struct ms_cluster *c,
                         const Muster__Step *step)
{
    Muster__KeepObjects keep = MUSTER__KEEP_OBJECTS__INIT;

    assert(c && step);
    if (step->n_objects == 0)
        return;
    if (c->objects == 0)
        c->objects = ms_random_id();
    keep.holder = c->objects;
    keep.cluster = c->name;
    keep.names = step->objects;
    keep.n_names = step->n_objects;
    ms_nodes_ask(op, MUSTER__HEAD_TO_AGENT__BODY_KEEP_OBJECTS, &keep);
}

void ms_objects_drop(struct ms_head *h, const struct ms_cluster *c)
{
    Muster__KeepObjects drop = MUSTER__KEEP_OBJECTS__INIT;

    if (c->objects == 0)
        return;
    drop.holder = c->objects;
    drop.is_end = true;
    ms_list_each (n, &h->nodes, struct ms_node, link)
        ms_node_tell(n, MUSTER__HEAD_TO_AGENT__BODY_KEEP_OBJECTS, &drop);
}

/* ---- requests -------------------------------------------------------------------- */

/* What it refers to is held. The cluster may have ended meanwhile. */
static void objects_kept(struct ms_head_op *op)
{
    const struct ms_cluster *c =
        ms_registry_find(&op->head->registry, op->request->add_step->cluster);

    if (c)
        ms_persist_cluster(op->head, c);
    ms_head_op_succeed(op, NULL);
}

int ms_head_add_step_run(struct ms_head_op *op)
{
    const Muster__AddStep *m = op->request->add_step;
    struct ms_cluster *c = ms_head_find_cluster(op, m->cluster);

    if (c && ms_cluster_check_spec(c, &op->error) == 0 && !m->step)
        ms_error_set(&op->error, -EINVAL, "there is no step");
    else if (c && !op->error.code)
        ms_cluster_spec_add(c->spec, m->step, &m->meta, &op->error);
    if (op->error.code)
        return op->error.code;
    ms_head_op_gather(op, objects_kept);
    ms_objects_ask_keep(op, c, m->step);
    ms_head_op_gather_end(op);
    return 0;
}

int ms_head_find_run(struct ms_head_op *op)
{
    const char *name = op->request->find->name;
    struct ms_cluster *c = ms_registry_find(&op->head->registry, name);
    Muster__ClusterStatus *s;

    if ((!c || c->unknown) && ms_head_wait_for_nodes(op))
        return 0;
    if (!c || !c->is_made || ms_head_is_another(op->head, c, op->request->find->uid))
        return ms_error_set(&op->error, -ENOENT, "there is no cluster '%.64s'", name);
    s = ms_head_cluster_status(op->head, c, NULL, true);
    ms_head_op_answer(op, s ? &s->base : NULL);
    return 0;
}

/* ---- handles that are out of date ------------------------------------------------- */

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

int ms_head_refresh_run(struct ms_head_op *op)
{
    struct ms_cluster *c = ms_head_find_cluster(op, op->request->refresh->cluster);

    if (!c)
        return -ENOENT;
    ms_head_tell_changed(op, c->name, ms_head_op_done);
    return 0;
}
