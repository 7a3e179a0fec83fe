/* dispatch.h - who gets which part of a call, and whose answer counts
 *
 * Every dispatch mode is three vectors over the ranks of a cluster:
 *
 *   chunk_of_rank[]     which of `chunks` parts of the arguments the rank works on, or
 *                       MS_NOT_CALLED
 *   receives_payload[]  whether it gets the rows, or only the meta information of its
 *                       chunk (it will get the rows from a rank beside it)
 *   collects[]          whether its result is part of the result
 *
 * Results are put together in the order of the chunks, so that they are in the order of
 * the input whatever the ranks of a mesh are. Pure.
 */
#ifndef MS_DISPATCH_DISPATCH_H
#define MS_DISPATCH_DISPATCH_H

#include "dispatch/mesh.h"

#include <stdbool.h>

#define MS_NOT_CALLED UINT32_MAX

enum ms_dispatch_mode {
    MS_DISPATCH_ONE_TO_ALL,     /* the same to all; all results */
    MS_DISPATCH_ONE_TO_ALL_ONE, /* the same to all; the result of rank 0 */
    MS_DISPATCH_ALL_TO_ALL,     /* element i to rank i; all results */
    MS_DISPATCH_RANK_ZERO,      /* only rank 0 is called */
    MS_DISPATCH_DP,             /* one chunk for each rank, as if all were dp */
    MS_DISPATCH_DP_MP,          /* one chunk for each dp group, to all of its ranks */
    MS_DISPATCH_DP_MP_FIRST,    /* the rows only to tp 0, cp 0, pp 0 of each dp group */
    MS_DISPATCH_DP_MP_FIRST_ALL /* the same; all results */
};

/* As users write it: "ONE_TO_ALL", ROLL's "DP_MP_COMPUTE", "DP_MP_DISPATCH_FIRST",
 * "DP_MP_DISPATCH_FIRST_COLLECT_ALL", verl's "DP_COMPUTE", "DP_COMPUTE_PROTO", ... 0, or
 * -EINVAL with the names that there are. */
int ms_dispatch_mode_parse(const char *name,
                           enum ms_dispatch_mode *out,
                           struct ms_error *err);

struct ms_dispatch {
    uint32_t ranks, chunks;
    uint32_t *chunk_of_rank;
    bool *receives_payload;
    bool *collects;
};

/* The vectors of a mode for ranks of which each says where it is: of a whole cluster, or of
 * a part of one. Their dp groups are numbered anew, in order. The rows of a group go to those
 * of its ranks that have the lowest pp, cp and tp; the result is of those with the highest pp
 * and the lowest cp and tp: of a whole mesh, its first and its last stage. 0, or a negative
 * errno with the reason. */
int ms_dispatch_init_ranks(struct ms_dispatch *d,
                           enum ms_dispatch_mode mode,
                           uint32_t ranks,
                           const struct ms_mesh_rank *at,
                           struct ms_error *err);

/* The vectors that ranks have registered themselves: dp_rank and is_collect of each.
 * -EINVAL if a chunk has no rank, or no rank collects. */
int ms_dispatch_init_custom(struct ms_dispatch *d,
                            uint32_t ranks,
                            const uint32_t *dp_rank,
                            const bool *collects,
                            struct ms_error *err);

void ms_dispatch_finish(struct ms_dispatch *d);

/* The collecting ranks in the order of their results: by chunk, then by rank. `out` has
 * room for all ranks; their count. */
uint32_t ms_dispatch_order(const struct ms_dispatch *d, uint32_t *out);

/* Rows of chunk `i` if `rows` are divided into `chunks` parts as evenly as possible, the
 * longer ones first; fewer rows than chunks leave the last chunks empty. */
void ms_chunk_rows(
    uint64_t rows, uint32_t chunks, uint32_t i, uint64_t *first, uint64_t *count);

#endif
