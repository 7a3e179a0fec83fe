#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/name.h"
#include "capi/capi.h"

#include <errno.h>
#include <string.h>

/* "libreward.so:reward" */
static bool is_native(const char *worker_cls)
{
    const char *symbol = strrchr(worker_cls, ':');
    const char *so = strstr(worker_cls, ".so");

    return symbol && so && so < symbol && (so[3] == ':' || so[3] == '.');
}

/* ---- how each rank is started ---------------------------------------------------- */

struct ranks {
    struct ms_head_rank *at;
    uint32_t count;
    char ***env;
    Muster__ZygoteKey zygote;
    char *module;
    char **preload;
};

static void ranks_finish(struct ranks *r)
{
    for (uint32_t i = 0; r->env && i < r->count; i++)
        ms_capi_strings_free(r->env[i]);
    free(r->env);
    free(r->at);
    free(r->module);
    free(r->preload);
}

static size_t count_strings(const char *const *strings)
{
    size_t n = 0;

    while (strings && strings[n])
        n++;
    return n;
}

/* The module of the class is imported before the fork, and what was asked for. */
static int set_preload(struct ranks *r, const struct muster_cluster_options *o)
{
    size_t n = count_strings(o->preload);
    char *dot;

    r->module = strdup(o->worker_cls);
    r->preload = calloc(n + 2, sizeof *r->preload);
    if (!r->module || !r->preload)
        return -ENOMEM;
    dot = strrchr(r->module, strchr(r->module, ':') ? ':' : '.');
    if (dot) {
        *dot = '\0';
        r->preload[r->zygote.n_preload++] = r->module;
    }
    for (size_t i = 0; i < n; i++)
        r->preload[r->zygote.n_preload++] = (char *)(uintptr_t)o->preload[i];
    r->zygote.preload = r->preload;
    return 0;
}

static void
fill_spec(struct ranks *r, uint32_t rank, const struct muster_cluster_options *o)
{
    Muster__WorkerSpec *spec = &r->at[rank].spec;

    muster__worker_spec__init(spec);
    spec->start = is_native(o->worker_cls) ? MUSTER__START_KIND__START_NATIVE
                  : o->exec                ? MUSTER__START_KIND__START_EXEC
                                           : MUSTER__START_KIND__START_FORK;
    spec->zygote = &r->zygote;
    spec->env = r->env[rank];
    spec->n_env = count_strings((const char *const *)r->env[rank]);
    spec->memory_limit = o->memory;
    spec->detached = o->detached;
    spec->cpu_milli = (uint32_t)(o->num_cpus * 1000 + 0.5);
    if (o->working_dir)
        spec->working_dir = (char *)(uintptr_t)o->working_dir;
}

static int ranks_make(struct ranks *r,
                      const struct muster_cluster_options *o,
                      const struct ms_capi_rank_env *env)
{
    r->count = (uint32_t)env->placed->n_ranks;
    r->at = calloc(r->count + 1, sizeof *r->at);
    r->env = calloc(r->count + 1, sizeof(char **));
    muster__zygote_key__init(&r->zygote);
    if (!r->at || !r->env || set_preload(r, o) < 0)
        return -ENOMEM;
    for (uint32_t i = 0; i < r->count; i++) {
        r->env[i] = ms_capi_rank_env(env, i);
        if (!r->env[i])
            return -ENOMEM;
        fill_spec(r, i, o);
        r->at[i].node = env->placed->ranks[i]->pieces[0]->node;
        r->at[i].devices = env->placed->ranks[i]->pieces[0]->devices;
        r->at[i].device_count = env->placed->ranks[i]->pieces[0]->n_devices;
    }
    return 0;
}

/* ---- the cluster ----------------------------------------------------------------- */

static void cluster_free(struct muster_cluster *c)
{
    for (uint32_t i = 0; c->workers && i < c->world_size; i++) {
        if (c->workers[i].peer)
            ms_peer_unref(c->workers[i].peer);
        free(c->workers[i].node);
        free(c->workers[i].log_path);
    }
    free(c->workers);
    free(c->ports);
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
        return muster_error_set(err, -ENOMEM, NULL, "out of memory");
    w->peer = ms_peer_create(c->session->client, from->address, from->uid, label, &why);
    return w->peer ? 0 : ms_capi_error(&why, err);
}

