/* dispatch.c - the three vectors of each dispatch mode */
#include "dispatch/dispatch.h"
#include "base/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ROLL's names, then verl's. */
static const struct {
    const char *name;
    enum ms_dispatch_mode mode;
} names[] = {
    {"ONE_TO_ALL", MS_DISPATCH_ONE_TO_ALL},
    {"ONE_TO_ALL_ONE", MS_DISPATCH_ONE_TO_ALL_ONE},
    {"ALL_TO_ALL", MS_DISPATCH_ALL_TO_ALL},
    {"DP_MP_COMPUTE", MS_DISPATCH_DP_MP},
    {"DP_MP_DISPATCH_FIRST", MS_DISPATCH_DP_MP_FIRST},
    {"DP_MP_DISPATCH_FIRST_COLLECT_ALL", MS_DISPATCH_DP_MP_FIRST_ALL},
    {"RANK_ZERO", MS_DISPATCH_RANK_ZERO},
    {"DP_COMPUTE", MS_DISPATCH_DP},
    {"DP_COMPUTE_PROTO", MS_DISPATCH_DP},
    {"DP_COMPUTE_PROTO_WITH_FUNC", MS_DISPATCH_DP},
    {"DP_COMPUTE_METRIC", MS_DISPATCH_DP},
    {"DIRECT_ROLLOUT_METHOD", MS_DISPATCH_RANK_ZERO},
};

int ms_dispatch_mode_parse(const char *name,
                           enum ms_dispatch_mode *out,
                           struct ms_error *err)
{
    char all[MS_ERROR_TEXT_MAX / 2];
    size_t at = 0;

    for (size_t i = 0; i < MS_COUNT(names); i++) {
        if (strcmp(names[i].name, name) == 0) {
            *out = names[i].mode;
            return 0;
        }
        at += (size_t)snprintf(all + at,
                               at < sizeof all ? sizeof all - at : 0,
                               "%s%s",
                               i ? ", " : "",
                               names[i].name);
        if (at > sizeof all)
            at = sizeof all;
    }
    return ms_error_set(err, -EINVAL, "dispatch mode '%s' is none of %s", name, all);
}

void ms_dispatch_finish(struct ms_dispatch *d)
{
    free(d->chunk_of_rank);
    free(d->receives_payload);
    free(d->collects);
    *d = (struct ms_dispatch){0};
}

static int allocate(struct ms_dispatch *d, uint32_t ranks, uint32_t chunks)
{
    *d = (struct ms_dispatch){.ranks = ranks, .chunks = chunks};
    d->chunk_of_rank = calloc(ranks, sizeof *d->chunk_of_rank);
    d->receives_payload = calloc(ranks, sizeof *d->receives_payload);
    d->collects = calloc(ranks, sizeof *d->collects);
    if (d->chunk_of_rank && d->receives_payload && d->collects)
        return 0;
    ms_dispatch_finish(d);
    return -ENOMEM;
}

static void
set(struct ms_dispatch *d, uint32_t rank, uint32_t chunk, bool gets, bool counts)
{
    d->chunk_of_rank[rank] = chunk;
    d->receives_payload[rank] = gets;
    d->collects[rank] = counts;
}

/* ---- the modes -------------------------------------------------------------------- */

/* A dp group: its number among those that there are, and who speaks for it. */
struct group {
    bool is_there;
    uint32_t chunk;
    struct ms_mesh_rank first, last;
};

/* In the order of the stages of a pipeline, then of the ranks of one. */
static bool is_before(const struct ms_mesh_rank *a, const struct ms_mesh_rank *b)
{
    if (a->pp != b->pp)
        return a->pp < b->pp;
    return a->cp != b->cp ? a->cp < b->cp : a->tp < b->tp;
}

static bool is_same(const struct ms_mesh_rank *a, const struct ms_mesh_rank *b)
{
    return a->pp == b->pp && a->cp == b->cp && a->tp == b->tp;
}

