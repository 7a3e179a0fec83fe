/* spec.c - checking a cluster's spec, and adding what is done to it */
#include "cluster/spec.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/limits.h"
#include "base/name.h"
#include "base/proto.h"
#include "wire/frame.h"

#include <errno.h>
#include <string.h>

/* ---- the role's variables -------------------------------------------------------- */

static const char *const of_ranks[] = {
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "NODE_RANK",
    "CLUSTER_NAME",
    "WORKER_NAME",
    "MUSTER_LOCAL_RANK",
    "MUSTER_SECRET",
};

static bool is_named(const char *entry, const char *name)
{
    size_t len = strlen(name);

    return strncmp(entry, name, len) == 0 && entry[len] == '=';
}

static int check_entry(const char *entry, struct ms_error *err)
{
    const char *equals = strchr(entry, '=');

    if (!equals || equals == entry)
        return ms_error_set(err, -EINVAL, "env: '%.200s' is not NAME=value", entry);
    for (size_t i = 0; i < MS_COUNT(of_ranks); i++)
        if (is_named(entry, of_ranks[i]))
            return ms_error_set(
                err,
                -EINVAL,
                "env: %s comes from Muster, for each rank its own: leave it out",
                of_ranks[i]);
    return 0;
}

int ms_role_env_check(char *const *env, size_t count, struct ms_error *err)
{
    bool has_address = false, has_port = false;
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < count; i++) {
        rc = check_entry(env[i], err);
        has_address = has_address || is_named(env[i], "MASTER_ADDR");
        has_port = has_port || is_named(env[i], "MASTER_PORT");
    }
    if (rc == 0 && has_address != has_port)
        rc = ms_error_set(
            err, -EINVAL, "env: MASTER_ADDR and MASTER_PORT go together: give both");
    return rc;
}

/* ---- steps ----------------------------------------------------------------------- */

static bool is_step_op(uint32_t op)
{
    return op == MS_OP_NONE || op == MS_OP_CONFIGURE || op == MS_OP_SET_ENV ||
           op == MS_OP_CREATE_ENGINE;
}

static size_t size_of(const Muster__Step *step)
{
    size_t size = 0;

    for (size_t i = 0; i < step->n_arguments; i++)
        size += step->arguments[i].len;
    return size;
}

static int check_step(const Muster__Step *step, struct ms_error *err)
{
    if (!is_step_op(step->op) || step->codec > MS_CODEC_LAST)
        return ms_error_set(err, -EINVAL, "operation %u is no step", step->op);
    if (step->n_arguments == 0)
        return ms_error_set(err, -EINVAL, "a step has no argument");
    if (step->op == MS_OP_NONE && (!step->engine[0] || !step->method[0]))
        return ms_error_set(err, -EINVAL, "a call needs an engine and a method");
    if (size_of(step) > MS_STEP_MAX)
        return ms_error_set(
            err,
            -E2BIG,
            "what %s%s is given has %zu bytes, at most %zu are possible: "
            "give big arrays to muster.put() first",
            step->engine[0] ? "engine " : "a worker",
            step->engine,
            size_of(step),
            (size_t)MS_STEP_MAX);
    return 0;
}

static int
check_size(const Muster__ClusterSpec *spec, size_t more, struct ms_error *err)
{
    size_t size = muster__cluster_spec__get_packed_size(spec) + more;

    if (size <= MS_SPEC_MAX)
        return 0;
    return ms_error_set(err,
                        -E2BIG,
                        "cluster '%s': all that its workers are started with has %zu "
                        "bytes, at most %zu are possible",
                        spec->name,
                        size,
                        (size_t)MS_SPEC_MAX);
}

int ms_cluster_spec_check(const Muster__ClusterSpec *spec, struct ms_error *err)
{
    int rc = ms_name_check(spec->name, "cluster", err);

    if (rc == 0 && !spec->worker)
        rc = ms_error_set(err, -EINVAL, "cluster '%s': no way to start it", spec->name);
    if (rc == 0 && !spec->place == !spec->beside[0])
        rc = ms_error_set(err,
                          -EINVAL,
                          "cluster '%s' is either placed or beside another one",
                          spec->name);
    if (rc == 0 && spec->beside[0])
        rc = ms_name_check(spec->beside, "cluster", err);
    if (rc == 0)
        rc = ms_role_env_check(spec->worker->env, spec->worker->n_env, err);
    for (size_t i = 0; rc == 0 && i < spec->n_steps; i++)
        rc = check_step(spec->steps[i], err);
    return rc == 0 ? check_size(spec, 0, err) : rc;
}

