/* cluster.c - clusters: create, open, change, destroy */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/name.h"
#include "base/proto.h"
#include "capi/capi.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

/* ---- the cluster ----------------------------------------------------------------- */

static void drop_workers(struct muster_cluster *c)
{
    for (uint32_t i = 0; c->workers && i < c->world_size; i++)
        if (c->workers[i].peer)
            ms_peer_unref(c->workers[i].peer);
    free(MS_TAKE(c->workers));
    muster__cluster_status__free_unpacked(MS_TAKE(c->status), NULL);
    c->world_size = 0;
}

static void cluster_free(struct muster_cluster *c)
{
    drop_workers(c);
    free(c->name);
    muster_group_close(c->group);
    ms_capi_session_unref(c->session);
    free(c);
}

static int add_worker(struct muster_cluster *c,
                      const Muster__WorkerStatus *w,
                      struct muster_error *err)
{
    char label[2 * MS_NAME_MAX + 32];
    struct ms_error why = {0};
    struct ms_peer *peer;

    if (w->rank >= c->world_size || !*w->address)
        return muster_error_set(
            err, -EAGAIN, NULL, "cluster '%s' is not complete", c->name);
    snprintf(label, sizeof label, "%s/%u@%s", c->name, w->rank, w->node);
    peer = ms_peer_create(c->session->client, w->address, w->uid, label, &why);
    c->workers[w->rank] = (struct ms_capi_worker){.status = w, .peer = peer};
    return peer ? 0 : ms_capi_error(&why, err);
}

/* What there is of it now. */
static int fill(struct muster_cluster *c,
                const Muster__ClusterStatus *status,
                struct muster_error *err)
{
    int rc = 0;

    drop_workers(c);
    c->status = (Muster__ClusterStatus *)ms_proto_copy(&status->base);
    if (c->status)
        c->workers = calloc(c->status->n_workers + 1, sizeof *c->workers);
    if (!c->status || !c->workers)
        return ms_capi_no_memory(err);
    c->world_size = (uint32_t)c->status->n_workers;
    for (size_t i = 0; rc == 0 && i < c->world_size; i++)
        rc = add_worker(c, c->status->workers[i], err);
    return rc;
}

/* Its workers are those that the operation has made. */
static int
take_change(struct muster_cluster *c, struct ms_head_op *op, struct muster_error *err)
{
    int rc = -EIO;

    c->changes = ms_head_changes(c->session->head);
    op = ms_capi_done(op, MS_NEVER, err);
    if (op)
        rc = fill(c, (const Muster__ClusterStatus *)ms_head_op_message(op), err);
    ms_head_op_unref(op);
    return rc;
}

/* Of its role's bundles, which else end with the cluster: nothing was made in it. */
static void remove_group(struct muster_cluster *c)
{
    if (c->group && ms_capi_check_open(c->session, NULL) == 0 &&
        muster_group_remove(c->group, NULL) == 0)
        c->group = NULL;
}

static int create(struct muster_cluster *c,
                  const struct muster_cluster_options *o,
                  const struct muster_resources *resources,
                  const struct ms_capi_role *role,
                  struct muster_error *err)
{
    MS_CLEANUP(ms_capi_spec_finish) struct ms_capi_spec spec = {0};
    int rc = ms_capi_spec_init(&spec, o, resources, role, err);

    if (rc < 0)
        return rc;
    return take_change(
        c, ms_head_create_cluster(c->session->head, spec.message, o->wait_ns), err);
}

static int check_options(const struct muster_cluster_options *o,
                         struct ms_capi_role *role,
                         struct muster_error *err)
{
    struct ms_error why = {0};

    if (o->name && !o->worker_cls)
        return ms_capi_role_no_class(role, o->name, err);
    if (!o->name || !strpbrk(o->worker_cls, ".:"))
        return muster_error_set(err,
                                -EINVAL,
                                NULL,
                                "a cluster has a name and a worker_cls, "
                                "\"library.so:symbol\" or \"package.module.Class\"");
    if (ms_name_check(o->name, "cluster", &why) < 0)
        return ms_capi_error(&why, err);
    return 0;
}

