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

static int
allocate(struct ms_dispatch *d, uint32_t ranks, uint32_t chunks, struct ms_error *err)
{
    *d = (struct ms_dispatch){.ranks = ranks, .chunks = chunks};
    d->chunk_of_rank = calloc(ranks, sizeof *d->chunk_of_rank);
    d->receives_payload = calloc(ranks, sizeof *d->receives_payload);
    d->collects = calloc(ranks, sizeof *d->collects);
    if (d->chunk_of_rank && d->receives_payload && d->collects)
        return 0;
    ms_dispatch_finish(d);
    return ms_error_set(err, -ENOMEM, "out of memory");
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

/* Which part a rank works on, who gets the rows of it, and whose results count. */
enum part { WHOLE, OF_RANK, OF_GROUP };
enum who { ALL, RANK_ZERO, FIRST, LAST }; /* the last two: of each dp group */

static const struct rule {
    enum part part;
    enum who receives, collects;
} rules[] = {
    [MS_DISPATCH_ONE_TO_ALL] = {WHOLE, ALL, ALL},
    [MS_DISPATCH_ONE_TO_ALL_ONE] = {WHOLE, ALL, RANK_ZERO},
    [MS_DISPATCH_ALL_TO_ALL] = {OF_RANK, ALL, ALL},
    [MS_DISPATCH_RANK_ZERO] = {WHOLE, RANK_ZERO, RANK_ZERO},
    [MS_DISPATCH_DP] = {OF_RANK, ALL, ALL},
    [MS_DISPATCH_DP_MP] = {OF_GROUP, ALL, LAST},
    [MS_DISPATCH_DP_MP_FIRST] = {OF_GROUP, FIRST, LAST},
    [MS_DISPATCH_DP_MP_FIRST_ALL] = {OF_GROUP, FIRST, ALL},
};

static bool is_one_of(enum who who,
                      uint32_t rank,
                      const struct ms_mesh_rank *at,
                      const struct group *g)
{
    if (who == FIRST || who == LAST)
        return is_same(at, who == FIRST ? &g->first : &g->last);
    return who == ALL || rank == 0;
}

static void fill(struct ms_dispatch *d,
                 const struct rule *r,
                 uint32_t rank,
                 const struct ms_mesh_rank *at,
                 const struct group *g)
{
    uint32_t chunk = r->part == OF_RANK ? rank : r->part == OF_GROUP ? g->chunk : 0;

    d->chunk_of_rank[rank] = r->receives == RANK_ZERO && rank ? MS_NOT_CALLED : chunk;
    d->receives_payload[rank] = is_one_of(r->receives, rank, at, g);
    d->collects[rank] = is_one_of(r->collects, rank, at, g);
}

int ms_dispatch_init_ranks(struct ms_dispatch *d,
                           enum ms_dispatch_mode mode,
                           uint32_t ranks,
                           const struct ms_mesh_rank *at,
                           struct ms_error *err)
{
    MS_CLEANUP(ms_cleanup_free) struct group *groups = NULL;
    const struct rule *r = &rules[mode];
    uint32_t count = 0;
    int rc = ms_mesh_check_ranks(ranks, err);

    if (rc == 0)
        rc = find_groups(ranks, at, &groups, &count, err);
    if (rc == 0)
        rc = allocate(d,
                      ranks,
                      r->part == OF_RANK    ? ranks
                      : r->part == OF_GROUP ? count
                                            : 1,
                      err);
    for (uint32_t i = 0; rc == 0 && i < ranks; i++)
        fill(d, r, i, &at[i], &groups[at[i].dp]);
    return rc;
}

/* ---- vectors of the ranks' own --------------------------------------------------- */

static int check_custom(uint32_t ranks,
                        const uint32_t *dp_rank,
                        const bool *collects,
                        uint32_t *chunks,
                        struct ms_error *err)
{
    MS_CLEANUP(ms_cleanup_free) bool *has = calloc(ranks, sizeof *has);
    bool any = false;

    if (!has)
        return ms_error_set(err, -ENOMEM, "out of memory");
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
    int rc = ms_mesh_check_ranks(ranks, err);

    if (rc == 0)
        rc = check_custom(ranks, dp_rank, collects, &chunks, err);
    if (rc == 0)
        rc = allocate(d, ranks, chunks, err);
    for (uint32_t i = 0; rc == 0 && i < ranks; i++) {
        d->chunk_of_rank[i] = dp_rank[i];
        d->receives_payload[i] = true;
        d->collects[i] = collects[i];
    }
    return rc;
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
