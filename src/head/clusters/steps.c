/* steps.c - what was done to a cluster since, and who looks for it */
#include "base/cleanup.h"
#include "cluster/spec.h"
#include "cluster/status.h"
#include "head/clusters/clusters_impl.h"
#include "head/clusters/objects.h"
#include "head/head_impl.h"
#include "head/ops/op.h"
#include "head/ops/waiting.h"
#include "head/state/persist.h"

#include <errno.h>

/* What it refers to is held. The cluster may have ended meanwhile. */
static void objects_kept(struct ms_head_op *op)
{
    const struct ms_cluster *c =
        ms_registry_find(&op->head->registry, op->wanted->add_step->cluster);

    if (c)
        ms_persist_cluster(op->head, c);
    ms_head_op_succeed(op, NULL);
}

void ms_head_add_step_run(struct ms_head_op *op)
{
    const Muster__AddStep *m = op->wanted->add_step;
    struct ms_cluster *c = ms_registry_find(&op->head->registry, m->cluster);
    struct ms_error err = {0};

    if (!c && ms_head_wait_for_nodes(op))
        return;
    if (!c)
        ms_error_set(&err, -ENOENT, "there is no cluster '%.64s'", m->cluster);
    else if (ms_cluster_check_spec(c, &err) == 0 && !m->step)
        ms_error_set(&err, -EINVAL, "there is no step");
    else if (!err.code)
        ms_cluster_spec_add(c->spec, m->step, &m->meta, &err);
    if (err.code) {
        ms_head_op_fail_with(op, &err);
        return;
    }
    ms_head_op_gather(op, objects_kept);
    ms_objects_ask_keep(op, c, m->step);
    ms_head_op_gather_end(op);
}

void ms_head_find_run(struct ms_head_op *op)
{
    const char *name = op->wanted->find->name;
    struct ms_cluster *c = ms_registry_find(&op->head->registry, name);
    Muster__ClusterStatus *s;

    if ((!c || c->unknown) && ms_head_wait_for_nodes(op))
        return;
    if (!c || !c->is_made) {
        ms_head_op_fail(op, -ENOENT, "there is no cluster '%.64s'", name);
        return;
    }
    s = ms_head_cluster_status(op->head, c, NULL);
    if (s && ms_cluster_status_add_meta(s, c) < 0) {
        muster__cluster_status__free_unpacked(s, NULL);
        s = NULL;
    }
    ms_head_op_answer(op, s ? &s->base : NULL);
}
