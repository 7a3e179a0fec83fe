#include "base/cleanup.h"
#include "base/clock.h"
#include "capi/capi.h"
#include "resource/mapping.h"

#include <errno.h>
#include <string.h>

/* ---- asking ---------------------------------------------------------------------- */

static int fail(struct ms_head_op *op, struct muster_error *err)
{
    const char *table = ms_head_op_table(op);
    struct ms_error why = {0};
    int rc = ms_head_op_result(op, &why);

    if (!table && rc != -ENOSPC && rc != -EBUSY)
        return ms_capi_error(&why, err);
    muster_error_set(
        err, rc, NULL, "%s%s%s", why.text, table ? "\n" : "", table ? table : "");
    if (err)
        err->kind = MUSTER_ERROR_PLACEMENT;
    return rc;
}

struct ms_head_op *ms_capi_place(struct muster_session *s,
                                 const Muster__DriverToHead *m,
                                 int64_t timeout_ns,
                                 struct muster_error *err)
{
    struct ms_head_op *op = ms_head_place(s->head, m);

    if (ms_head_op_wait(op, ms_deadline_ns(ms_now_ns(), timeout_ns)) < 0)
        muster_error_set(err, -ETIMEDOUT, NULL, "the head did not answer in time");
    else if (ms_head_op_result(op, NULL) < 0)
        fail(op, err);
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
    return ms_capi_wait(r->status, MS_CAPI_ANSWER_NS, err) ? 0 : -EIO;
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
    op = ms_capi_place(session, &m, MS_CAPI_ANSWER_NS, err);
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

/* ---- clusters -------------------------------------------------------------------- */

/* Rank i in the group's bundle `first_bundle` + i. */
static int set_seats(Muster__PlaceCluster *m,
                     const struct muster_cluster_options *o,
                     struct ms_capi_seats *out)
{
    uint32_t all = muster_group_bundles(o->group);
    uint32_t count = o->first_bundle < all ? all - o->first_bundle : 0;

    if (o->world_size && o->world_size < count)
        count = o->world_size;
    out->at = calloc(count + (size_t)1, sizeof *out->at);
    out->list = calloc(count + (size_t)1, sizeof(Muster__Seat *));
    if (!out->at || !out->list)
        return -ENOMEM;
    for (uint32_t i = 0; i < count; i++) {
        muster__seat__init(&out->at[i]);
        out->at[i].group = ms_capi_group_id(o->group);
        out->at[i].bundle = o->first_bundle + i;
        out->list[i] = &out->at[i];
    }
    m->seats = out->list;
    m->n_seats = count;
    return count ? 0 : -EINVAL;
}

static void seats_finish(struct ms_capi_seats *s)
{
    free(s->at);
    free(s->list);
}

static int fill(Muster__PlaceCluster *m,
                const struct muster_cluster_options *o,
                struct ms_capi_seats *seats,
                struct muster_error *err)
{
    int rc = o->group ? set_seats(m, o, seats) : 0;

    m->name = (char *)(uintptr_t)o->name;
    m->world_size = o->world_size || o->device_mapping || o->group ? o->world_size : 1;
    m->devices_per_worker = o->num_gpus_per_worker ? o->num_gpus_per_worker : 1;
    m->memory = o->memory;
    m->device_memory = o->gpu_memory;
    if (rc == -EINVAL)
        return muster_error_set(err, rc, NULL, "the group has no such bundle");
    if (rc < 0)
        return muster_error_set(err, rc, NULL, "out of memory");
    if (!(o->num_cpus >= 0 && o->num_cpus < 1e6))
        return muster_error_set(err, -EINVAL, NULL, "num_cpus must not be negative");
    m->cpu_milli = (uint64_t)(o->num_cpus * 1000 + 0.5);
    return 0;
}

struct ms_head_op *ms_capi_place_cluster(struct muster_resources *r,
                                         const struct muster_cluster_options *o,
                                         struct muster_error *err)
{
    MS_CLEANUP(seats_finish) struct ms_capi_seats seats = {0};
    MS_CLEANUP(ms_cleanup_free) uint32_t *devices = NULL;
    Muster__PlaceCluster place = MUSTER__PLACE_CLUSTER__INIT;
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;
    struct ms_error why = {0};
    Muster__Scope scope;

    if (fill(&place, o, &seats, err) < 0)
        return NULL;
    if (o->device_mapping &&
        ms_mapping_parse(o->device_mapping, &devices, &place.n_devices, &why) < 0) {
        ms_capi_error(&why, err);
        return NULL;
    }
    ms_capi_scope(r, &scope);
    place.scope = &scope;
    place.devices = devices;
    m.body_case = MUSTER__DRIVER_TO_HEAD__BODY_PLACE_CLUSTER;
    m.place_cluster = &place;
    return ms_capi_place(r->session, &m, MS_CAPI_ANSWER_NS, err);
}

void ms_capi_drop_claim(struct muster_session *s, const char *cluster)
{
    Muster__DropClaim drop = MUSTER__DROP_CLAIM__INIT;
    Muster__DriverToHead m = MUSTER__DRIVER_TO_HEAD__INIT;

    drop.cluster = (char *)(uintptr_t)cluster;
    m.body_case = MUSTER__DRIVER_TO_HEAD__BODY_DROP_CLAIM;
    m.drop_claim = &drop;
    ms_head_op_unref(ms_capi_place(s, &m, MS_CAPI_ANSWER_NS, NULL));
}
