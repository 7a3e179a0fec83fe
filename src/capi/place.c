/* place.c - resources: the nodes of a session and what they have */
#include "base/cleanup.h"
#include "capi/capi.h"

#include <string.h>

static void set_limit(Muster__Scope *scope, int32_t num_gpus_per_node)
{
    scope->is_limited = num_gpus_per_node >= 0;
    scope->devices_per_node = num_gpus_per_node >= 0 ? (uint32_t)num_gpus_per_node : 0;
}

static struct muster_resources *
resources_of(struct muster_session *session, int32_t limit, struct ms_head_op *op)
{
    struct muster_resources *r = calloc(1, sizeof *r);

    if (!r) {
        ms_head_op_unref(op);
        return NULL;
    }
    r->session = session;
    r->limit = limit;
    r->op = op;
    r->found = (const Muster__Resources *)ms_head_op_message(op);
    r->names = calloc(r->found->n_nodes + 1, sizeof(char *));
    for (size_t i = 0; r->names && i < r->found->n_nodes; i++)
        r->names[i] = r->found->nodes[i]->name;
    if (r->names)
        return r;
    muster_resources_destroy(r);
    return NULL;
}

struct muster_resources *muster_resources_create(struct muster_session *session,
                                                 int32_t num_gpus_per_node,
                                                 uint32_t num_nodes,
                                                 struct muster_error *err)
{
    Muster__Scope scope = MUSTER__SCOPE__INIT;
    Muster__ResourcesRequest request = MUSTER__RESOURCES_REQUEST__INIT;
    struct muster_resources *r;
    struct ms_head_op *op;

    if (!session)
        return ms_capi_missing("a session", err), NULL;
    scope.num_nodes = num_nodes;
    set_limit(&scope, num_gpus_per_node);
    request.scope = &scope;
    op = ms_capi_done(ms_head_request(session->head,
                                      MUSTER__DRIVER_TO_HEAD__BODY_RESOURCES,
                                      &request),
                      MS_ANSWER_NS,
                      err);
    if (!op)
        return NULL;
    r = resources_of(session, num_gpus_per_node, op);
    if (!r)
        ms_capi_no_memory(err);
    return r;
}

void muster_resources_destroy(struct muster_resources *r)
{
    if (!r)
        return;
    ms_head_op_unref(r->op);
    free(r->names);
    free(r);
}

uint32_t muster_resources_nodes(const struct muster_resources *r)
{
    return (uint32_t)r->found->n_nodes;
}

uint32_t muster_resources_gpus_per_node(const struct muster_resources *r)
{
    return muster_resources_gpus(r, 0);
}

uint32_t muster_resources_gpus(const struct muster_resources *r, uint32_t index)
{
    return index < r->found->n_nodes ? r->found->nodes[index]->devices : 0;
}

const char *muster_resources_node_name(const struct muster_resources *r, uint32_t index)
{
    return index < r->found->n_nodes ? r->names[index] : NULL;
}

void ms_capi_scope(const struct muster_resources *r, Muster__Scope *out)
{
    muster__scope__init(out);
    out->nodes = r->names;
    out->n_nodes = r->found->n_nodes;
    set_limit(out, r->limit);
}
