/* change_plan.c - the acts of creating, restarting and resizing a cluster */
#include "cluster/change_plan.h"
#include "base/cleanup.h"
#include "cluster/end_plan.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

/* ---- may it be? ------------------------------------------------------------------ */

int ms_cluster_check_spec(const struct ms_cluster *c, struct ms_error *err)
{
    if (c->spec)
        return 0;
    return ms_error_set(
        err,
        -ENOTSUP,
        "cluster '%s': how its workers were made was lost with an earlier head",
        c->name);
}

int ms_cluster_check_change(const struct ms_cluster *c, struct ms_error *err)
{
    if (c->state == MS_CLUSTER_STOPPING)
        return ms_error_set(err, -ENOENT, "there is no cluster '%.64s'", c->name);
    if (!c->is_made || c->is_busy)
        return ms_error_set(
            err, -EBUSY, "cluster '%s' is being changed already", c->name);
    return ms_cluster_check_spec(c, err);
}

/* What ranks beside others, or in bundles, may have follows from where they are. */
static int
check_memory(const struct ms_cluster *c, uint64_t memory, struct ms_error *err)
{
    const Muster__ClusterSpec *spec = c->spec;

    if (!memory || memory == spec->worker->memory_limit)
        return 0;
    if (!spec->beside[0] && !spec->place->n_seats)
        return 0;
    return ms_error_set(err,
                        -ENOTSUP,
                        "cluster '%s' cannot have another amount of memory: its ranks "
                        "%s",
                        c->name,
                        spec->beside[0] ? "run beside others"
                                        : "have what the bundles of a group hold");
}

void ms_cluster_set_memory(struct ms_cluster *c, uint64_t memory)
{
    if (!memory || memory == c->spec->worker->memory_limit)
        return;
    c->spec->worker->memory_limit = memory;
    if (c->spec->place->own_group)
        c->spec->place->own_group->bundles[0]->memory = memory;
    else
        c->spec->place->memory = memory;
}

/* ---- plans ----------------------------------------------------------------------- */

static int64_t ns_of(uint64_t ns)
{
    return ns < INT64_MAX ? (int64_t)ns : INT64_MAX;
}

static void add(struct ms_change_plan *p, enum ms_act act)
{
    assert(p->count < MS_ACTS_MAX);
    p->acts[p->count++] = act;
}

/* Ranks first..end-1. */
static int add_ranks(struct ms_change_plan *p, uint32_t first, uint32_t end)
{
    p->ranks = calloc(end - first + (size_t)1, sizeof *p->ranks);
    if (!p->ranks)
        return -ENOMEM;
    for (uint32_t rank = first; rank < end; rank++)
        p->ranks[p->rank_count++] = rank;
    return 0;
}

/* Processes beside others that host no engine meet nowhere. */
static bool needs_port(const Muster__ClusterSpec *spec)
{
    return !spec->beside[0] || spec->worker->start != MUSTER__START_KIND__START_COMMAND;
}

int ms_change_plan_create(struct ms_change_plan *p,
                          const Muster__ClusterSpec *spec,
                          uint32_t count)
{
    *p = (struct ms_change_plan){.can_cancel = true};
    add(p, MS_ACT_KEEP);
    if (needs_port(spec))
        add(p, MS_ACT_HOLD_PORT);
    add(p, MS_ACT_START);
    return add_ranks(p, 0, count);
}

/* What nobody has reported since another head's time may live, and can be neither ended nor
 * left out. */
static int check_known(const struct ms_cluster *c, struct ms_error *err)
{
    for (size_t i = 0; i < c->count; i++)
        if (!c->slots[i].now.uid)
            return ms_error_set(
                err, -EAGAIN, "nobody has reported %s/%zu yet", c->name, i);
    return 0;
}

/* ---- restart --------------------------------------------------------------------- */

static int check_restart(const struct ms_cluster *c,
                         const Muster__RestartWorkers *w,
                         struct ms_error *err)
{
    for (size_t i = 0; i < w->n_ranks; i++)
        if (w->ranks[i] >= c->count)
            return ms_error_set(err,
                                -EINVAL,
                                "%s has no rank %u: it has %zu",
                                c->name,
                                w->ranks[i],
                                c->count);
    return check_memory(c, w->memory, err);
}

/* Those that are named, or all of them. */
static int
add_named(struct ms_change_plan *p, size_t count, const Muster__RestartWorkers *w)
{
    MS_CLEANUP(ms_cleanup_free) bool *named = calloc(count + 1, sizeof *named);

    p->ranks = calloc(count + 1, sizeof *p->ranks);
    if (!named || !p->ranks)
        return -ENOMEM;
    for (size_t i = 0; i < w->n_ranks; i++)
        named[w->ranks[i]] = true;
    for (uint32_t rank = 0; rank < count; rank++)
        if (named[rank] || w->n_ranks == 0)
            p->ranks[p->rank_count++] = rank;
    return 0;
}

