/* layout_why.c - why there is no layout, as a table */
#include "base/cleanup.h"
#include "resource/amount.h"
#include "resource/layout_impl.h"
#include "resource/mapping.h"

#include <errno.h>

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

int ms_attempt_explain(const struct ms_attempt *a,
                       const struct ms_holders *holders,
                       struct ms_buf *table)
{
    static const char *const titles[] = {
        "", "NODE", "DEVICES", "HELD BY", "CPUS FREE", "MEMORY FREE", "WANTED", "ROOM"};
    size_t count = a->request->scope->count, lines = 0;
    struct ms_grid g;
    int rc;

    print_asked(a, table);
    ms_grid_init(&g, "llllllll");
    ms_grid_add_titles(&g, titles);
    for (size_t i = 0; i < count; i++)
        if (lines < MS_LAYOUT_LINES_MAX || i == a->misfit) {
            add_node(&g, a, i, holders);
            lines++;
        }
    rc = ms_grid_end(&g, table);
    if (rc == 0 && lines < count)
        rc = ms_buf_printf(table, "   and %zu more nodes\n", count - lines);
    return rc;
}
