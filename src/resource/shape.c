/* shape.c - what a node has, as a message */
#include "resource/shape.h"
#include "base/cleanup.h"
#include "base/proto.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* ---- the message ----------------------------------------------------------------- */

static int no_memory(struct ms_error *err)
{
    return ms_error_set(err, -ENOMEM, "out of memory");
}

/* Room for one more pointer behind `count`. */
static bool grow(void *array, size_t count)
{
    void **at = array;
    void *grown = realloc(*at, (count + 1) * sizeof(void *));

    if (grown)
        *at = grown;
    return grown;
}

Muster__NodeShape *ms_shape_create(const char *name)
{
    Muster__NodeShape *s =
        (Muster__NodeShape *)ms_proto_create(&muster__node_shape__descriptor);

    if (s)
        s->cpus = -1;
    if (s && ms_proto_set_text(&s->name, name))
        return s;
    ms_shape_destroy(s);
    return NULL;
}

int ms_shape_set_name(Muster__NodeShape *s, const char *name)
{
    char *copy = strdup(name);

    if (!copy)
        return -ENOMEM;
    if (s->name != protobuf_c_empty_string)
        free(s->name);
    s->name = copy;
    return 0;
}

void ms_shape_destroy(Muster__NodeShape *s)
{
    muster__node_shape__free_unpacked(s, NULL);
}

void ms_shape_cleanup(Muster__NodeShape **s)
{
    ms_shape_destroy(*s);
}

Muster__NodeShape *ms_shape_copy(const Muster__NodeShape *s)
{
    return (Muster__NodeShape *)ms_proto_copy(&s->base);
}

/* ---- devices --------------------------------------------------------------------- */

static const struct {
    const char *vendor, *kind, *variable;
} variables[] = {
    {"nvidia", "gpu", "CUDA_VISIBLE_DEVICES"},
    {"amd", "dcu", "HIP_VISIBLE_DEVICES"},
    {"huawei", "npu", "ASCEND_RT_VISIBLE_DEVICES"},
    {"intel", "xpu", "ZE_AFFINITY_MASK"},
    {"habana", "hpu", "HABANA_VISIBLE_MODULES"},
    {"google", "tpu", "TPU_VISIBLE_CHIPS"},
    {"amazon", "neuron", "NEURON_RT_VISIBLE_CORES"},
    {"cambricon", "mlu", "MLU_VISIBLE_DEVICES"},
    {"mthreads", "musa", "MUSA_VISIBLE_DEVICES"},
};

const char *ms_device_variable(const char *kind, const char *vendor)
{
    for (size_t i = 0; i < MS_COUNT(variables); i++)
        if (strcmp(variables[i].vendor, vendor) == 0)
            return variables[i].variable;
    for (size_t i = 0; i < MS_COUNT(variables); i++)
        if (strcmp(variables[i].kind, kind) == 0)
            return variables[i].variable;
    return "MUSTER_VISIBLE_DEVICES";
}

bool ms_is_device_variable(const char *name, size_t len)
{
    for (size_t i = 0; i < MS_COUNT(variables); i++)
        if (strncmp(variables[i].variable, name, len) == 0 &&
            !variables[i].variable[len])
            return true;
    return false;
}

static size_t count_variable(const Muster__NodeShape *s, const char *variable)
{
    size_t count = 0;

    for (size_t i = 0; i < s->n_devices; i++)
        count += strcmp(s->devices[i]->variable, variable) == 0;
    return count;
}

static int too_many_devices(const Muster__NodeShape *s, struct ms_error *err)
{
    return ms_error_set(
        err, -E2BIG, "node '%s': more than %u devices", s->name, MS_STOCK_DEVICES_MAX);
}

int ms_shape_add_device(Muster__NodeShape *s,
                        const Muster__Device *like,
                        struct ms_error *err)
{
    const char *variable =
        *like->variable ? like->variable : ms_device_variable(like->kind, like->vendor);
    Muster__Device *d;
    char number[24];
    int rc = ms_label_check(like->kind, "kind of device", err);

    if (rc < 0)
        return rc;
    if (s->n_devices >= MS_STOCK_DEVICES_MAX)
        return too_many_devices(s, err);
    d = grow(&s->devices, s->n_devices) ? malloc(sizeof *d) : NULL;
    if (!d)
        return no_memory(err);
    muster__device__init(d);
    s->devices[s->n_devices] = d;
    snprintf(number, sizeof number, "%zu", count_variable(s, variable));
    s->n_devices++;
    d->memory = like->memory;
    d->domain = like->domain;
    d->numa = like->numa;
    if (ms_proto_set_text(&d->kind, like->kind) &&
        ms_proto_set_text(&d->vendor, like->vendor) &&
        ms_proto_set_text(&d->variable, variable) &&
        ms_proto_set_text(&d->id, *like->id ? like->id : number) &&
        ms_proto_set_text(&d->pci, like->pci) &&
        ms_proto_set_text(&d->model, like->model))
        return 0;
    return no_memory(err);
}

int ms_shape_add_devices(Muster__NodeShape *s,
                         const struct ms_shape_devices *d,
                         struct ms_error *err)
{
    Muster__Device like = MUSTER__DEVICE__INIT;
    int rc = 0;

