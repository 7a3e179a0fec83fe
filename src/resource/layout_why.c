/* layout_why.c - why there is no layout, as a table, and the nearest change with which one can
 * be made */
#include "base/cleanup.h"
#include "resource/amount.h"
#include "resource/layout_impl.h"
#include "resource/mapping.h"

#include <errno.h>
#include <stddef.h>

/* ", 4 CPUs<tail>, 16.0 GiB<tail>" for so many, without what is not asked for. */
static void print_amounts(const struct ms_layout_request *r,
                          uint32_t count,
                          const char *tail,
                          struct ms_buf *out)
{
    uint64_t cpus = ms_times(r->cpu_milli, count), memory = ms_times(r->memory, count);

    if (cpus)
        ms_buf_printf(out, ", %s CPUs%s", ms_amount_cpus(cpus).text, tail);
    if (memory)
        ms_buf_printf(out, ", %s%s", ms_amount_bytes(memory).text, tail);
}

static void print_asked(const struct ms_attempt *a, struct ms_buf *out)
{
    const struct ms_layout_request *r = a->request;
    uint32_t per = r->devices_per_worker;
    uint32_t workers =
        per && r->device_count ? (uint32_t)(r->device_count / per) : r->world_size;

    ms_buf_printf(out,
                  "%sasked: cluster '%s', %s",
                  a->misfit == SIZE_MAX ? "> " : "",
                  r->cluster,
                  ms_amount_count(workers, "worker").text);
    if (per || r->device_count)
        ms_buf_printf(out, ", %s each", ms_amount_count(per, "device").text);
    if (r->device_count) {
        ms_buf_printf(out, ", of ");
        ms_mapping_print(r->devices, r->device_count, 0, out);
    }
    print_amounts(r, 1, " each", out);
    if (r->device_memory)
        ms_buf_printf(
            out, ", %s of each device", ms_amount_bytes(r->device_memory).text);
    ms_buf_printf(out, "\n");
}

void ms_layout_add_node(struct ms_grid *g,
                        const struct ms_stock *s,
                        const struct ms_scope *scope,
                        size_t i,
                        const struct ms_holders *holders)
{
    const struct ms_stock_node *n = &s->nodes[scope->nodes[i]];
    uint32_t first = scope->first[i], count = ms_scope_devices_of(scope, i);
    uint64_t cpus = ms_stock_left(n->cpu_milli, n->cpu_milli_held);
    uint64_t memory = ms_stock_left(n->memory, n->memory_held);
    struct ms_buf text = {0};

    ms_grid_add(g, NULL, n->is_gone ? "%s (gone)" : "%s", n->name);
    if (count)
        ms_buf_printf(&text, "%u", first);
    if (count > 1)
        ms_buf_printf(&text, "-%u", first + count - 1);
    ms_grid_move(g, &text);
    if (holders)
        holders->print(holders->arg, scope->nodes[i], first, count, &text);
    ms_grid_move(g, &text);
    ms_grid_add(g,
                NULL,
                "%s of %s",
                ms_amount_cpus(cpus).text,
                ms_amount_cpus(n->cpu_milli).text);
    ms_grid_add(g,
                NULL,
                "%s of %s",
                ms_amount_bytes(memory).text,
                ms_amount_bytes(n->memory).text);
    ms_buf_finish(&text);
}

static void add_node(struct ms_grid *g,
                     const struct ms_attempt *a,
                     size_t i,
                     const struct ms_holders *holders)
{
    const struct ms_layout_need *need = a->needs ? &a->needs[i] : NULL;
    struct ms_buf text = {0};

    ms_grid_add(g, NULL, "%s", a->misfit == i ? ">" : "");
    ms_layout_add_node(g, a->stock, a->request->scope, i, holders);
    if (need && need->workers) {
        ms_buf_printf(&text, "%s", ms_amount_count(need->workers, "worker").text);
        print_amounts(a->request, need->workers, "", &text);
    }
    ms_grid_move(g, &text);
    ms_buf_finish(&text);
    ms_grid_add(g,
                NULL,
                "%s",
                !need || need->room == UINT32_MAX
                    ? "any number"
                    : ms_amount_count(need->room, "worker").text);
}

/* ---- the nearest change ------------------------------------------------------------ */

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

static void
print_hint(struct ms_stock *s, const struct ms_layout_request *r, struct ms_buf *out)
{
    typedef void hint_fn(
        struct ms_stock *, const struct ms_layout_request *, struct ms_buf *);
    static hint_fn *const hints[] = {
        hint_workers, hint_amounts, hint_width, hint_devices};
    size_t before = out->len;

    if (r->scope->count == 0 || r->device_count > MS_LAYOUT_WORKERS_MAX ||
        r->world_size > MS_LAYOUT_WORKERS_MAX)
        return;
    for (size_t i = 0; i < MS_COUNT(hints) && !out->failed && out->len == before; i++)
        hints[i](s, r, out);
}

int ms_attempt_explain(const struct ms_attempt *a,
                       const struct ms_layout_request *asked,
                       const struct ms_holders *holders,
                       struct ms_buf *table)
{
    static const char *const titles[] = {
        "", "NODE", "DEVICES", "HELD BY", "CPUS FREE", "MEMORY FREE", "WANTED", "ROOM"};
    size_t count = a->request->scope->count, lines = 0;
    struct ms_grid g;

    print_asked(a, table);
    ms_grid_init(&g, "llllllll");
    ms_grid_add_titles(&g, titles);
    for (size_t i = 0; i < count; i++)
        if (lines < MS_LAYOUT_LINES_MAX || i == a->misfit) {
            add_node(&g, a, i, holders);
            lines++;
        }
    ms_grid_end(&g, table);
    if (lines < count)
        ms_buf_printf(table, "   and %zu more nodes\n", count - lines);
    print_hint(a->stock, asked, table);
    return table->failed;
}
