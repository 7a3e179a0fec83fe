/* layout_hint.c - the nearest change with which a layout can be made */
#include "base/cleanup.h"
#include "resource/amount.h"
#include "resource/layout_impl.h"
#include "resource/mapping.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>

static bool fits(struct ms_stock *s, const struct ms_layout_request *r)
{
    MS_CLEANUP(ms_attempt_finish)
    struct ms_attempt a = {.stock = s, .request = r};

    return ms_attempt_run(&a) == 0;
}

/* ---- other widths and counts ----------------------------------------------------- */

/* The nearest width of a worker that fits, the smaller one of two; 0: none. */
static uint32_t nearest_width(struct ms_stock *s, const struct ms_layout_request *r)
{
    uint32_t per = r->devices_per_worker;
    uint32_t most = r->device_count < UINT32_MAX ? (uint32_t)r->device_count : 0;

    for (uint32_t away = 1; away <= most; away++) {
        struct ms_layout_request other = *r;

        other.devices_per_worker = per > away ? per - away : 0;
        if (other.devices_per_worker && most % other.devices_per_worker == 0 &&
            fits(s, &other))
            return other.devices_per_worker;
        other.devices_per_worker = per + away;
        if (other.devices_per_worker <= most && most % other.devices_per_worker == 0 &&
            fits(s, &other))
            return other.devices_per_worker;
    }
    return 0;
}

static void
hint_width(struct ms_stock *s, const struct ms_layout_request *r, struct ms_buf *out)
{
    uint32_t width = r->device_count ? nearest_width(s, r) : 0;

    if (width)
        ms_buf_printf(
            out, "it fits with %s per worker\n", ms_amount_count(width, "GPU").text);
}

static void
hint_workers(struct ms_stock *s, const struct ms_layout_request *r, struct ms_buf *out)
{
    struct ms_layout_request other = *r;
    uint32_t low = 0, high = r->world_size;

    if (r->device_count && r->devices_per_worker) {
        other.world_size = (uint32_t)(r->device_count / r->devices_per_worker);
        if (r->world_size && other.world_size != r->world_size && fits(s, &other))
            ms_buf_printf(out, "it fits with world_size=%u\n", other.world_size);
        return;
    }
    while (!r->device_count && high - low > 1) { /* low fits, high does not */
        other.world_size = low + (high - low) / 2;
        *(fits(s, &other) ? &low : &high) = other.world_size;
    }
    if (low)
        ms_buf_printf(out, "it fits with %s\n", ms_amount_count(low, "worker").text);
}

/* ---- smaller amounts ------------------------------------------------------------- */

static const struct {
    size_t field; /* of struct ms_layout_request */
    uint64_t unit;
    const char *of;
} amounts[] = {
    {offsetof(struct ms_layout_request, cpu_milli), 1000, NULL},
    {offsetof(struct ms_layout_request, memory), 1 << 20, "memory per worker"},
    {offsetof(struct ms_layout_request, device_memory),
     1 << 20,
     "the memory of each device"},
};

/* The most of an amount with which it fits, in units; 0: none. */
static uint64_t
largest(struct ms_stock *s, const struct ms_layout_request *r, size_t amount)
{
    struct ms_layout_request other = *r;
    uint64_t *field = (uint64_t *)(void *)((char *)&other + amounts[amount].field);
    uint64_t unit = amounts[amount].unit, low = 0, high = (*field + unit - 1) / unit;

    while (high > low + 1) { /* low fits or is 0, high does not */
        uint64_t middle = low + (high - low) / 2;

        *field = middle * unit;
        *(fits(s, &other) ? &low : &high) = middle;
    }
    return low;
}

static void
hint_amounts(struct ms_stock *s, const struct ms_layout_request *r, struct ms_buf *out)
{
    uint64_t most = 0;
    size_t i = 0;

    while (i < MS_COUNT(amounts) && !(most = largest(s, r, i)))
        i++;
    if (most && !amounts[i].of)
        ms_buf_printf(
            out, "it fits with %s per worker\n", ms_amount_count(most, "CPU").text);
    else if (most)
        ms_buf_printf(out,
                      "it fits with %s of %s\n",
                      ms_amount_bytes(most * amounts[i].unit).text,
                      amounts[i].of);
}

/* ---- other devices --------------------------------------------------------------- */

static bool
is_usable(const struct ms_stock *s, const struct ms_layout_request *r, uint32_t id)
{
    const struct ms_stock_node *n;
    const struct ms_device *d;
    uint32_t index;
    size_t node;

    if (!ms_scope_find(r->scope, id, &node, &index))
        return false;
    n = &s->nodes[r->scope->nodes[node]];
    d = &n->devices[index];
    return !n->is_gone && d->held_milli == 0 &&
           d->memory >= d->memory_held + r->device_memory;
}

/* As many other devices, the first that are to be had; or fewer, if there are too few. */
static void
hint_devices(struct ms_stock *s, const struct ms_layout_request *r, struct ms_buf *out)
{
    uint32_t all = ms_scope_devices(r->scope), per = r->devices_per_worker;
    struct ms_layout_request other = *r;
    MS_CLEANUP(ms_cleanup_free)
    uint32_t *ids = calloc(r->device_count + 1, sizeof *ids);

    if (!ids)
        out->failed = -ENOMEM;
    if (!ids || !r->device_count || !per)
        return;
    other.devices = ids;
    other.device_count = 0;
    for (uint32_t id = 0; id < all && other.device_count < r->device_count; id++)
        if (is_usable(s, r, id))
            ids[other.device_count++] = id;
    other.device_count -= other.device_count % per;
    if (other.device_count < r->device_count)
        other.world_size = 0;
    if (other.device_count == 0 || !fits(s, &other))
        return;
    ms_buf_printf(out, "it fits with device_mapping=\"");
    ms_mapping_print(ids, other.device_count, 0, out);
    ms_buf_printf(out, "\"\n");
}

int ms_layout_hint(struct ms_stock *s,
                   const struct ms_layout_request *r,
                   struct ms_buf *out)
{
    typedef void hint_fn(
        struct ms_stock *, const struct ms_layout_request *, struct ms_buf *);
    static hint_fn *const hints[] = {
        hint_workers, hint_amounts, hint_width, hint_devices};
    size_t before = out->len;

    if (r->scope->count == 0 || r->device_count > MS_LAYOUT_WORKERS_MAX ||
        r->world_size > MS_LAYOUT_WORKERS_MAX)
        return 0;
    for (size_t i = 0; i < MS_COUNT(hints) && !out->failed && out->len == before; i++)
        hints[i](s, r, out);
    return out->failed;
}
