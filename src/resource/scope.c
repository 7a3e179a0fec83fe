/* scope.c - which nodes count, and a stock of those alone */
#include "resource/scope.h"
#include "base/cleanup.h"
#include "base/name.h"
#include "resource/amount.h"
#include "resource/grid.h"

#include <errno.h>
#include <stdlib.h>

enum { TABLE_LINES_MAX = 24 };

void ms_scope_finish(struct ms_scope *s)
{
    free(s->nodes);
    free(s->first);
    *s = (struct ms_scope){0};
}

uint32_t ms_scope_devices(const struct ms_scope *s)
{
    return s->count ? s->first[s->count] : 0;
}

uint32_t ms_scope_devices_of(const struct ms_scope *s, size_t i)
{
    return s->first[i + 1] - s->first[i];
}

bool ms_scope_find(const struct ms_scope *s, uint32_t id, size_t *node, uint32_t *index)
{
    size_t low = 0, high = s->count;

    if (id >= ms_scope_devices(s))
        return false;
    while (high - low > 1) { /* first[low] <= id < first[high] */
        size_t middle = low + (high - low) / 2;

        if (s->first[middle] <= id)
            low = middle;
        else
            high = middle;
    }
    *node = low;
    *index = id - s->first[low];
    return true;
}

/* ---- which nodes ----------------------------------------------------------------- */

struct named {
    const char *name;
    uint32_t node;
};

static int compare(const void *a, const void *b)
{
    const struct named *x = a, *y = b;

    return ms_name_order(x->name, y->name);
}

/* All, in order; mostly they are in order already. */
static struct named *sort_nodes(const struct ms_stock *s)
{
    struct named *all = calloc(s->count + 1, sizeof *all);
    bool sorted = true;

    for (uint32_t i = 0; all && i < s->count; i++) {
        all[i] = (struct named){s->nodes[i].name, i};
        sorted = sorted && (i == 0 || compare(&all[i - 1], &all[i]) < 0);
    }
    if (all && !sorted)
        qsort(all, s->count, sizeof *all, compare);
    return all;
}

static bool is_enough(const struct ms_stock_node *n, const struct ms_scope_request *r)
{
    return r->devices_per_node == MS_ALL_DEVICES ||
           n->device_count >= r->devices_per_node;
}

static int select_named(const struct ms_stock *s,
                        const struct named *all,
                        const struct ms_scope_request *r,
                        struct ms_scope *out,
                        struct ms_error *err)
{
    MS_CLEANUP(ms_cleanup_free) bool *wanted = calloc(s->count + 1, sizeof *wanted);

    if (!wanted)
        return ms_error_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < r->name_count; i++) {
        struct named key = {r->names[i], 0};
        const struct named *at = bsearch(&key, all, s->count, sizeof *all, compare);

        if (!at)
            return ms_error_set(err, -ENOENT, "there is no node '%s'", r->names[i]);
        if (wanted[at->node])
            return ms_error_set(err, -EINVAL, "node '%s' is named twice", r->names[i]);
        if (!is_enough(&s->nodes[at->node], r))
            return ms_error_set(err,
                                -ENOSPC,
                                "node '%s' has %u devices, and %u are asked for",
                                at->name,
                                s->nodes[at->node].device_count,
                                r->devices_per_node);
        wanted[at->node] = true;
    }
    for (size_t i = 0; i < s->count; i++)
        if (wanted[all[i].node])
            out->nodes[out->count++] = all[i].node;
    return 0;
}

static int print_nodes(const struct ms_stock *s,
                       const struct named *all,
                       const struct ms_scope_request *r,
                       struct ms_buf *out)
{
    static const char *const titles[] = {"", "NODE", "DEVICES", "CPUS", "MEMORY"};
    bool marked = false;
    struct ms_grid g;

    ms_grid_init(&g, "lllll");
    ms_grid_add_titles(&g, titles);
    for (size_t i = 0; i < s->count && i < TABLE_LINES_MAX; i++) {
        const struct ms_stock_node *n = &s->nodes[all[i].node];
        bool misfit = !marked && (n->is_gone || !is_enough(n, r));

        marked = marked || misfit;
        ms_grid_add(&g, NULL, "%s", misfit ? ">" : "");
        ms_grid_add(&g, NULL, "%s", n->name);
        ms_grid_add(&g, NULL, n->is_gone ? "%u (gone)" : "%u", n->device_count);
        ms_grid_add(&g, NULL, "%s", ms_amount_cpus(n->cpu_milli).text);
        ms_grid_add(&g, NULL, "%s", ms_amount_bytes(n->memory).text);
    }
    ms_grid_end(&g, out);
    if (s->count > TABLE_LINES_MAX)
        ms_buf_printf(out, "   and %zu more nodes\n", s->count - TABLE_LINES_MAX);
    return out->failed;
}

