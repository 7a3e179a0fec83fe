#include "job/file.h"
#include "base/cleanup.h"
#include "job/file_impl.h"
#include "resource/shape.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

struct top {
    struct ms_yaml_at name, nodes, roles, driver, env;
    uint32_t timeout_s;
};

static const struct ms_yaml_field top_fields[] = {
    {"name", ms_yaml_to_at, offsetof(struct top, name), false},
    {"nodes", ms_yaml_to_at, offsetof(struct top, nodes), false},
    {"roles", ms_yaml_to_at, offsetof(struct top, roles), false},
    {"driver", ms_yaml_to_at, offsetof(struct top, driver), false},
    {"env", ms_yaml_to_at, offsetof(struct top, env), false},
    {"timeout", ms_yaml_to_count, offsetof(struct top, timeout_s), false},
    {0},
};

void ms_job_finish(struct ms_job *job)
{
    for (size_t i = 0; i < job->node_count; i++) {
        ms_shape_destroy(job->nodes[i]);
        free(job->netns[i]);
    }
    for (size_t i = 0; i < job->role_count; i++)
        ms_job_role_finish(&job->roles[i]);
    free(job->nodes);
    free(job->netns);
    free(job->roles);
    free(job->name);
    ms_job_words_free(job->driver);
    ms_job_words_free(job->env);
    *job = (struct ms_job){0};
}

static int read_top(struct ms_job *job, struct ms_yaml_at at, struct ms_error *err)
{
    struct top top = {0};
    int rc = ms_yaml_map(at, "a job", top_fields, &top, err);

    job->timeout_s = top.timeout_s;
    if (rc == 0 && top.nodes.yaml)
        rc = ms_job_read_nodes(job, top.nodes, err);
    if (rc == 0 && top.roles.yaml)
        rc = ms_job_read_roles(job, top.roles, err);
    if (rc == 0 && top.name.yaml)
        rc = ms_job_read_name(job, top.name, err);
    if (rc == 0 && top.driver.yaml)
        rc = ms_job_read_driver(job, top.driver, err);
    if (rc == 0 && top.env.yaml)
        rc = ms_job_read_env(job, top.env, err);
    return rc;
}

static int read_yaml(struct ms_job *job, const struct ms_yaml *y, struct ms_error *err)
{
    int rc;

    *job = (struct ms_job){0};
    rc = read_top(job, ms_yaml_root(y), err);
    if (rc < 0)
        ms_job_finish(job);
    return rc;
}

int ms_job_open(struct ms_job *job, const char *path, struct ms_error *err)
{
    struct ms_error why = {0};
    MS_CLEANUP(ms_yaml_cleanup) struct ms_yaml *y = ms_yaml_open(path, &why);

    if (y)
        return read_yaml(job, y, err);
    return ms_error_set(err, why.code, "%s", why.text);
}

int ms_job_read(struct ms_job *job,
                const char *name,
                const char *text,
                size_t len,
                struct ms_error *err)
{
    struct ms_error why = {0};
    MS_CLEANUP(ms_yaml_cleanup)
    struct ms_yaml *y = ms_yaml_read(name, text, len, &why);

    if (y)
        return read_yaml(job, y, err);
    return ms_error_set(err, why.code, "%s", why.text);
}
