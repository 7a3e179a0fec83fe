/* spec.c - what a C driver asks for, as the spec of a cluster */
#include "cluster/spec.h"
#include "base/cleanup.h"
#include "capi/capi.h"
#include "dispatch/mesh.h"
#include "plain/value.h"
#include "resource/mapping.h"
#include "wire/frame.h"

#include <errno.h>
#include <string.h>

static char engine_name[] = "default";

/* ---- its class ------------------------------------------------------------------- */

/* The module of the class is imported before the fork, and what was asked for. */
static int set_preload(struct ms_capi_spec *s, const struct muster_cluster_options *o)
{
    size_t n = ms_capi_count(o->preload);
    char *dot;

    muster__zygote_key__init(&s->zygote);
    s->module = strdup(o->worker_cls);
    s->preload = calloc(n + 2, sizeof *s->preload);
    if (!s->module || !s->preload)
        return -ENOMEM;
    dot = strrchr(s->module, strchr(s->module, ':') ? ':' : '.');
    if (dot) {
        *dot = '\0';
        s->preload[s->zygote.n_preload++] = s->module;
    }
    for (size_t i = 0; i < n; i++)
        s->preload[s->zygote.n_preload++] = ms_capi_text(o->preload[i]);
    s->zygote.preload = s->preload;
    return 0;
}

/* As seen from here: the agent is elsewhere. */
static int set_folder(struct ms_capi_spec *s, const char *folder)
{
    MS_CLEANUP(ms_cleanup_free) char *here = NULL;

    s->worker.working_dir = ms_capi_text(folder);
    if (!folder || !*folder || *folder == '/')
        return 0;
    here = getcwd(NULL, 0);
    if (!here || asprintf(&s->folder, "%s/%s", here, folder) < 0) {
        s->folder = NULL;
        return -ENOMEM;
    }
    s->worker.working_dir = s->folder;
    return 0;
}

static int set_worker(struct ms_capi_spec *s,
                      const struct muster_cluster_options *o,
                      const struct ms_capi_role *role)
{
    Muster__WorkerSpec *w = &s->worker;
    bool is_native = ms_class_is_native(o->worker_cls);
    int rc = set_preload(s, o);

    muster__worker_spec__init(w);
    w->start = is_native       ? MUSTER__START_KIND__START_NATIVE
               : role->command ? MUSTER__START_KIND__START_COMMAND
               : o->exec       ? MUSTER__START_KIND__START_EXEC
                               : MUSTER__START_KIND__START_FORK;
    w->zygote = &s->zygote;
    w->env = (char **)(uintptr_t)o->env;
    w->n_env = ms_capi_count(o->env);
    w->memory_limit = o->memory;
    w->cpu_milli = (uint32_t)(o->num_cpus * 1000 + 0.5);
    s->zygote.python = (char **)(uintptr_t)role->python;
    s->zygote.n_python = ms_capi_count(role->python);
    if (w->start == MUSTER__START_KIND__START_COMMAND) {
        w->command = (char **)(uintptr_t)role->command;
        w->n_command = ms_capi_count(role->command);
    }
    w->http_open = !is_native && json_is_true(json_object_get(role->told, "http_open"));
    return rc < 0 ? rc : set_folder(s, o->working_dir);
}

/* ---- its constructor ------------------------------------------------------------- */

/* The class by its full path, if its library is here; others are looked for where the worker
 * is. malloc'd. */
static char *full_class(const char *worker_cls)
{
    const char *symbol = strrchr(worker_cls, ':');
    MS_CLEANUP(ms_cleanup_free) char *library = NULL;
    MS_CLEANUP(ms_cleanup_free) char *full = NULL;
    char *class = NULL;

    if (!ms_class_is_native(worker_cls))
        return strdup(worker_cls);
    library = strndup(worker_cls, (size_t)(symbol - worker_cls));
    full = library ? realpath(library, NULL) : NULL;
    if (asprintf(&class, "%s%s", full ? full : library, symbol) < 0)
        return NULL;
    return class;
}