static int
start(struct muster_cluster *c, const struct ranks *ranks, struct muster_error *err)
{
    struct ms_head_op *op =
        ms_head_create_cluster(c->session->head, c->name, ranks->at, ranks->count);
    const Muster__ClusterStatus *status =
        (const Muster__ClusterStatus *)ms_capi_wait(op, MS_CAPI_START_NS, err);
    int rc = status ? 0 : -EIO;

    for (size_t i = 0; rc == 0 && i < status->n_workers; i++)
        rc = status->workers[i]->rank < c->world_size
                 ? take_worker(c,
                               status->workers[i],
                               ranks->at[status->workers[i]->rank].node,
                               err)
                 : -EPROTO;
    ms_head_op_unref(op);
    return rc;
}

/* The argument of CREATE_ENGINE. */
static struct muster_value *engine_spec(const struct muster_cluster_options *o)
{
    struct muster_value *spec = muster_value_map();
    const char *symbol = strrchr(o->worker_cls, ':');
    MS_CLEANUP(ms_cleanup_free) char *library = NULL;
    MS_CLEANUP(ms_cleanup_free) char *full = NULL;
    MS_CLEANUP(ms_cleanup_free) char *class = NULL;

    if (is_native(o->worker_cls)) { /* what is here goes by its full path */
        library = strndup(o->worker_cls, (size_t)(symbol - o->worker_cls));
        full = library ? realpath(library, NULL) : NULL;
    }
    if (full && asprintf(&class, "%s%s", full, symbol) < 0)
        class = NULL;
    muster_map_set(spec, "name", muster_value_text("default"));
    muster_map_set(spec, "cls", muster_value_text(class ? class : o->worker_cls));
    muster_map_set(
        spec, "args", o->args ? muster_value_copy(o->args) : muster_value_list());
    muster_map_set(
        spec, "kwargs", o->kwargs ? muster_value_copy(o->kwargs) : muster_value_map());
    return spec;
}

static int construct(struct muster_cluster *c,
                     const struct muster_cluster_options *o,
                     struct muster_error *err)
{
    struct muster_value *spec = engine_spec(o);
    int rc = ms_capi_operate_all(c,
                                 MS_OP_CREATE_ENGINE,
                                 spec,
                                 o->start_timeout_ns ? o->start_timeout_ns
                                                     : MS_CALL_TIMEOUT_NS,
                                 err);

    muster_value_destroy(spec);
    return rc;
}

/* Where rank 0 is. */
static int hold_port(struct muster_cluster *c,
                     const char *node,
                     struct ms_capi_rank_env *env,
                     char **host,
                     struct muster_error *err)
{
    struct ms_head_op *op = ms_head_hold_port_on(c->session->head, node, c->ports);
    const Muster__PortHeld *held =
        (const Muster__PortHeld *)ms_capi_wait(op, MS_CAPI_ANSWER_NS, err);
    int rc = held ? 0 : -EIO;

    if (held) {
        *host = strdup(held->host);
        env->master_host = *host ? *host : "";
        env->master_port = held->port;
    }
    ms_head_op_unref(op);
    return rc;
}

/* Start its processes where they were placed. */
static int start_placed(struct muster_cluster *c,
                        const struct muster_cluster_options *o,
                        const struct muster_resources *resources,
                        const Muster__ClusterPlaced *placed,
                        struct muster_error *err)
{
    MS_CLEANUP(ms_cleanup_free) char *host = NULL;
    MS_CLEANUP(ranks_finish) struct ranks ranks = {0};
    struct ms_capi_rank_env env = {
        .cluster = c->name, .placed = placed, .resources = resources, .user = o->env};
    int rc = hold_port(c, placed->ranks[0]->pieces[0]->node, &env, &host, err);

    if (rc < 0)
        return rc;
    c->workers = calloc(placed->n_ranks + 1, sizeof *c->workers);
    c->world_size = c->workers ? (uint32_t)placed->n_ranks : 0;
    if (!c->workers || ranks_make(&ranks, o, &env) < 0)
        return muster_error_set(err, -ENOMEM, NULL, "out of memory");
    return start(c, &ranks, err);
}

static int place_and_start(struct muster_cluster *c,
                           const struct muster_cluster_options *o,
                           struct muster_resources *resources,
                           struct muster_error *err)
{
    struct ms_head_op *op = ms_capi_place_cluster(resources, o, err);
    int rc;

    if (!op)
        return -EIO;
    rc = start_placed(
        c, o, resources, (const Muster__ClusterPlaced *)ms_head_op_message(op), err);
    ms_head_op_unref(op);
    if (rc < 0) /* what was not begun is not held any longer */
        ms_capi_drop_claim(c->session, c->name);
    return rc;
}

