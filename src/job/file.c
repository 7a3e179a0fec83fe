/* file.c - read a job's description: its name, driver and environment */
#include "job/file.h"
#include "base/cleanup.h"
#include "base/name.h"
#include "job/file_impl.h"
#include "resource/shape.h"

#include <errno.h>
#include <string.h>

static void words_free(char **words)
{
    for (size_t i = 0; words && words[i]; i++)
        free(words[i]);
    free(words);
}

static int read_name(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    struct ms_job *job = out;
    int rc = ms_yaml_to_text(at, &job->name, err);

    return rc < 0 ? rc : ms_yaml_blame(at, ms_name_check(job->name, "job", err), err);
}

/* Room for all words; NULL: out of memory. */
static int make_words(char ***out, struct ms_yaml_at at, struct ms_error *err)
{
    size_t count = ms_yaml_count(at);

    if (count > MS_JOB_WORDS_MAX)
        return ms_yaml_fail(at, err, "more than %zu elements", MS_JOB_WORDS_MAX);
    *out = calloc(count + 1, sizeof(char *));
    return *out ? 0 : ms_error_set(err, -ENOMEM, "out of memory");
}

static int read_driver(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    struct ms_job *job = out;
    int rc;

    if (!ms_yaml_is_list(at) || ms_yaml_count(at) == 0)
        return ms_yaml_fail(
            at, err, "'driver' must be a list of words, such as [python, train.py]");
    rc = make_words(&job->driver, at, err);
    for (size_t i = 0; i < ms_yaml_count(at) && rc == 0; i++) {
        struct ms_yaml_at item = ms_yaml_item(at, i);
        const char *text = ms_yaml_text(item);

        if (!text || (i == 0 && !*text))
            return ms_yaml_fail(item, err, "a word of 'driver' must be a text");
        job->driver[i] = strdup(text);
        if (!job->driver[i])
            rc = ms_error_set(err, -ENOMEM, "out of memory");
    }
    return rc;
}

/* Variables that `muster run` sets for the driver. */
static bool is_ours(const char *name)
{
    return strcmp(name, "MUSTER_ADDRESS") == 0 ||
           strcmp(name, "MUSTER_SECRET_FILE") == 0;
}

static int read_env(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    struct ms_job *job = out;
    int rc;

    if (!ms_yaml_is_map(at))
        return ms_yaml_fail(at, err, "'env' must be a map of names and values");
    rc = make_words(&job->env, at, err);
    for (size_t i = 0; i < ms_yaml_count(at) && rc == 0; i++) {
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
    words_free(job->driver);
    words_free(job->env);
    *job = (struct ms_job){0};
}

static int read_yaml(struct ms_job *job,
                     const struct ms_yaml *y,
                     const struct ms_error *why,
                     struct ms_error *err)
{
    int rc;

    *job = (struct ms_job){0};
    if (!y)
        return ms_error_set(err, why->code, "%s", why->text);
    rc = ms_yaml_map(ms_yaml_root(y), "a job", job_fields, job, err);
    if (rc < 0)
        ms_job_finish(job);
    return rc;
}

int ms_job_open(struct ms_job *job, const char *path, struct ms_error *err)
{
    struct ms_error why = {0};
    MS_CLEANUP(ms_yaml_cleanup) struct ms_yaml *y = ms_yaml_open(path, &why);

    return read_yaml(job, y, &why, err);
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

    return read_yaml(job, y, &why, err);
}
