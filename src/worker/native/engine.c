/* engine.c - shared libraries, the classes in them, and the engines made of those */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/limits.h"
#include "base/name.h"
#include "worker/native/native_impl.h"

#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <string.h>

/* ---- who this worker is ---------------------------------------------------------- */

/* As the variables of its node's vendors name them. */
static char *read_variables(const Muster__WorkerBoot *boot)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf all = {0};

    for (size_t i = 0; i < boot->n_device_variables; i++) {
        const char *visible = getenv(boot->device_variables[i]);

        if (visible && *visible)
            ms_buf_printf(&all, "%s%s", all.len ? "," : "", visible);
    }
    return ms_buf_str(&all) ? (char *)MS_TAKE(all.data) : NULL;
}

static void find_devices(struct muster_context *ctx)
{
    char *rest, *name;

    ctx->device_text = read_variables(ctx->boot);
    rest = ctx->device_text;
    while (ctx->device_count < MS_NATIVE_DEVICES_MAX && (name = strsep(&rest, ",")))
        if (*name)
            ctx->devices[ctx->device_count++] = name;
}

void ms_context_init(struct muster_context *ctx, const Muster__WorkerBoot *boot)
{
    const char *world = getenv("WORLD_SIZE");

    ctx->boot = boot;
    ctx->world_size = boot->world_size;
    if (ctx->world_size == 0)
        ctx->world_size = world ? (uint32_t)strtoul(world, NULL, 10) : 1;
    find_devices(ctx);
}

uint32_t muster_context_rank(const struct muster_context *ctx)
{
    return ctx->boot->rank;
}

uint32_t muster_context_world_size(const struct muster_context *ctx)
{
    return ctx->world_size;
}

const char *muster_context_cluster(const struct muster_context *ctx)
{
    return ctx->boot->cluster;
}

const char *muster_context_node(const struct muster_context *ctx)
{
    return ctx->boot->node_name;
}

const char *muster_context_device(const struct muster_context *ctx, size_t index)
{
    return index < ctx->device_count ? ctx->devices[index] : NULL;
}

const struct muster_value *muster_context_config(const struct muster_context *ctx)
{
    return ctx->config;
}

/* ---- shared libraries ------------------------------------------------------------ */

