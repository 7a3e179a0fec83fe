/* spec.c - the clusters of a job: its roles as the file has them, and its driver */
#include "head/jobs/spec.h"
#include "base/cleanup.h"
#include "base/env.h"
#include "base/name.h"
#include "base/proto.h"
#include "cluster/spec_role.h"
#include "head/head_impl.h"
#include "head/jobs/hosted.h"
#include "head/jobs/machines.h"
#include "plain/value.h"
#include "worker/native/json.h"
#include "worker/native/library.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* What a role is made of, and what only that has. */
struct made {
    struct ms_spec_role role;
    Muster__PlaceCluster place;
    Muster__Scope scope;
    Muster__DriverContext context;
    struct ms_env env, own; /* of the context; of the ranks */
    const char **nodes, **command, **preload, **python;
    char name[MS_NAME_MAX + 1];
    char *library;
    char *interpreter[1];
    struct muster_value *args, *kwargs;
    Muster__PlaceGroup *group;
};

static void made_finish(struct made *m)
{
    ms_env_finish(&m->env);
    ms_env_finish(&m->own);
    free(m->nodes);
    free(m->command);
    free(m->preload);
    free(m->python);
    free(m->library);
    muster_value_destroy(m->args);
    muster_value_destroy(m->kwargs);
    muster__place_group__free_unpacked(m->group, NULL);
}

/* ---- what all of a job's processes start from -------------------------------------- */

/* All of them: a driver on another machine reaches some. */
static int set_address(struct ms_env *env, char *const *addresses)
{
    struct ms_buf text = {0};
    int rc = ms_buf_printf(&text, "MUSTER_ADDRESS=%s", addresses[0]);

    for (size_t i = 1; rc == 0 && addresses[i]; i++)
        rc = ms_buf_printf(&text, ",%s", addresses[i]);
    if (rc == 0)
        rc = ms_env_set(env, ms_buf_str(&text));
    ms_buf_finish(&text);
    return rc;
}

static int set_env(struct made *m, const struct ms_hosted *job)
{
    const struct ms_head *h = job->jobs->head;
    const Muster__DriverContext *told = job->submit->context;
    int rc = told ? ms_env_set_all(&m->env, told->env, told->n_env) : 0;

    for (size_t i = 0; rc == 0 && job->file.env && job->file.env[i]; i++)
        rc = ms_env_set(&m->env, job->file.env[i]);
    if (rc == 0)
        rc = set_address(&m->env, h->addresses);
    if (rc == 0)
        rc = ms_env_printf(&m->env, "MUSTER_SECRET_FILE=%s/secret", h->session.dir);
    return rc == 0 ? ms_env_printf(&m->env, "MUSTER_JOB=%s", job->name) : rc;
}

static const char *python_path(const struct ms_env *e)
{
    static const char name[] = "PYTHONPATH=";

    for (size_t i = 0; i < e->count; i++)
        if (strncmp(e->entries[i], name, sizeof name - 1) == 0)
            return e->entries[i] + sizeof name - 1;
    return NULL;
}

/* Workers find what the driver finds: the job's folder, and that of the driver's script. */
static int set_paths(struct made *m, const struct ms_hosted *job)
{
    const char *script =
        job->file.driver && job->file.driver[0] ? job->file.driver[1] : NULL;
    const char *slash = script ? strrchr(script, '/') : NULL;
    const char *told = python_path(&m->env), *folder = job->submit->folder;
    MS_CLEANUP(ms_cleanup_free) char *before = told ? strdup(told) : NULL;
    MS_CLEANUP(ms_cleanup_free) char *beside = NULL;

    if (told && !before)
        return -ENOMEM;
    if (slash && asprintf(&beside,
                          "%s%s%.*s:",
                          *script == '/' ? "" : folder,
                          *script == '/' ? "" : "/",
                          (int)(slash - script),
                          script) < 0) {
        beside = NULL;
        return -ENOMEM;
    }
    return ms_env_printf(&m->env,
                         "PYTHONPATH=%s%s%s%s",
                         beside ? beside : "",
                         folder,
                         before && *before ? ":" : "",
                         before ? before : "");
}

