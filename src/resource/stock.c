/* stock.c - what there is, and what of it is held */
#include "resource/stock.h"
#include "base/name.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void ms_stock_strip(struct ms_stock_node *n)
{
    for (size_t i = 0; i < n->extra_count; i++)
        free(n->extras[i].name);
    for (size_t i = 0; i < n->label_count; i++)
        free(n->labels[i]);
    free(n->extras);
    free(n->labels);
    free(n->devices);
    n->extras = NULL;
    n->labels = NULL;
    n->devices = NULL;
    n->extra_count = n->label_count = 0;
    n->device_count = n->whole = 0;
}

void ms_stock_finish(struct ms_stock *s)
{
    for (size_t i = 0; i < s->count; i++) {
        ms_stock_strip(&s->nodes[i]);
        free(s->nodes[i].name);
    }
    for (uint32_t i = 0; i < s->kind_count; i++)
        free(s->kinds[i]);
    free(s->nodes);
    free(s->kinds);
    *s = (struct ms_stock){0};
}

static int no_memory(struct ms_error *err)
{
    return ms_error_set(err, -ENOMEM, "out of memory");
}

/* Room for one more element behind `count`. */
static int grow(void *array, size_t count, size_t size)
{
    void **at = array;
    void *grown = realloc(*at, (count + 1) * size);

    if (!grown)
        return -ENOMEM;
    *at = grown;
    return 0;
}

int ms_stock_kind(struct ms_stock *s, const char *name, struct ms_error *err)
{
    int rc;

    for (uint32_t i = 0; i < s->kind_count; i++)
        if (strcmp(s->kinds[i], name) == 0)
            return (int)i + 1;
    rc = ms_label_check(name, "kind of device", err);
    if (rc < 0)
        return rc;
    if (s->kind_count == MS_STOCK_KINDS_MAX)
        return ms_error_set(
            err, -E2BIG, "more than %u kinds of devices", MS_STOCK_KINDS_MAX);
    if (grow(&s->kinds, s->kind_count, sizeof *s->kinds) < 0 ||
        !(s->kinds[s->kind_count] = strdup(name)))
        return no_memory(err);
    return (int)++s->kind_count;
}

const char *ms_stock_kind_name(const struct ms_stock *s, uint8_t kind)
{
    return kind && kind <= s->kind_count ? s->kinds[kind - 1] : "device";
}

bool ms_device_is_free(const struct ms_device *d)
{
    return d->held_milli == 0 && d->memory_held == 0 && d->mapped == 0;
}

struct ms_stock_node *ms_stock_find(const struct ms_stock *s, const char *name)
{
    for (size_t i = 0; i < s->count; i++)
        if (strcmp(s->nodes[i].name, name) == 0)
            return &s->nodes[i];
    return NULL;
}

struct ms_extra *ms_stock_find_extra(const struct ms_stock_node *n, const char *name)
{
    for (size_t i = 0; i < n->extra_count; i++)
        if (strcmp(n->extras[i].name, name) == 0)
            return &n->extras[i];
    return NULL;
}

static int reserve_node(struct ms_stock *s)
{
    size_t capacity = s->capacity ? 2 * s->capacity : 16;
    struct ms_stock_node *nodes;

    if (s->count < s->capacity)
        return 0;
    nodes = realloc(s->nodes, capacity * sizeof *nodes);
    if (!nodes)
        return -ENOMEM;
    s->nodes = nodes;
    s->capacity = capacity;
    return 0;
}

int64_t ms_stock_append(struct ms_stock *s,
                        const char *name,
                        uint64_t cpu_milli,
                        uint64_t memory,
                        struct ms_error *err)
{
    int rc = ms_name_check(name, "node", err);
    struct ms_stock_node n = {.cpu_milli = cpu_milli, .memory = memory};

    if (rc < 0)
        return rc;
    if (s->count == MS_STOCK_NODES_MAX)
        return ms_error_set(err, -E2BIG, "more than %zu nodes", MS_STOCK_NODES_MAX);
    if (reserve_node(s) < 0 || !(n.name = strdup(name)))
        return no_memory(err);
    s->nodes[s->count] = n;
    return (int64_t)s->count++;
}

