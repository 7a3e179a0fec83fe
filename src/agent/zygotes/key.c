/* key.c - keys of zygotes: made, changed, compared */
#include "agent/zygotes/key.h"
#include "base/cleanup.h"
#include "base/proto.h"
#include "resource/shape.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- which variables count ------------------------------------------------------- */

static const char *const not_counted[] = {
    /* of one rank or one process */
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "NODE_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "GLOO_SOCKET_IFNAME", /* read when a group is made */
    "NCCL_SOCKET_IFNAME",
    "CLUSTER_NAME",
    "WORKER_NAME",
    "WG_PREFIX", /* verl's groups: another one each time */
    "WG_BACKEND",
    "RAY_LOCAL_WORLD_SIZE", /* and another size */
    "MUSTER_LOCAL_RANK",
    "MUSTER_DEVICE_VARIABLE",
    "MUSTER_VISIBLE_DEVICES",
    "MUSTER_HELPER",
    "MUSTER_HELPERS",
    "MUSTER_INCARNATION",
    "MUSTER_WORKER_UID",
    "MUSTER_CONTROL_FD",
    "MUSTER_LISTEN_FD",
    "MUSTER_LISTEN_TCP_FD",
    "MUSTER_ZYGOTE_FD",
    "MUSTER_SUPERVISOR",
    /* how a driver finds its head, and a worker its package: read after the fork */
    "MUSTER_HOME",
    "MUSTER_ADDRESS",
    "MUSTER_SECRET_FILE",
    "MUSTER_PACKAGE",
    /* what differs between terminals and means nothing to imports */
    "PWD",
    "OLDPWD",
    "SHLVL",
    "_",
    "TERM",
    "COLUMNS",
    "LINES",
    "WINDOWID",
    "SSH_CLIENT",
    "SSH_CONNECTION",
    "SSH_TTY",
    "SSH_AUTH_SOCK",
    "TMUX",
    "TMUX_PANE",
    "STY",
    "XDG_SESSION_ID",
};

static bool
is_among(const char *const *names, size_t count, const char *name, size_t len)
{
    for (size_t i = 0; i < count; i++)
        if (!strncmp(names[i], name, len) && !names[i][len])
            return true;
    return false;
}

static bool tells_devices(const char *name, size_t len, const Muster__NodeShape *shape)
{
    const char *variables[MS_DEVICE_VARIABLES_MAX];
    size_t count = ms_shape_variables(shape, variables);

    return ms_is_device_variable(name, len) || is_among(variables, count, name, len);
}

bool ms_zygote_key_counts(const char *entry, const Muster__NodeShape *shape)
{
    size_t len = strcspn(entry, "=");

    return !is_among(not_counted, MS_COUNT(not_counted), entry, len) &&
           !tells_devices(entry, len, shape);
}

/* ---- lists of texts -------------------------------------------------------------- */