static int set_context(struct made *m, const struct ms_hosted *job)
{
    static char python[] = "python3";
    const Muster__DriverContext *told = job->submit->context;
    char *const *driver = job->file.driver;
    bool is_python = driver && strstr(driver[0], "python");
    int rc = set_env(m, job);

    if (rc == 0 && !(told && told->n_sys_path))
        rc = set_paths(m, job);
    muster__driver_context__init(&m->context);
    m->context.driver = job->id;
    m->context.working_dir = job->submit->folder;
    m->context.env = m->env.entries;
    m->context.n_env = m->env.count;
    m->interpreter[0] = is_python ? driver[0] : python;
    m->context.python = m->interpreter;
    m->context.n_python = 1;
    if (!is_python && told && told->n_python) {
        m->context.python = told->python;
        m->context.n_python = told->n_python;
    }
    if (told) {
        m->context.sys_path = told->sys_path;
        m->context.n_sys_path = told->n_sys_path;
    }
    return rc;
}

static int set_scope(struct made *m, const struct ms_hosted *job)
{
    m->nodes = ms_machines_trusted(job);
    if (!m->nodes)
        return -ENOMEM;
    muster__scope__init(&m->scope);
    m->scope.nodes = ms_field_strings(m->nodes);
    m->scope.n_nodes = ms_field_count(m->nodes);
    muster__place_cluster__init(&m->place);
    m->place.scope = &m->scope;
    return m->scope.n_nodes ? 0 : -ENODEV;
}

static int
begin(struct made *m, const struct ms_hosted *job, uint32_t role, struct ms_error *err)
{
    int rc;

    ms_env_init(&m->env);
    ms_env_init(&m->own);
    rc = set_context(m, job);
    if (rc == 0)
        rc = set_scope(m, job);
    if (rc == -ENODEV)
        return ms_error_set(err, rc, "none of its nodes is there");
    if (rc < 0)
        return ms_error_set(err, rc, "out of memory");
    ms_hosted_cluster(job, role, m->name);
    m->role = (struct ms_spec_role){.name = m->name,
                                    .folder = job->submit->folder,
                                    .working_dir = job->submit->folder,
                                    .place = &m->place,
                                    .context = &m->context,
                                    .detached = true};
    return 0;
}

static const char *const *words_of(char *const *words)
{
    return (const char *const *)words;
}

/* With the variables of its ranks; rc: how it went so far. */
static Muster__ClusterSpec *build(struct made *m, int rc, struct ms_error *err)
{
    if (rc < 0) {
        if (!err->code)
            ms_error_set(err, rc, "out of memory");
        return NULL;
    }
    m->role.env = words_of(m->own.entries);
    return ms_spec_role_build(&m->role, err);
}

/* ---- the driver -------------------------------------------------------------------- */

Muster__ClusterSpec *
ms_spec_of_driver(const struct ms_hosted *job, uint32_t attempt, struct ms_error *err)
{
    MS_CLEANUP(made_finish) struct made m = {0};
    const char *checkpoint = job->file.checkpoint;
    int rc = begin(&m, job, MS_JOB_DRIVER, err);

    if (rc == 0)
        rc = ms_env_printf(&m.own, "MUSTER_ATTEMPT=%u", attempt);
    if (rc == 0 && checkpoint)
        rc = ms_env_printf(&m.own,
                           "MUSTER_CHECKPOINT=%s%s%s",
                           *checkpoint == '/' ? "" : job->submit->folder,
                           *checkpoint == '/' ? "" : "/",
                           strncmp(checkpoint, "./", 2) == 0 ? checkpoint + 2
                                                             : checkpoint);
    m.role.command = words_of(job->file.driver);
    m.role.is_fixed = true;
    m.place.world_size = 1;
    return build(&m, rc, err);
}

/* ---- the check of nodes ------------------------------------------------------------- */

