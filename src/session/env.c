/* env.c - the environment that a driver's workers start from */
#include "session/env.h"

#include "base/cleanup.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const char *const never_sent[] = {"MUSTER_SECRET"};
/* What torchrun says of a driver that it has started, beside TORCHELASTIC_*. A worker that
 * believed it would look for the store of its process group in torchrun. */
static const char *const of_torchrun[] = {
    "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_NAME", "ROLE_RANK", "ROLE_WORLD_SIZE"};
static const char elastic[] = "TORCHELASTIC_", run_id[] = "TORCHELASTIC_RUN_ID";
static const char threads[] = "OMP_NUM_THREADS=1";

static bool has_name(const char *entry, const char *name, size_t len)
{
    return strncmp(entry, name, len) == 0 && entry[len] == '=';
}

static bool is_among(const char *entry, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (has_name(entry, names[i], strlen(names[i])))
            return true;
    return false;
}

static bool may_travel(const char *entry, bool by_torchrun)
{
    if (is_among(entry, never_sent, MS_COUNT(never_sent)))
        return false;
    return !by_torchrun || (strncmp(entry, elastic, strlen(elastic)) != 0 &&
                            !is_among(entry, of_torchrun, MS_COUNT(of_torchrun)));
}

char **ms_session_env(const char *const *driver)
{
    size_t count = 0, n = 0;
    bool has_threads = false, by_torchrun = false, failed = false;
    char **env;

    for (; driver[count]; count++)
        by_torchrun |= has_name(driver[count], run_id, strlen(run_id));
    env = calloc(count + 2, sizeof *env);
    if (!env)
        return NULL;
    for (size_t i = 0; !failed && i < count; i++) {
        has_threads |= has_name(driver[i], threads, strcspn(threads, "="));
        if (may_travel(driver[i], by_torchrun))
            failed = !(env[n++] = strdup(driver[i]));
    }
    if (!failed && !has_threads)
        failed = !(env[n] = strdup(threads));
    if (!failed)
        return env;
    ms_session_env_free(env);
    return NULL;
}

void ms_session_env_free(char **env)
{
    for (size_t i = 0; env && env[i]; i++)
        free(env[i]);
    free(env);
}
