#include "agent/zygote_key.h"
#include "base/cleanup.h"
#include "resource/shape.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- which variables count ------------------------------------------------------- */

/* Of one rank or one process. */
static const char *const own_names[] = {
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "NODE_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "CLUSTER_NAME",
    "WORKER_NAME",
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
};

/* How a driver finds its head, and a worker its package: read after the fork. */
static const char *const session_names[] = {
    "MUSTER_HOME",
    "MUSTER_ADDRESS",
    "MUSTER_SECRET_FILE",
    "MUSTER_PACKAGE",
};

/* What differs between terminals and means nothing to imports. */
static const char *const shell_names[] = {
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

    return !is_among(own_names, MS_COUNT(own_names), entry, len) &&
           !is_among(session_names, MS_COUNT(session_names), entry, len) &&
           !is_among(shell_names, MS_COUNT(shell_names), entry, len) &&
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

/* Append a copy to a list that has room. */
static bool add(char **list, size_t *count, const char *text)
{
    list[*count] = strdup(text);
    if (!list[*count])
        return false;
    ++*count;
    return true;
}

static bool copy_list(char ***out, size_t *n_out, char *const *from, size_t count)
{
    *out = calloc(count + 1, sizeof **out);
    if (!*out)
        return false;
    for (size_t i = 0; i < count; i++)
        if (!add(*out, n_out, from[i]))
            return false;
    return true;
}

static void free_list(char **list, size_t count)
{
    for (size_t i = 0; i < count; i++)
        free(list[i]);
    free(list);
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

static bool fill_python(struct ms_zygote_key *k, const struct ms_zygote_need *need)
{
    bool is_named = need->asked && need->asked->n_python;
    char **from = is_named ? need->asked->python : need->context->python;
    size_t count = is_named ? need->asked->n_python : need->context->n_python;

    return copy_list(&k->python, &k->n_python, from, count);
}

static bool is_always_there(const char *module)
{
    return !strcmp(module, "numpy") || !strcmp(module, "cloudpickle");
}

static bool add_modules(struct ms_zygote_key *k, char *const *modules, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (!has(k->preload, k->n_preload, modules[i]) &&
            !is_always_there(modules[i]) && !add(k->preload, &k->n_preload, modules[i]))
            return false;
    return true;
}

/* What the driver asks for all its workers is for its own interpreter. */
static bool fill_preload(struct ms_zygote_key *k, const struct ms_zygote_need *need)
{
    const Muster__DriverContext *context = need->context;
    bool is_named = need->asked && need->asked->n_python;
    size_t common = is_named ? 0 : context->n_preload;
    size_t own = need->asked ? need->asked->n_preload : 0;

    k->preload = calloc(common + own + 1, sizeof *k->preload);
    return k->preload && add_modules(k, context->preload, common) &&
           (!own || add_modules(k, need->asked->preload, own));
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool is_set(char *const *env, size_t count, const char *entry)
{
    size_t len = strcspn(entry, "=") + 1;

    for (size_t i = 0; i < count; i++)
        if (env[i] && !strncmp(env[i], entry, len))
            return true;
    return false;
}

static bool fill_env(struct ms_zygote_key *k, const struct ms_zygote_need *need)
{
    static const char *const standard[] = {
        "OMP_NUM_THREADS=1", "JE_ARROW_MALLOC_CONF=background_thread:false"};

    k->env = calloc(need->n_env + MS_COUNT(standard) + 1, sizeof *k->env);
    if (!k->env)
        return false;
    for (size_t i = 0; i < need->n_env; i++)
        if (ms_zygote_key_counts(need->env[i], need->shape) &&
            !add(k->env, &k->n_env, need->env[i]))
            return false;
    for (size_t i = 0; i < MS_COUNT(standard); i++)
        if (!is_set(k->env, k->n_env, standard[i]) &&
            !add(k->env, &k->n_env, standard[i]))
            return false;
    qsort(k->env, k->n_env, sizeof *k->env, compare);
    return true;
}

struct ms_zygote_key *ms_zygote_key_create(const struct ms_zygote_need *need)
{
    const Muster__DriverContext *context = need->context;
    bool is_named = need->working_dir && *need->working_dir;
    struct ms_zygote_key *k = calloc(1, sizeof *k);

    if (!k)
        return NULL;
    k->working_dir = strdup(is_named ? need->working_dir : context->working_dir);
    if (k->working_dir && fill_python(k, need) && fill_preload(k, need) &&
        fill_env(k, need) &&
        copy_list(&k->sys_path, &k->n_sys_path, context->sys_path, context->n_sys_path))
        return k;
    ms_zygote_key_destroy(k);
    return NULL;
}

struct ms_zygote_key *ms_zygote_key_copy(const struct ms_zygote_key *from)
{
    struct ms_zygote_key *k = calloc(1, sizeof *k);

    if (!k)
        return NULL;
    k->working_dir = strdup(from->working_dir);
    if (k->working_dir &&
        copy_list(&k->python, &k->n_python, from->python, from->n_python) &&
        copy_list(&k->sys_path, &k->n_sys_path, from->sys_path, from->n_sys_path) &&
        copy_list(&k->env, &k->n_env, from->env, from->n_env) &&
        copy_list(&k->preload, &k->n_preload, from->preload, from->n_preload))
        return k;
    ms_zygote_key_destroy(k);
    return NULL;
}

static void drop_env(struct ms_zygote_key *key, const char *name, size_t len)
{
    size_t kept = 0;

    for (size_t i = 0; i < key->n_env; i++)
        if (!strncmp(key->env[i], name, len) && key->env[i][len] == '=')
            free(key->env[i]);
        else
            key->env[kept++] = key->env[i];
    key->env[kept] = NULL;
    key->n_env = kept;
}

static bool grow_env(struct ms_zygote_key *key)
{
    char **env = realloc(key->env, (key->n_env + 2) * sizeof *env);

    if (env)
        key->env = env;
    return env != NULL;
}

int ms_zygote_key_change_env(struct ms_zygote_key *key, const char *entry)
{
    size_t len = strcspn(entry, "=");

    if (!grow_env(key))
        return -ENOMEM;
    drop_env(key, entry, len);
    if (!entry[len])
        return 0;
    if (!add(key->env, &key->n_env, entry))
        return -ENOMEM;
    key->env[key->n_env] = NULL;
    qsort(key->env, key->n_env, sizeof *key->env, compare);
    return 0;
}

void ms_zygote_key_destroy(struct ms_zygote_key *key)
{
    if (!key)
        return;
    free_list(key->python, key->n_python);
    free_list(key->sys_path, key->n_sys_path);
    free_list(key->env, key->n_env);
    free_list(key->preload, key->n_preload);
    free(key->working_dir);
    free(key);
}

/* ---- keys compared --------------------------------------------------------------- */

bool ms_zygote_key_has_env(const struct ms_zygote_key *key, const char *entry)
{
    return bsearch(&entry, key->env, key->n_env, sizeof *key->env, compare) != NULL;
}

bool ms_zygote_key_extends(const struct ms_zygote_key *key,
                           const struct ms_zygote_key *base)
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

bool ms_zygote_key_equal(const struct ms_zygote_key *a, const struct ms_zygote_key *b)
{
    return a->n_preload == b->n_preload && ms_zygote_key_extends(a, b);
}

size_t ms_zygote_key_missing(const struct ms_zygote_key *key,
                             const struct ms_zygote_key *base,
                             char **out)
{
    size_t count = 0;

    for (size_t i = 0; i < key->n_preload; i++)
        if (!has(base->preload, base->n_preload, key->preload[i]))
            out[count++] = key->preload[i];
    return count;
}