int ms_stock_add_devices(struct ms_stock *s,
                         size_t node,
                         uint8_t kind,
                         uint32_t count,
                         uint64_t memory,
                         uint32_t domain,
                         struct ms_error *err)
{
    struct ms_stock_node *n = &s->nodes[node];
    struct ms_device *devices;

    if (kind == 0 || kind > s->kind_count)
        return ms_error_set(err, -EINVAL, "node '%s': no such kind of device", n->name);
    if (count > MS_STOCK_DEVICES_MAX - n->device_count)
        return ms_error_set(err,
                            -E2BIG,
                            "node '%s': more than %u devices",
                            n->name,
                            MS_STOCK_DEVICES_MAX);
    if (count == 0)
        return 0;
    devices = realloc(n->devices, (n->device_count + (size_t)count) * sizeof *devices);
    if (!devices)
        return no_memory(err);
    n->devices = devices;
    for (uint32_t i = 0; i < count; i++)
        devices[n->device_count + i] =
            (struct ms_device){.kind = kind, .domain = domain, .memory = memory};
    n->device_count += count;
    n->whole += count;
    return 0;
}

int ms_stock_add_extra(struct ms_stock *s,
                       size_t node,
                       const char *name,
                       uint64_t total,
                       struct ms_error *err)
{
    struct ms_stock_node *n = &s->nodes[node];
    int rc = ms_label_check_new(
        n->name, "resource", name, ms_stock_find_extra(n, name), n->extra_count, err);
    struct ms_extra extra = {.total = total};

    if (rc < 0)
        return rc;
    if (grow(&n->extras, n->extra_count, sizeof *n->extras) < 0 ||
        !(extra.name = strdup(name)))
        return no_memory(err);
    n->extras[n->extra_count++] = extra;
    return 0;
}

int ms_stock_add_label(struct ms_stock *s,
                       size_t node,
                       const char *text,
                       struct ms_error *err)
{
    struct ms_stock_node *n = &s->nodes[node];
    int rc = ms_label_check_text(n->name, text, n->labels, n->label_count, err);

    if (rc < 0)
        return rc;
    if (grow(&n->labels, n->label_count, sizeof *n->labels) < 0 ||
        !(n->labels[n->label_count] = strdup(text)))
        return no_memory(err);
    n->label_count++;
    return 0;
}

/* ---- a copy ---------------------------------------------------------------------- */

int ms_stock_copy_unheld(const struct ms_stock *s, struct ms_stock *out)
{
    size_t devices = 0, extras = 0;
    struct ms_device *device;
    struct ms_extra *extra;

    for (size_t i = 0; i < s->count; i++) {
        devices += s->nodes[i].device_count;
        extras += s->nodes[i].extra_count;
    }
    *out = *s;
    out->nodes = calloc(s->count + 1, sizeof *out->nodes);
    device = calloc(devices + 1, sizeof *device);
    extra = calloc(extras + 1, sizeof *extra);
    if (out->nodes) { /* they are freed with the first node, or in place of one */
        out->nodes[0].devices = device;
        out->nodes[0].extras = extra;
    }
    if (!out->nodes || !device || !extra) {
        ms_stock_copy_finish(out);
        return -ENOMEM;
    }
    for (size_t i = 0; i < s->count; i++) {
        const struct ms_stock_node *from = &s->nodes[i];
        struct ms_stock_node *n = &out->nodes[i];

        *n = *from;
        n->cpu_milli_held = n->memory_held = 0;
        n->whole = n->device_count;
        n->devices = device;
        n->extras = extra;
        for (uint32_t d = 0; d < n->device_count; d++)
            *device++ = (struct ms_device){.kind = from->devices[d].kind,
                                           .domain = from->devices[d].domain,
                                           .memory = from->devices[d].memory};
        for (size_t x = 0; x < n->extra_count; x++)
            *extra++ =
                (struct ms_extra){from->extras[x].name, from->extras[x].total, 0};
    }
    return 0;
}

void ms_stock_copy_finish(struct ms_stock *s)
{
    if (s->nodes) {
        free(s->nodes[0].devices);
        free(s->nodes[0].extras);
    }
    free(s->nodes);
    *s = (struct ms_stock){0};
}
