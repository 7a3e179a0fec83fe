/* file_roles.c - the key `roles` of a job */
#include "base/cleanup.h"
#include "base/limits.h"
#include "base/name.h"
#include "job/file_impl.h"
#include "job/yaml_json.h"
#include "resource/mapping.h"

#include <assert.h>
#include <errno.h>
#include <stddef.h>
#include <string.h>

#define ROLE(field) offsetof(struct ms_job_role, field)

/* ---- device mappings ------------------------------------------------------------- */

static int
read_id_list(struct ms_job_role *r, struct ms_yaml_at at, struct ms_error *err)
{
    size_t count = ms_yaml_count(at);
    int rc = 0;

    if (count > MS_MAPPING_IDS_MAX)
        return ms_yaml_fail(at, err, "more than %zu devices", MS_MAPPING_IDS_MAX);
    r->devices = calloc(count + 1, sizeof *r->devices);
    if (!r->devices)
        return ms_error_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < count && rc == 0; i++)
        rc = ms_yaml_to_count(ms_yaml_item(at, i), &r->devices[i], err);
    r->device_count = count;
    return rc;
}

/* "0-7,16", [0, 1, 2], or 3 */
static int read_mapping(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    struct ms_job_role *r = out;
    const char *text = ms_yaml_text(at);

    if (ms_yaml_is_list(at))
        return read_id_list(r, at, err);
    if (!text)
        return ms_yaml_fail(
            at,
            err,
            "a list of device ids or a text such as \"0-7,16\" is wanted here");
    return ms_yaml_blame(
        at, ms_mapping_parse(text, &r->devices, &r->device_count, err), err);
}

/* ---- roles ----------------------------------------------------------------------- */

#define UNSET UINT32_MAX

static const struct ms_yaml_field role_fields[] = {
    {"world_size", ms_job_read_range, ROLE(size), false},
    {"device_mapping", read_mapping, 0, false},
    {"num_gpus_per_worker", ms_yaml_to_count, ROLE(num_gpus_per_worker), false},
    {"num_cpus", ms_yaml_to_milli, ROLE(cpu_milli), false},
    {"memory", ms_yaml_to_size, ROLE(memory), false},
    {"gpu_memory", ms_yaml_to_size, ROLE(gpu_memory), false},
    {"bundle", ms_job_read_bundle, 0, false},
    {"strategy", ms_job_read_strategy, ROLE(strategy), false},
    {"same", ms_yaml_to_text, ROLE(same), false},
    {"worker_cls", ms_job_read_class, ROLE(worker_cls), false},
    {"command", ms_job_read_command, ROLE(command), false},
    {"restart", ms_job_read_restart, ROLE(policy), false},
    {"budget", ms_job_read_budget, ROLE(policy), false},
    {"critical", ms_job_read_critical, ROLE(policy), false},
    {"hang", ms_job_read_hang, ROLE(policy), false},
    {"on_hang", ms_job_read_on_hang, ROLE(policy), false},
    {"heartbeat", ms_job_read_heartbeat, ROLE(policy), false},
    {"memory_growth", ms_job_read_growth, ROLE(policy), false},
    {"args", ms_job_read_list, 0, false},
    {"kwargs", ms_job_read_named, 0, false},
    {"mesh", ms_yaml_to_at, ROLE(mesh), false},
    {"env", ms_job_read_variables, 0, false},
    {"preload", ms_job_read_words, 0, false},
    {"start", ms_job_read_start, 0, false},
    {"python", ms_job_read_words, 0, false},
    {"working_dir", ms_job_read_words, 0, false},
    {"visible", ms_job_read_visible, 0, false},
    {"http_open", ms_job_read_flag, 0, false},
    {"max_concurrency", ms_job_read_some, 0, false},
    {"timeout", ms_job_read_some, 0, false},
    {"start_timeout", ms_job_read_some, 0, false},
    {0},
};

