/* role_keys.c - the keys of a role, each beside the option of a cluster that it is */
#include "base/size.h"
#include "capi/capi.h"
#include "cluster/spec_role.h"
#include "resource/mapping.h"
#include "worker/native/json.h"

#include <errno.h>
#include <math.h>
#include <string.h>

/* ---- one key --------------------------------------------------------------------- */

/* `quote` stands around both values. */
static void add_difference(struct ms_capi_role *r,
                           const char *key,
                           const char *quote,
                           const char *here,
                           const char *there)
{
    ms_buf_printf(&r->why,
                  "%s%s is %s%s%s here and %s%s%s there",
                  r->differences++ ? "; " : "",
                  key,
                  quote,
                  here,
                  quote,
                  quote,
                  there,
                  quote);
}

static void add_numbers(struct ms_capi_role *r, const char *key, double a, double b)
{
    char here[32], there[32];

    snprintf(here, sizeof here, "%.15g", a);
    snprintf(there, sizeof there, "%.15g", b);
    add_difference(r, key, "", here, there);
}

/* Both are taken; NULL: out of memory. */
static int
compare_json(struct ms_capi_role *r, const char *key, json_t *here, json_t *there)
{
    MS_CLEANUP(ms_cleanup_free) char *a = json_dumps(here, JSON_COMPACT);
    MS_CLEANUP(ms_cleanup_free) char *b = json_dumps(there, JSON_COMPACT);
    bool is_same = json_equal(here, there);

    json_decref(here);
    json_decref(there);
    if (!a || !b)
        return -ENOMEM;
    if (!is_same)
        add_difference(r, key, "", a, b);
    return 0;
}

/* Take what is told into an option that is not given, else compare: 0, -EINVAL (no such
 * value), -ENOMEM. */
typedef int taker(struct ms_capi_role *r, const char *key, json_t *told, void *option);

static int
take_text(struct ms_capi_role *r, const char *key, json_t *told, void *option)
{
    const char *there = json_string_value(told), **here = option;

    if (there && *here && strcmp(*here, there) != 0)
        add_difference(r, key, "'", *here, there);
    if (!*here)
        *here = there;
    return there ? 0 : -EINVAL;
}

/* "module:Class" is "module.Class". */
static int
take_class(struct ms_capi_role *r, const char *key, json_t *told, void *option)
{
    const char *there = json_string_value(told), **here = option;
    size_t i = 0;

    if (!there)
        return -EINVAL;
    while (*here && (*here)[i] &&
           ((*here)[i] == there[i] || ((*here)[i] == ':' && there[i] == '.') ||
            ((*here)[i] == '.' && there[i] == ':')))
        i++;
    if (*here && ((*here)[i] || there[i]))
        add_difference(r, key, "", *here, there);
    if (!*here)
        *here = there;
    return 0;
}

static int
take_count(struct ms_capi_role *r, const char *key, json_t *told, void *option)
{
    json_int_t there = json_integer_value(told);
    uint32_t *here = option;

    if (!json_is_integer(told) || there < 0 || there > UINT32_MAX)
        return -EINVAL;
    if (*here && *here != (uint32_t)there)
        add_numbers(r, key, *here, (double)there);
    if (!*here)
        *here = (uint32_t)there;
    return 0;
}

static int
take_real(struct ms_capi_role *r, const char *key, json_t *told, void *option)
{
    double there = json_number_value(told), *here = option;

    if (!json_is_number(told) || there < 0)
        return -EINVAL;
    if (*here != 0 && *here != there)
        add_numbers(r, key, *here, there);
    if (*here == 0)
        *here = there;
    return 0;
}

/* A number of them, or a text such as "2GB". */
static int read_bytes(json_t *told, uint64_t *bytes)
{
    double number = json_number_value(told);

    if (json_is_string(told))
        return ms_size_parse(json_string_value(told), bytes);
    if (!json_is_number(told) || !(number >= 0 && number < 0x1p63))
        return -EINVAL;
    *bytes =
        json_is_integer(told) ? (uint64_t)json_integer_value(told) : (uint64_t)number;
    return 0;
}

static int
take_bytes(struct ms_capi_role *r, const char *key, json_t *told, void *option)
{
    uint64_t there, *here = option;

    if (read_bytes(told, &there) < 0)
        return -EINVAL;
    if (*here && *here != there)
        add_numbers(r, key, (double)*here, (double)there);
    if (!*here)
        *here = there;
    return 0;
}

static int
take_seconds(struct ms_capi_role *r, const char *key, json_t *told, void *option)
{
    double seconds = json_number_value(told);
    int64_t *here = option, there;

    if (!json_is_number(told) || !(seconds > 0))
        return -EINVAL;
    there = (int64_t)(fmin(seconds, MS_CAPI_SECONDS_MAX) * 1e9 + 0.5);
    if (*here && *here != there)
        add_numbers(r, key, (double)*here / 1e9, seconds);
    if (!*here)
        *here = there;
    return 0;
}