/* Muster's own command is that of the agent which starts it. Each pair has a word that only
 * its two ranks know, by which they find each other. */
Muster__ClusterSpec *ms_spec_of_check(const struct ms_hosted *job,
                                      const char *cluster,
                                      const char **nodes,
                                      uint32_t count,
                                      struct ms_error *err)
{
    static char own[] = "/proc/self/exe", verb[] = "node-check";
    static char *const words[] = {own, verb, NULL};
    MS_CLEANUP(made_finish) struct made m = {0};
    char *const *command = job->file.check.command;
    Muster__ClusterSpec *spec;
    int rc = begin(&m, job, MS_JOB_DRIVER, err);

    if (rc == 0)
        rc = ms_env_printf(&m.own,
                           "MUSTER_CHECK_TOKEN=%016" PRIx64 "%016" PRIx64,
                           ms_random_id(),
                           ms_random_id());
    if (rc == 0)
        rc = ms_env_printf(&m.own,
                           "MUSTER_CHECK_NODES=%s%s%s",
                           nodes[0],
                           count > 1 ? " " : "",
                           count > 1 ? nodes[1] : "");
    if (!command)
        m.role.working_dir = "/";
    snprintf(m.name, sizeof m.name, "%s", cluster);
    m.role.command = words_of(command ? command : words);
    m.role.is_fixed = true;
    m.scope.nodes = ms_field_strings(nodes);
    m.scope.n_nodes = count;
    m.place.world_size = count;
    spec = build(&m, rc, err);
    if (spec)
        spec->visible = MUSTER__VISIBLE__VISIBLE_NODE;
    return spec;
}

/* ---- a role ------------------------------------------------------------------------ */

static const char *told_text(const struct ms_job_role *r, const char *key)
{
    return json_string_value(json_object_get(r->told, key));
}

/* Its ranks meet through this head under the cluster's name: muster.Rendezvous() and
 * muster.torchrun read the first two. torchrun reads the others, where all ranks of the role
 * start together. What the role's own `env` says goes first. */
static int set_rendezvous(struct made *m, const struct ms_hosted *job, uint32_t role)
{
    const struct ms_job_role *r = ms_hosted_file_role(job, role);
    const struct ms_job_role_spec *spec = ms_job_core_role(job->core, role).spec;
    uint32_t devices =
        r->has_bundle ? r->place->bundle.devices : r->num_gpus_per_worker;
    int rc = ms_env_printf(&m->own, "MUSTER_RENDEZVOUS=%s", m->name);

    if (rc == 0)
        rc = ms_env_printf(&m->own,
                           "MUSTER_RENDEZVOUS_SIZE=%u:%u:%u",
                           spec->min,
                           spec->max,
                           spec->unit);
    if (rc < 0 || !r->command || spec->restart != MS_JOB_RESTART_ROLE)
        return rc;
    rc = ms_env_set(&m->own, "PET_RDZV_BACKEND=muster");
    if (rc == 0)
        rc = ms_env_printf(&m->own, "PET_RDZV_ID=%s", m->name);
    if (rc == 0)
        rc = ms_env_printf(&m->own, "PET_NNODES=%u:%u", spec->min, spec->max);
    if (rc == 0 && devices > 1)
        rc = ms_env_printf(&m->own, "PET_NPROC_PER_NODE=%u", devices);
    return rc;
}

static int set_role_env(struct made *m, const struct ms_job_role *r)
{
    json_t *env = json_object_get(r->told, "env"), *value;
    const char *name;

    json_object_foreach(env, name, value)
    {
        MS_CLEANUP(ms_cleanup_free) char *variable = ms_spec_variable(name, value);

        if (!variable || ms_env_set(&m->own, variable) < 0)
            return -ENOMEM;
    }
    return 0;
}

/* Words of the file, which was checked; not said: none. */
static int take_words(const struct ms_job_role *r, const char *key, const char ***out)
{
    const json_t *told = json_object_get(r->told, key);

    *out = told ? ms_spec_words(told) : NULL;
    return told && !*out ? -ENOMEM : 0;
}

