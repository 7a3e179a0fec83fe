/* objects.c - holding what the steps of a cluster refer to */
#include "head/clusters/objects.h"
#include "base/name.h"
#include "head/head_impl.h"
#include "head/nodes/node.h"
#include "head/ops/op.h"

void ms_objects_ask_keep(struct ms_head_op *op,
                         struct ms_cluster *c,
                         const Muster__Step *step)
{
    Muster__KeepObjects keep = MUSTER__KEEP_OBJECTS__INIT;

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