static void join_group(struct group *g, const struct ms_mesh_rank *at)
{
    if (!g->is_there)
        *g = (struct group){.is_there = true, .first = *at, .last = *at};
    if (is_before(at, &g->first))
        g->first = *at;
    if (at->pp > g->last.pp || (at->pp == g->last.pp && is_before(at, &g->last)))
        g->last = *at;
}

/* The dp groups that there are, by dp rank, and their count. */
static int find_groups(uint32_t ranks,
                       const struct ms_mesh_rank *at,
                       struct group **out,
                       uint32_t *count,
                       struct ms_error *err)
{
    uint32_t room = 0, chunks = 0;
    struct group *groups;

    for (uint32_t i = 0; i < ranks; i++) {
        if (at[i].dp >= MS_MESH_RANKS_MAX)
            return ms_error_set(err, -EINVAL, "dp rank %u is too high", at[i].dp);
        if (at[i].dp >= room)
            room = at[i].dp + 1;
    }
    groups = calloc(room, sizeof *groups);
    if (!groups)
        return ms_error_set(err, -ENOMEM, "out of memory");
    for (uint32_t i = 0; i < ranks; i++)
        join_group(&groups[at[i].dp], &at[i]);
    for (uint32_t i = 0; i < room; i++)
        if (groups[i].is_there)
            groups[i].chunk = chunks++;
    *out = groups;
    *count = chunks;
    return 0;
}

static uint32_t chunks_of(enum ms_dispatch_mode mode, uint32_t ranks, uint32_t groups)
{
    switch (mode) {
    case MS_DISPATCH_ONE_TO_ALL:
    case MS_DISPATCH_ONE_TO_ALL_ONE:
    case MS_DISPATCH_RANK_ZERO:
        return 1;
    case MS_DISPATCH_ALL_TO_ALL:
    case MS_DISPATCH_DP:
        return ranks;
    default:
        return groups;
    }
}

static void fill(struct ms_dispatch *d,
                 enum ms_dispatch_mode mode,
                 uint32_t rank,
                 const struct ms_mesh_rank *at,
                 const struct group *g)
{
    bool is_first = is_same(at, &g->first), is_last = is_same(at, &g->last);

    switch (mode) {
    case MS_DISPATCH_ONE_TO_ALL:
        set(d, rank, 0, true, true);
        break;
    case MS_DISPATCH_ONE_TO_ALL_ONE:
        set(d, rank, 0, true, rank == 0);
        break;
    case MS_DISPATCH_RANK_ZERO:
        set(d, rank, rank ? MS_NOT_CALLED : 0, rank == 0, rank == 0);
        break;
    case MS_DISPATCH_ALL_TO_ALL:
    case MS_DISPATCH_DP:
        set(d, rank, rank, true, true);
        break;
    case MS_DISPATCH_DP_MP:
        set(d, rank, g->chunk, true, is_last);
        break;
    case MS_DISPATCH_DP_MP_FIRST:
        set(d, rank, g->chunk, is_first, is_last);
        break;
    case MS_DISPATCH_DP_MP_FIRST_ALL:
        set(d, rank, g->chunk, is_first, true);
        break;
    }
}

int ms_dispatch_init_ranks(struct ms_dispatch *d,
                           enum ms_dispatch_mode mode,
                           uint32_t ranks,
                           const struct ms_mesh_rank *at,
                           struct ms_error *err)
{
    MS_CLEANUP(ms_cleanup_free) struct group *groups = NULL;
    uint32_t count = 0;
    int rc;

    if (ranks == 0 || ranks > MS_MESH_RANKS_MAX)
        return ms_error_set(
            err, -EINVAL, "a mesh has 1 to %u ranks, not %u", MS_MESH_RANKS_MAX, ranks);
    rc = find_groups(ranks, at, &groups, &count, err);
    if (rc < 0)
        return rc;
    if (allocate(d, ranks, chunks_of(mode, ranks, count)) < 0)
        return ms_error_set(err, -ENOMEM, "out of memory");
    for (uint32_t i = 0; i < ranks; i++)
        fill(d, mode, i, &at[i], &groups[at[i].dp]);
    return 0;
}