static int
take_value(const struct ms_job_role *r, const char *key, struct muster_value **out)
{
    const json_t *told = json_object_get(r->told, key);
    struct ms_error err = {0};

    *out = told ? ms_value_from_json(told, &err) : NULL;
    return told && !*out ? err.code : 0;
}

/* What the file says of its class. */
static int
set_class(struct made *m, const struct ms_hosted *job, const struct ms_job_role *r)
{
    const char *start = told_text(r, "start");
    int rc = take_words(r, "preload", &m->preload);

    if (rc == 0)
        rc = take_words(r, "python", &m->python);
    if (rc == 0 && json_is_array(json_object_get(r->told, "start")))
        rc = take_words(r, "start", &m->command);
    if (rc == 0)
        rc = take_value(r, "args", &m->args);
    if (rc == 0)
        rc = take_value(r, "kwargs", &m->kwargs);
    m->role.worker_cls = r->worker_cls;
    m->role.library = m->library = ms_library_find(r->worker_cls, job->submit->folder);
    m->role.command = m->command;
    m->role.is_fresh = start && strcmp(start, "exec") == 0;
    m->role.preload = m->preload;
    m->role.python = m->python;
    m->role.args = m->args;
    m->role.kwargs = m->kwargs;
    return rc;
}

uint64_t ms_spec_memory(const struct ms_hosted *job, uint32_t role, uint32_t percent)
{
    const struct ms_job_role *r = ms_hosted_file_role(job, role);
    uint64_t memory = r->has_bundle ? r->place->bundle.memory : r->memory;

    return percent == 0 || percent == 100 ? memory : memory / 100 * percent;
}

/* What its ranks have is what the bundles have. */
static int set_bundles(struct made *m,
                       const struct ms_hosted *job,
                       const struct ms_job_role *r,
                       uint64_t memory)
{
    char before[MS_NAME_MAX + 2];

    snprintf(before, sizeof before, "%s.", job->name);
    m->place.own_group = m->group = ms_job_role_group(r, before, memory);
    m->place.memory = 0;
    m->role.cpu_milli = (uint32_t)r->bundle.cpu_milli;
    return m->group ? 0 : -ENOMEM;
}

static void
set_place(struct made *m, const struct ms_job_role *r, uint32_t count, uint64_t memory)
{
    m->place.world_size = count;
    m->place.devices = r->devices;
    m->place.n_devices = r->device_count;
    m->place.devices_per_worker = r->num_gpus_per_worker;
    m->place.cpu_milli = r->cpu_milli;
    m->place.memory = memory;
    m->place.device_memory = r->gpu_memory;
    m->role.memory = memory;
    m->role.cpu_milli = (uint32_t)r->cpu_milli;
}

Muster__ClusterSpec *ms_spec_of_role(const struct ms_hosted *job,
                                     uint32_t role,
                                     uint32_t count,
                                     uint32_t memory,
                                     struct ms_error *err)
{
    MS_CLEANUP(made_finish) struct made m = {0};
    const struct ms_job_role *r = ms_hosted_file_role(job, role);
    double seconds = json_number_value(json_object_get(r->told, "start_timeout"));
    uint64_t bytes = ms_spec_memory(job, role, memory);
    int rc = begin(&m, job, role, err);

    if (rc == 0)
        rc = set_rendezvous(&m, job, role);
    if (rc == 0)
        rc = set_role_env(&m, r);
    if (rc == 0 && !r->command)
        rc = set_class(&m, job, r);
    if (r->command)
        m.role.command = words_of(r->command);
    if (told_text(r, "working_dir"))
        m.role.working_dir = told_text(r, "working_dir");
    set_place(&m, r, count, bytes);
    if (rc == 0 && r->has_bundle)
        rc = set_bundles(&m, job, r, bytes);
    m.role.told = r->told;
    m.role.step_timeout_ns = (uint64_t)(seconds * 1e9);
    return build(&m, rc, err);
}
