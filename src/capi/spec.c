/* spec.c - what a C driver asks for, as the spec of a cluster */
#include "base/cleanup.h"
#include "capi/capi.h"
#include "cluster/spec_role.h"
#include "dispatch/mesh.h"
#include "resource/mapping.h"
#include "worker/native/library.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

/* ---- its places ------------------------------------------------------------------ */

/* Rank i in the group's bundle `first_bundle` + i. */
static int set_seats(struct ms_capi_spec *s, const struct muster_cluster_options *o)
{
    uint32_t all = muster_group_bundles(o->group);
    uint32_t count = o->first_bundle < all ? all - o->first_bundle : 0;

    if (o->world_size && o->world_size < count)
        count = o->world_size;
    s->seats = calloc(count + (size_t)1, sizeof *s->seats);
    s->seat_list = calloc(count + (size_t)1, sizeof(Muster__Seat *));
    if (!s->seats || !s->seat_list)
        return -ENOMEM;
    for (uint32_t i = 0; i < count; i++) {
        muster__seat__init(&s->seats[i]);
        s->seats[i].group = ms_capi_group_id(o->group);
        s->seats[i].bundle = o->first_bundle + i;
        s->seat_list[i] = &s->seats[i];
    }
    s->place.seats = s->seat_list;
    s->place.n_seats = count;
    return count ? 0 : -ERANGE;
}

static int set_place(struct ms_capi_spec *s,
                     const struct muster_cluster_options *o,
                     const struct muster_resources *resources,
                     struct muster_error *err)
{
    Muster__PlaceCluster *p = &s->place;
    struct ms_error why = {0};
    int rc;

    muster__place_cluster__init(p);
    ms_capi_scope(resources, &s->scope);
    p->scope = &s->scope;
    p->world_size = o->world_size || o->device_mapping || o->group ? o->world_size : 1;
    p->devices_per_worker =
        o->num_gpus_per_worker ? o->num_gpus_per_worker : o->device_mapping != NULL;
    p->memory = o->memory;
    p->device_memory = o->gpu_memory;
    p->cpu_milli = (uint64_t)(o->num_cpus * 1000 + 0.5);
    rc = o->group ? set_seats(s, o) : 0;
    if (rc == -ERANGE)
        return muster_error_set(err, -EINVAL, NULL, "the group has no such bundle");
    if (rc == 0 && o->device_mapping)
        rc = ms_mapping_parse(o->device_mapping, &s->devices, &p->n_devices, &why);
    p->devices = s->devices;
    if (why.code)
        return ms_capi_error(&why, err);
    return rc < 0 ? muster_error_set(err, rc, NULL, "out of memory") : 0;
}

/* ---- its mesh -------------------------------------------------------------------- */

static uint32_t mesh_size(const struct ms_capi_role *role, const char *name)
{
    json_t *mesh = json_object_get(role->told, "mesh");

    return (uint32_t)json_integer_value(json_object_get(mesh, name));
}

/* The file was checked with its own number of ranks, which may be the driver's. */
static int check_mesh(const struct ms_capi_spec *s,
                      const struct ms_capi_role *role,
                      struct muster_error *err)
{
    const Muster__PlaceCluster *p = &s->place;
    struct ms_mesh mesh = {.tp = mesh_size(role, "tp"),
                           .cp = mesh_size(role, "cp"),
                           .dp = mesh_size(role, "dp"),
                           .pp = mesh_size(role, "pp"),
                           .ep = mesh_size(role, "ep")};
    size_t devices = p->devices_per_worker ? p->n_devices / p->devices_per_worker : 0;
    size_t ranks = p->world_size ? p->world_size : p->n_seats ? p->n_seats : devices;
    struct ms_error why = {0};

    if (!json_object_get(role->told, "mesh") || !ranks)
        return 0;
    return ms_mesh_fit(&mesh, (uint32_t)ranks, &why) < 0 ? ms_capi_error(&why, err) : 0;
}

/* ---- all of it ------------------------------------------------------------------- */

/* As a value of the builder's, which borrows. */
static void describe(struct ms_spec_role *r,
                     const struct ms_capi_spec *s,
                     const struct muster_cluster_options *o,
                     const struct ms_capi_role *role)
{
    *r = (struct ms_spec_role){
        .name = o->name,
        .worker_cls = o->worker_cls,
        .command = role->command,
        .is_fresh = o->exec,
        .env = o->env,
        .preload = o->preload,
        .python = role->python,
        .working_dir = o->working_dir,
        .memory = o->memory,
        .cpu_milli = (uint32_t)(o->num_cpus * 1000 + 0.5),
        .step_timeout_ns = o->start_timeout_ns > 0 ? (uint64_t)o->start_timeout_ns : 0,
        .detached = o->detached,
        .args = o->args,
        .kwargs = o->kwargs,
        .told = role->told,
        .place = &s->place,
    };
}

int ms_capi_spec_init(struct ms_capi_spec *s,
                      const struct muster_cluster_options *o,
                      const struct muster_resources *resources,
                      const struct ms_capi_role *role,
                      struct muster_error *err)
{
    MS_CLEANUP(ms_cleanup_free) char *here = getcwd(NULL, 0);
    MS_CLEANUP(ms_cleanup_free) char *library = NULL;
    struct ms_error why = {0};
    struct ms_spec_role r;
    int rc;

    if (!(o->num_cpus >= 0 && o->num_cpus < 1e6))
        return muster_error_set(err, -EINVAL, NULL, "num_cpus must not be negative");
    if (!here)
        return muster_error_set(
            err, -errno, NULL, "the working directory: %s", strerror(errno));
    rc = set_place(s, o, resources, err);
    if (rc == 0)
        rc = check_mesh(s, role, err);
    if (rc < 0)
        return rc;
    describe(&r, s, o, role);
    r.folder = here; /* the agent is elsewhere */
    r.library = library = ms_library_find(o->worker_cls, here);
    s->message = ms_spec_role_build(&r, &why);
    return s->message ? 0 : ms_capi_error(&why, err);
}

void ms_capi_spec_finish(struct ms_capi_spec *s)
{
    muster__cluster_spec__free_unpacked(s->message, NULL);
    free(s->seats);
    free(s->seat_list);
    free(s->devices);
}