static int too_few(const struct ms_stock *s,
                   const struct named *all,
                   const struct ms_scope_request *r,
                   size_t found,
                   struct ms_buf *table,
                   struct ms_error *err)
{
    size_t asked = r->num_nodes ? r->num_nodes : 1;
    bool any = r->devices_per_node == MS_ALL_DEVICES;
    char of[32] = "";

    if (table && print_nodes(s, all, r, table) < 0)
        return ms_error_set(err, -ENOMEM, "out of memory");
    if (!any)
        snprintf(of, sizeof of, " of %u devices", r->devices_per_node);
    return ms_error_set(err,
                        -ENOSPC,
                        "%s%s %s asked for, and there %s %zu of %zu",
                        ms_amount_count(asked, "node").text,
                        of,
                        asked == 1 ? "is" : "are",
                        found == 1 ? "is" : "are",
                        found,
                        s->count);
}

static int select_first(const struct ms_stock *s,
                        const struct named *all,
                        const struct ms_scope_request *r,
                        struct ms_scope *out)
{
    size_t most = r->num_nodes ? r->num_nodes : s->count;

    for (size_t i = 0; i < s->count && out->count < most; i++) {
        const struct ms_stock_node *n = &s->nodes[all[i].node];

        if (!n->is_gone && is_enough(n, r))
            out->nodes[out->count++] = all[i].node;
    }
    return out->count && out->count >= r->num_nodes ? 0 : -ENOSPC;
}

/* ---- their devices --------------------------------------------------------------- */

static int count_devices(const struct ms_stock *s,
                         uint32_t most,
                         struct ms_scope *out,
                         struct ms_error *err)
{
    uint64_t id = 0;

    for (size_t i = 0; i < out->count; i++) {
        uint32_t has = s->nodes[out->nodes[i]].device_count;

        out->first[i] = (uint32_t)id;
        id += has < most ? has : most;
        if (id >= UINT32_MAX)
            return ms_error_set(err, -E2BIG, "too many devices");
    }
    out->first[out->count] = (uint32_t)id;
    return 0;
}

int ms_scope_init(struct ms_scope *out,
                  const struct ms_stock *s,
                  const struct ms_scope_request *r,
                  struct ms_buf *table,
                  struct ms_error *err)
{
    MS_CLEANUP(ms_cleanup_free) struct named *all = sort_nodes(s);
    struct ms_scope scope = {.nodes = calloc(s->count + 1, sizeof *scope.nodes),
                             .first = calloc(s->count + 1, sizeof *scope.first)};
    int rc = 0;

    if (!all || !scope.nodes || !scope.first)
        rc = ms_error_set(err, -ENOMEM, "out of memory");
    else if (r->names)
        rc = select_named(s, all, r, &scope, err);
    else if (select_first(s, all, r, &scope) < 0)
        rc = too_few(s, all, r, scope.count, table, err);
    if (rc == 0)
        rc = count_devices(s, r->devices_per_node, &scope, err);
    if (rc < 0)
        ms_scope_finish(&scope);
    else
        *out = scope;
    return rc;
}

/* ---- a view ---------------------------------------------------------------------- */

/* A node with `count` devices, the first of those that it has. */
static struct ms_stock_node cut(const struct ms_stock_node *from, uint32_t count)
{
    struct ms_stock_node n = *from;

    if (count == n.device_count)
        return n;
    n.device_count = count;
    n.whole = 0;
    for (uint32_t i = 0; i < count; i++)
        n.whole += ms_device_is_free(&n.devices[i]);
    return n;
}

int ms_stock_view_init(struct ms_stock_view *v,
                       struct ms_stock *s,
                       const struct ms_scope_request *r,
                       struct ms_error *err)
{
    struct ms_stock_view view = {.real = s, .stock = *s};
    int rc = ms_scope_init(&view.scope, s, r, NULL, err);

    if (rc < 0)
        return rc;
    view.stock.count = view.stock.capacity = view.scope.count;
    view.stock.nodes = calloc(view.scope.count + 1, sizeof *view.stock.nodes);
    if (!view.stock.nodes) {
        ms_scope_finish(&view.scope);
        return ms_error_set(err, -ENOMEM, "out of memory");
    }
    for (size_t i = 0; i < view.scope.count; i++)
        view.stock.nodes[i] =
            cut(&s->nodes[view.scope.nodes[i]], ms_scope_devices_of(&view.scope, i));
    *v = view;
    return 0;
}

void ms_stock_view_finish(struct ms_stock_view *v)
{
    for (size_t i = 0; i < v->scope.count; i++) {
        struct ms_stock_node *n = &v->real->nodes[v->scope.nodes[i]];
        struct ms_stock_node seen = cut(&v->stock.nodes[i], n->device_count);

        n->cpu_milli_held = seen.cpu_milli_held;
        n->memory_held = seen.memory_held;
        n->whole = seen.whole;
    }
    free(v->stock.nodes);
    ms_scope_finish(&v->scope);
    *v = (struct ms_stock_view){0};
}