/* The place of a step that this one takes over; n_steps: none. */
static size_t find_earlier(const Muster__ClusterSpec *spec, const Muster__Step *step)
{
    size_t i = 0;

    while (i < spec->n_steps) {
        const Muster__Step *s = spec->steps[i];

        if (step->op == MS_OP_CONFIGURE && s->op == MS_OP_CONFIGURE)
            break;
        if (step->op == MS_OP_DESTROY_ENGINE && s->op == MS_OP_CREATE_ENGINE &&
            strcmp(s->engine, step->engine) == 0)
            break;
        i++;
    }
    return i;
}

static void remove_at(Muster__ClusterSpec *spec, size_t i)
{
    if (i == spec->n_steps)
        return;
    muster__step__free_unpacked(spec->steps[i], NULL);
    memmove(spec->steps + i,
            spec->steps + i + 1,
            (spec->n_steps - i - 1) * sizeof(Muster__Step *));
    spec->n_steps--;
}

static int set_meta(Muster__ClusterSpec *spec, const ProtobufCBinaryData *meta)
{
    uint8_t *copy;

    if (!meta || meta->len == 0)
        return 0;
    copy = ms_bytes_copy(meta->data, meta->len);
    if (!copy)
        return -ENOMEM;
    free(spec->meta.data);
    spec->meta = (ProtobufCBinaryData){meta->len, copy};
    return 0;
}

/* Puts a copy behind the others, or in the place of an earlier one. */
static int
put_step(Muster__ClusterSpec *spec, const Muster__Step *step, struct ms_error *err)
{
    size_t at = find_earlier(spec, step);
    Muster__Step *copy = (Muster__Step *)ms_proto_copy(&step->base), **more;

    if (copy && at < spec->n_steps) {
        muster__step__free_unpacked(spec->steps[at], NULL);
        spec->steps[at] = copy;
        return 0;
    }
    more = copy ? realloc(spec->steps, (spec->n_steps + 1) * sizeof(*more)) : NULL;
    if (!more) {
        muster__step__free_unpacked(copy, NULL);
        return ms_error_set(err, -ENOMEM, "out of memory");
    }
    spec->steps = more;
    spec->steps[spec->n_steps++] = copy;
    return 0;
}

int ms_cluster_spec_add(Muster__ClusterSpec *spec,
                        const Muster__Step *step,
                        const ProtobufCBinaryData *meta,
                        struct ms_error *err)
{
    bool is_end = step->op == MS_OP_DESTROY_ENGINE;
    int rc = is_end ? 0 : check_step(step, err);

    if (rc == 0 && !is_end)
        rc = check_size(spec, size_of(step), err);
    if (rc == 0 && set_meta(spec, meta) < 0)
        rc = ms_error_set(err, -ENOMEM, "out of memory");
    if (rc < 0)
        return rc;
    if (!is_end)
        return put_step(spec, step, err);
    remove_at(spec, find_earlier(spec, step));
    return 0;
}

/* ---- the steps of one rank ------------------------------------------------------- */

static Muster__Step *step_of(const Muster__Step *step, uint32_t rank)
{
    Muster__Step one = *step;
    size_t i = step->n_arguments > 1 ? rank : 0;
    ProtobufCBinaryData none = {0, NULL};

    one.arguments = i < step->n_arguments ? &step->arguments[i] : &none;
    one.n_arguments = 1;
    one.objects = NULL;
    one.n_objects = 0;
    return (Muster__Step *)ms_proto_copy(&one.base);
}

Muster__RunSteps *ms_cluster_spec_run(const Muster__ClusterSpec *spec,
                                      uint32_t rank,
                                      size_t first,
                                      uint64_t uid,
                                      uint64_t run)
{
    Muster__RunSteps *m =
        (Muster__RunSteps *)ms_proto_create(&muster__run_steps__descriptor);

    if (!m)
        return NULL;
    m->uid = uid;
    m->run = run;
    for (size_t i = first; i < spec->n_steps; i++)
        if (!ms_proto_append(&m->steps, &m->n_steps, step_of(spec->steps[i], rank))) {
            muster__run_steps__free_unpacked(m, NULL);
            return NULL;
        }
    return m;
}

bool ms_cluster_spec_is_native(const Muster__ClusterSpec *spec)
{
    return spec->worker && spec->worker->start == MUSTER__START_KIND__START_NATIVE;
}

bool ms_class_is_native(const char *worker_cls)
{
    const char *symbol = strrchr(worker_cls, ':');
    const char *name = worker_cls, *so;

    if (!symbol || !symbol[1])
        return false;
    for (const char *at = worker_cls; at < symbol; at++)
        if (*at == '/')
            name = at + 1;
    for (so = strstr(name, ".so"); so && so < symbol; so = strstr(so + 1, ".so"))
        if (so[3] == ':' || so[3] == '.')
            return so > name;
    return false;
}