static bool is_same_mapping(const char *a, const uint32_t *ids, size_t count)
{
    MS_CLEANUP(ms_cleanup_free) uint32_t *others = NULL;
    size_t n;

    return ms_mapping_parse(a, &others, &n, NULL) == 0 && n == count &&
           (n == 0 || memcmp(others, ids, n * sizeof *ids) == 0);
}

/* A text, a list of ids or a single one. */
static int
take_mapping(struct ms_capi_role *r, const char *key, json_t *told, void *option)
{
    MS_CLEANUP(ms_cleanup_free) uint32_t *ids = NULL;
    const char **here = option;
    size_t count;

    r->mapping = json_is_string(told)
                     ? strdup(json_string_value(told))
                     : json_dumps(told, JSON_COMPACT | JSON_ENCODE_ANY);
    if (!r->mapping)
        return -ENOMEM;
    if (ms_mapping_parse(r->mapping, &ids, &count, NULL) < 0)
        return -EINVAL;
    if (*here && !is_same_mapping(*here, ids, count))
        add_difference(r, key, "'", *here, r->mapping);
    if (!*here)
        *here = r->mapping;
    return 0;
}

/* A text or a list of texts; -EINVAL: neither. */
static int read_words(json_t *told, const char ***words)
{
    if (!json_is_string(told) && !json_is_array(told))
        return -EINVAL;
    *words = ms_spec_words(told);
    return *words ? 0 : -EINVAL;
}

static json_t *json_of_words(const char *const *words)
{
    json_t *array = json_array();

    for (size_t i = 0; words[i]; i++)
        json_array_append_new(array, json_string(words[i]));
    return array;
}

static int
take_preload(struct ms_capi_role *r, const char *key, json_t *told, void *option)
{
    const char *const **here = option;
    int rc = read_words(told, &r->preload);

    if (rc == 0 && *here)
        rc = compare_json(r, key, json_of_words(*here), json_of_words(r->preload));
    if (!*here)
        *here = r->preload;
    return rc;
}

static int
take_python(struct ms_capi_role *r, const char *key, json_t *told, void *option)
{
    (void)key;
    (void)option;
    return read_words(told, &r->python);
}

/* "fork", "exec" or a command. */
static int
take_start(struct ms_capi_role *r, const char *key, json_t *told, void *option)
{
    const char *there = json_string_value(told);
    bool *exec = option;

    if (there && strcmp(there, "fork") != 0 && strcmp(there, "exec") != 0)
        return -EINVAL;
    if (*exec && !there)
        add_difference(r, key, "", "'exec'", "a command");
    else if (*exec && strcmp(there, "exec") != 0)
        add_difference(r, key, "'", "exec", there);
    if (there)
        *exec = *exec || strcmp(there, "exec") == 0;
    return there ? 0 : read_words(told, &r->command);
}

static int take_value(struct ms_capi_role *r,
                      const char *key,
                      json_t *told,
                      const struct muster_value **here,
                      struct muster_value **made)
{
    struct ms_error err = {0};
    json_t *json = NULL;
    int rc;

    if (*here) {
        rc = ms_value_to_json(*here, &json);
        return rc < 0 ? rc : compare_json(r, key, json, json_incref(told));
    }
    *here = *made = ms_value_from_json(told, &err);
    return *here ? 0 : err.code;
}

static int
take_args(struct ms_capi_role *r, const char *key, json_t *told, void *option)
{
    return json_is_array(told) ? take_value(r, key, told, option, &r->args) : -EINVAL;
}

static int
take_kwargs(struct ms_capi_role *r, const char *key, json_t *told, void *option)
{
    return json_is_object(told) ? take_value(r, key, told, option, &r->kwargs)
                                : -EINVAL;
}

/* ---- variables ------------------------------------------------------------------- */

/* Room for `more` behind them. */
static int read_pairs(json_t *told, size_t more, char ***pairs)
{
    size_t n = 0;
    const char *key;
    json_t *value;

    if (!json_is_object(told))
        return -EINVAL;
    *pairs = calloc(json_object_size(told) + more + 1, sizeof **pairs);
    if (!*pairs)
        return -ENOMEM;
    json_object_foreach(told, key, value)
    {
        (*pairs)[n] = ms_spec_variable(key, value);
        if (!(*pairs)[n++])
            return -ENOMEM;
    }
    return 0;
}

