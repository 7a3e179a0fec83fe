#include "agent/zygote_key.h"
#include "agent/env.h"
#include "base/cleanup.h"

#include <string.h>

static const char *const always_there[] = {"numpy", "cloudpickle"};

static bool has(char *const *list, size_t count, const char *text)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(list[i], text))
            return true;
    return false;
}

static bool is_always_there(const char *module)
{
    for (size_t i = 0; i < MS_COUNT(always_there); i++)
        if (!strcmp(always_there[i], module))
            return true;
    return false;
}

/* Append a copy to a list that has room. */
static bool add(char **list, size_t *count, const char *text)
{
    list[*count] = strdup(text);
    if (!list[*count])
        return false;
    ++*count;
    return true;
}

static bool fill_python(Muster__ZygoteKey *out,
                        const Muster__ZygoteKey *key,
                        const Muster__DriverContext *context)
{
    size_t count = key->n_python ? key->n_python : context->n_python;
    char **from = key->n_python ? key->python : context->python;

    out->python = calloc(count + 1, sizeof *out->python);
    if (!out->python)
        return false;
    for (size_t i = 0; i < count; i++)
        if (!add(out->python, &out->n_python, from[i]))
            return false;
    return true;
}

static bool add_modules(Muster__ZygoteKey *out, char *const *modules, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!has(out->preload, out->n_preload, modules[i]) &&
            !is_always_there(modules[i]) &&
            !add(out->preload, &out->n_preload, modules[i]))
            return false;
    return true;
}

/* What the driver asks for all its workers is for its own interpreter. */
static bool fill_preload(Muster__ZygoteKey *out,
                         const Muster__ZygoteKey *key,
                         const Muster__DriverContext *context)
{
    size_t common = key->n_python ? 0 : context->n_preload;

    out->preload = calloc(common + key->n_preload + 1, sizeof *out->preload);
    return out->preload && add_modules(out, context->preload, common) &&
           add_modules(out, key->preload, key->n_preload);
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool is_set(char *const *env, size_t count, const char *name)
{
    size_t len = strlen(name);

    for (size_t i = 0; i < count; i++)
        if (!strncmp(env[i], name, len) && env[i][len] == '=')
            return true;
    return false;
}

static bool collect_env(struct ms_env *env,
                        const Muster__ZygoteKey *key,
                        const Muster__DriverContext *context)
{
    static const char threads[] = "OMP_NUM_THREADS";

    for (size_t i = 0; i < key->n_env; i++)
        if (ms_env_set(env, key->env[i]) < 0)
            return false;
    if (!is_set(key->env, key->n_env, threads) &&
        !is_set(context->env, context->n_env, threads))
        return ms_env_printf(env, "%s=1", threads) == 0;
    return true;
}

static bool fill_env(Muster__ZygoteKey *out,
                     const Muster__ZygoteKey *key,
                     const Muster__DriverContext *context)
{
    MS_CLEANUP(ms_env_finish) struct ms_env env = {0};

    if (!collect_env(&env, key, context))
        return false;
    out->env = calloc(env.count + 1, sizeof *out->env);
    if (!out->env)
        return false;
    for (size_t i = 0; i < env.count; i++)
        if (!has(context->env, context->n_env, env.entries[i]) &&
            !add(out->env, &out->n_env, env.entries[i]))
            return false;
    if (out->n_env)
        qsort(out->env, out->n_env, sizeof *out->env, compare);
    return true;
}

Muster__ZygoteKey *ms_zygote_key_normal(const Muster__ZygoteKey *key,
                                        const Muster__DriverContext *context)
{
    Muster__ZygoteKey standard = MUSTER__ZYGOTE_KEY__INIT;
    Muster__ZygoteKey *out = malloc(sizeof *out);

    if (!out)
        return NULL;
    muster__zygote_key__init(out);
    if (!key)
        key = &standard;
    if (fill_python(out, key, context) && fill_preload(out, key, context) &&
        fill_env(out, key, context))
        return out;
    muster__zygote_key__free_unpacked(out, NULL);
    return NULL;
}

static bool same_list(char *const *a, size_t a_count, char *const *b, size_t b_count)
{
    if (a_count != b_count)
        return false;
    for (size_t i = 0; i < a_count; i++)
        if (strcmp(a[i], b[i]) != 0)
            return false;
    return true;
}

bool ms_zygote_key_extends(const Muster__ZygoteKey *key, const Muster__ZygoteKey *base)
{
    if (!same_list(key->python, key->n_python, base->python, base->n_python) ||
        !same_list(key->env, key->n_env, base->env, base->n_env))
        return false;
    for (size_t i = 0; i < base->n_preload; i++)
        if (!has(key->preload, key->n_preload, base->preload[i]))
            return false;
    return true;
}

bool ms_zygote_key_equal(const Muster__ZygoteKey *a, const Muster__ZygoteKey *b)
{
    return a->n_preload == b->n_preload && ms_zygote_key_extends(a, b);
}

size_t ms_zygote_key_missing(const Muster__ZygoteKey *key,
                             const Muster__ZygoteKey *base,
                             char **out)
{
    size_t count = 0;

    for (size_t i = 0; i < key->n_preload; i++)
        if (!has(base->preload, base->n_preload, key->preload[i]))
            out[count++] = key->preload[i];
    return count;
}
