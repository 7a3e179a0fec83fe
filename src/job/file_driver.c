#include "base/name.h"
#include "job/file_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ms_job_words_free(char **words)
{
    for (size_t i = 0; words && words[i]; i++)
        free(words[i]);
    free(words);
}

int ms_job_read_name(struct ms_job *job, struct ms_yaml_at at, struct ms_error *err)
{
    struct ms_error why = {0};
    int rc = ms_yaml_to_text(at, &job->name, err);

    if (rc == 0 && ms_name_check(job->name, "job", &why) < 0)
        rc = ms_yaml_blame(at, &why, err);
    return rc;
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

int ms_job_read_driver(struct ms_job *job, struct ms_yaml_at at, struct ms_error *err)
{
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

/* What `muster run` itself tells the driver. */
static bool is_ours(const char *name)
{
    return strcmp(name, "MUSTER_ADDRESS") == 0 ||
           strcmp(name, "MUSTER_SECRET_FILE") == 0;
}

int ms_job_read_env(struct ms_job *job, struct ms_yaml_at at, struct ms_error *err)
{
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