/* It is whole, and may outlive us from now on. */
static int let_go(struct muster_cluster *c, struct muster_error *err)
{
    struct ms_head_op *op = ms_head_describe_cluster(c->session->head, c->name, "", 0);
    int rc = ms_capi_wait(op, MS_CAPI_ANSWER_NS, err) ? 0 : -EIO;

    ms_head_op_unref(op);
    return rc;
}

static int create(struct muster_cluster *c,
                  const struct muster_cluster_options *o,
                  struct muster_error *err)
{
    struct muster_resources *own = NULL;
    int rc = -EIO;

    if (!o->resources) {
        own = muster_resources_create(c->session, -1, 0, err);
        if (!own)
            return -EIO;
    }
    rc = place_and_start(c, o, own ? own : o->resources, err);
    muster_resources_destroy(own);
    if (rc == 0)
        rc = construct(c, o, err);
    return rc == 0 && o->detached ? let_go(c, err) : rc;
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

static void end(struct muster_cluster *c, int64_t grace_ns);

struct muster_cluster *
muster_cluster_create(struct muster_session *session,
                      const struct muster_cluster_options *options,
                      struct muster_error *err)
{
    struct muster_cluster_options o = MUSTER_CLUSTER_OPTIONS;
    struct muster_cluster *c;

    if (!session || !options)
        return ms_capi_missing(session ? "options" : "a session", err), NULL;
    memcpy(&o, options, options->size < sizeof o ? options->size : sizeof o);
    if (check_options(session, &o, err) < 0)
        return NULL;
    c = calloc(1, sizeof *c);
    if (!c) {
        muster_error_set(err, -ENOMEM, NULL, "out of memory");
        return NULL;
    }
    c->session = ms_capi_session_ref(session);
    c->timeout_ns = o.timeout_ns ? o.timeout_ns : MS_CALL_TIMEOUT_NS;
    c->name = strdup(o.name);
    if (!c->name ||
        asprintf(&c->ports, "%s:%08x", o.name, (unsigned)ms_random_id()) < 0) {
        c->ports = NULL;
        muster_error_set(err, -ENOMEM, NULL, "out of memory");
        cluster_free(c);
        return NULL;
    }
    if (create(c, &o, err) < 0) {
        end(c, 0);
        cluster_free(c);
        return NULL;
    }
    return c;
}

static int fill_handle(struct muster_cluster *c,
                       const Muster__ClusterStatus *status,
                       struct muster_error *err)
{
    int rc = 0;

    c->workers = calloc(status->n_workers + 1, sizeof *c->workers);
    c->name = strdup(status->name);
    if (!c->workers || !c->name)
        return muster_error_set(err, -ENOMEM, NULL, "out of memory");
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

static struct muster_cluster *handle_of(struct muster_session *session,
                                        const Muster__ClusterStatus *status,
                                        struct muster_error *err)
{
    struct muster_cluster *c = calloc(1, sizeof *c);

    if (!c) {
        muster_error_set(err, -ENOMEM, NULL, "out of memory");
        return NULL;
    }
    c->session = ms_capi_session_ref(session);
    c->timeout_ns = MS_CALL_TIMEOUT_NS;
    c->is_handle = true;
    if (fill_handle(c, status, err) < 0) {
        cluster_free(c);
        return NULL;
    }
    return c;
}

struct muster_cluster *muster_cluster_open(struct muster_session *session,
                                           const char *name,
                                           struct muster_error *err)
{
    struct ms_head_op *op = session && name ? ms_head_status(session->head) : NULL;
    const Muster__Status *status =
        session && name
            ? (const Muster__Status *)ms_capi_wait(op, MS_CAPI_ANSWER_NS, err)
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

/* If it was started at all, and is not another one of this name by now. */
static void end(struct muster_cluster *c, int64_t grace_ns)
{
    bool is_ours = c->workers && c->world_size && c->workers[0].uid;
    struct ms_head_op *op;

    if (ms_capi_is_stopped(c->session))
        return;
    if (is_ours) {
        op = ms_head_destroy_that_cluster(
            c->session->head, c->name, !c->is_handle, c->workers[0].uid, grace_ns);
        ms_capi_wait(op, ms_deadline_ns(grace_ns, MS_CAPI_ANSWER_NS), NULL);
        ms_head_op_unref(op);
    }
    if (c->is_handle)
        return;
    op = ms_head_drop_port(c->session->head, c->ports);
    ms_capi_wait(op, MS_CAPI_ANSWER_NS, NULL);
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
