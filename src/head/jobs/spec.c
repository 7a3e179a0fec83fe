/* spec.c - the clusters of a job: its roles as the file has them, and its driver */
#include "cluster/spec.h"
#include "base/cleanup.h"
#include "base/env.h"
#include "base/name.h"
#include "base/proto.h"
#include "head/head_impl.h"
#include "head/jobs/hosted.h"
#include "head/jobs/machines.h"
#include "head/jobs/spec.h"
#include "plain/value.h"
#include "wire/frame.h"
#include "worker/native/json.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static char engine_name[] = "default";

/* All that the message on the stack borrows. */
struct made {
    Muster__ClusterSpec message;
    Muster__WorkerSpec worker;
    Muster__ZygoteKey zygote;
    Muster__PlaceCluster place;
    Muster__Scope scope;
    Muster__DriverContext context;
    Muster__Step step, *steps[1];
    ProtobufCBinaryData argument;
    struct ms_env env, own; /* of the context; of the ranks */
    const char **nodes, **command, **preload, **python;
    char name[MS_NAME_MAX + 1];
    char *module, *folder, *class;
    char *interpreter[1];
    Muster__PlaceGroup *group;
};

static void made_finish(struct made *m)
{
    ms_env_finish(&m->env);
    ms_env_finish(&m->own);
    free(m->argument.data);
    free(m->nodes);
    free(m->command);
    free(m->preload);
    free(m->python);
    free(m->module);
    free(m->folder);
    free(m->class);
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
    muster__worker_spec__init(&m->worker);
    muster__zygote_key__init(&m->zygote);
    muster__cluster_spec__init(&m->message);
    m->message.name = m->name;
    ms_hosted_cluster(job, role, m->name);
    m->message.worker = &m->worker;
    m->message.place = &m->place;
    m->message.context = &m->context;
    m->message.detached = true;
    m->worker.working_dir = job->submit->folder;
    return 0;
}

static int set_command(struct made *m, char *const *words)
{
    m->worker.start = MUSTER__START_KIND__START_COMMAND;
    m->worker.command = (char **)(uintptr_t)words;
    m->worker.n_command = ms_field_count((const char *const *)words);
    return 0;
}

static Muster__ClusterSpec *copy(const struct made *m, int rc, struct ms_error *err)
{
    Muster__ClusterSpec *spec =
        rc == 0 ? (Muster__ClusterSpec *)ms_proto_copy(&m->message.base) : NULL;

    if (!spec && !err->code)
        ms_error_set(err, rc < 0 ? rc : -ENOMEM, "out of memory");
    return spec;
}

/* ---- the driver -------------------------------------------------------------------- */

Muster__ClusterSpec *
ms_spec_of_driver(const struct ms_hosted *job, uint32_t attempt, struct ms_error *err)
{
    MS_CLEANUP(made_finish) struct made m = {0};
    const char *checkpoint = job->file.checkpoint;
    int rc = begin(&m, job, MS_JOB_DRIVER, err);

    if (rc == 0)
        rc = set_command(&m, job->file.driver);
    if (rc == 0)
        rc = ms_env_printf(&m.own, "MUSTER_ATTEMPT=%u", attempt);
    if (rc == 0 && checkpoint)
        rc = ms_env_printf(&m.own,
                           "MUSTER_CHECKPOINT=%s%s%s",
                           *checkpoint == '/' ? "" : job->submit->folder,
                           *checkpoint == '/' ? "" : "/",
                           strncmp(checkpoint, "./", 2) == 0 ? checkpoint + 2
                                                             : checkpoint);
    m.worker.env = m.own.entries;
    m.worker.n_env = m.own.count;
    m.place.world_size = 1;
    return copy(&m, rc, err);
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
    static char own[] = "/proc/self/exe", verb[] = "node-check", root[] = "/";
    static char *const words[] = {own, verb, NULL};
    MS_CLEANUP(made_finish) struct made m = {0};
    char *const *command = job->file.check.command;
    int rc = begin(&m, job, MS_JOB_DRIVER, err);

    if (rc == 0)
        rc = set_command(&m, command ? command : words);
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
        m.worker.working_dir = root;
    snprintf(m.name, sizeof m.name, "%s", cluster);
    m.worker.env = m.own.entries;
    m.worker.n_env = m.own.count;
    m.message.visible = MUSTER__VISIBLE__VISIBLE_NODE;
    m.scope.nodes = ms_field_strings(nodes);
    m.scope.n_nodes = count;
    m.place.world_size = count;
    return copy(&m, rc, err);
}

