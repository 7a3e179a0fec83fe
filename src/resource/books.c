/* books.c - the books: nodes that come and go, and who holds what of them, for people */
#include "resource/books.h"
#include "base/name.h"
#include "resource/books_impl.h"
#include "resource/grid.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

void ms_books_init(struct ms_books *b)
{
    *b = (struct ms_books){0};
    ms_list_init(&b->groups.all);
    ms_list_init(&b->groups.waiting);
    ms_list_init(&b->groups.news);
    ms_list_init(&b->claims);
}

void ms_books_finish(struct ms_books *b)
{
    ms_list_each (c, &b->claims, struct ms_claim, link)
        ms_claim_destroy(c);
    ms_list_each (g, &b->groups.all, struct ms_group, link)
        ms_group_destroy(b, g);
    ms_stock_finish(&b->stock);
}

/* ---- nodes ----------------------------------------------------------------------- */

/* All that names nodes by index: those from `at` on have moved up. */
static void shift(struct ms_books *b, uint32_t at)
{
    ms_list_each (g, &b->groups.all, struct ms_group, link)
        for (size_t i = 0; i < g->placement.count; i++)
            g->placement.nodes[i] += g->placement.nodes[i] >= at;
    ms_list_each (c, &b->claims, struct ms_claim, link)
        for (uint32_t i = 0; i < c->layout.first[c->layout.world_size]; i++)
            c->layout.pieces[i].node += c->layout.pieces[i].node >= at;
}

/* A new node in its place by name. Its index or a negative errno. */
static int64_t
insert_node(struct ms_books *b, const Muster__NodeShape *shape, struct ms_error *err)
{
    struct ms_stock *s = &b->stock;
    int64_t last = ms_stock_append(s, shape->name, 0, 0, err);
    struct ms_stock_node n;
    size_t at;

    if (last < 0)
        return last;
    n = s->nodes[last];
    for (at = (size_t)last; at && ms_name_order(n.name, s->nodes[at - 1].name) < 0;
         at--)
        s->nodes[at] = s->nodes[at - 1];
    s->nodes[at] = n;
    if ((int64_t)at < last)
        shift(b, (uint32_t)at);
    return (int64_t)at;
}

static bool is_held(const struct ms_stock_node *n)
{
    for (size_t i = 0; i < n->extra_count; i++)
        if (n->extras[i].held)
            return true;
    return n->whole < n->device_count;
}

int ms_books_node_came(struct ms_books *b,
                       const Muster__NodeShape *s,
                       struct ms_error *err)
{
    struct ms_stock_node *n = ms_stock_find(&b->stock, s->name);
    int64_t at = n ? n - b->stock.nodes : insert_node(b, s, err);
    int rc = 0;

    if (at < 0)
        return (int)at;
    n = &b->stock.nodes[at];
    n->is_gone = false;
    n->cpu_milli = ms_shape_cpu_milli(s);
    n->memory = s->memory;
    if (!is_held(n)) {
        ms_stock_strip(n);
        rc = ms_stock_describe(&b->stock, (size_t)at, s, true, err);
    }
    ms_books_retry(b);
    return rc;
}

void ms_books_node_gone(struct ms_books *b, const char *name)
{
    struct ms_stock_node *n = ms_stock_find(&b->stock, name);

    if (!n || n->is_gone)
        return;
    n->is_gone = true;
    ms_groups_break(b, (uint32_t)(n - b->stock.nodes));
}

/* ---- who holds the devices of a node, for people ---------------------------------- */

/* The names on each device of a node, joined by '+'. */
struct names {
    struct ms_buf *at;
    uint32_t count;
};

static void add_name(struct names *n, uint32_t device, const char *name)
{
    size_t len, before;
    struct ms_buf *text;

    assert(name);
    len = strlen(name);
    if (device >= n->count)
        return;
    text = &n->at[device];
    before = text->len >= len ? text->len - len : 0;
    if (text->data && text->len >= len && memcmp(text->data + before, name, len) == 0 &&
        (before == 0 || text->data[before - 1] == '+'))
        return; /* two ranks of one cluster */
    ms_buf_printf(text, "%s%s", text->len ? "+" : "", name);
}

static void add_groups(struct names *n, const struct ms_books *b, uint32_t node)
{
    ms_list_each (g, &b->groups.all, struct ms_group, link) {
        const struct ms_placement *p = &g->placement;

        for (size_t i = 0; i < p->count; i++)
            for (uint32_t d = p->first[i]; p->nodes[i] == node && d < p->first[i + 1];
                 d++)
                add_name(n, p->devices[d], g->name);
    }
}

static void add_claims(struct names *n, const struct ms_books *b, uint32_t node)
{
    ms_list_each (c, &b->claims, struct ms_claim, link) {
        const struct ms_layout *l = &c->layout;

        for (uint32_t i = 0; i < l->first[l->world_size]; i++)
            for (uint32_t d = 0; l->pieces[i].node == node && d < l->pieces[i].count;
                 d++)
                add_name(n, l->devices[l->pieces[i].first + d], c->cluster);
    }
}

static bool is_same(const struct ms_buf *a, const struct ms_buf *b)
{
    return a->len == b->len && (a->len == 0 || memcmp(a->data, b->data, a->len) == 0);
}

/* "0-3 actor+critic, 5 ref". */
static void print_runs(const struct names *n, uint32_t id, struct ms_buf *out)
{
    size_t start = out->len;

    for (uint32_t i = 0, end; i < n->count; i = end) {
        for (end = i + 1; end < n->count && is_same(&n->at[i], &n->at[end]); end++)
            ;
        if (n->at[i].failed)
            out->failed = -ENOMEM;
        if (n->at[i].len == 0)
            continue;
        ms_buf_printf(out, "%s%u", out->len > start ? ", " : "", id + i);
        if (end - i > 1)
            ms_buf_printf(out, "-%u", id + end - 1);
        ms_buf_printf(out, " %.*s", (int)n->at[i].len, (const char *)n->at[i].data);
    }
}

static void
print(void *arg, uint32_t node, uint32_t id, uint32_t count, struct ms_buf *out)
{
    struct names n = {.at = calloc(count + (size_t)1, sizeof *n.at), .count = count};

    if (!n.at) {
        out->failed = -ENOMEM;
        return;
    }
    add_groups(&n, arg, node);
    add_claims(&n, arg, node);
    print_runs(&n, id, out);
    for (uint32_t i = 0; i < count; i++)
        ms_buf_finish(&n.at[i]);
    free(n.at);
}

struct ms_holders ms_books_holders(struct ms_books *b)
{
    return (struct ms_holders){.print = print, .arg = b};
}

/* ---- all that there is ----------------------------------------------------------- */

int ms_books_print(struct ms_books *b, const struct ms_scope *scope, struct ms_buf *out)
{
    static const char *const titles[] = {
        "NODE", "DEVICES", "HELD BY", "CPUS FREE", "MEMORY FREE"};
    size_t lines =
        scope->count < MS_LAYOUT_LINES_MAX ? scope->count : MS_LAYOUT_LINES_MAX;
    struct ms_holders holders = ms_books_holders(b);
    struct ms_grid g;

    ms_grid_init(&g, "lllll");
    ms_grid_add_titles(&g, titles);
    for (size_t i = 0; i < lines; i++)
        ms_layout_add_node(&g, &b->stock, scope, i, &holders);
    ms_grid_end(&g, out);
    if (lines < scope->count)
        ms_buf_printf(out, "and %zu more nodes\n", scope->count - lines);
    return out->failed;
}
