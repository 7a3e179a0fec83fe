#include "base/cleanup.h"
#include "base/clock.h"
#include "capi/capi.h"

#include <errno.h>
#include <string.h>

/* ---- asking ---------------------------------------------------------------------- */

struct ms_head_op *ms_capi_place(struct muster_session *s,
                                 const Muster__DriverToHead *m,
                                 int64_t timeout_ns,
                                 struct muster_error *err)
{
    struct ms_head_op *op = ms_head_request(s->head, m);
    struct ms_error why = {0};

    if (ms_head_op_wait(op, ms_deadline_ns(ms_now_ns(), timeout_ns)) < 0)
        muster_error_set(err, -ETIMEDOUT, NULL, "the head did not answer in time");
    else if (ms_head_op_result(op, &why) < 0)
        ms_capi_op_failure(op, &why, err);
    else
        return op;
    ms_head_op_unref(op);
    return NULL;
}

/* ---- resources ------------------------------------------------------------------- */

static int take_nodes(struct muster_resources *r, const Muster__Resources *m)
{
    r->nodes = calloc(m->n_nodes + 1, sizeof *r->nodes);
    r->names = calloc(m->n_nodes + 1, sizeof(char *));
    if (!r->nodes || !r->names)
        return -ENOMEM;
    for (; r->count < m->n_nodes; r->count++) {
        r->names[r->count] = strdup(m->nodes[r->count]->name);
        if (!r->names[r->count])
            return -ENOMEM;
        r->nodes[r->count].name = r->names[r->count];
        r->nodes[r->count].devices = m->nodes[r->count]->devices;
    }
    return 0;
}

static int ask_status(struct muster_resources *r, struct muster_error *err)
{
    r->status = ms_head_status(r->session->head);
    return ms_capi_wait(r->status, MS_ANSWER_NS, err) ? 0 : -EIO;
}

static void set_limit(Muster__Scope *scope, int32_t num_gpus_per_node)
{
    scope->is_limited = num_gpus_per_node >= 0;
    scope->devices_per_node = num_gpus_per_node >= 0 ? (uint32_t)num_gpus_per_node : 0;
}

struct muster_resources *muster_resources_create(struct muster_session *session,
                                                 int32_t num_gpus_per_node,
                                                 uint32_t num_nodes,
                                                 struct muster_error *err)
{
    Muster__Scope scope = MUSTER__SCOPE__INIT;
    Muster__ResourcesRequest request = MUSTER__RESOURCES_REQUEST__INIT;
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;
    struct muster_resources *r;
    struct ms_head_op *op;

    if (!session) {
        ms_capi_missing("a session", err);
        return NULL;
    }
    scope.num_nodes = num_nodes;
    set_limit(&scope, num_gpus_per_node);
    request.scope = &scope;
    m.body_case = MUSTER__DRIVER_TO_HEAD__BODY_RESOURCES;
    m.resources = &request;
    op = ms_capi_place(session, &m, MS_ANSWER_NS, err);
    if (!op)
        return NULL;
    r = calloc(1, sizeof *r);
    if (!r || take_nodes(r, (const Muster__Resources *)ms_head_op_message(op)) < 0) {
        muster_resources_destroy(r);
        r = NULL;
        muster_error_set(err, -ENOMEM, NULL, "out of memory");
    } else {
        r->session = session;
        r->limit = num_gpus_per_node;
    }
    ms_head_op_unref(op);
    if (r && ask_status(r, err) < 0) {
        muster_resources_destroy(r);
        r = NULL;
    }
    return r;
}

void muster_resources_destroy(struct muster_resources *r)
{
    if (!r)
        return;
    for (uint32_t i = 0; i < r->count; i++)
        free(r->names[i]);
    free(r->names);
    free(r->nodes);
    ms_head_op_unref(r->status);
    free(r);
}

uint32_t muster_resources_nodes(const struct muster_resources *r)
{
    return r->count;
}

uint32_t muster_resources_gpus_per_node(const struct muster_resources *r)
{
    return r->count ? r->nodes[0].devices : 0;
}

uint32_t muster_resources_gpus(const struct muster_resources *r, uint32_t index)
{
    return index < r->count ? r->nodes[index].devices : 0;
}

const char *muster_resources_node_name(const struct muster_resources *r, uint32_t index)
{
    return index < r->count ? r->nodes[index].name : NULL;
}

void ms_capi_scope(const struct muster_resources *r, Muster__Scope *out)
{
    muster__scope__init(out);
    out->nodes = r->names;
    out->n_nodes = r->count;
    set_limit(out, r->limit);
}
