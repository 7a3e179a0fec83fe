/* env.c - the environment that a driver's workers start from */
#include "session/env.h"

#include "base/cleanup.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const char *const never_sent[] = {"MUSTER_SECRET"};
static const char threads[] = "OMP_NUM_THREADS=1";

static bool has_name(const char *entry, const char *name, size_t len)
{
    return strncmp(entry, name, len) == 0 && entry[len] == '=';
}

static bool may_travel(const char *entry)
{
    for (size_t i = 0; i < MS_COUNT(never_sent); i++)
        if (has_name(entry, never_sent[i], strlen(never_sent[i])))
            return false;
    return true;
}

char **ms_session_env(const char *const *driver)
{
    size_t count = 0, n = 0;
    bool has_threads = false, failed = false;
    char **env;

    while (driver[count])
        count++;
    env = calloc(count + 2, sizeof *env);
    if (!env)
        return NULL;
    for (size_t i = 0; !failed && i < count; i++) {
        has_threads |= has_name(driver[i], threads, strcspn(threads, "="));
        if (may_travel(driver[i]))
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