/* ---- a role ------------------------------------------------------------------------ */

static const char *told_text(const struct ms_job_role *r, const char *key)
{
    return json_string_value(json_object_get(r->told, key));
}

/* A text or a list of texts, malloc'd; NULL: not said, or out of memory. */
static const char **told_words(const struct ms_job_role *r, const char *key)
{
    const json_t *told = json_object_get(r->told, key);
    size_t n = json_is_array(told) ? json_array_size(told) : 1;
    const char **words = told ? calloc(n + 2, sizeof *words) : NULL;

    for (size_t i = 0; words && i < n; i++)
        words[i] =
            json_string_value(json_is_array(told) ? json_array_get(told, i) : told);
    return words;
}

/* As Python's str() has it: workers of drivers get the same. */
static char *value_text(const json_t *value)
{
    if (json_is_string(value))
        return strdup(json_string_value(value));
    if (json_is_boolean(value))
        return strdup(json_is_true(value) ? "True" : "False");
    return json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15));
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
        MS_CLEANUP(ms_cleanup_free) char *text = value_text(value);

        if (!text || ms_env_printf(&m->own, "%s=%s", name, text) < 0)
            return -ENOMEM;
    }
    m->worker.env = m->own.entries;
    m->worker.n_env = m->own.count;
    return 0;
}

/* The module of the class is imported before the fork, and what was asked for. */
static int set_zygote(struct made *m, const struct ms_job_role *r)
{
    const char **more = m->preload = told_words(r, "preload");
    size_t n = ms_field_count((const char *const *)more);
    const char **all = calloc(n + 2, sizeof *all);
    char *dot;

    m->module = strdup(r->worker_cls);
    if (!all || !m->module) {
        free(all);
        return -ENOMEM;
    }
    dot = strrchr(m->module, strchr(m->module, ':') ? ':' : '.');
    if (dot) {
        *dot = '\0';
        all[m->zygote.n_preload++] = m->module;
    }
    for (size_t i = 0; more && i < n; i++)
        all[m->zygote.n_preload++] = more[i];
    free(more);
    m->preload = all;
    m->zygote.preload = ms_field_strings(all);
    m->python = told_words(r, "python");
    m->zygote.python = ms_field_strings(m->python);
    m->zygote.n_python = ms_field_count(m->python);
    m->worker.zygote = &m->zygote;
    return 0;
}

/* "fork", "exec" or a command. */
static int set_start(struct made *m, const struct ms_job_role *r)
{
    const char *start = told_text(r, "start");

    if (ms_class_is_native(r->worker_cls)) {
        m->worker.start = MUSTER__START_KIND__START_NATIVE;
        return 0;
    }
    m->worker.http_open = json_is_true(json_object_get(r->told, "http_open"));
    m->worker.start = start && strcmp(start, "exec") == 0
                          ? MUSTER__START_KIND__START_EXEC
                          : MUSTER__START_KIND__START_FORK;
    if (json_is_array(json_object_get(r->told, "start"))) {
        m->command = told_words(r, "start");
        if (!m->command)
            return -ENOMEM;
        set_command(m, (char *const *)(uintptr_t)m->command);
    }
    return set_zygote(m, r);
}

/* A library in the job's folder by its full path; others are looked for where the worker
 * is. "module:Class" is "module.Class". */
static char *full_class(const struct ms_hosted *job, const char *worker_cls)
{
    const char *colon = strrchr(worker_cls, ':');
    char *path = NULL, *at;

    if (!ms_class_is_native(worker_cls)) {
        path = strdup(worker_cls);
        if (path && (at = strchr(path, ':')))
            *at = '.';
        return path;
    }
    if (*worker_cls != '/' && asprintf(&path,
                                       "%s/%.*s",
                                       job->submit->folder,
                                       (int)(colon - worker_cls),
                                       worker_cls) >= 0) {
        bool is_there = access(path, F_OK) == 0;

        free(path);
        path = NULL;
        if (is_there && asprintf(&path, "%s/%s", job->submit->folder, worker_cls) >= 0)
            return path;
    }
    return strdup(worker_cls);
}