    like.kind = (char *)(uintptr_t)(d->kind ? d->kind : "gpu");
    like.vendor = (char *)(uintptr_t)(d->vendor ? d->vendor : "");
    like.memory = d->memory;
    like.numa = -1;
    if (d->count > MS_STOCK_DEVICES_MAX - s->n_devices)
        return too_many_devices(s, err);
    for (uint32_t i = 0; i < d->count && rc == 0; i++) {
        like.domain = d->domain + (d->per_domain ? i / d->per_domain : 0);
        rc = ms_shape_add_device(s, &like, err);
    }
    return rc;
}

/* ---- resources and labels -------------------------------------------------------- */

static bool has_resource(const Muster__NodeShape *s, const char *name)
{
    for (size_t i = 0; i < s->n_resources; i++)
        if (strcmp(s->resources[i]->name, name) == 0)
            return true;
    return false;
}

int ms_shape_add_resource(Muster__NodeShape *s,
                          const char *name,
                          uint64_t amount,
                          struct ms_error *err)
{
    Muster__NamedAmount *a;
    int rc = ms_label_check_new(
        s->name, "resource", name, has_resource(s, name), s->n_resources, err);

    if (rc < 0)
        return rc;
    a = grow(&s->resources, s->n_resources) ? malloc(sizeof *a) : NULL;
    if (!a)
        return no_memory(err);
    muster__named_amount__init(a);
    a->amount = amount;
    s->resources[s->n_resources++] = a;
    return ms_proto_set_text(&a->name, name) ? 0 : no_memory(err);
}

int ms_shape_add_label_text(Muster__NodeShape *s,
                            const char *text,
                            struct ms_error *err)
{
    int rc = ms_label_check_text(s->name, text, s->labels, s->n_labels, err);

    if (rc < 0)
        return rc;
    if (!grow(&s->labels, s->n_labels) || !(s->labels[s->n_labels] = strdup(text)))
        return no_memory(err);
    s->n_labels++;
    return 0;
}

int ms_shape_add_label(Muster__NodeShape *s,
                       const char *name,
                       const char *value,
                       struct ms_error *err)
{
    MS_CLEANUP(ms_cleanup_free) char *text = NULL;

    if (asprintf(&text, "%s=%s", name, value) < 0)
        return no_memory(err);
    return ms_shape_add_label_text(s, text, err);
}

/* ---- into a stock ---------------------------------------------------------------- */

static int add_devices(struct ms_stock *stock,
                       size_t node,
                       const Muster__NodeShape *s,
                       struct ms_error *err)
{
    int rc = 0;

    for (size_t i = 0; i < s->n_devices && rc == 0; i++) {
        const Muster__Device *d = s->devices[i];
        int kind = ms_stock_kind(stock, d->kind, err);

        rc = kind < 0 ? kind
                      : ms_stock_add_devices(
                            stock, node, (uint8_t)kind, 1, d->memory, d->domain, err);
    }
    return rc;
}

uint64_t ms_shape_cpu_milli(const Muster__NodeShape *s)
{
    return s->cpus > 0 ? (uint64_t)s->cpus * 1000 : 0;
}

int ms_stock_describe(struct ms_stock *stock,
                      size_t node,
                      const Muster__NodeShape *s,
                      bool skip_bad_labels,
                      struct ms_error *err)
{
    int rc = add_devices(stock, node, s, err);

    for (size_t i = 0; i < s->n_resources && rc == 0; i++)
        rc = ms_stock_add_extra(
            stock, node, s->resources[i]->name, s->resources[i]->amount, err);
    for (size_t i = 0; i < s->n_labels && rc == 0; i++) {
        rc =
            ms_stock_add_label(stock, node, s->labels[i], skip_bad_labels ? NULL : err);
        rc = skip_bad_labels ? 0 : rc;
    }
    return rc;
}

int64_t ms_stock_add_shape(struct ms_stock *stock,
                           const Muster__NodeShape *s,
                           struct ms_error *err)
{
    int64_t node;
    int rc;

    if (ms_stock_find(stock, s->name))
        return ms_error_set(err, -EEXIST, "there are two nodes '%s'", s->name);
    node = ms_stock_append(stock, s->name, ms_shape_cpu_milli(s), s->memory, err);
    rc = node < 0 ? (int)node : ms_stock_describe(stock, (size_t)node, s, false, err);
    return rc < 0 ? rc : node;
}

/* ---- what a process may see -------------------------------------------------------- */

static bool has(const char *const *texts, size_t count, const char *text)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(texts[i], text) == 0)
            return true;
    return false;
}

size_t ms_shape_variables(const Muster__NodeShape *s,
                          const char *out[MS_DEVICE_VARIABLES_MAX])
{
    size_t count = 0;

    for (size_t i = 0; s && i < s->n_devices && count < MS_DEVICE_VARIABLES_MAX; i++)
        if (!has(out, count, s->devices[i]->variable))
            out[count++] = s->devices[i]->variable;
    if (count == 0)
        out[count++] = ms_device_variable("gpu", "");
    return count;
}

int ms_shape_visible(const Muster__NodeShape *s,
                     const char *variable,
                     const uint32_t *devices,
                     size_t count,
                     struct ms_buf *out)
{
    bool is_first = true;
    int rc = 0;

    for (size_t i = 0; s && rc == 0 && i < count; i++) {
        const Muster__Device *d =
            devices[i] < s->n_devices ? s->devices[devices[i]] : NULL;

        if (!d || strcmp(d->variable, variable) != 0)
            continue;
        if (!is_first)
            rc = ms_buf_append(out, ",", 1);
        if (rc == 0)
            rc = ms_buf_append(out, d->id, strlen(d->id));
        is_first = false;
    }
    return rc;
}
