/* file_generation.c - the key `generation` of a job: settings of its schedulers
 *
 * Drivers take them from the job's JSON (ms_job_roles_json); here they are only checked,
 * where line and column are known.
 */
#include "generate/policy.h"
#include "job/file_impl.h"
#include "job/yaml_json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int check_count(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    uint32_t n;

    (void)out;
    return ms_yaml_to_count(at, &n, err);
}

static int check_amount(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    uint64_t n;

    (void)out;
    return ms_yaml_to_amount(at, &n, err);
}

static int check_seconds(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    uint64_t milli;

    (void)out;
    return ms_yaml_to_milli(at, &milli, err);
}

static int check_least_one(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    uint32_t n = 0;
    int rc = ms_yaml_to_count(at, &n, err);

    (void)out;
    return rc < 0 || n ? rc : ms_yaml_fail(at, err, "more than 0 is wanted here");
}

static int check_path(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    char *text = NULL;
    int rc = ms_yaml_to_text(at, &text, err);

    (void)out;
    free(text);
    return rc;
}

static int check_policy(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    const char *text = ms_yaml_text(at);

    (void)out;
    if (text && ms_policy_find(text))
        return 0;
    return ms_yaml_fail(at, err, "'policy' must be auto, longest or fifo");
}

static int check_failed(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    const char *text = ms_yaml_text(at);

    (void)out;
    if (text && (!strcmp(text, "raise") || !strcmp(text, "skip")))
        return 0;
    return ms_yaml_fail(at, err, "'failed' must be raise or skip");
}

static int check_share(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    uint64_t milli = 0;
    int rc = ms_yaml_to_milli(at, &milli, err);

    (void)out;
    if (rc < 0 || (milli > 0 && milli <= 1000))
        return rc;
    return ms_yaml_fail(at, err, "above 0 and at most 1 is wanted here");
}

/* The options of muster.generate.Scheduler that a file can say. */
static const struct ms_yaml_field generation_fields[] = {
    {"slots", check_least_one, 0, false},
    {"kv_tokens", check_count, 0, false},
    {"policy", check_policy, 0, false},
    {"history", check_path, 0, false},
    {"history_prompts", check_amount, 0, false},
    {"max_staleness", check_count, 0, false},
    {"batch", check_count, 0, false},
    {"chunk", check_count, 0, false},
    {"failed", check_failed, 0, false},
    {"silence", check_seconds, 0, false},
    {"probe", check_seconds, 0, false},
    {"poison", check_least_one, 0, false},
    {"rebalance", check_seconds, 0, false},
    {"session_ttl", check_seconds, 0, false},
    {"ageing", check_seconds, 0, false},
    {"max_bias", check_share, 0, false},
    {"seed", check_amount, 0, false},
    {0},
};

int ms_job_read_generation(struct ms_yaml_at at, void *out, struct ms_error *err)
{
    struct ms_job *job = out;
    int rc;

    if (!ms_yaml_is_map(at))
        return ms_yaml_fail(at, err, "'generation' must be a map of settings");
    rc = ms_yaml_map(at, "'generation'", generation_fields, job, err);
    if (rc < 0)
        return rc;
    job->generation = ms_yaml_json(at, err);
    return job->generation ? 0 : -EINVAL;
}