int ms_dispatch_init(struct ms_dispatch *d,
                     enum ms_dispatch_mode mode,
                     const struct ms_mesh *mesh)
{
    uint32_t ranks = ms_mesh_world_size(mesh);
    MS_CLEANUP(ms_cleanup_free) struct ms_mesh_rank *at = calloc(ranks, sizeof *at);

    if (!at)
        return -ENOMEM;
    for (uint32_t rank = 0; rank < ranks; rank++)
        at[rank] = ms_mesh_at(mesh, rank);
    return ms_dispatch_init_ranks(d, mode, ranks, at, NULL);
}

/* ---- vectors of the ranks' own --------------------------------------------------- */

static int check_custom(uint32_t ranks,
                        const uint32_t *dp_rank,
                        const bool *collects,
                        uint32_t *chunks,
                        struct ms_error *err)
{
    MS_CLEANUP(ms_cleanup_free) bool *has = calloc(ranks ? ranks : 1, sizeof *has);
    bool any = false;

    if (!has)
        return ms_error_set(err, -ENOMEM, "out of memory");
    if (ranks == 0 || ranks > MS_MESH_RANKS_MAX)
        return ms_error_set(
            err, -EINVAL, "a mesh has 1 to %u ranks, not %u", MS_MESH_RANKS_MAX, ranks);
    for (uint32_t i = 0; i < ranks; i++) {
        if (dp_rank[i] >= ranks)
            return ms_error_set(err,
                                -EINVAL,
                                "rank %u has dp rank %u, but there are only %u ranks",
                                i,
                                dp_rank[i],
                                ranks);
        has[dp_rank[i]] = true;
        any |= collects[i];
        if (dp_rank[i] >= *chunks)
            *chunks = dp_rank[i] + 1;
    }
    for (uint32_t i = 0; i < *chunks; i++)
        if (!has[i])
            return ms_error_set(
                err, -EINVAL, "no rank has dp rank %u of %u", i, *chunks);
    return any ? 0 : ms_error_set(err, -EINVAL, "no rank collects");
}

int ms_dispatch_init_custom(struct ms_dispatch *d,
                            uint32_t ranks,
                            const uint32_t *dp_rank,
                            const bool *collects,
                            struct ms_error *err)
{
    uint32_t chunks = 0;
    int rc = check_custom(ranks, dp_rank, collects, &chunks, err);

    if (rc < 0)
        return rc;
    if (allocate(d, ranks, chunks) < 0)
        return ms_error_set(err, -ENOMEM, "out of memory");
    for (uint32_t i = 0; i < ranks; i++)
        set(d, i, dp_rank[i], true, collects[i]);
    return 0;
}

/* ---------------------------------------------------------------------------------- */

uint32_t ms_dispatch_order(const struct ms_dispatch *d, uint32_t *out)
{
    uint32_t count = 0;

    /* ranks of a chunk are few and mostly in order already: insertion */
    for (uint32_t rank = 0; rank < d->ranks; rank++) {
        uint32_t at = count;

        if (!d->collects[rank])
            continue;
        while (at > 0 && d->chunk_of_rank[out[at - 1]] > d->chunk_of_rank[rank]) {
            out[at] = out[at - 1];
            at--;
        }
        out[at] = rank;
        count++;
    }
    return count;
}

void ms_chunk_rows(
    uint64_t rows, uint32_t chunks, uint32_t i, uint64_t *first, uint64_t *count)
{
    uint64_t each = rows / chunks, longer = rows % chunks;

    *first = each * i + (i < longer ? i : longer);
    *count = each + (i < longer);
}
