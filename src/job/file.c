/* file.c - read a job's description: its name, driver and environment */
#include "job/file.h"
#include "base/cleanup.h"
#include "base/name.h"
#include "job/file_impl.h"
#include "resource/shape.h"

#include <errno.h>
#include <stddef.h>
#include <string.h>

static int read_name(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    struct ms_job *job = out;
    int rc = ms_yaml_to_text(at, &job->name, err);

    job->name_at = ms_yaml_mark(at);
    return rc < 0 ? rc : ms_yaml_blame(at, ms_name_check(job->name, "job", err), err);
}

static const struct ms_yaml_field driver_fields[] = {
    {"command", ms_job_read_command, offsetof(struct ms_job, driver), true},
    {"budget", ms_job_read_budget, offsetof(struct ms_job, driver_policy), false},
    {"hang", ms_job_read_hang, offsetof(struct ms_job, driver_policy), false},
    {"heartbeat", ms_job_read_heartbeat, offsetof(struct ms_job, driver_policy), false},
    {0},
};

/* A command, or a map with one. */
static int read_driver(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    struct ms_job *job = out;

    if (ms_yaml_is_map(at))
        return ms_yaml_map(at, "the driver", driver_fields, job, err);
    if (!ms_yaml_is_list(at) || ms_yaml_count(at) == 0)
        return ms_yaml_fail(
            at, err, "'driver' must be a list of words, such as [python, train.py]");
    return ms_job_read_command(at, &job->driver, err);
}

/* Variables that the driver is given. */
static bool is_ours(const char *name)
{
    static const char *const ours[] = {"MUSTER_ADDRESS",
                                       "MUSTER_SECRET_FILE",
                                       "MUSTER_JOB",
                                       "MUSTER_CHECKPOINT",
                                       "MUSTER_ATTEMPT"};

    for (size_t i = 0; i < MS_COUNT(ours); i++)
        if (strcmp(name, ours[i]) == 0)
            return true;
    return false;
}

static int read_env(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    struct ms_job *job = out;
    size_t count = ms_yaml_count(at);
    int rc = 0;

    if (!ms_yaml_is_map(at))
        return ms_yaml_fail(at, err, "'env' must be a map of names and values");
    if (count > MS_JOB_WORDS_MAX)
        return ms_yaml_fail(at, err, "more than %zu elements", MS_JOB_WORDS_MAX);
    job->env = calloc(count + 1, sizeof(char *));
    if (!job->env)
        return ms_error_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < count && rc == 0; i++) {
        const char *name = ms_yaml_text(ms_yaml_key(at, i));
        const char *value = ms_yaml_text(ms_yaml_value(at, i));

        if (!name || !*name || strchr(name, '='))
            return ms_yaml_fail(ms_yaml_key(at, i), err, "no name of a variable");
        if (is_ours(name))
            return ms_yaml_fail(
                ms_yaml_key(at, i), err, "%s is set by `muster run`", name);
        if (!value)
            return ms_yaml_fail(
                ms_yaml_value(at, i), err, "the value of %s must be a text", name);
        if (asprintf(&job->env[i], "%s=%s", name, value) < 0) {
            job->env[i] = NULL;
            rc = ms_error_set(err, -ENOMEM, "out of memory");
        }
    }
    return rc;
}

static const struct ms_yaml_field job_fields[] = {
    {"name", read_name, 0, false},
    {"nodes", ms_job_read_nodes, 0, false},
    {"roles", ms_job_read_roles, 0, false},
    {"driver", read_driver, 0, false},
    {"env", read_env, 0, false},
    {"timeout", ms_yaml_to_count, offsetof(struct ms_job, timeout_s), false},
    {"on", ms_job_read_on, 0, false},
    {"checkpoint", ms_yaml_to_text, offsetof(struct ms_job, checkpoint), false},
    {"priority", ms_job_read_priority, offsetof(struct ms_job, priority), false},
    {"budget", ms_job_read_own_budget, offsetof(struct ms_job, policy), false},
    {"policy", ms_job_read_rules, offsetof(struct ms_job, rules), false},
    {"check", ms_job_read_check, offsetof(struct ms_job, check), false},
    {"generation", ms_job_read_generation, 0, false},
    {"image", ms_job_read_refused, 0, false},
    {"images", ms_job_read_refused, 0, false},
    {"volumes", ms_job_read_refused, 0, false},
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
    free(job->node_ranges);
    free(job->name);
    free(job->on);
    free(job->source);
    free(job->checkpoint);
    json_decref(job->generation);
    ms_job_words_free(job->driver);
    ms_job_words_free(job->env);
    ms_job_words_free(job->check.command);
    *job = (struct ms_job){0};
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
    int rc;

    *job = (struct ms_job){0};
    ms_job_policy_init(&job->policy);
    ms_job_policy_init(&job->driver_policy);
    ms_job_rules_init(&job->rules);
    if (!y)
        return ms_error_set(err, why.code, "%s", why.text);
    job->source = strdup(name);
    rc = job->source ? ms_yaml_map(ms_yaml_root(y), "a job", job_fields, job, err)
                     : ms_error_set(err, -ENOMEM, "out of memory");
    if (rc < 0)
        ms_job_finish(job);
    return rc;
}

/* The value of a key of the file; false: there is none that is right. */
static bool take(struct ms_job *job,
                 struct ms_yaml_at root,
                 const char *key,
                 ms_yaml_reader *reader)
{
    for (size_t i = 0; i < ms_yaml_count(root); i++) {
        const char *text = ms_yaml_text(ms_yaml_key(root, i));

        if (text && strcmp(text, key) == 0)
            return reader(ms_yaml_value(root, i), job, NULL) == 0;
    }
    return false;
}

void ms_job_read_rest(struct ms_job *job,
                      const char *name,
                      const char *text,
                      size_t len)
{
    MS_CLEANUP(ms_yaml_cleanup)
    struct ms_yaml *y = ms_yaml_read(name, text, len, NULL);

    *job = (struct ms_job){0};
    if (!y || !ms_yaml_is_map(ms_yaml_root(y)))
        return;
    if (!take(job, ms_yaml_root(y), "nodes", ms_job_read_nodes))
        ms_job_finish(job);
    take(job, ms_yaml_root(y), "name", read_name);
    take(job, ms_yaml_root(y), "on", ms_job_read_on);
}

int ms_job_check_on(const struct ms_job *job, const char *on, struct ms_error *err)
{
    static const char *const later[] = {"kubernetes", "slurm"};

    for (size_t i = 0; i < MS_COUNT(later); i++)
        if (strcmp(on, later[i]) == 0)
            return ms_error_set(err, -EINVAL, "on %s: not built yet", on);
    for (size_t i = 0; i < job->node_count; i++)
        if (job->netns[i] && strcmp(on, "local") != 0)
            return ms_error_set(err,
                                -EINVAL,
                                "node %s: 'netns' is for the orchestrator local",
                                job->nodes[i]->name);
    return 0;
}