static void set_value(struct muster_value *spec, const char *key, const json_t *told)
{
    struct muster_value *v = told ? ms_value_from_json(told, NULL) : NULL;

    if (v)
        muster_map_set(spec, key, v);
}

/* The argument of CREATE_ENGINE. */
static struct muster_value *engine_value(const struct made *m,
                                         const struct ms_job_role *r)
{
    struct muster_value *spec = muster_value_map();

    muster_map_set(spec, "name", muster_value_text(engine_name));
    muster_map_set(spec, "cls", muster_value_text(m->class));
    muster_map_set(spec, "args", muster_value_list());
    muster_map_set(spec, "kwargs", muster_value_map());
    set_value(spec, "args", json_object_get(r->told, "args"));
    set_value(spec, "kwargs", json_object_get(r->told, "kwargs"));
    if (ms_class_is_native(r->worker_cls))
        return spec;
    set_value(spec, "max_concurrency", json_object_get(r->told, "max_concurrency"));
    set_value(spec, "mesh", json_object_get(r->told, "mesh"));
    return spec;
}

static int
set_step(struct made *m, const struct ms_hosted *job, const struct ms_job_role *r)
{
    struct muster_value *value;
    struct ms_plain_writer w;
    int rc;

    m->class = full_class(job, r->worker_cls);
    if (!m->class)
        return -ENOMEM;
    value = engine_value(m, r);
    ms_plain_writer_init(&w);
    ms_value_encode(&w, MS_PLAIN_ROOT, value);
    rc = ms_plain_flatten(&w, &m->argument.data, &m->argument.len);
    ms_plain_writer_finish(&w);
    muster_value_destroy(value);
    muster__step__init(&m->step);
    m->step.op = MS_OP_CREATE_ENGINE;
    m->step.engine = engine_name;
    m->step.codec = MS_CODEC_PLAIN;
    m->step.arguments = &m->argument;
    m->step.n_arguments = 1;
    m->steps[0] = &m->step;
    m->message.steps = m->steps;
    m->message.n_steps = 1;
    return rc;
}

static bool has_fixed_mesh(const struct ms_job_role *r)
{
    static const char *const fixed[] = {"tp", "cp", "pp", "ep"};
    json_t *mesh = json_object_get(r->told, "mesh");

    for (size_t i = 0; i < MS_COUNT(fixed); i++)
        if (json_integer_value(json_object_get(mesh, fixed[i])) > 1)
            return true;
    return false;
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
    m->worker.cpu_milli = (uint32_t)r->bundle.cpu_milli;
    return m->group ? 0 : -ENOMEM;
}

static void
set_place(struct made *m, const struct ms_job_role *r, uint32_t count, uint64_t memory)
{
    const char *visible = told_text(r, "visible");

    m->place.world_size = count;
    m->place.devices = r->devices;
    m->place.n_devices = r->device_count;
    m->place.devices_per_worker = r->num_gpus_per_worker;
    m->place.cpu_milli = r->cpu_milli;
    m->place.memory = memory;
    m->place.device_memory = r->gpu_memory;
    m->worker.memory_limit = m->place.memory;
    m->worker.cpu_milli = (uint32_t)r->cpu_milli;
    m->message.can_resize = !has_fixed_mesh(r);
    if (visible && strcmp(visible, "node") == 0)
        m->message.visible = MUSTER__VISIBLE__VISIBLE_NODE;
}

static int
set_folder(struct made *m, const struct ms_hosted *job, const struct ms_job_role *r)
{
    const char *folder = told_text(r, "working_dir");

    if (!folder)
        return 0;
    if (asprintf(&m->folder,
                 "%s%s%s",
                 *folder == '/' ? "" : job->submit->folder,
                 *folder == '/' ? "" : "/",
                 folder) < 0) {
        m->folder = NULL;
        return -ENOMEM;
    }
    m->worker.working_dir = m->folder;
    return 0;
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
    if (rc == 0)
        rc = r->command ? set_command(&m, r->command) : set_start(&m, r);
    if (rc == 0 && !r->command)
        rc = set_step(&m, job, r);
    if (rc == 0)
        rc = set_folder(&m, job, r);
    set_place(&m, r, count, bytes);
    if (rc == 0 && r->has_bundle)
        rc = set_bundles(&m, job, r, bytes);
    m.message.step_timeout_ns = (uint64_t)(seconds * 1e9);
    return copy(&m, rc, err);
}