static bool has(char *const *list, size_t count, const char *text)
{
    for (size_t i = 0; i < count; i++)
        if (!strcmp(list[i], text))
            return true;
    return false;
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

/* ---- a key is made --------------------------------------------------------------- */

static bool is_always_there(const char *module)
{
    return !strcmp(module, "numpy") || !strcmp(module, "cloudpickle");
}

static void add_modules(Muster__DriverContext *key, char *const *modules, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!has(key->preload, key->n_preload, modules[i]) &&
            !is_always_there(modules[i]))
            key->preload[key->n_preload++] = modules[i];
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static char **find_variable(char **env, size_t count, const char *entry)
{
    size_t len = strcspn(entry, "=");

    for (size_t i = 0; i < count; i++)
        if (!strncmp(env[i], entry, len) && env[i][len] == '=')
            return &env[i];
    return NULL;
}

static char standard[][64] = {"OMP_NUM_THREADS=1",
                              "JE_ARROW_MALLOC_CONF=background_thread:false"};

static void add_env(Muster__DriverContext *key, const struct ms_zygote_need *need)
{
    for (size_t i = 0; i < need->n_env; i++)
        if (ms_zygote_key_counts(need->env[i], need->shape))
            key->env[key->n_env++] = need->env[i];
    for (size_t i = 0; i < MS_COUNT(standard); i++)
        if (!find_variable(key->env, key->n_env, standard[i]))
            key->env[key->n_env++] = standard[i];
    qsort(key->env, key->n_env, sizeof *key->env, compare);
}

Muster__DriverContext *ms_zygote_key_create(const struct ms_zygote_need *need)
{
    const Muster__DriverContext *context = need->context;
    static const Muster__ZygoteKey nothing = MUSTER__ZYGOTE_KEY__INIT;
    const Muster__ZygoteKey *asked = need->asked ? need->asked : &nothing;
    MS_CLEANUP(ms_cleanup_free)
    char **env = calloc(need->n_env + MS_COUNT(standard), sizeof *env);
    MS_CLEANUP(ms_cleanup_free)
    char **preload = calloc(context->n_preload + asked->n_preload + 1, sizeof *preload);
    Muster__DriverContext key = *context;

    if (!env || !preload)
        return NULL;
    key.driver = 0;
    key.env = env;
    key.preload = preload;
    key.n_env = key.n_preload = 0;
    if (asked->n_python) {
        key.python = asked->python;
        key.n_python = asked->n_python;
    } else { /* what a driver asks for all its workers is for its own interpreter */
        add_modules(&key, context->preload, context->n_preload);
    }
    add_modules(&key, asked->preload, asked->n_preload);
    add_env(&key, need);
    if (need->working_dir && *need->working_dir)
        key.working_dir = (char *)(uintptr_t)need->working_dir;
    return ms_zygote_key_copy(&key);
}

Muster__DriverContext *ms_zygote_key_copy(const Muster__DriverContext *key)
{
    return (Muster__DriverContext *)ms_proto_copy(&key->base);
}

void ms_zygote_key_destroy(Muster__DriverContext *key)
{
    muster__driver_context__free_unpacked(key, NULL);
}

int ms_zygote_key_change_env(Muster__DriverContext *key, const char *entry)
{
    char **old = find_variable(key->env, key->n_env, entry);
    char **env, *copy;

    if (old) {
        free(*old);
        *old = key->env[--key->n_env];
    }
    if (strchr(entry, '=')) {
        env = realloc(key->env, (key->n_env + 1) * sizeof *env);
        copy = strdup(entry);
        if (!env || !copy) {
            key->env = env ? env : key->env;
            free(copy);
            return -ENOMEM;
        }
        key->env = env;
        env[key->n_env++] = copy;
    }
    if (key->n_env)
        qsort(key->env, key->n_env, sizeof *key->env, compare);
    return 0;
}

/* ---- keys compared --------------------------------------------------------------- */

bool ms_zygote_key_has_env(const Muster__DriverContext *key, const char *entry)
{
    return bsearch(&entry, key->env, key->n_env, sizeof *key->env, compare) != NULL;
}

bool ms_zygote_key_extends(const Muster__DriverContext *key,
                           const Muster__DriverContext *base)
{
    if (strcmp(key->working_dir, base->working_dir) != 0 ||
        !same_list(key->python, key->n_python, base->python, base->n_python) ||
        !same_list(key->env, key->n_env, base->env, base->n_env) ||
        !same_list(key->sys_path, key->n_sys_path, base->sys_path, base->n_sys_path))
        return false;
    for (size_t i = 0; i < base->n_preload; i++)
        if (!has(key->preload, key->n_preload, base->preload[i]))
            return false;
    return true;
}

bool ms_zygote_key_equal(const Muster__DriverContext *a, const Muster__DriverContext *b)
{
    return a->n_preload == b->n_preload && ms_zygote_key_extends(a, b);
}

size_t ms_zygote_key_missing(const Muster__DriverContext *key,
                             const Muster__DriverContext *base,
                             char **out)
{
    size_t count = 0;

    for (size_t i = 0; i < key->n_preload; i++)
        if (!has(base->preload, base->n_preload, key->preload[i]))
            out[count++] = key->preload[i];
    return count;
}
