/* mesh.h - the parallel shape of a cluster, and where a rank is in it
 *
 *   rank = tp + TP * (cp + CP * (dp + DP * pp))
 *
 * dp is what is left over of the world size; ep divides dp. Pure.
 */
#ifndef MS_DISPATCH_MESH_H
#define MS_DISPATCH_MESH_H

#include "base/error.h"

#include <stdint.h>

#define MS_MESH_RANKS_MAX ((uint32_t)1 << 20)

struct ms_mesh {
    uint32_t tp, cp, dp, pp, ep; /* sizes, each at least 1 */
};

/* Where one rank is. */
struct ms_mesh_rank {
    uint32_t tp, cp, dp, pp;
};

/* 0, or -EINVAL: a mesh has no such number of ranks. */
int ms_mesh_check_ranks(uint32_t ranks, struct ms_error *err);

/* Fill in dp (and check it, if it is not 0); sizes of 0 mean 1. 0, or -EINVAL with the
 * reason. */
int ms_mesh_fit(struct ms_mesh *m, uint32_t world_size, struct ms_error *err);

struct ms_mesh_rank ms_mesh_at(const struct ms_mesh *m, uint32_t rank);

#endif
