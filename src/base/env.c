/* env.c - an environment under construction */
#include "base/env.h"
#include "base/buf.h"
#include "base/cleanup.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

void ms_env_init(struct ms_env *e)
{
    *e = (struct ms_env){0};
}

void ms_env_finish(struct ms_env *e)
{
    for (size_t i = 0; i < e->count; i++)
        free(e->entries[i]);
    free(e->entries);
    ms_env_init(e);
}

static bool is_named(const char *entry, const char *name, size_t len)
{
    return entry[0] == name[0] && !strncmp(entry, name, len) && entry[len] == '=';
}

static char **find(const struct ms_env *e, const char *name, size_t len)
{
    for (size_t i = 0; i < e->count; i++)
        if (is_named(e->entries[i], name, len))
            return &e->entries[i];
    return NULL;
}

int ms_env_set(struct ms_env *e, const char *entry)
{
    const char *equals = strchr(entry, '=');
    char **at, *copy;

    if (!equals || equals == entry)
        return -EINVAL;
    if (ms_array_reserve(&e->entries, &e->capacity, e->count + 2, sizeof copy) < 0)
        return -ENOMEM;
    copy = strdup(entry);
    if (!copy)
        return -ENOMEM;
    at = find(e, entry, (size_t)(equals - entry));
    if (at) {
        free(*at);
        *at = copy;
    } else {
        e->entries[e->count++] = copy;
        e->entries[e->count] = NULL;
    }
    return 0;
}

int ms_env_set_all(struct ms_env *e, char *const *entries, size_t count)
{
    int rc = 0;

    for (size_t i = 0; i < count && rc == 0; i++)
        rc = ms_env_set(e, entries[i]);
    return rc;
}

int ms_env_set_own(struct ms_env *e)
{
    int rc = 0;

    for (size_t i = 0; environ[i] && rc == 0; i++)
        if (strchr(environ[i], '=') > environ[i])
            rc = ms_env_set(e, environ[i]);
    return rc;
}

int ms_env_inherit(struct ms_env *e, const char *name)
{
    const char *value = getenv(name);

    ms_env_drop(e, name);
    return value ? ms_env_printf(e, "%s=%s", name, value) : 0;
}

int ms_env_printf(struct ms_env *e, const char *fmt, ...)
{
    MS_CLEANUP(ms_cleanup_free) char *entry = NULL;
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vasprintf(&entry, fmt, ap);
    va_end(ap);
    if (n < 0) {
        entry = NULL;
        return -ENOMEM;
    }
    return ms_env_set(e, entry);
}

void ms_env_drop(struct ms_env *e, const char *name)
{
    char **at = find(e, name, strlen(name));

    if (!at)
        return;
    free(*at);
    memmove(at, at + 1, (size_t)(e->entries + e->count - at) * sizeof *at);
    e->count--;
}
