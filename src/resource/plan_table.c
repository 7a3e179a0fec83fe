#include "resource/plan_table.h"
#include "base/cleanup.h"
#include "resource/amount.h"
#include "resource/grid.h"
#include "resource/mapping.h"

#include <errno.h>
#include <string.h>

/* "3 of 8" with one of the printers above; what is held may be more than there is. */
static int print_free(uint64_t total,
                      uint64_t held,
                      int (*print)(uint64_t, struct ms_buf *),
                      struct ms_buf *out)
{
    int rc = print(total > held ? total - held : 0, out);

    if (rc == 0)
        rc = ms_buf_printf(out, " of ");
    return rc ? rc : print(total, out);
}

/* The ids first .. first + count - 1. */
static int print_ids(uint32_t first, uint32_t count, struct ms_buf *out)
{
    if (count == 0)
        return ms_buf_printf(out, "-");
    if (count == 1)
        return ms_buf_printf(out, "%u", first);
    return ms_buf_printf(out, "%u-%u", first, first + count - 1);
}

static bool same_holder(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

/* "0-3 actor/0, 5 ref/1": runs of one holder, by global id; `first` is that of device
 * 0. */
static int
print_holders(const struct ms_plan_node *n, uint32_t first, struct ms_buf *out)
{
    size_t start = out->len;
    int rc = 0;

    for (uint32_t i = 0, end; n->held_by && rc == 0 && i < n->devices; i = end) {
        for (end = i + 1;
             end < n->devices && same_holder(n->held_by[i], n->held_by[end]);
             end++)
            ;
        if (!n->held_by[i])
            continue;
        rc = ms_buf_printf(out, "%s", out->len > start ? ", " : "");
        if (rc == 0)
            rc = print_ids(first + i, end - i, out);
        if (rc == 0)
            rc = ms_buf_printf(out, " %s", n->held_by[i]);
    }
    if (rc == 0 && out->len == start)
        rc = ms_buf_printf(out, "-");
    return rc;
}

static int print_count(uint32_t n, const char *noun, struct ms_buf *out)
{
    return ms_buf_printf(out, "%u %s%s", n, noun, n == 1 ? "" : "s");
}

/* ", 4 CPUs<tail>, 16.0 GiB<tail>", without what is not asked for. */
static int print_amounts(const struct ms_plan_request *r,
                         uint64_t cpu_milli,
                         uint64_t memory,
                         const char *tail,
                         struct ms_buf *out)
{
    int rc = 0;

    if (r->cpu_milli) {
        rc = ms_buf_printf(out, ", ");
        rc = rc ? rc : ms_amount_print_cpus(cpu_milli, out);
        rc = rc ? rc : ms_buf_printf(out, " CPUs%s", tail);
    }
    if (rc == 0 && r->memory) {
        rc = ms_buf_printf(out, ", ");
        rc = rc ? rc : ms_amount_print_bytes(memory, out);
        rc = rc ? rc : ms_buf_printf(out, "%s", tail);
    }
    return rc;
}

static int print_wanted(const struct ms_plan_request *r,
                        const struct ms_plan_need *need,
                        struct ms_buf *out)
{
    int rc;

    if (need->workers == 0)
        return ms_buf_printf(out, "-");
    rc = print_count(need->workers, "worker", out);
    return rc ? rc : print_amounts(r, need->cpu_milli, need->memory, "", out);
}

static int print_room(const struct ms_plan_need *need, struct ms_buf *out)
{
    return need->room == UINT32_MAX ? ms_buf_printf(out, "any number")
                                    : print_count(need->room, "worker", out);
}

/* Move the text so far into the grid's next cell. */
static void add_cell(struct ms_grid *g, struct ms_buf *text, int rc)
{
    const char *s = rc == 0 ? ms_buf_str(text) : NULL;

    if (s)
        ms_grid_add(g, NULL, "%s", s);
    else
        g->failed = -ENOMEM;
    text->len = 0;
}

static void add_node(struct ms_grid *g,
                     const struct ms_plan_node *n,
                     size_t index,
                     const struct ms_plan_request *r,
                     const struct ms_plan_need *need)
{
    static const struct ms_plan_need nothing = {.room = UINT32_MAX};
    uint32_t first = (uint32_t)index * n->devices;
    struct ms_buf text = {0};

    need = need ? need : &nothing;
    ms_grid_add(g, NULL, "%s", need->misfit ? ">" : "");
    ms_grid_add(g, NULL, "%s", n->name);
    add_cell(g, &text, print_ids(first, n->devices, &text));
    add_cell(g, &text, print_holders(n, first, &text));
    add_cell(g,
             &text,
             print_free(n->cpu_milli, n->cpu_milli_held, ms_amount_print_cpus, &text));
    add_cell(
        g, &text, print_free(n->memory, n->memory_held, ms_amount_print_bytes, &text));
    add_cell(g, &text, print_wanted(r, need, &text));
    add_cell(g, &text, print_room(need, &text));
    ms_buf_finish(&text);
}

static int print_asked(const struct ms_plan_request *r, bool misfit, struct ms_buf *out)
{
    uint32_t per = r->device_count ? r->devices_per_worker : 0;
    uint32_t workers = per ? (uint32_t)(r->device_count / per) : r->world_size;
    int rc =
        ms_buf_printf(out, "%sasked: cluster '%s', ", misfit ? "> " : "", r->cluster);

    rc = rc ? rc : print_count(workers, "worker", out);
    if (rc == 0 && r->device_count) {
        rc = ms_buf_printf(out, ", ");
        rc = rc ? rc : print_count(per, "device", out);
        rc = rc ? rc : ms_buf_printf(out, " each, of ");
        rc = rc ? rc : ms_mapping_print(r->devices, r->device_count, 0, out);
    }
    rc = rc ? rc : print_amounts(r, r->cpu_milli, r->memory, " each", out);
    return rc ? rc : ms_buf_printf(out, "\n");
}

/* No node is to blame: the request is. */
static bool is_asked_misfit(const struct ms_plan_need *needs, size_t node_count)
{
    for (size_t i = 0; needs && i < node_count; i++)
        if (needs[i].misfit)
            return false;
    return true;
}

int ms_plan_explain(const struct ms_plan_node *nodes,
                    size_t node_count,
                    const struct ms_plan_request *request,
                    const struct ms_plan_need *needs,
                    struct ms_buf *table)
{
    static const char *const head[] = {
        "", "NODE", "DEVICES", "HELD BY", "CPUS FREE", "MEMORY FREE", "WANTED", "ROOM"};
    struct ms_grid g;
    int rc = print_asked(request, is_asked_misfit(needs, node_count), table);

    ms_grid_init(&g, "llllllll");
    for (size_t i = 0; i < MS_COUNT(head); i++)
        ms_grid_add(&g, NULL, "%s", head[i]);
    for (size_t i = 0; i < node_count; i++)
        add_node(&g, &nodes[i], i, request, needs ? &needs[i] : NULL);
    if (rc == 0)
        rc = ms_grid_print(&g, table);
    ms_grid_finish(&g);
    return rc;
}

/* ---- the map of ranks ------------------------------------------------------------ */

/* Who else is on the devices of a rank: each holder once. */
static int print_shared(const struct ms_plan_node *n,
                        const uint32_t *devices,
                        uint32_t count,
                        struct ms_buf *out)
{
    const char *last = NULL;
    int rc = 0;

    for (uint32_t i = 0; n->held_by && rc == 0 && i < count; i++) {
        const char *by = n->held_by[devices[i]];

        if (!by || same_holder(by, last))
            continue;
        rc = ms_buf_printf(out, "%s%s", last ? ", " : "", by);
        last = by;
    }
    return rc;
}

static void add_rank(struct ms_grid *g,
                     const struct ms_plan *p,
                     uint32_t rank,
                     const struct ms_plan_node *nodes)
{
    uint32_t per = p->devices_per_worker, node = p->nodes[rank];
    const struct ms_plan_node *n = &nodes[node];
    const uint32_t *devices = p->devices + (size_t)rank * per;
    struct ms_buf text = {0};

    ms_grid_add(g, NULL, "%u", rank);
    ms_grid_add(g, NULL, "%s", n->name);
    if (per == 0) {
        for (int i = 0; i < 3; i++)
            ms_grid_add(g, NULL, "%s", i < 2 ? "-" : "");
        return;
    }
    add_cell(g, &text, ms_mapping_print(devices, per, 0, &text));
    add_cell(g, &text, ms_mapping_print(devices, per, node * n->devices, &text));
    add_cell(g, &text, print_shared(n, devices, per, &text));
    ms_buf_finish(&text);
}

int ms_plan_print(const struct ms_plan *p,
                  const struct ms_plan_node *nodes,
                  struct ms_buf *out)
{
    static const char *const head[] = {
        "RANK", "NODE", "DEVICES", "GLOBAL", "SHARED WITH"};
    struct ms_grid g;
    int rc;

    ms_grid_init(&g, "rllll");
    for (size_t i = 0; i < MS_COUNT(head); i++)
        ms_grid_add(&g, NULL, "%s", head[i]);
    for (uint32_t rank = 0; rank < p->world_size; rank++)
        add_rank(&g, p, rank, nodes);
    rc = ms_grid_print(&g, out);
    ms_grid_finish(&g);
    return rc;
}
