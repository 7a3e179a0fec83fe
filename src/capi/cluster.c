/* cluster.c - clusters: create, open, change, destroy */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/name.h"
#include "capi/capi.h"

#include <errno.h>
#include <string.h>

/* ---- the cluster ----------------------------------------------------------------- */

static void drop_workers(struct muster_cluster *c)
{
    for (uint32_t i = 0; c->workers && i < c->world_size; i++) {
        if (c->workers[i].peer)
            ms_peer_unref(c->workers[i].peer);
        free(c->workers[i].node);
        free(c->workers[i].log_path);
    }
    free(c->workers);
    c->workers = NULL;
    c->world_size = 0;
}

static void cluster_free(struct muster_cluster *c)
{
    drop_workers(c);
    free(c->name);
    ms_capi_session_unref(c->session);
    free(c);
}

static int take_worker(struct muster_cluster *c,
                       const Muster__WorkerStatus *from,
                       const char *node,
                       struct muster_error *err)
{
    struct ms_capi_worker *w = &c->workers[from->rank];
    char label[2 * MS_NAME_MAX + 32];
    struct ms_error why = {0};

    snprintf(label, sizeof label, "%s/%u@%s", c->name, from->rank, node);
    w->uid = from->uid;
    w->pid = from->pid;
    w->node = strdup(node);
    w->log_path = strdup(from->log_path);
    if (!w->node || !w->log_path)
        return ms_capi_no_memory(err);
    w->peer = ms_peer_create(c->session->client, from->address, from->uid, label, &why);
    return w->peer ? 0 : ms_capi_error(&why, err);
}

/* What there is of it now. */
static int fill(struct muster_cluster *c,
                const Muster__ClusterStatus *status,
                struct muster_error *err)
{
    int rc = 0;

    c->workers = calloc(status->n_workers + 1, sizeof *c->workers);
    if (!c->workers)
        return ms_capi_no_memory(err);
    c->world_size = (uint32_t)status->n_workers;
    for (size_t i = 0; rc == 0 && i < status->n_workers; i++) {
        const Muster__WorkerStatus *w = status->workers[i];

        if (w->rank >= c->world_size || !*w->address)
            rc = muster_error_set(
                err, -EAGAIN, NULL, "cluster '%s' is not complete", status->name);
        else
            rc = take_worker(c, w, w->node, err);
    }
    return rc;
}

static int create(struct muster_cluster *c,
                  const struct muster_cluster_options *o,
                  const struct muster_resources *resources,
                  struct muster_error *err)
{
    MS_CLEANUP(ms_capi_spec_finish) struct ms_capi_spec spec = {0};
    const Muster__ClusterStatus *status;
    struct ms_head_op *op;
    int rc = ms_capi_spec_init(&spec, o, resources, err);

    if (rc < 0)
        return rc;
    op = ms_head_create_cluster(c->session->head, &spec.message, o->wait_ns);
    status = (const Muster__ClusterStatus *)ms_capi_wait(op, MS_NEVER, err);
    rc = status ? fill(c, status, err) : -EIO;
    ms_head_op_unref(op);
    return rc;
}

static int check_options(struct muster_session *s,
                         const struct muster_cluster_options *o,
                         struct muster_error *err)
{
    struct ms_error why = {0};

    if (ms_capi_is_stopped(s))
        return muster_error_set(err, -ESHUTDOWN, NULL, "this session has ended");
    if (!o->name || !o->worker_cls || !strpbrk(o->worker_cls, ".:"))
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
    struct muster_cluster_options o = MUSTER_CLUSTER_OPTIONS;
    struct muster_resources *all = NULL;
    struct muster_cluster *c;
    int rc = -1;

    if (!session || !options)
        return ms_capi_missing(session ? "options" : "a session", err), NULL;
    memcpy(&o, options, options->size < sizeof o ? options->size : sizeof o);
    if (check_options(session, &o, err) < 0)
        return NULL;
    c = cluster_new(session, o.name, o.timeout_ns, err);
    if (!c)
        return NULL;
    if (!o.resources)
        o.resources = all = muster_resources_create(session, -1, 0, err);
    if (o.resources)
        rc = create(c, &o, o.resources, err);
    muster_resources_destroy(all);
    if (rc == 0)
        return c;
    cluster_free(c);
    return NULL;
}

static struct muster_cluster *handle_of(struct muster_session *session,
                                        const Muster__ClusterStatus *status,
                                        struct muster_error *err)
{
    struct muster_cluster *c = cluster_new(session, status->name, 0, err);

    if (!c)
        return NULL;
    c->is_handle = true;
    if (fill(c, status, err) == 0)
        return c;
    cluster_free(c);
    return NULL;
}

struct muster_cluster *muster_cluster_open(struct muster_session *session,
                                           const char *name,
                                           struct muster_error *err)
{
    struct ms_head_op *op = session && name ? ms_head_status(session->head) : NULL;
    const Muster__Status *status =
        session && name ? (const Muster__Status *)ms_capi_wait(op, MS_ANSWER_NS, err)
                        : (ms_capi_missing("a session and a name", err), NULL);
    const Muster__ClusterStatus *found = NULL;
    struct muster_cluster *c;

    for (size_t i = 0; status && i < status->n_clusters; i++)
        if (strcmp(status->clusters[i]->name, name) == 0)
            found = status->clusters[i];
    if (status && !found)
        muster_error_set(err, -ENOENT, NULL, "there is no cluster '%s'", name);
    c = found ? handle_of(session, found, err) : NULL;
    ms_head_op_unref(op);
    return c;
}

static void end(struct muster_cluster *c, int64_t grace_ns)
{
    struct ms_head_op *op;

    if (ms_capi_is_stopped(c->session))
        return;
    op = ms_head_destroy_that_cluster(
        c->session->head, c->name, !c->is_handle, c->workers[0].uid, grace_ns);
    ms_capi_wait(op, ms_deadline_ns(grace_ns, MS_ANSWER_NS), NULL);
    ms_head_op_unref(op);
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

/* The operation has changed its workers. */
static int
take_change(struct muster_cluster *c, struct ms_head_op *op, struct muster_error *err)
{
    const Muster__ClusterStatus *status =
        (const Muster__ClusterStatus *)ms_capi_wait(op, MS_NEVER, err);
    int rc = -EIO;

    if (status) {
        drop_workers(c);
        rc = fill(c, status, err);
    }
    ms_head_op_unref(op);
    return rc;
}

int muster_cluster_restart(struct muster_cluster *c,
                           const uint32_t *ranks,
                           uint32_t count,
                           int64_t grace_ns,
                           struct muster_error *err)
{
    Muster__RestartWorkers m = MUSTER__RESTART_WORKERS__INIT;

    if (!c || ms_capi_is_stopped(c->session))
        return muster_error_set(err, -ESHUTDOWN, NULL, "this session has ended");
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
    if (!c || ms_capi_is_stopped(c->session))
        return muster_error_set(err, -ESHUTDOWN, NULL, "this session has ended");
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

int32_t muster_cluster_pid(const struct muster_cluster *c, uint32_t rank)
{
    return c && rank < c->world_size ? c->workers[rank].pid : 0;
}

const char *muster_cluster_node(const struct muster_cluster *c, uint32_t rank)
{
    return c && rank < c->world_size ? c->workers[rank].node : NULL;
}

const char *muster_cluster_log_path(const struct muster_cluster *c, uint32_t rank)
{
    return c && rank < c->world_size ? c->workers[rank].log_path : NULL;
}