int ms_change_plan_restart(struct ms_change_plan *p,
                           const struct ms_cluster *c,
                           const Muster__RestartWorkers *w,
                           struct ms_error *err)
{
    int rc = check_restart(c, w, err);

    if (rc == 0)
        rc = check_known(c, err);
    if (rc < 0)
        return rc;
    *p = (struct ms_change_plan){
        .can_cancel = true,
        .renews = true,
        .grace_ns = ns_of(w->grace_ns),
        .step_timeout_ns = ns_of(w->step_timeout_ns),
        .why = w->end_only ? "it was ended, and nothing takes its place"
                           : "it was ended by a restart"};
    add(p, MS_ACT_END);
    if (!w->end_only) {
        add(p, MS_ACT_PLACE);
        if (c->master)
            add(p, MS_ACT_HOLD_PORT);
        add(p, MS_ACT_START);
    }
    return add_named(p, c->count, w);
}

/* ---- resize ---------------------------------------------------------------------- */

static int check_resize(const struct ms_cluster *c,
                        const Muster__ResizeCluster *w,
                        struct ms_error *err)
{
    if (w->world_size == 0 || w->world_size > MS_CLUSTER_WORKERS_MAX)
        return ms_error_set(
            err,
            -EINVAL,
            "cluster '%s' cannot have %u workers; from 1 to %u are possible",
            c->name,
            w->world_size,
            MS_CLUSTER_WORKERS_MAX);
    if (!c->spec->can_resize || c->spec->beside[0])
        return ms_error_set(
            err,
            -ENOTSUP,
            "cluster '%s' cannot change its size: its ranks have places "
            "in a mesh (tp, pp, cp or ep), or run beside others",
            c->name);
    return check_memory(c, w->memory, err);
}

int ms_change_plan_resize(struct ms_change_plan *p,
                          const struct ms_cluster *c,
                          const Muster__ResizeCluster *w,
                          struct ms_error *err)
{
    uint32_t count = (uint32_t)c->count, size = w->world_size;
    int rc = check_resize(c, w, err);

    if (rc == 0)
        rc = check_known(c, err);
    if (rc < 0)
        return rc;
    *p = (struct ms_change_plan){.size = size < count ? size : count,
                                 .grace_ns = ns_of(w->grace_ns)};
    if (size > count) {
        add(p, MS_ACT_ADD);
        add(p, MS_ACT_START);
        p->undo = MS_ACT_CUT;
    } else if (size < count) {
        add(p, MS_ACT_END);
        add(p, MS_ACT_CUT);
    }
    if (size != count)
        add(p, MS_ACT_TELL);
    return size > count ? add_ranks(p, count, size) : add_ranks(p, size, count);
}

void ms_change_plan_finish(struct ms_change_plan *p)
{
    free(p->ranks);
    *p = (struct ms_change_plan){0};
}

/* ---- act after act --------------------------------------------------------------- */

/* What only the cluster can tell of the last act. */
static void check_last(const struct ms_change_plan *p,
                       const struct ms_cluster *c,
                       bool is_unwanted,
                       struct ms_error *err)
{
    const struct ms_end_plan ended = {0}; /* of the changing ranks */
    bool is_end = p->last == MS_ACT_END;

    if (p->can_cancel && is_unwanted && (is_end || p->last == MS_ACT_HOLD_PORT))
        ms_error_set(err, -ECANCELED, "cluster '%s' was destroyed meanwhile", c->name);
    else if (is_end && ms_end_plan_left(&ended, c) > 0)
        ms_end_plan_late(&ended, c, err);
}

/* Its port is held. */
static bool is_held(const struct ms_cluster *c)
{
    return c->master && c->master->port;
}

enum ms_act ms_change_plan_next(struct ms_change_plan *p,
                                const struct ms_cluster *c,
                                bool is_unwanted,
                                struct ms_error *err)
{
    if (!err->code)
        check_last(p, c, is_unwanted, err);
    if (err->code) {
        p->at = p->count;
        return p->last = p->last == MS_ACT_START ? p->undo : MS_ACT_DONE;
    }
    while (p->at < p->count && p->acts[p->at] == MS_ACT_HOLD_PORT && is_held(c))
        p->at++;
    return p->last = p->at < p->count ? p->acts[p->at++] : MS_ACT_DONE;
}

void ms_change_plan_mark(const struct ms_change_plan *p, struct ms_cluster *c)
{
    ms_cluster_set_changing(c, c->count);
    for (size_t i = 0; i < p->rank_count && p->ranks[i] < c->count; i++)
        c->slots[p->ranks[i]].is_changing = true;
}
