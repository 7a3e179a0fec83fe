#include "orchestrator/local/offer.h"

#include "agent/machine/machine.h"
#include "base/cleanup.h"
#include "resource/shape.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- all nodes --------------------------------------------------------------------- */

static int add(struct ms_offers *o,
               const char *name,
               const Muster__NodeShape *told,
               struct ms_stock *stock,
               struct ms_error *err)
{
    Muster__NodeShape *s = ms_machine_shape(name, told, err);
    int64_t at;

    if (!s)
        return err && err->code ? err->code : -ENOMEM;
    o->nodes[o->count++] = s;
    at = ms_stock_add_shape(stock, s, err);
    return at < 0 ? (int)at : 0;
}

int ms_offers_init(struct ms_offers *o,
                   const Muster__NodeShape *const *nodes,
                   size_t count,
                   struct ms_stock *stock,
                   struct ms_error *err)
{
    int rc = 0;

    *o = (struct ms_offers){.nodes = calloc(count + 1, sizeof *o->nodes)};
    if (!o->nodes)
        return ms_error_set(err, -ENOMEM, "out of memory");
    if (count == 0)
        rc = add(o, "localhost", NULL, stock, err);
    for (size_t i = 0; i < count && rc == 0; i++)
        rc = add(o, nodes[i]->name, nodes[i], stock, err);
    if (rc < 0)
        ms_offers_finish(o);
    return rc;
}

void ms_offers_finish(struct ms_offers *o)
{
    for (size_t i = 0; i < o->count; i++)
        ms_shape_destroy(o->nodes[i]);
    free(o->nodes);
    *o = (struct ms_offers){0};
}

/* ---- a part of one ----------------------------------------------------------------- */

/* Devices that nobody has marked go; the order stays. */
static void keep_devices(Muster__NodeShape *s, const bool *is_held)
{
    size_t kept = 0;

    for (size_t i = 0; i < s->n_devices; i++)
        if (is_held[i])
            s->devices[kept++] = s->devices[i];
        else
            muster__device__free_unpacked(s->devices[i], NULL);
    s->n_devices = kept;
}

static void keep_resources(Muster__NodeShape *s, const uint64_t *held)
{
    size_t kept = 0;

    for (size_t i = 0; i < s->n_resources; i++)
        if (held[i] > 0) {
            s->resources[i]->amount = held[i];
            s->resources[kept++] = s->resources[i];
        } else {
            muster__named_amount__free_unpacked(s->resources[i], NULL);
        }
    s->n_resources = kept;
}

static void
add_resources(const Muster__NodeShape *s, const struct ms_bundle *b, uint64_t *held)
{
    for (size_t i = 0; i < b->extra_count; i++)
        for (size_t k = 0; k < s->n_resources; k++)
            if (strcmp(s->resources[k]->name, b->extras[i].name) == 0)
                held[k] += b->extras[i].amount;
}

/* 0 or -ENOMEM. */
static int cut(Muster__NodeShape *s,
               const struct ms_bundle *const *bundles,
               const uint32_t *const *devices,
               size_t count)
{
    MS_CLEANUP(ms_cleanup_free) bool *is_held = calloc(s->n_devices + 1, sizeof(bool));
    MS_CLEANUP(ms_cleanup_free)
    uint64_t *held = calloc(s->n_resources + 1, sizeof *held);
    uint64_t cpu_milli = 0, memory = 0;

    if (!is_held || !held)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        cpu_milli += bundles[i]->cpu_milli;
        memory += bundles[i]->memory;
        for (uint32_t k = 0; k < ms_bundle_width(bundles[i]); k++)
            is_held[devices[i][k]] = true;
        add_resources(s, bundles[i], held);
    }
    if (cpu_milli > 0)
        s->cpus = (int32_t)((cpu_milli + MS_WHOLE_MILLI - 1) / MS_WHOLE_MILLI);
    if (memory > 0)
        s->memory = memory;
    keep_devices(s, is_held);
    keep_resources(s, held);
    return 0;
}

uint8_t *ms_offer_pack(const Muster__NodeShape *node,
                       const char *name,
                       const struct ms_bundle *const *bundles,
                       const uint32_t *const *devices,
                       size_t count,
                       size_t *len)
{
    MS_CLEANUP(ms_shape_cleanup) Muster__NodeShape *s = ms_shape_copy(node);
    uint8_t *packed;

    if (!s || ms_shape_set_name(s, name) < 0 || cut(s, bundles, devices, count) < 0)
        return NULL;
    *len = muster__node_shape__get_packed_size(s);
    packed = malloc(*len + 1);
    if (packed)
        muster__node_shape__pack(s, packed);
    return packed;
}
