/* holders.c - who holds the devices of a node, for people */
#include "resource/books_impl.h"
#include "resource/grid.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

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
    int rc;

    ms_grid_init(&g, "lllll");
    ms_grid_add_titles(&g, titles);
    for (size_t i = 0; i < lines; i++)
        ms_layout_add_node(&g, &b->stock, scope, i, &holders);
    rc = ms_grid_end(&g, out);
    if (rc == 0 && lines < scope->count)
        rc = ms_buf_printf(out, "and %zu more nodes\n", scope->count - lines);
    return rc;
}
