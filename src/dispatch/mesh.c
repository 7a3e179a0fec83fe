/* mesh.c - the places of ranks in a mesh */
#include "dispatch/mesh.h"

#include <errno.h>

static uint32_t at_least_one(uint32_t n)
{
    return n ? n : 1;
}

int ms_mesh_fit(struct ms_mesh *m, uint32_t world_size, struct ms_error *err)
{
    uint64_t model = (uint64_t)at_least_one(m->tp) * at_least_one(m->cp);
    uint32_t dp;

    if (world_size == 0 || world_size > MS_MESH_RANKS_MAX)
        return ms_error_set(err,
                            -EINVAL,
                            "a mesh has 1 to %u ranks, not %u",
                            MS_MESH_RANKS_MAX,
                            world_size);
    model = model > world_size ? UINT64_MAX : model * at_least_one(m->pp);
    if (model > world_size || world_size % model)
        return ms_error_set(err,
                            -EINVAL,
                            "%u ranks cannot be divided by tp %u x cp %u x pp %u",
                            world_size,
                            at_least_one(m->tp),
                            at_least_one(m->cp),
                            at_least_one(m->pp));
    dp = (uint32_t)(world_size / model);
    if (m->dp && m->dp != dp)
        return ms_error_set(
            err,
            -EINVAL,
            "dp is %u, but %u ranks with tp %u x cp %u x pp %u make dp %u",
            m->dp,
            world_size,
            at_least_one(m->tp),
            at_least_one(m->cp),
            at_least_one(m->pp),
            dp);
    if (dp % at_least_one(m->ep))
        return ms_error_set(err, -EINVAL, "ep %u does not divide dp %u", m->ep, dp);
    *m = (struct ms_mesh){.tp = at_least_one(m->tp),
                          .cp = at_least_one(m->cp),
                          .dp = dp,
                          .pp = at_least_one(m->pp),
                          .ep = at_least_one(m->ep)};
    return 0;
}

uint32_t ms_mesh_world_size(const struct ms_mesh *m)
{
    return m->tp * m->cp * m->dp * m->pp;
}

struct ms_mesh_rank ms_mesh_at(const struct ms_mesh *m, uint32_t rank)
{
    return (struct ms_mesh_rank){.tp = rank % m->tp,
                                 .cp = rank / m->tp % m->cp,
                                 .dp = rank / (m->tp * m->cp) % m->dp,
                                 .pp = rank / (m->tp * m->cp * m->dp)};
}