void ms_job_role_finish(struct ms_job_role *r)
{
    free(r->name);
    free(r->worker_cls);
    ms_job_words_free(r->command);
    free(r->devices);
    free(r->same);
    for (size_t i = 0; i < r->bundle.extra_count; i++)
        free((char *)(uintptr_t)r->bundle.extras[i].name);
    free((void *)(uintptr_t)r->bundle.extras);
    free(r->kind);
    free(r->shares);
    ms_selector_finish(&r->selector);
    json_decref(r->told);
}

static bool has_key(struct ms_yaml_at map, const char *key)
{
    for (size_t i = 0; i < ms_yaml_count(map); i++) {
        const char *text = ms_yaml_text(ms_yaml_key(map, i));

        if (text && strcmp(text, key) == 0)
            return true;
    }
    return false;
}

/* By bundles, or by a mapping and numbers: never both. */
static int
check_role(struct ms_yaml_at at, const struct ms_job_role *r, struct ms_error *err)
{
    static const char *const only_bundles[] = {"strategy", "same"};
    static const char *const never_bundles[] = {
        "device_mapping", "num_gpus_per_worker", "num_cpus", "memory", "gpu_memory"};
    const char *const *wrong = r->has_bundle ? never_bundles : only_bundles;
    size_t count = r->has_bundle ? MS_COUNT(never_bundles) : MS_COUNT(only_bundles);

    for (size_t i = 0; i < count; i++)
        if (has_key(at, wrong[i]))
            return ms_yaml_fail(at,
                                err,
                                "role '%s': '%s' is for roles %s 'bundle'",
                                r->name,
                                wrong[i],
                                r->has_bundle ? "without" : "with a");
    return 0;
}

/* What a range of sizes, a command and a class exclude. */
static int
check_policy(struct ms_yaml_at at, const struct ms_job_role *r, struct ms_error *err)
{
    static const char *const of_classes[] = {
        "args", "kwargs", "max_concurrency", "preload", "start", "worker_cls"};
    static const char *const of_ours[] = {
        "restart", "budget", "critical", "hang", "on_hang", "heartbeat"};
    bool is_elastic = r->size.max > r->size.min;

    for (size_t i = 0; r->command && i < MS_COUNT(of_classes); i++)
        if (has_key(at, of_classes[i]))
            return ms_yaml_fail(at,
                                err,
                                "role '%s': '%s' is for workers with a class, and it "
                                "has a 'command'",
                                r->name,
                                of_classes[i]);
    for (size_t i = 0; !ms_job_role_is_ours(r) && i < MS_COUNT(of_ours); i++)
        if (has_key(at, of_ours[i]))
            return ms_yaml_fail(at,
                                err,
                                "role '%s': '%s' is for roles with 'worker_cls' or "
                                "'command': this one is created by the driver",
                                r->name,
                                of_ours[i]);
    if (has_key(at, "on_hang") && !r->policy.hang_s)
        return ms_yaml_fail(at, err, "role '%s': 'on_hang' without 'hang'", r->name);
    if (is_elastic && r->device_count)
        return ms_yaml_fail(at,
                            err,
                            "role '%s': a 'device_mapping' has one size: say "
                            "'num_gpus_per_worker' alone, or one 'world_size'",
                            r->name);
    if (is_elastic && !ms_job_role_is_ours(r))
        return ms_yaml_fail(at,
                            err,
                            "role '%s': \"min:max\" is for roles with 'worker_cls' or "
                            "'command': this one is created by the driver",
                            r->name);
    if (r->policy.memory_growth_milli > 1000 && !r->memory && !r->bundle.memory)
        return ms_yaml_fail(
            at, err, "role '%s': 'memory_growth' without 'memory'", r->name);
    return 0;
}

bool ms_job_role_is_ours(const struct ms_job_role *r)
{
    return r->worker_cls || r->command;
}

