/* why.c - why a group could not be placed, as a table */
#include "resource/why.h"
#include "base/cleanup.h"
#include "resource/amount.h"
#include "resource/grid.h"

#include <errno.h>
#include <string.h>

/* ---- what was asked -------------------------------------------------------------- */

/* Before all but the first. */
static const char *comma(const struct ms_buf *out, size_t start)
{
    return out->len > start ? ", " : "";
}

static void
print_devices(const struct ms_stock *s, const struct ms_bundle *b, struct ms_buf *out)
{
    const char *kind = ms_stock_kind_name(s, b->kind);

    if (b->share_milli)
        ms_buf_printf(out, "0.%03u of a %s", b->share_milli, kind);
    else
        ms_buf_printf(out, "%u %s%s", b->devices, kind, b->devices == 1 ? "" : "s");
    if (b->one_domain)
        ms_buf_printf(out, " of one domain");
    if (b->device_memory)
        ms_buf_printf(out, " with %s", ms_amount_bytes(b->device_memory).text);
}

static void
print_condition(const struct ms_condition *c, const char *before, struct ms_buf *out)
{
    const char *verb = *c->text == '!' ? "not " : strchr(c->text, '(') ? "in " : "";
    const char *at = NULL, *between = "";
    size_t len = 0;

    ms_buf_printf(out, "%s%s %s", before, c->name, verb);
    for (; ms_condition_next(c, &at, &len); between = "|")
        ms_buf_printf(out, "%s%.*s", between, (int)len, at);
}

void ms_bundle_print(const struct ms_stock *s,
                     const struct ms_bundle *b,
                     struct ms_buf *out)
{
    size_t start = out->len;

    if (ms_bundle_width(b))
        print_devices(s, b, out);
    if (b->cpu_milli)
        ms_buf_printf(out,
                      "%s%s CPU%s",
                      comma(out, start),
                      ms_amount_cpus(b->cpu_milli).text,
                      b->cpu_milli == 1000 ? "" : "s");
    if (b->memory)
        ms_buf_printf(out, "%s%s", comma(out, start), ms_amount_bytes(b->memory).text);
    for (size_t i = 0; i < b->extra_count; i++)
        ms_buf_printf(out,
                      "%s%llu %s",
                      comma(out, start),
                      (unsigned long long)b->extras[i].amount,
                      b->extras[i].name);
    for (size_t i = 0; b->selector && i < b->selector->count; i++)
        print_condition(&b->selector->conditions[i], comma(out, start), out);
    if (out->len == start)
        ms_buf_printf(out, "nothing");
}

static void print_group(const struct ms_place_request *r, struct ms_buf *out)
{
    ms_buf_printf(out,
                  "group '%s': %s, %s",
                  r->name,
                  ms_amount_count(r->count, "bundle").text,
                  ms_strategy_name(r->strategy));
    if (r->same)
        ms_buf_printf(out, ", all on one %s", r->same);
    ms_buf_printf(out, "\n");
}

/* Runs of equal bundles, a line each. */
static void print_bundles(const struct ms_stock *s,
                          const struct ms_place_request *r,
                          struct ms_buf *out)
{
    size_t lines = 0, end;

    for (size_t i = 0; i < r->count; i = end, lines++) {
        for (end = i + 1;
             end < r->count && ms_bundle_is_equal(&r->bundles[i], &r->bundles[end]);
             end++)
            ;
        if (lines == MS_WHY_LINES_MAX) {
            ms_buf_printf(out, "  and %zu more\n", r->count - i);
            return;
        }
        ms_buf_printf(out, "  bundle %zu", i);
        if (end - i > 1)
            ms_buf_printf(out, "-%zu", end - 1);
        ms_buf_printf(out, "  ");
        ms_bundle_print(s, &r->bundles[i], out);
        ms_buf_printf(out, "\n");
    }
}

/* The bundle to look at: the first that fits on no node, else the first. */
static const struct ms_bundle *hardest(const struct ms_stock *s,
                                       const struct ms_place_request *r)
{
    for (size_t i = 0; i < r->count; i++) {
        size_t node = 0;

        if (i && ms_bundle_is_equal(&r->bundles[i], &r->bundles[i - 1]))
            continue;
        while (node < s->count &&
               ms_bundle_room(&r->bundles[i], &s->nodes[node], 1) == 0)
            node++;
        if (node == s->count)
            return &r->bundles[i];
    }
    return &r->bundles[0];
}