/* The driver's is new, or the same as one of the file's. */
static int add_variable(struct ms_capi_role *r, size_t told, const char *here)
{
    size_t name = strcspn(here, "="), n = ms_capi_count((const char *const *)r->env);

    for (size_t i = 0; here[name] && i < told; i++) {
        MS_CLEANUP(ms_cleanup_free) char *key = NULL;

        if (strncmp(r->env[i], here, name + 1) != 0)
            continue;
        if (asprintf(&key, "env['%.*s']", (int)name, here) < 0)
            return -ENOMEM;
        if (strcmp(r->env[i], here) != 0)
            add_difference(r, key, "'", here + name + 1, r->env[i] + name + 1);
        return 0;
    }
    r->env[n] = strdup(here);
    return r->env[n] ? 0 : -ENOMEM;
}

static int take_env(struct ms_capi_role *r, const char *key, json_t *told, void *option)
{
    const char *const **here = option;
    size_t more = ms_capi_count(*here);
    int rc = read_pairs(told, more, &r->env);

    (void)key;
    for (size_t i = 0; rc == 0 && i < more; i++)
        rc = add_variable(r, json_object_size(told), (*here)[i]);
    *here = (const char *const *)r->env;
    return rc;
}

/* ---- its bundle ------------------------------------------------------------------ */

static int
take_bundle(struct ms_capi_role *r, const char *key, json_t *told, void *options)
{
    struct muster_cluster_options *o = options;
    struct muster_bundle *b = &r->bundle;
    json_t *memory = json_object_get(told, "memory");
    json_t *gpu_memory = json_object_get(told, "gpu_memory");
    json_t *resources = json_object_get(told, "resources");
    json_t *labels = json_object_get(told, "labels");
    int rc = 0;

    (void)key;
    if (o->group || o->resources)
        ms_buf_printf(&r->why,
                      "%s%s is given here and a bundle there",
                      r->differences++ ? "; " : "",
                      o->group ? "group" : "resources");
    b->gpus = json_number_value(json_object_get(told, "GPU"));
    b->cpus = json_number_value(json_object_get(told, "CPU"));
    b->kind = json_string_value(json_object_get(told, "kind"));
    b->one_domain = json_is_true(json_object_get(told, "one_domain"));
    if ((memory && read_bytes(memory, &b->memory) < 0) ||
        (gpu_memory && read_bytes(gpu_memory, &b->gpu_memory) < 0))
        return -EINVAL;
    if (resources)
        rc = read_pairs(resources, 0, &r->resources);
    if (rc == 0 && labels)
        rc = read_pairs(labels, 0, &r->labels);
    b->resources = (const char *const *)r->resources;
    b->labels = (const char *const *)r->labels;
    return rc;
}

/* ---- all of it ------------------------------------------------------------------- */

#define OPTION(name) offsetof(struct muster_cluster_options, name)

/* In the order in which differences are named. */
static const struct {
    const char *key;
    taker *take;
    size_t option;
} role_keys[] = {
    {"world_size", take_count, OPTION(world_size)},
    {"device_mapping", take_mapping, OPTION(device_mapping)},
    {"num_gpus_per_worker", take_count, OPTION(num_gpus_per_worker)},
    {"num_cpus", take_real, OPTION(num_cpus)},
    {"memory", take_bytes, OPTION(memory)},
    {"gpu_memory", take_bytes, OPTION(gpu_memory)},
    {"args", take_args, OPTION(args)},
    {"kwargs", take_kwargs, OPTION(kwargs)},
    {"env", take_env, OPTION(env)},
    {"preload", take_preload, OPTION(preload)},
    {"start", take_start, OPTION(exec)},
    {"python", take_python, 0},
    {"working_dir", take_text, OPTION(working_dir)},
    {"timeout", take_seconds, OPTION(timeout_ns)},
    {"start_timeout", take_seconds, OPTION(start_timeout_ns)},
    {"worker_cls", take_class, OPTION(worker_cls)},
    {"bundle", take_bundle, 0},
};

int ms_capi_role_take(struct ms_capi_role *r, struct muster_cluster_options *o)
{
    ms_buf_printf(
        &r->why, "role '%s' is another one in %s than here: ", r->name, r->file);
    for (size_t i = 0; i < MS_COUNT(role_keys); i++) {
        const char *key = role_keys[i].key;
        json_t *told = json_object_get(r->told, key);
        int rc = told && !json_is_null(told)
                     ? role_keys[i].take(r, key, told, (char *)o + role_keys[i].option)
                     : 0;

        if (rc == 0)
            continue;
        ms_buf_consume(&r->why, r->why.len);
        ms_buf_printf(
            &r->why, "%s: role '%s': %s: no such value", r->file, r->name, key);
        return rc;
    }
    ms_buf_printf(&r->why, ". Leave it out in one of them");
    return r->differences ? -EINVAL : 0;
}