/* Without workers yet. */
static struct muster_cluster *cluster_new(struct muster_session *session,
                                          const char *name,
                                          int64_t timeout_ns,
                                          struct muster_error *err)
{
    struct muster_cluster *c = calloc(1, sizeof *c);

    if (c)
        c->name = strdup(name);
    if (!c || !c->name) {
        free(c);
        return ms_capi_no_memory(err), NULL;
    }
    c->session = ms_capi_session_ref(session);
    c->timeout_ns = timeout_ns ? timeout_ns : MS_CALL_TIMEOUT_NS;
    return c;
}

struct muster_cluster *
muster_cluster_create(struct muster_session *session,
                      const struct muster_cluster_options *options,
                      struct muster_error *err)
{
    MS_CLEANUP(ms_capi_role_finish) struct ms_capi_role role = {0};
    struct muster_cluster_options o = MUSTER_CLUSTER_OPTIONS;
    struct muster_resources *all = NULL;
    struct muster_cluster *c;
    int rc;

    if (!session || !options)
        return ms_capi_missing(session ? "options" : "a session", err), NULL;
    memcpy(&o, options, options->size < sizeof o ? options->size : sizeof o);
    if (ms_capi_check_open(session, err) < 0 ||
        ms_capi_role_find(&role, session, &o, err) < 0 ||
        check_options(&o, &role, err) < 0)
        return NULL;
    if (ms_capi_role_is_controllers(&role, &o)) {
        if (ms_capi_role_check_created(&role, &o, err) < 0)
            return NULL;
        c = muster_cluster_open(session, o.name, err);
        if (c && o.timeout_ns)
            c->timeout_ns = o.timeout_ns;
        return c;
    }
    c = cluster_new(session, o.name, o.timeout_ns, err);
    if (!c)
        return NULL;
    rc = ms_capi_role_place(&role, session, &o, &c->group, err);
    if (rc == 0 && !o.resources)
        o.resources = all = muster_resources_create(session, -1, 0, err);
    if (rc == 0)
        rc = o.resources ? create(c, &o, o.resources, &role, err) : -1;
    muster_resources_destroy(all);
    if (rc == 0)
        return c;
    remove_group(c);
    cluster_free(c);
    return NULL;
}

/* What the head says of it; NULL with the reason. */
static struct ms_head_op *find(struct muster_session *session,
                               const char *name,
                               uint64_t uid,
                               struct muster_error *err)
{
    Muster__FindCluster find = MUSTER__FIND_CLUSTER__INIT;

    find.name = ms_capi_text(name);
    find.uid = uid;
    return ms_capi_done(
        ms_head_request(session->head, MUSTER__DRIVER_TO_HEAD__BODY_FIND, &find),
        MS_ANSWER_NS,
        err);
}

/* In a submitted job also one that the controller has created, by its role. */
static struct ms_head_op *find_role(struct muster_session *session,
                                    const char *name,
                                    uint64_t uid,
                                    struct muster_error *err)
{
    const char *job = ms_capi_submitted();
    struct ms_head_op *op = find(session, name, uid, job ? NULL : err);
    char full[2 * MS_NAME_MAX + 2];

    if (op || !job)
        return op;
    snprintf(full, sizeof full, "%s.%s", job, name);
    op = find(session, full, uid, err);
    if (!op && err && err->code == -ENOENT)
        muster_error_set(err, -ENOENT, NULL, "there is no cluster '%s'", name);
    return op;
}

struct muster_cluster *ms_capi_cluster_open(struct muster_session *session,
                                            const char *name,
                                            uint64_t uid,
                                            struct muster_error *err)
{
    uint64_t changes = ms_head_changes(session->head);
    struct ms_head_op *op = find_role(session, name, uid, err);
    const Muster__ClusterStatus *found =
        op ? (const Muster__ClusterStatus *)ms_head_op_message(op) : NULL;
    struct muster_cluster *c = found ? cluster_new(session, found->name, 0, err) : NULL;

    if (c) {
        c->is_handle = true;
        c->changes = changes;
        if (fill(c, found, err) < 0)
            cluster_free(MS_TAKE(c));
    }
    ms_head_op_unref(op);
    return c;
}

