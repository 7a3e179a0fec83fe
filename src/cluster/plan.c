/* plan.c - the environment and devices of each process of a cluster */
#include "cluster/plan.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/env.h"
#include "base/proto.h"
#include "resource/shape.h"

#include <errno.h>
#include <string.h>

#define DEVICE_VARIABLE "MUSTER_DEVICE_VARIABLE"

struct ms_plan_place {
    uint32_t first;      /* the first rank on its node */
    uint32_t local_rank; /* ranks before it on its node */
    uint32_t local_size; /* ranks on its node; of the first one only */
    uint32_t node_rank;  /* nodes of this cluster before its own */
};

/* Where the process of a rank runs. */
static const Muster__Piece *piece_of(const struct ms_plan *p, uint32_t rank)
{
    return p->placed->ranks[rank]->pieces[0];
}

/* The first rank on the same node, looked for among those that are the first on theirs. */
static uint32_t find_first(const struct ms_plan *p,
                           const uint32_t *firsts,
                           uint32_t count,
                           uint32_t rank)
{
    for (uint32_t i = 0; i < count; i++)
        if (strcmp(piece_of(p, firsts[i])->node, piece_of(p, rank)->node) == 0)
            return firsts[i];
    return rank;
}

int ms_plan_init(struct ms_plan *p)
{
    size_t n = p->placed->n_ranks;
    MS_CLEANUP(ms_cleanup_free) uint32_t *firsts = calloc(n + 1, sizeof *firsts);
    uint32_t nodes = 0;

    p->places = calloc(n + 1, sizeof *p->places);
    if (!p->places || !firsts)
        return -ENOMEM;
    for (uint32_t r = 0; r < n; r++) {
        struct ms_plan_place *mine = &p->places[r], *first;

        mine->first =
            r > 0 && strcmp(piece_of(p, r)->node, piece_of(p, r - 1)->node) == 0
                ? p->places[r - 1].first
                : find_first(p, firsts, nodes, r);
        first = &p->places[mine->first];
        if (mine == first) {
            mine->node_rank = nodes;
            firsts[nodes++] = r;
        }
        mine->node_rank = first->node_rank;
        mine->local_rank = first->local_size++;
    }
    return 0;
}

void ms_plan_finish(struct ms_plan *p)
{
    free(p->places);
    p->places = NULL;
}

/* ---- devices --------------------------------------------------------------------- */

/* What a process sees. */
struct shown {
    const uint32_t *devices;
    size_t count;
    uint32_t *own; /* the same, if they are no piece's */
};

static void shown_finish(struct shown *s)
{
    free(s->own);
}

static bool has(const uint32_t *devices, size_t count, uint32_t device)
{
    for (size_t i = 0; i < count; i++)
        if (devices[i] == device)
            return true;
    return false;
}

/* All that the cluster has on the node of this rank, each once, by rank. */
static int show_node(const struct ms_plan *p, uint32_t rank, struct shown *out)
{
    uint32_t first = p->places[rank].first;
    size_t room = 1;

    for (uint32_t r = first; r < p->placed->n_ranks; r++)
        room += piece_of(p, r)->n_devices;
    out->devices = out->own = calloc(room, sizeof *out->own);
    if (!out->own)
        return -ENOMEM;
    for (uint32_t r = first; r < p->placed->n_ranks; r++)
        for (size_t i = 0; p->places[r].first == first && i < piece_of(p, r)->n_devices;
             i++)
            if (!has(out->own, out->count, piece_of(p, r)->devices[i]))
                out->own[out->count++] = piece_of(p, r)->devices[i];
    return 0;
}

static int show(const struct ms_plan *p, uint32_t rank, struct shown *out)
{
    const Muster__Piece *piece = piece_of(p, rank);

    if (p->spec->visible == MUSTER__VISIBLE__VISIBLE_NODE)
        return show_node(p, rank, out);
    *out = (struct shown){.devices = piece->devices, .count = piece->n_devices};
    return 0;
}