/* ---- why not on this node -------------------------------------------------------- */

static int why_amount(struct ms_amount want,
                      const char *what,
                      struct ms_amount have,
                      struct ms_buf *out)
{
    return ms_buf_printf(out, "%s%s asked for, %s free", want.text, what, have.text);
}

static int why_devices(const struct ms_stock *s,
                       const struct ms_bundle *b,
                       const struct ms_stock_node *n,
                       struct ms_buf *out)
{
    const char *kind = ms_stock_kind_name(s, b->kind);

    if (n->device_count == 0)
        return ms_buf_printf(out, "no %ss", kind);
    if (b->devices && n->whole < b->devices)
        return ms_buf_printf(out,
                             "%u %s%s asked for, %u free",
                             b->devices,
                             kind,
                             b->devices == 1 ? "" : "s",
                             n->whole);
    return ms_buf_printf(out, "no %s like that is free", kind);
}

static int why_label(const struct ms_condition *c,
                     const struct ms_stock_node *n,
                     struct ms_buf *out)
{
    const char *value = ms_label_find(n->labels, n->label_count, c->name);

    return value ? ms_buf_printf(out, "%s is %s", c->name, value)
                 : ms_buf_printf(out, "no label %s", c->name);
}

static int why_not(const struct ms_stock *s,
                   const struct ms_bundle *b,
                   const struct ms_stock_node *n,
                   struct ms_buf *out)
{
    const struct ms_condition *c =
        b->selector ? ms_selector_misfit(b->selector, n->labels, n->label_count) : NULL;
    uint64_t cpus = ms_stock_left(n->cpu_milli, n->cpu_milli_held);
    uint64_t memory = ms_stock_left(n->memory, n->memory_held);

    if (n->is_gone)
        return ms_buf_printf(out, "it is gone");
    if (c)
        return why_label(c, n, out);
    if (b->cpu_milli > cpus)
        return why_amount(
            ms_amount_cpus(b->cpu_milli), " CPUs", ms_amount_cpus(cpus), out);
    if (b->memory > memory)
        return why_amount(
            ms_amount_bytes(b->memory), " of memory", ms_amount_bytes(memory), out);
    for (size_t i = 0; i < b->extra_count; i++) {
        const struct ms_extra *x = ms_stock_find_extra(n, b->extras[i].name);
        uint64_t have = x ? ms_stock_left(x->total, x->held) : 0;

        if (!x || b->extras[i].amount > have)
            return ms_buf_printf(out,
                                 "%llu %s asked for, %llu free",
                                 (unsigned long long)b->extras[i].amount,
                                 b->extras[i].name,
                                 (unsigned long long)have);
    }
    return why_devices(s, b, n, out);
}

/* ---- the nodes ------------------------------------------------------------------- */

static void add_free(struct ms_grid *g, struct ms_amount left, struct ms_amount total)
{
    ms_grid_add(g, NULL, "%s of %s", left.text, total.text);
}

static bool look_alike(const struct ms_stock_node *a, const struct ms_stock_node *b)
{
    if (a->cpu_milli != b->cpu_milli || a->cpu_milli_held != b->cpu_milli_held ||
        a->memory != b->memory || a->memory_held != b->memory_held ||
        a->device_count != b->device_count || a->whole != b->whole ||
        a->label_count != b->label_count || a->extra_count != b->extra_count ||
        a->is_gone != b->is_gone)
        return false;
    for (size_t i = 0; i < a->label_count; i++)
        if (strcmp(a->labels[i], b->labels[i]) != 0)
            return false;
    for (size_t i = 0; i < a->extra_count; i++)
        if (a->extras[i].held != b->extras[i].held ||
            a->extras[i].total != b->extras[i].total)
            return false;
    return true;
}

/* What the table of nodes is made from. */
struct table {
    const struct ms_stock *stock;
    const struct ms_bundle *bundle;
    const struct ms_holders *holders; /* may be NULL */
    const uint32_t *real;             /* indexes in the real stock; NULL: the same */
    bool marked;                      /* there was a '>' */
};

