/* role.c - what a job's file says of a role, where a driver leaves it open
 *
 * The rule is that of python/muster/_cluster/role.py, with the same sentences: what the
 * options do not give is as the file says, variables are added to each other, and one error
 * names all in which they differ.
 */
#include "capi/capi.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>

/* ---- the job --------------------------------------------------------------------- */

const char *ms_capi_submitted(void)
{
    const char *name = getenv("MUSTER_JOB");

    return name && *name ? name : NULL;
}

static json_t *ask_job(struct muster_session *s, struct muster_error *err)
{
    Muster__KvGet get = MUSTER__KV_GET__INIT;
    const Muster__KvEntry *entry;
    const char *name = ms_capi_submitted();
    char key[sizeof MS_KV_JOB + MS_NAME_MAX + 2];
    struct ms_head_op *op;
    json_t *job;

    snprintf(key, sizeof key, MS_KV_JOB "%s%s", name ? "/" : "", name ? name : "");
    get.key = key;
    op = ms_capi_done(
        ms_head_request(s->head, MUSTER__DRIVER_TO_HEAD__BODY_KV_GET, &get),
        MS_ANSWER_NS,
        err);
    if (!op)
        return NULL;
    entry = (const Muster__KvEntry *)ms_head_op_message(op);
    job = *entry->key
              ? json_loadb((const char *)entry->value.data, entry->value.len, 0, NULL)
              : json_object();
    ms_head_op_unref(op);
    if (!job)
        muster_error_set(err, -EBADMSG, NULL, "%s: not a job's roles", key);
    return job;
}

/* A head in this process is nobody else's. */
json_t *ms_capi_job(struct muster_session *s, struct muster_error *err)
{
    json_t *job = atomic_load(&s->job), *first = NULL;

    if (job)
        return job;
    job = ms_driver_session_is_joined(s->driver) ? ask_job(s, err) : json_object();
    if (job && !atomic_compare_exchange_strong(&s->job, &first, job)) {
        json_decref(job);
        job = first;
    }
    return job;
}

static void add_no_role(struct ms_capi_role *r)
{
    const char *key, *before = "";
    json_t *role;

    ms_buf_printf(&r->why, "%s has no role '%s'; it has ", r->file, r->name);
    json_object_foreach(r->roles, key, role)
    {
        ms_buf_printf(&r->why, "%s%s", before, key);
        before = ", ";
    }
}

/* The error that is in r->why. */
static int fail(struct ms_capi_role *r, int code, struct muster_error *err)
{
    const char *why = ms_buf_str(&r->why);

    return code == -ENOMEM || !why ? ms_capi_no_memory(err)
                                   : muster_error_set(err, code, NULL, "%s", why);
}

int ms_capi_role_no_class(struct ms_capi_role *r,
                          const char *name,
                          struct muster_error *err)
{
    ms_buf_consume(&r->why, r->why.len);
    ms_buf_printf(&r->why, "cluster '%s': worker_cls is missing: ", name);
    if (r->told)
        ms_buf_printf(&r->why, "%s has none for this role", r->file);
    else if (json_object_size(r->roles) > 0)
        add_no_role(r);
    else
        ms_buf_printf(
            &r->why,
            "no job's file says it here (`muster run job.yaml` starts a driver "
            "with one)");
    return fail(r, -EINVAL, err);
}

bool ms_capi_role_is_controllers(const struct ms_capi_role *r,
                                 const struct muster_cluster_options *o)
{
    return ms_capi_submitted() && json_object_get(r->told, "worker_cls") &&
           strcmp(o->name, r->name) == 0;
}

int ms_capi_role_check_created(struct ms_capi_role *r,
                               const struct muster_cluster_options *given,
                               struct muster_error *err)
{
    size_t told = json_object_size(json_object_get(r->told, "env"));
    bool adds_env = ms_capi_count(given->env) > told;

    if (!adds_env && !given->resources && !given->group)
        return 0;
    ms_buf_consume(&r->why, r->why.len);
    ms_buf_printf(
        &r->why,
        "role '%s' was created by the job's controller, as %s says: %s cannot "
        "be added here. Put it into the file",
        r->name,
        r->file,
        adds_env ? "env" : "resources");
    return fail(r, -EINVAL, err);
}

int ms_capi_role_place(const struct ms_capi_role *r,
                       struct muster_session *session,
                       struct muster_cluster_options *o,
                       struct muster_group **group,
                       struct muster_error *err)
{
    struct muster_group_options wanted = MUSTER_GROUP_OPTIONS;
    struct muster_bundle bundle = r->bundle;

    if (!json_object_get(r->told, "bundle"))
        return 0;
    bundle.count = o->world_size;
    wanted.bundles = &bundle;
    wanted.count = 1;
    wanted.strategy = json_string_value(json_object_get(r->told, "strategy"));
    wanted.same = json_string_value(json_object_get(r->told, "same"));
    o->group = *group = ms_capi_group_create(session, &wanted, true, err);
    return *group ? 0 : -1;
}

/* ---- all of it ------------------------------------------------------------------- */

int ms_capi_role_merge(struct ms_capi_role *r,
                       json_t *job,
                       struct muster_cluster_options *o,
                       struct muster_error *err)
{
    int rc = 0;

    r->name = o->role ? o->role : o->name;
    r->file = ms_capi_text(json_string_value(json_object_get(job, "file")));
    r->roles = json_object_get(job, "roles");
    r->told = json_object_get(r->roles, r->name);
    if (!o->name)
        o->name = o->role;
    if (r->told)
        rc = ms_capi_role_take(r, o);
    else if (o->role && json_object_size(r->roles) > 0) {
        add_no_role(r);
        rc = -ENOENT;
    }
    return rc == 0 ? 0 : fail(r, rc, err);
}

int ms_capi_role_find(struct ms_capi_role *r,
                      struct muster_session *session,
                      struct muster_cluster_options *o,
                      struct muster_error *err)
{
    json_t *job = ms_capi_job(session, err);

    return job ? ms_capi_role_merge(r, job, o, err) : -EIO;
}

static void free_texts(char **texts)
{
    for (size_t i = 0; texts && texts[i]; i++)
        free(texts[i]);
    free(texts);
}

void ms_capi_role_finish(struct ms_capi_role *r)
{
    ms_buf_finish(&r->why);
    free(r->mapping);
    free_texts(r->env);
    free_texts(r->resources);
    free_texts(r->labels);
    free(r->preload);
    free(r->python);
    free(r->command);
    muster_value_destroy(r->args);
    muster_value_destroy(r->kwargs);
}