/* A bare name is looked for in the working folder, and then where the loader looks. */
static void *load(const char *path, struct muster_error *err)
{
    bool is_here = !strchr(path, '/') && access(path, F_OK) == 0;
    char here[PATH_MAX];
    void *library;

    snprintf(here, sizeof here, "%s%s", is_here ? "./" : "", path);
    library = dlopen(here, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        muster_error_set(
            err,
            -ENOENT,
            "OSError",
            "cannot load '%s': %s (looked for in the working folder and, if "
            "it is a bare name, in LD_LIBRARY_PATH)",
            path,
            dlerror());
    return library;
}

static int check_class(const struct muster_worker_class *c,
                       const char *what,
                       struct muster_error *err)
{
    if (c->abi != MUSTER_ABI)
        return muster_error_set(
            err,
            -EPROTONOSUPPORT,
            "TypeError",
            "'%s' was built for version %u of Muster's C interface, "
            "and this is version %u: build it again",
            what,
            c->abi,
            MUSTER_ABI);
    if (c->size < sizeof *c || !c->methods)
        return muster_error_set(err,
                                -EINVAL,
                                "TypeError",
                                "'%s' is no struct muster_worker_class: it begins with "
                                "MUSTER_WORKER_CLASS and has methods",
                                what);
    return 0;
}

/* "libreward.so:reward" */
static int
find_class(const char *what, struct ms_native_engine *engine, struct muster_error *err)
{
    MS_CLEANUP(ms_cleanup_free) char *path = strdup(what);
    char *symbol = path ? strrchr(path, ':') : NULL;

    if (!symbol || symbol == path || !symbol[1])
        return muster_error_set(
            err, -EINVAL, "ValueError", "'%s' is not \"library.so:symbol\"", what);
    *symbol++ = '\0';
    engine->library = load(path, err);
    if (!engine->library)
        return -ENOENT;
    engine->class = dlsym(engine->library, symbol);
    if (!engine->class)
        return muster_error_set(err,
                                -ENOENT,
                                "AttributeError",
                                "'%s' has no symbol '%s' (is it exported, and not "
                                "static?)",
                                path,
                                symbol);
    return check_class(engine->class, what, err);
}

/* ---- engines --------------------------------------------------------------------- */

static struct ms_native_engine *find_engine(const struct ms_native_engines *e,
                                            const char *name)
{
    for (size_t i = 0; i < e->count; i++)
        if (strcmp(e->at[i]->name, name) == 0)
            return e->at[i];
    return NULL;
}

static void engine_free(struct ms_native_engine *engine)
{
    if (!engine)
        return;
    if (engine->library)
        dlclose(engine->library);
    free(engine->name);
    free(engine);
}

/* Engines came or went: what was found may be another one's now, and health names them. */
static void note_change(struct ms_native_engines *e)
{
    const char *names[MS_NATIVE_ENGINES_MAX];

    free(e->methods);
    e->methods = NULL;
    e->method_room = 0;
    for (size_t i = 0; i < e->count; i++)
        names[i] = e->at[i]->name;
    ms_host_set_engines(e->host, names, e->count);
}

static Muster__Failure__Kind construct(struct ms_native_engines *e,
                                       struct ms_native_engine *engine,
                                       const struct muster_value *spec,
                                       struct muster_error *err)
{
    int rc;

    assert(engine->class);
    if (!engine->class->create)
        return MS_NATIVE_OK;
    ms_report_clear(err);
    rc = engine->class->create(&e->context,
                               muster_map_find(spec, "args"),
                               muster_map_find(spec, "kwargs"),
                               &engine->self,
                               err);
    if (rc == 0)
        return MS_NATIVE_OK;
    if (!err->message[0])
        muster_error_set(err,
                         rc,
                         NULL,
                         "the constructor of '%s' gave %d",
                         engine->class->name ? engine->class->name : "",
                         rc);
    return MUSTER__FAILURE__KIND__RAISED;
}

Muster__Failure__Kind ms_native_engine_create(struct ms_native_engines *e,
                                              const struct muster_value *spec,
                                              struct muster_error *err)
{
    size_t len = 0;
    const char *name = muster_value_get_text(muster_map_find(spec, "name"), &len);
    const char *class = muster_value_get_text(muster_map_find(spec, "cls"), NULL);
    struct ms_error why = {0};
    struct ms_native_engine *engine;
    Muster__Failure__Kind kind;

    if (!name || !class)
        ms_error_set(&why, -EINVAL, "no name and class");
    else if (ms_title_check(name, len, MS_ENGINE_NAME_MAX, "engine", &why) == 0 &&
             (find_engine(e, name) || e->count == MS_NATIVE_ENGINES_MAX))
        ms_error_set(&why,
                     -EEXIST,
                     "there is an engine '%s' in this worker already, or there are %d",
                     name,
                     MS_NATIVE_ENGINES_MAX);
    if (why.code) {
        muster_error_set(err, why.code, NULL, "%s", why.text);
        return MUSTER__FAILURE__KIND__REFUSED;
    }
    assert(name && class);
    engine = calloc(1, sizeof *engine);
    if (!engine || !(engine->name = strdup(name))) {
        free(engine);
        return MUSTER__FAILURE__KIND__NO_MEMORY;
    }
    kind = find_class(class, engine, err) < 0 ? MUSTER__FAILURE__KIND__REFUSED
                                              : construct(e, engine, spec, err);
    if (kind != MS_NATIVE_OK) {
        engine_free(engine);
        return kind;
    }
    e->at[e->count++] = engine;
    note_change(e);
    return MS_NATIVE_OK;
}

static void engine_end(struct ms_native_engine *engine)
{
    if (engine->class->destroy)
        engine->class->destroy(engine->self);
    engine_free(engine);
}

Muster__Failure__Kind ms_native_engine_destroy(struct ms_native_engines *e,
                                               const char *name,
                                               struct muster_error *err)
{
    for (size_t i = 0; name && i < e->count; i++) {
        struct ms_native_engine *engine = e->at[i];

        if (strcmp(engine->name, name) != 0)
            continue;
        memmove(&e->at[i],
                &e->at[i + 1],
                (--e->count - i) * sizeof(struct ms_native_engine *));
        note_change(e);
        engine_end(engine);
        return MS_NATIVE_OK;
    }
    muster_error_set(
        err, -ENOENT, NULL, "no engine '%s' in this worker", name ? name : "");
    return MUSTER__FAILURE__KIND__NO_ENGINE;
}

void ms_native_engines_configure(struct ms_native_engines *e,
                                 struct muster_value *config)
{
    muster_value_destroy(e->context.config);
    e->context.config = config;
}

void ms_native_engines_destroy_all(struct ms_native_engines *e)
{
    while (e->count)
        engine_end(e->at[--e->count]);
    ms_native_engines_configure(e, NULL);
}

/* ---- methods --------------------------------------------------------------------- */

Muster__Failure__Kind ms_native_engine_find_method(const struct ms_native_engines *e,
                                                   const char *engine_name,
                                                   const char *name,
                                                   struct ms_native_method *out,
                                                   struct muster_error *err)
{
    const struct ms_native_engine *engine = find_engine(e, engine_name);
    const struct muster_method *method;

    if (!engine) {
        muster_error_set(
            err, -ENOENT, NULL, "no engine '%s' in this worker", engine_name);
        return MUSTER__FAILURE__KIND__NO_ENGINE;
    }
    for (method = engine->class->methods; method->name; method++)
        if (strcmp(method->name, name) == 0)
            break;
    if (!method->name) {
        muster_error_set(err,
                         -ENOENT,
                         NULL,
                         "'%s' has no method '%s'",
                         engine->class->name ? engine->class->name : engine_name,
                         name);
        return MUSTER__FAILURE__KIND__NO_METHOD;
    }
    *out = (struct ms_native_method){engine, method};
    return MS_NATIVE_OK;
}

const struct ms_native_method *ms_native_engine_method(struct ms_native_engines *e,
                                                       const struct ms_method *m,
                                                       Muster__Failure__Kind *kind,
                                                       struct muster_error *err)
{
    if (ms_array_reserve(
            &e->methods, &e->method_room, m->index + 1, sizeof *e->methods) < 0) {
        *kind = MUSTER__FAILURE__KIND__NO_MEMORY;
        muster_error_set(err, -ENOMEM, NULL, "out of memory");
        return NULL;
    }
    if (e->methods[m->index].engine)
        return &e->methods[m->index];
    *kind =
        ms_native_engine_find_method(e, m->engine, m->name, &e->methods[m->index], err);
    return *kind == MS_NATIVE_OK ? &e->methods[m->index] : NULL;
}
