/* spec_role.c - what is said of a role, made into the spec of its cluster */
#include "cluster/spec_role.h"
#include "base/cleanup.h"
#include "base/proto.h"
#include "cluster/spec.h"
#include "plain/value.h"
#include "wire/frame.h"
#include "worker/native/json.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

static char engine_name[] = "default";

/* The messages on the stack, and what only they have. */
struct draft {
    Muster__ClusterSpec spec;
    Muster__WorkerSpec worker;
    Muster__ZygoteKey zygote;
    Muster__Step step, *steps[1];
    ProtobufCBinaryData argument;
    char *module, *folder, *class;
    const char **preload;
};

static void draft_finish(struct draft *d)
{
    free(d->argument.data);
    free(d->module);
    free(d->folder);
    free(d->class);
    free(d->preload);
}

/* ---- what files say -------------------------------------------------------------- */

const char **ms_spec_words(const json_t *told)
{
    size_t n = json_is_array(told) ? json_array_size(told) : 1;
    const char **words = calloc(n + 1, sizeof *words);

    for (size_t i = 0; words && i < n; i++) {
        words[i] =
            json_string_value(json_is_array(told) ? json_array_get(told, i) : told);
        if (!words[i]) {
            free(words);
            return NULL;
        }
    }
    return words;
}

char *ms_spec_variable(const char *name, const json_t *value)
{
    MS_CLEANUP(ms_cleanup_free) char *other = NULL;
    const char *text = json_string_value(value);
    char *variable = NULL;

    if (json_is_boolean(value))
        text = json_is_true(value) ? "True" : "False";
    if (!text)
        text = other =
            json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15));
    if (!text || asprintf(&variable, "%s=%s", name, text) < 0)
        return NULL;
    return variable;
}

static bool is_true(const struct ms_spec_role *r, const char *key)
{
    return json_is_true(json_object_get(r->told, key));
}

/* Only ranks of dp alone can come and go. */
static bool has_fixed_mesh(const struct ms_spec_role *r)
{
    static const char *const fixed[] = {"tp", "cp", "pp", "ep"};
    const json_t *mesh = json_object_get(r->told, "mesh");

    for (size_t i = 0; i < MS_COUNT(fixed); i++)
        if (json_integer_value(json_object_get(mesh, fixed[i])) > 1)
            return true;
    return false;
}

/* ---- its processes --------------------------------------------------------------- */

static Muster__StartKind start_of(const struct ms_spec_role *r)
{
    if (r->worker_cls && ms_class_is_native(r->worker_cls))
        return MUSTER__START_KIND__START_NATIVE;
    if (r->command)
        return MUSTER__START_KIND__START_COMMAND;
    return r->is_fresh ? MUSTER__START_KIND__START_EXEC
                       : MUSTER__START_KIND__START_FORK;
}

static void add_module(struct draft *d, const char *module)
{
    for (size_t i = 0; i < d->zygote.n_preload; i++) {
        assert(d->preload[i]);
        if (strcmp(d->preload[i], module) == 0)
            return;
    }
    d->preload[d->zygote.n_preload++] = module;
}

/* The module of the class is imported before the fork, and what was asked for, each once. */
static int set_zygote(struct draft *d, const struct ms_spec_role *r)
{
    char *dot;

    muster__zygote_key__init(&d->zygote);
    d->preload = calloc(ms_field_count(r->preload) + 2, sizeof *d->preload);
    d->module = strdup(r->worker_cls);
    if (!d->preload || !d->module)
        return -ENOMEM;
    dot = strrchr(d->module, strchr(d->module, ':') ? ':' : '.');
    if (dot) {
        *dot = '\0';
        add_module(d, d->module);
    }
    for (size_t i = 0; r->preload && r->preload[i]; i++)
        add_module(d, r->preload[i]);
    d->zygote.preload = ms_field_strings(d->preload);
    d->zygote.python = ms_field_strings(r->python);
    d->zygote.n_python = ms_field_count(r->python);
    d->worker.zygote = &d->zygote;
    return 0;
}

static int set_folder(struct draft *d, const struct ms_spec_role *r)
{
    const char *folder = r->working_dir;

    d->worker.working_dir = ms_field_text(folder);
    if (!folder || !*folder || *folder == '/')
        return 0;
    if (asprintf(&d->folder, "%s/%s", r->folder, folder) < 0) {
        d->folder = NULL;
        return -ENOMEM;
    }
    d->worker.working_dir = d->folder;
    return 0;
}

static int set_worker(struct draft *d, const struct ms_spec_role *r)
{
    Muster__WorkerSpec *w = &d->worker;
    int rc = set_folder(d, r);

    w->start = start_of(r);
    w->env = ms_field_strings(r->env);
    w->n_env = ms_field_count(r->env);
    w->memory_limit = r->memory;
    w->cpu_milli = r->cpu_milli;
    if (w->start == MUSTER__START_KIND__START_COMMAND) {
        w->command = ms_field_strings(r->command);
        w->n_command = ms_field_count(r->command);
    }
    if (!r->worker_cls || w->start == MUSTER__START_KIND__START_NATIVE)
        return rc;
    w->http_open = is_true(r, "http_open");
    return rc == 0 ? set_zygote(d, r) : rc;
}

