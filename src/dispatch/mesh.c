/* mesh.c - the places of ranks in a mesh */
#include "dispatch/mesh.h"

#include <errno.h>

static uint32_t at_least_one(uint32_t n)
{
    return n ? n : 1;
}

int ms_mesh_check_ranks(uint32_t ranks, struct ms_error *err)
{
    if (ranks > 0 && ranks <= MS_MESH_RANKS_MAX)
        return 0;
    return ms_error_set(
        err, -EINVAL, "a mesh has 1 to %u ranks, not %u", MS_MESH_RANKS_MAX, ranks);
}

int ms_mesh_fit(struct ms_mesh *m, uint32_t world_size, struct ms_error *err)
{
    struct ms_mesh fit = {.tp = at_least_one(m->tp),
                          .cp = at_least_one(m->cp),
                          .pp = at_least_one(m->pp),
                          .ep = at_least_one(m->ep)};
    uint64_t model = (uint64_t)fit.tp * fit.cp;
    int rc = ms_mesh_check_ranks(world_size, err);

    if (rc < 0)
        return rc;
    model = model > world_size ? UINT64_MAX : model * fit.pp;
    if (model > world_size || world_size % model)
        return ms_error_set(err,
                            -EINVAL,
                            "%u ranks cannot be divided by tp %u x cp %u x pp %u",
                            world_size,
                            fit.tp,
                            fit.cp,
                            fit.pp);
    fit.dp = (uint32_t)(world_size / model);
    if (m->dp && m->dp != fit.dp)
        return ms_error_set(
            err,
            -EINVAL,
            "dp is %u, but %u ranks with tp %u x cp %u x pp %u make dp %u",
            m->dp,
            world_size,
            fit.tp,
            fit.cp,
            fit.pp,
            fit.dp);
    if (fit.dp % fit.ep)
        return ms_error_set(
            err, -EINVAL, "ep %u does not divide dp %u", fit.ep, fit.dp);
    *m = fit;
    return 0;
}

struct ms_mesh_rank ms_mesh_at(const struct ms_mesh *m, uint32_t rank)
{
    return (struct ms_mesh_rank){.tp = rank % m->tp,
                                 .cp = rank / m->tp % m->cp,
                                 .dp = rank / (m->tp * m->cp) % m->dp,
                                 .pp = rank / (m->tp * m->cp * m->dp)};
}