/* The value that the role gives a variable, or NULL. */
static const char *value_of(const Muster__ClusterSpec *spec, const char *variable)
{
    size_t len = strlen(variable);

    for (size_t i = spec->worker->n_env; i-- > 0;)
        if (strncmp(spec->worker->env[i], variable, len) == 0 &&
            spec->worker->env[i][len] == '=')
            return spec->worker->env[i] + len + 1;
    return NULL;
}

static int set_visible(struct ms_env *env,
                       const struct ms_plan *p,
                       uint32_t rank,
                       const Muster__NodeShape *shape,
                       const struct shown *shown,
                       const char *variable,
                       struct ms_error *err)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf text = {0};
    const char *told = value_of(p->spec, variable), *value;

    if (told && (!shape || !shape->n_devices))
        return 0; /* no device of this node is ours to give: what is told stays */
    if (ms_shape_visible(shape, variable, shown->devices, shown->count, &text) < 0 ||
        !(value = ms_buf_str(&text)))
        return -ENOMEM;
    if (told && strcmp(told, value) != 0)
        return ms_error_set(
            err,
            -EINVAL,
            "env: %s follows from where each rank is placed (rank %u of "
            "'%s': '%s'): leave it out",
            variable,
            rank,
            p->spec->name,
            value);
    return ms_env_printf(env, "%s=%s", variable, value);
}

/* The variable that tells a process of its devices: that of the first one. */
static const char *device_variable(const Muster__NodeShape *shape,
                                   const struct shown *shown)
{
    const char *variables[MS_DEVICE_VARIABLES_MAX];
    uint32_t first = shown->count ? shown->devices[0] : 0;

    if (shape && first < shape->n_devices)
        return shape->devices[first]->variable;
    ms_shape_variables(shape, variables);
    return variables[0];
}

static int set_devices(struct ms_env *env,
                       const struct ms_plan *p,
                       uint32_t rank,
                       const char *node,
                       const struct shown *shown,
                       struct ms_error *err)
{
    const Muster__NodeShape *shape = p->shape_of(p->arg, node);
    const char *variables[MS_DEVICE_VARIABLES_MAX];
    size_t count = ms_shape_variables(shape, variables);
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = set_visible(env, p, rank, shape, shown, variables[i], err);
    if (rc == 0)
        rc = ms_env_set_all(env, p->spec->worker->env, p->spec->worker->n_env);
    if (rc == 0)
        rc = ms_env_printf(env, DEVICE_VARIABLE "=%s", device_variable(shape, shown));
    return rc;
}

/* ---- the environment ------------------------------------------------------------- */

/* "actor-1-G67": its cluster, rank and devices, as in ROLL. */
static int set_names(struct ms_env *env, const struct ms_plan *p, uint32_t rank)
{
    const Muster__Piece *piece = piece_of(p, rank);
    MS_CLEANUP(ms_buf_finish) struct ms_buf name = {0};
    int rc = ms_env_printf(env, "CLUSTER_NAME=%s", p->spec->name);

    if (rc == 0)
        rc = ms_buf_printf(&name, "WORKER_NAME=%s-%u", p->spec->name, rank);
    for (size_t i = 0; rc == 0 && i < piece->n_devices; i++)
        rc = ms_buf_printf(&name, "%s%u", i ? "" : "-G", piece->devices[i]);
    if (rc == 0)
        rc = ms_buf_str(&name) ? ms_env_set(env, ms_buf_str(&name)) : -ENOMEM;
    return rc;
}

static int set_master(struct ms_env *env, const struct ms_plan *p)
{
    int rc = ms_env_printf(env, "MASTER_ADDR=%s", p->master_host);

    return rc == 0 ? ms_env_printf(env, "MASTER_PORT=%u", p->master_port) : rc;
}

static int set_rank(struct ms_env *env, const struct ms_plan *p, uint32_t rank)
{
    const struct ms_plan_place *mine = &p->places[rank];
    bool is_counted = p->spec->visible == MUSTER__VISIBLE__VISIBLE_NODE;
    const struct {
        const char *name;
        size_t value;
    } numbers[] = {
        {"RANK", rank},
        {"WORLD_SIZE", p->placed->n_ranks},
        {"LOCAL_RANK", is_counted ? mine->local_rank : 0},
        {"MUSTER_LOCAL_RANK", mine->local_rank},
        {"LOCAL_WORLD_SIZE", p->places[mine->first].local_size},
        {"NODE_RANK", mine->node_rank},
    };
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < MS_COUNT(numbers); i++)
        rc = ms_env_printf(env, "%s=%zu", numbers[i].name, numbers[i].value);
    return rc;
}