/* Drivers are told what a cluster is made of; the rest is for the controller. */
static int tell(struct ms_job_role *r, struct ms_yaml_at at, struct ms_error *err)
{
    static const char *const ours[] = {"restart",
                                       "budget",
                                       "critical",
                                       "hang",
                                       "on_hang",
                                       "heartbeat",
                                       "memory_growth",
                                       "command"};

    r->told = ms_yaml_json(at, err);
    if (!r->told)
        return -EINVAL;
    for (size_t i = 0; i < MS_COUNT(ours); i++)
        json_object_del(r->told, ours[i]);
    if (r->size.min &&
        json_object_set_new(r->told, "world_size", json_integer(r->size.min)) < 0)
        return ms_error_set(err, -ENOMEM, "out of memory");
    return 0;
}

uint32_t ms_job_role_ranks(const struct ms_job_role *r)
{
    uint32_t each = r->num_gpus_per_worker ? r->num_gpus_per_worker : 1;

    if (r->world_size || !r->device_count)
        return r->world_size ? r->world_size : 1;
    return (uint32_t)r->device_count / each;
}

static int read_role(struct ms_job *job,
                     struct ms_yaml_at key,
                     struct ms_yaml_at at,
                     struct ms_error *err)
{
    const char *name = ms_yaml_text(key);
    struct ms_job_role *r = &job->roles[job->role_count];
    char what[MS_NAME_MAX + 16];
    int rc;

    name = name ? name : "";
    rc = ms_yaml_blame(key, ms_name_check(name, "role", err), err);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < job->role_count; i++) {
        assert(job->roles[i].name);
        if (strcmp(job->roles[i].name, name) == 0)
            return ms_yaml_fail(key, err, "there are two roles '%s'", name);
    }
    *r = (struct ms_job_role){
        .name = strdup(name), .at = ms_yaml_mark(key), .num_gpus_per_worker = UNSET};
    ms_job_policy_init(&r->policy);
    if (!r->name)
        return ms_error_set(err, -ENOMEM, "out of memory");
    job->role_count++;
    snprintf(what, sizeof what, "role '%s'", name);
    rc = ms_yaml_map(at, what, role_fields, r, err);
    if (rc < 0)
        return rc;
    r->world_size = r->size.min;
    if (r->num_gpus_per_worker == UNSET)
        r->num_gpus_per_worker = r->device_count > 0;
    rc = check_role(at, r, err);
    if (rc == 0)
        rc = check_policy(at, r, err);
    if (rc == 0 && r->mesh.yaml)
        rc = ms_job_check_mesh(r->mesh, ms_job_role_ranks(r), err);
    return rc < 0 ? rc : tell(r, at, err);
}

json_t *ms_job_roles_json(const struct ms_job *job, const char *file)
{
    json_t *roles = json_object();

    for (size_t i = 0; i < job->role_count; i++)
        if (json_object_set(roles, job->roles[i].name, job->roles[i].told) < 0) {
            json_decref(roles);
            return NULL;
        }
    return json_pack("{s:s, s:o, s:O*}",
                     "file",
                     file,
                     "roles",
                     roles,
                     "generation",
                     job->generation);
}

int ms_job_read_roles(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    struct ms_job *job = out;
    size_t count = ms_yaml_count(at);
    int rc = 0;

    if (!ms_yaml_is_map(at))
        return ms_yaml_fail(at, err, "'roles' must be a map of names and roles");
    if (count > MS_JOB_ROLES_MAX)
        return ms_yaml_fail(at, err, "more than %zu roles", MS_JOB_ROLES_MAX);
    job->roles = calloc(count + 1, sizeof *job->roles);
    if (!job->roles)
        return ms_error_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < count && rc == 0; i++)
        rc = read_role(job, ms_yaml_key(at, i), ms_yaml_value(at, i), err);
    for (size_t i = 0; i < count && rc == 0; i++)
        rc = ms_job_share_bundles(job, &job->roles[i], ms_yaml_value(at, i), err);
    return rc;
}
