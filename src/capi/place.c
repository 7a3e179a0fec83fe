#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "capi/capi.h"
#include "resource/mapping.h"

#include <errno.h>
#include <string.h>

/* ---- resources ------------------------------------------------------------------- */

static int take_nodes(struct muster_resources *r,
                      const Muster__Status *status,
                      int32_t gpus,
                      uint32_t wanted)
{
    r->nodes = calloc(status->n_nodes + 1, sizeof *r->nodes);
    if (!r->nodes)
        return -ENOMEM;
    for (size_t i = 0; i < status->n_nodes; i++) {
        const Muster__NodeStatus *n = status->nodes[i];
        struct ms_capi_node *node = &r->nodes[r->count];

        if (!n->alive || (gpus > 0 && n->gpus < (uint32_t)gpus) ||
            (wanted && r->count == wanted))
            continue;
        node->name = strdup(n->name);
        if (!node->name)
            return -ENOMEM;
        node->cpus = n->cpus;
        node->memory = n->memory;
        if (r->count++ == 0)
            r->gpus_per_node = gpus < 0 ? n->gpus : (uint32_t)gpus;
    }
    return 0;
}

struct muster_resources *muster_resources_create(struct muster_session *session,
                                                 int32_t num_gpus_per_node,
                                                 uint32_t num_nodes,
                                                 struct muster_error *err)
{
    struct ms_head_op *op = ms_head_status(session->head);
    const ProtobufCMessage *m = ms_capi_wait(op, MS_CAPI_ANSWER_NS, err);
    struct muster_resources *r = m ? calloc(1, sizeof *r) : NULL;
    int rc = r ? take_nodes(r, (const Muster__Status *)m, num_gpus_per_node, num_nodes)
               : -ENOMEM;

    ms_head_op_unref(op);
    if (m && rc < 0)
        muster_error_set(err, -ENOMEM, NULL, "out of memory");
    if (rc == 0 && (r->count == 0 || r->count < num_nodes)) {
        rc = muster_error_set(err,
                              -ENOSPC,
                              NULL,
                              "%u nodes of %d devices were asked for, and %u are so",
                              num_nodes ? num_nodes : 1,
                              num_gpus_per_node < 0 ? 0 : num_gpus_per_node,
                              r->count);
        if (err)
            err->kind = MUSTER_ERROR_PLACEMENT;
    }
    if (rc < 0) {
        muster_resources_destroy(r);
        return NULL;
    }
    r->session = session;
    return r;
}

void muster_resources_destroy(struct muster_resources *r)
{
    if (!r)
        return;
    for (uint32_t i = 0; i < r->count; i++)
        free(r->nodes[i].name);
    free(r->nodes);
    free(r);
}

uint32_t muster_resources_nodes(const struct muster_resources *r)
{
    return r->count;
}

uint32_t muster_resources_gpus_per_node(const struct muster_resources *r)
{
    return r->gpus_per_node;
}

const char *muster_resources_node_name(const struct muster_resources *r, uint32_t index)
{
    return index < r->count ? r->nodes[index].name : NULL;
}

/* ---- plans ----------------------------------------------------------------------- */

/* What living workers have taken of each node. */
static void add_held(const struct muster_resources *r,
                     const Muster__Status *status,
                     struct ms_plan_node *nodes)
{
    for (size_t c = 0; c < status->n_clusters; c++)
        for (size_t w = 0; w < status->clusters[c]->n_workers; w++) {
            const Muster__WorkerStatus *worker = status->clusters[c]->workers[w];

            for (uint32_t i = 0; i < r->count; i++) {
                if (strcmp(nodes[i].name, worker->node) != 0 || worker->exit)
                    continue;
                nodes[i].cpu_milli_held += worker->cpu_milli;
                nodes[i].memory_held += worker->memory;
            }
        }
}

static struct ms_plan_node *make_nodes(const struct muster_resources *r,
                                       const Muster__Status *status)
{
    struct ms_plan_node *nodes = calloc(r->count + 1, sizeof *nodes);

    if (!nodes)
        return NULL;
    for (uint32_t i = 0; i < r->count; i++)
        nodes[i] = (struct ms_plan_node){.name = r->nodes[i].name,
                                         .devices = r->gpus_per_node,
                                         .cpu_milli = (uint64_t)r->nodes[i].cpus * 1000,
                                         .memory = r->nodes[i].memory};
    add_held(r, status, nodes);
    return nodes;
}

static int make_plan(const struct muster_resources *r,
                     const Muster__Status *status,
                     const struct ms_plan_request *request,
                     struct ms_plan *out,
                     struct muster_error *err)
{
    MS_CLEANUP(ms_cleanup_free) struct ms_plan_node *nodes = make_nodes(r, status);
    struct ms_error why = {0};
    struct ms_buf table;
    int rc;

    if (!nodes)
        return muster_error_set(err, -ENOMEM, NULL, "out of memory");
    ms_buf_init(&table);
    rc = ms_plan_make(nodes, r->count, request, out, &table, &why);
    if (rc < 0) {
        const char *text = ms_buf_str(&table);

        muster_error_set(err,
                         rc,
                         NULL,
                         "%s%s%s",
                         why.text,
                         text && *text ? "\n" : "",
                         text ? text : "");
        if (err && rc == -ENOSPC)
            err->kind = MUSTER_ERROR_PLACEMENT;
    }
    ms_buf_finish(&table);
    return rc;
}

int ms_capi_plan(struct muster_resources *r,
                 const struct muster_cluster_options *o,
                 struct ms_plan *out,
                 struct muster_error *err)
{
    struct ms_plan_request request = {
        .cluster = o->name,
        .world_size = o->world_size || o->device_mapping ? o->world_size : 1,
        .devices_per_worker = o->num_gpus_per_worker ? o->num_gpus_per_worker : 1,
        .memory = o->memory};
    MS_CLEANUP(ms_cleanup_free) uint32_t *devices = NULL;
    const ProtobufCMessage *m;
    struct ms_error why = {0};
    struct ms_head_op *op;
    int rc;

    if (!(o->num_cpus >= 0 && o->num_cpus < 1e6))
        return muster_error_set(err, -EINVAL, NULL, "num_cpus must not be negative");
    request.cpu_milli = (uint64_t)(o->num_cpus * 1000 + 0.5);
    if (o->device_mapping &&
        ms_mapping_parse(o->device_mapping, &devices, &request.device_count, &why) < 0)
        return ms_capi_error(&why, err);
    request.devices = devices;
    op = ms_head_status(r->session->head);
    m = ms_capi_wait(op, MS_CAPI_ANSWER_NS, err);
    rc = m ? make_plan(r, (const Muster__Status *)m, &request, out, err) : -EIO;
    ms_head_op_unref(op);
    return rc;
}