static int set_all(struct ms_env *env,
                   const struct ms_plan *p,
                   uint32_t rank,
                   const char *node,
                   const struct shown *shown,
                   struct ms_error *err)
{
    int rc = set_rank(env, p, rank);

    if (rc == 0)
        rc = set_master(env, p);
    if (rc == 0)
        rc = set_names(env, p, rank);
    return rc == 0 ? set_devices(env, p, rank, node, shown, err) : rc;
}

/* ---- a process ------------------------------------------------------------------- */

static void *no_memory(struct ms_error *err)
{
    ms_error_set(err, -ENOMEM, "out of memory");
    return NULL;
}

/* The role's own description with this rank's environment and devices in it. Takes what is
 * in `env`. */
static Muster__WorkerSpec *make(const struct ms_plan *p,
                                uint32_t rank,
                                const Muster__Piece *piece,
                                struct ms_env *env,
                                struct ms_error *err)
{
    Muster__WorkerSpec like = *p->spec->worker, *made;

    like.cluster = p->spec->name;
    like.rank = rank;
    like.world_size = (uint32_t)p->placed->n_ranks;
    like.detached = p->spec->detached;
    like.devices = piece->devices;
    like.n_devices = piece->n_devices;
    like.env = env->entries;
    like.n_env = env->count;
    made = (Muster__WorkerSpec *)ms_proto_copy(&like.base);
    return made ? made : no_memory(err);
}

static Muster__WorkerSpec *plan_on(const struct ms_plan *p,
                                   uint32_t rank,
                                   const Muster__Piece *piece,
                                   const struct shown *shown,
                                   uint32_t helper,
                                   struct ms_error *err)
{
    MS_CLEANUP(ms_env_finish) struct ms_env env = {0};
    int rc = set_all(&env, p, rank, piece->node, shown, err);

    if (rc == 0 && helper)
        rc = ms_env_printf(&env, "MUSTER_HELPER=%u", helper);
    if (rc == 0)
        return make(p, rank, piece, &env, err);
    return rc == -ENOMEM ? no_memory(err) : NULL;
}

Muster__WorkerSpec *
ms_plan_worker(const struct ms_plan *p, uint32_t rank, struct ms_error *err)
{
    MS_CLEANUP(shown_finish) struct shown shown = {0};

    if (show(p, rank, &shown) < 0)
        return no_memory(err);
    return plan_on(p, rank, piece_of(p, rank), &shown, 0, err);
}

Muster__WorkerSpec *ms_plan_helper(const struct ms_plan *p,
                                   uint32_t rank,
                                   uint32_t number,
                                   uint64_t helps,
                                   struct ms_error *err)
{
    const Muster__Piece *piece = p->placed->ranks[rank]->pieces[number];
    struct shown shown = {.devices = piece->devices, .count = piece->n_devices};
    Muster__WorkerSpec *made = plan_on(p, rank, piece, &shown, number, err);

    if (made)
        made->helps = helps;
    return made;
}

Muster__WorkerSpec *ms_plan_beside(const struct ms_plan *p,
                                   uint32_t rank,
                                   uint64_t beside,
                                   struct ms_error *err)
{
    MS_CLEANUP(ms_env_finish) struct ms_env env = {0};
    Muster__WorkerSpec *made;
    int rc = p->master_port ? set_master(&env, p) : 0;

    if (rc == 0)
        rc = set_names(&env, p, rank);
    if (rc == 0)
        rc = ms_env_set_all(&env, p->spec->worker->env, p->spec->worker->n_env);
    if (rc < 0)
        return no_memory(err);
    made = make(p, rank, piece_of(p, rank), &env, err);
    if (made)
        made->beside = beside;
    return made;
}