/* For workers in Python: what the file says of their engines. */
static void add_told(struct muster_value *spec, const struct ms_capi_role *role)
{
    json_t *calls = json_object_get(role->told, "max_concurrency"), *size;
    json_t *mesh = json_object_get(role->told, "mesh");
    struct muster_value *sizes;
    const char *name;

    if (json_is_integer(calls))
        muster_map_set(
            spec, "max_concurrency", muster_value_int(json_integer_value(calls)));
    if (!json_is_object(mesh))
        return;
    sizes = muster_value_map();
    json_object_foreach(mesh, name, size)
        muster_map_set(sizes, name, muster_value_int(json_integer_value(size)));
    muster_map_set(spec, "mesh", sizes);
}

/* The argument of CREATE_ENGINE. */
static struct muster_value *engine_value(const struct muster_cluster_options *o,
                                         const struct ms_capi_role *role)
{
    MS_CLEANUP(ms_cleanup_free) char *class = full_class(o->worker_cls);
    struct muster_value *spec = muster_value_map();

    muster_map_set(spec, "name", muster_value_text(engine_name));
    muster_map_set(spec, "cls", muster_value_text(class ? class : o->worker_cls));
    muster_map_set(
        spec, "args", o->args ? muster_value_copy(o->args) : muster_value_list());
    muster_map_set(
        spec, "kwargs", o->kwargs ? muster_value_copy(o->kwargs) : muster_value_map());
    if (!ms_class_is_native(o->worker_cls))
        add_told(spec, role);
    return spec;
}

static int set_step(struct ms_capi_spec *s,
                    const struct muster_cluster_options *o,
                    const struct ms_capi_role *role)
{
    struct muster_value *value = engine_value(o, role);
    struct ms_plain_writer w;
    int rc;

    ms_plain_writer_init(&w);
    ms_value_encode(&w, MS_PLAIN_ROOT, value);
    rc = ms_plain_flatten(&w, &s->argument.data, &s->argument.len);
    ms_plain_writer_finish(&w);
    muster_value_destroy(value);
    muster__step__init(&s->step);
    s->step.op = MS_OP_CREATE_ENGINE;
    s->step.engine = engine_name;
    s->step.codec = MS_CODEC_PLAIN;
    s->step.arguments = &s->argument;
    s->step.n_arguments = 1;
    s->steps[0] = &s->step;
    return rc;
}

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
static int set_mesh(struct ms_capi_spec *s,
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

    s->message.can_resize =
        mesh.tp <= 1 && mesh.cp <= 1 && mesh.pp <= 1 && mesh.ep <= 1;
    if (!json_object_get(role->told, "mesh") || !ranks)
        return 0;
    return ms_mesh_fit(&mesh, (uint32_t)ranks, &why) < 0 ? ms_capi_error(&why, err) : 0;
}

/* ---- all of it ------------------------------------------------------------------- */

int ms_capi_spec_init(struct ms_capi_spec *s,
                      const struct muster_cluster_options *o,
                      const struct muster_resources *resources,
                      const struct ms_capi_role *role,
                      struct muster_error *err)
{
    const char *visible = json_string_value(json_object_get(role->told, "visible"));
    Muster__ClusterSpec *m = &s->message;
    int rc;

    if (!(o->num_cpus >= 0 && o->num_cpus < 1e6))
        return muster_error_set(err, -EINVAL, NULL, "num_cpus must not be negative");
    rc = set_place(s, o, resources, err);
    if (rc < 0)
        return rc;
    if (set_worker(s, o, role) < 0)
        return ms_capi_no_memory(err);
    rc = set_step(s, o, role);
    if (rc < 0)
        return muster_error_set(err,
                                rc,
                                NULL,
                                "the constructor's arguments cannot be sent: %s",
                                strerror(-rc));
    muster__cluster_spec__init(m);
    m->name = ms_capi_text(o->name);
    m->place = &s->place;
    m->worker = &s->worker;
    m->detached = o->detached;
    m->steps = s->steps;
    m->n_steps = 1;
    m->step_timeout_ns = o->start_timeout_ns > 0 ? (uint64_t)o->start_timeout_ns : 0;
    if (visible && strcmp(visible, "node") == 0)
        m->visible = MUSTER__VISIBLE__VISIBLE_NODE;
    return set_mesh(s, role, err);
}

void ms_capi_spec_finish(struct ms_capi_spec *s)
{
    free(s->module);
    free(s->folder);
    free(s->preload);
    free(s->argument.data);
    free(s->seats);
    free(s->seat_list);
    free(s->devices);
}