/* Nodes first to last; `id` is that of the first one's first device. */
static void
add_node(struct ms_grid *g, struct table *t, size_t first, size_t last, uint32_t id)
{
    const struct ms_stock_node *n = &t->stock->nodes[first];
    uint32_t real = t->real ? t->real[first] : (uint32_t)first;
    uint32_t room = ms_bundle_room(t->bundle, n, UINT32_MAX);
    struct ms_buf text = {0};

    ms_grid_add(g, NULL, "%s", room || t->marked ? "" : ">");
    t->marked = t->marked || room == 0;
    if (first == last)
        ms_grid_add(g, NULL, "%s", n->name);
    else
        ms_grid_add(g, NULL, "%s - %s", n->name, t->stock->nodes[last].name);
    add_free(g,
             ms_amount_cpus(ms_stock_left(n->cpu_milli, n->cpu_milli_held)),
             ms_amount_cpus(n->cpu_milli));
    add_free(g,
             ms_amount_bytes(ms_stock_left(n->memory, n->memory_held)),
             ms_amount_bytes(n->memory));
    ms_grid_add(g, NULL, "%u of %u", n->whole, n->device_count);
    if (t->holders) {
        t->holders->print(t->holders->arg, real, id, n->device_count, &text);
        ms_grid_move(g, &text);
    }
    if (room == UINT32_MAX)
        ms_grid_add(g, NULL, "any");
    else
        ms_grid_add(g, NULL, "%u", room);
    if (room == 0)
        why_not(t->stock, t->bundle, n, &text);
    ms_grid_add(g, NULL, "%s", text.len ? ms_buf_str(&text) : "");
    ms_buf_finish(&text);
}

/* The end of the run of nodes that share a line with this one. */
static size_t run_end(const struct table *t, size_t first)
{
    const struct ms_stock_node *n = &t->stock->nodes[first];
    size_t end = first + 1;

    if (t->holders && n->whole < n->device_count)
        return end; /* who holds them is not the same */
    while (end < t->stock->count && look_alike(n, &t->stock->nodes[end]))
        end++;
    return end;
}

static void print_nodes(struct table *t, struct ms_buf *out)
{
    static const char *const titles[] = {
        "", "node", "CPUs", "memory", "devices", "held by", "fits", "why not"};
    size_t lines = 0, first = 0, held_by = 5;
    uint32_t id = 0;
    struct ms_grid g;

    ms_grid_init(&g, t->holders ? "llllllll" : "lllllll");
    for (size_t i = 0; i < MS_COUNT(titles); i++)
        if (i != held_by || t->holders)
            ms_grid_add(&g, NULL, "%s", titles[i]);
    for (size_t end; first < t->stock->count && lines < MS_WHY_LINES_MAX; lines++) {
        end = run_end(t, first);
        add_node(&g, t, first, end - 1, id);
        for (; first < end; first++)
            id += t->stock->nodes[first].device_count;
    }
    ms_grid_end(&g, out);
    if (first < t->stock->count)
        ms_buf_printf(out, "   and %zu more nodes\n", t->stock->count - first);
}

static int explain(struct ms_stock *s,
                   const struct ms_place_request *r,
                   const struct ms_holders *holders,
                   const uint32_t *real,
                   struct ms_buf *out)
{
    struct table t = {
        .stock = s, .bundle = hardest(s, r), .holders = holders, .real = real};
    bool misfit = false;
    size_t before;

    for (size_t i = 0; i < s->count && !misfit; i++)
        misfit = ms_bundle_room(t.bundle, &s->nodes[i], 1) == 0;
    ms_buf_printf(out, "%s", misfit ? "" : "> ");
    print_group(r, out);
    print_bundles(s, r, out);
    print_nodes(&t, out);
    before = out->len;
    if (ms_place_suggest(s, r, out) == 0 && out->len > before)
        ms_buf_printf(out, "\n");
    return out->failed;
}

int ms_place_explain(struct ms_stock *s,
                     const struct ms_place_request *r,
                     const struct ms_holders *holders,
                     struct ms_buf *out)
{
    struct ms_place_request inside = *r;
    struct ms_stock_view view;
    int rc;

    if (!r->scope)
        return explain(s, r, holders, NULL, out);
    rc = ms_stock_view_init(&view, s, r->scope, NULL);
    if (rc < 0)
        return rc == -ENOMEM ? rc : 0;
    inside.scope = NULL;
    rc = explain(&view.stock, &inside, holders, view.scope.nodes, out);
    ms_stock_view_finish(&view);
    return rc;
}