/* ---- its engines ----------------------------------------------------------------- */

/* How workers find it: "module:Class" is "module.Class". malloc'd. */
static char *full_class(const struct ms_spec_role *r)
{
    char *class = NULL, *colon;

    if (!ms_class_is_native(r->worker_cls)) {
        class = strdup(r->worker_cls);
        if (class && (colon = strchr(class, ':')))
            *colon = '.';
        return class;
    }
    if (!r->library)
        return strdup(r->worker_cls);
    return asprintf(&class, "%s%s", r->library, strrchr(r->worker_cls, ':')) < 0
               ? NULL
               : class;
}

/* Takes the value; NULL: out of memory. */
static int put(struct muster_value *engine, const char *key, struct muster_value *value)
{
    return value ? muster_map_set(engine, key, value) : -ENOMEM;
}

static int put_told(struct muster_value *engine,
                    const struct ms_spec_role *r,
                    const char *key,
                    struct ms_error *err)
{
    const json_t *told = json_object_get(r->told, key);
    struct muster_value *value = NULL;

    if (!told || json_is_null(told))
        return 0;
    value = ms_value_from_json(told, err);
    return !value && err->code ? err->code : put(engine, key, value);
}

/* The argument of CREATE_ENGINE, into `engine`. */
static int describe_engine(struct muster_value *engine,
                           const struct draft *d,
                           const struct ms_spec_role *r,
                           struct ms_error *err)
{
    int rc = put(engine, "name", muster_value_text(engine_name));

    if (rc == 0)
        rc = put(engine, "cls", muster_value_text(d->class));
    if (rc == 0)
        rc = put(
            engine, "args", r->args ? muster_value_copy(r->args) : muster_value_list());
    if (rc == 0)
        rc = put(engine,
                 "kwargs",
                 r->kwargs ? muster_value_copy(r->kwargs) : muster_value_map());
    if (rc < 0 || d->worker.start == MUSTER__START_KIND__START_NATIVE)
        return rc;
    rc = put_told(engine, r, "max_concurrency", err);
    return rc == 0 ? put_told(engine, r, "mesh", err) : rc;
}

static int set_step(struct draft *d, const struct ms_spec_role *r, struct ms_error *err)
{
    struct muster_value *engine = muster_value_map();
    struct ms_plain_writer w;
    int rc;

    d->class = full_class(r);
    rc = d->class ? describe_engine(engine, d, r, err) : -ENOMEM;
    if (rc == 0) {
        ms_plain_writer_init(&w);
        ms_value_encode(&w, MS_PLAIN_ROOT, engine);
        rc = ms_plain_flatten(&w, &d->argument.data, &d->argument.len);
        ms_plain_writer_finish(&w);
    }
    muster_value_destroy(engine);
    muster__step__init(&d->step);
    d->step.op = MS_OP_CREATE_ENGINE;
    d->step.engine = engine_name;
    d->step.codec = MS_CODEC_PLAIN;
    d->step.arguments = &d->argument;
    d->step.n_arguments = 1;
    d->steps[0] = &d->step;
    d->spec.steps = d->steps;
    d->spec.n_steps = 1;
    return rc;
}

/* ---- all of it ------------------------------------------------------------------- */

static int
draft_init(struct draft *d, const struct ms_spec_role *r, struct ms_error *err)
{
    const char *visible = json_string_value(json_object_get(r->told, "visible"));
    Muster__ClusterSpec *s = &d->spec;
    int rc;

    muster__cluster_spec__init(s);
    muster__worker_spec__init(&d->worker);
    s->name = ms_field_text(r->name);
    s->worker = &d->worker;
    s->place = (Muster__PlaceCluster *)(uintptr_t)r->place;
    s->context = (Muster__DriverContext *)(uintptr_t)r->context;
    s->detached = r->detached;
    s->step_timeout_ns = r->step_timeout_ns;
    s->can_resize = !r->is_fixed && !has_fixed_mesh(r);
    if (visible && strcmp(visible, "node") == 0)
        s->visible = MUSTER__VISIBLE__VISIBLE_NODE;
    rc = set_worker(d, r);
    return rc == 0 && r->worker_cls && !r->brings_step ? set_step(d, r, err) : rc;
}

Muster__ClusterSpec *ms_spec_role_build(const struct ms_spec_role *r,
                                        struct ms_error *err)
{
    MS_CLEANUP(draft_finish) struct draft d = {0};
    Muster__ClusterSpec *spec = NULL;
    struct ms_error why = {0};
    int rc = draft_init(&d, r, &why);

    if (rc == 0 && !(spec = (Muster__ClusterSpec *)ms_proto_copy(&d.spec.base)))
        rc = -ENOMEM;
    if (spec)
        return spec;
    if (rc == -ENOMEM)
        ms_error_set(err, rc, "out of memory");
    else
        ms_error_set(err,
                     rc,
                     "the constructor's arguments cannot be sent: %s",
                     why.code ? why.text : strerror(-rc));
    return NULL;
}