struct muster_cluster *muster_cluster_open(struct muster_session *session,
                                           const char *name,
                                           struct muster_error *err)
{
    if (!session || !name)
        return ms_capi_missing("a session and a name", err), NULL;
    return ms_capi_cluster_open(session, name, 0, err);
}

int muster_cluster_refresh(struct muster_cluster *c, struct muster_error *err)
{
    struct muster_error own = {.code = 0}, *why = err ? err : &own;
    const Muster__ClusterStatus *found;
    struct ms_head_op *op;
    uint64_t changes;
    int rc = ms_capi_check_open(c ? c->session : NULL, err);

    if (rc < 0)
        return rc;
    assert(c);
    changes = ms_head_changes(c->session->head);
    if (changes == c->changes || !c->workers)
        return 0;
    op = find(c->session, c->name, c->workers[0].status->uid, why);
    if (!op)
        return why->code;
    found = (const Muster__ClusterStatus *)ms_head_op_message(op);
    if (found->n_workers != c->world_size)
        rc = fill(c, found, err) < 0 ? -EAGAIN : 1;
    if (rc >= 0)
        c->changes = changes;
    ms_head_op_unref(op);
    return rc;
}

static void end(struct muster_cluster *c, int64_t grace_ns)
{
    const Muster__WorkerStatus *first = c->workers ? c->workers[0].status : NULL;
    struct ms_head_op *op;

    if (ms_capi_check_open(c->session, NULL) < 0)
        return;
    op = ms_head_destroy_cluster(
        c->session->head, c->name, !c->is_handle, first ? first->uid : 0, grace_ns);
    ms_head_op_unref(ms_capi_done(op, ms_deadline_ns(grace_ns, MS_ANSWER_NS), NULL));
}

void muster_cluster_close(struct muster_cluster *c)
{
    if (c)
        cluster_free(c);
}

void muster_cluster_destroy(struct muster_cluster *c, int64_t grace_ns)
{
    if (!c)
        return;
    end(c, grace_ns);
    cluster_free(c);
}

/* ---- changing it ----------------------------------------------------------------- */

int muster_cluster_restart(struct muster_cluster *c,
                           const uint32_t *ranks,
                           uint32_t count,
                           int64_t grace_ns,
                           struct muster_error *err)
{
    Muster__RestartWorkers m = MUSTER__RESTART_WORKERS__INIT;

    if (ms_capi_check_open(c ? c->session : NULL, err) < 0)
        return -ESHUTDOWN;
    assert(c);
    m.cluster = c->name;
    m.ranks = (uint32_t *)(uintptr_t)ranks;
    m.n_ranks = ranks ? count : 0;
    m.grace_ns = grace_ns > 0 ? (uint64_t)grace_ns : 0;
    return take_change(c, ms_head_restart(c->session->head, &m), err);
}

int muster_cluster_resize(struct muster_cluster *c,
                          uint32_t world_size,
                          int64_t grace_ns,
                          struct muster_error *err)
{
    if (ms_capi_check_open(c ? c->session : NULL, err) < 0)
        return -ESHUTDOWN;
    assert(c);
    return take_change(
        c, ms_head_resize(c->session->head, c->name, world_size, grace_ns), err);
}

/* ---- what it is ------------------------------------------------------------------ */

uint32_t muster_cluster_world_size(const struct muster_cluster *c)
{
    return c ? c->world_size : 0;
}

const char *muster_cluster_name(const struct muster_cluster *c)
{
    return c ? c->name : NULL;
}

static const Muster__WorkerStatus *worker_of(const struct muster_cluster *c,
                                             uint32_t rank)
{
    return c && rank < c->world_size ? c->workers[rank].status : NULL;
}

int32_t muster_cluster_pid(const struct muster_cluster *c, uint32_t rank)
{
    const Muster__WorkerStatus *w = worker_of(c, rank);

    return w ? w->pid : 0;
}

const char *muster_cluster_node(const struct muster_cluster *c, uint32_t rank)
{
    const Muster__WorkerStatus *w = worker_of(c, rank);

    return w ? w->node : NULL;
}

const char *muster_cluster_log_path(const struct muster_cluster *c, uint32_t rank)
{
    const Muster__WorkerStatus *w = worker_of(c, rank);

    return w ? w->log_path : NULL;
}
