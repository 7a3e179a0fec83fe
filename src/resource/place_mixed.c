/* place_mixed.c - bundles of several kinds: greedily first, and then every way there is, up to a limit.
 *
 * The search tries the bundles from the biggest to the smallest, each on every node. Two
 * things keep it small: of nodes that are in the same state one is enough, and a bundle
 * that is equal to the one before it starts at that one's node. A share is tried on each
 * device of a node; whole devices are taken as ms_bundle_take does, which is exact where
 * the devices of a node are alike. Where they are not, a search that found nothing does
 * not prove that there is nothing. */
#include "base/cleanup.h"
#include "resource/place_impl.h"

#include <errno.h>
#include <stdlib.h>

struct search {
    struct ms_stock *stock;
    const struct ms_place_request *request;
    const uint32_t *domain_of;
    struct ms_placement *out;
    size_t *order;     /* [bundles] the biggest first */
    uint32_t *on_node; /* [nodes] bundles of this group there */
    uint32_t domain;   /* the one that is tried */
    uint64_t steps, steps_max;
    bool is_exact;
};

static const struct ms_bundle *bundle_of(const struct search *s, size_t at)
{
    return &s->request->bundles[s->order[at]];
}

static uint32_t *devices_of(const struct search *s, size_t at)
{
    return s->out->devices + s->out->first[s->order[at]];
}

/* ---- order ----------------------------------------------------------------------- */

static int by_amount(uint64_t a, uint64_t b)
{
    return (a < b) - (a > b); /* the bigger first */
}

static int compare_bundles(const void *a, const void *b, void *arg)
{
    const struct ms_bundle *bundles = arg;
    const size_t *i = a, *j = b;
    const struct ms_bundle *x = &bundles[*i], *y = &bundles[*j];
    int rc = by_amount(x->devices, y->devices);

    rc = rc ? rc : by_amount(x->share_milli, y->share_milli);
    rc = rc ? rc : by_amount(x->device_memory, y->device_memory);
    rc = rc ? rc : by_amount(x->memory, y->memory);
    rc = rc ? rc : by_amount(x->cpu_milli, y->cpu_milli);
    return rc ? rc : (*i > *j) - (*i < *j);
}

/* ---- one bundle on one node ------------------------------------------------------ */

static bool may_use(const struct search *s, uint32_t node, size_t at)
{
    if (s->domain_of[node] != s->domain)
        return false;
    switch (s->request->strategy) {
    case MS_STRATEGY_STRICT_SPREAD:
        return s->on_node[node] == 0;
    case MS_STRATEGY_STRICT_PACK:
        return at == 0 || s->on_node[node];
    default:
        return true;
    }
}

static void note(struct search *s, size_t at, uint32_t node)
{
    s->out->nodes[s->order[at]] = node;
    s->on_node[node]++;
}

static bool put(struct search *s, size_t at, uint32_t node)
{
    if (!ms_bundle_take(bundle_of(s, at), &s->stock->nodes[node], devices_of(s, at)))
        return false;
    note(s, at, node);
    return true;
}

static void unput(struct search *s, size_t at)
{
    uint32_t node = s->out->nodes[s->order[at]];

    ms_bundle_give(bundle_of(s, at), &s->stock->nodes[node], devices_of(s, at));
    s->on_node[node]--;
}

static void unput_all(struct search *s, size_t count)
{
    while (count)
        unput(s, --count);
}

/* ---- greedily -------------------------------------------------------------------- */

/* True: `a` is the better node for the next bundle; `b` comes before it in order. */
static bool is_better(const struct search *s, uint32_t a, uint32_t b)
{
    const struct ms_stock_node *x = &s->stock->nodes[a], *y = &s->stock->nodes[b];
    enum ms_strategy strategy = s->request->strategy;

    if (strategy == MS_STRATEGY_SPREAD)
        return s->on_node[a] < s->on_node[b];
    if (!s->on_node[a] != !s->on_node[b])
        return s->on_node[a];
    if (x->whole != y->whole)
        return x->whole < y->whole;
    return x->cpu_milli - x->cpu_milli_held < y->cpu_milli - y->cpu_milli_held;
}

static uint32_t choose_node(const struct search *s, size_t at)
{
    uint32_t best = UINT32_MAX;

    for (uint32_t i = 0; i < s->stock->count; i++)
        if (may_use(s, i, at) &&
            ms_bundle_room(bundle_of(s, at), &s->stock->nodes[i], 1) &&
            (best == UINT32_MAX || is_better(s, i, best)))
            best = i;
    return best;
}

static bool place_greedily(struct search *s)
{
    for (size_t at = 0; at < s->request->count; at++) {
        uint32_t node = choose_node(s, at);

        s->steps++;
        if (node == UINT32_MAX || !put(s, at, node)) {
            unput_all(s, at);
            return false;
        }
    }
    return true;
}

/* ---- every way ------------------------------------------------------------------- */

static bool is_same_device(const struct ms_device *a, const struct ms_device *b)
{
    return a->kind == b->kind && a->domain == b->domain && a->memory == b->memory &&
           a->memory_held == b->memory_held && a->held_milli == b->held_milli;
}

static bool is_same_room(const struct ms_stock_node *a, const struct ms_stock_node *b)
{
    if (a->cpu_milli - a->cpu_milli_held != b->cpu_milli - b->cpu_milli_held ||
        a->memory - a->memory_held != b->memory - b->memory_held ||
        a->device_count != b->device_count || a->label_count || b->label_count ||
        a->extra_count || b->extra_count || a->is_gone != b->is_gone)
        return false;
    for (uint32_t i = 0; i < a->device_count; i++)
        if (!is_same_device(&a->devices[i], &b->devices[i]))
            return false;
    return true;
}

/* A node before this one, from `first` on, is in the same state: it was tried. */
static bool was_tried(const struct search *s, uint32_t first, uint32_t node)
{
    for (uint32_t i = first; i < node; i++)
        if (!s->on_node[i] == !s->on_node[node] && s->domain_of[i] == s->domain &&
            is_same_room(&s->stock->nodes[i], &s->stock->nodes[node]))
            return true;
    return false;
}

static bool device_was_tried(const struct ms_stock_node *n, uint32_t device)
{
    for (uint32_t i = 0; i < device; i++)
        if (is_same_device(&n->devices[i], &n->devices[device]))
            return true;
    return false;
}

static bool search_from(struct search *s, size_t at);

static bool try_share(struct search *s, size_t at, uint32_t node)
{
    struct ms_stock_node *n = &s->stock->nodes[node];

    for (uint32_t i = 0; i < n->device_count && s->steps < s->steps_max; i++) {
        if (device_was_tried(n, i))
            continue;
        s->steps++;
        if (!ms_bundle_take_at(bundle_of(s, at), n, i))
            continue;
        *devices_of(s, at) = i;
        note(s, at, node);
        if (search_from(s, at + 1))
            return true;
        unput(s, at);
    }
    return false;
}

static bool try_node(struct search *s, size_t at, uint32_t node)
{
    if (bundle_of(s, at)->share_milli)
        return try_share(s, at, node);
    s->steps++;
    if (!put(s, at, node))
        return false;
    if (search_from(s, at + 1))
        return true;
    unput(s, at);
    return false;
}

/* Shares of one node are not alike: an equal one may still go before it. */
static uint32_t first_node(const struct search *s, size_t at)
{
    if (at == 0 || !ms_bundle_is_equal(bundle_of(s, at), bundle_of(s, at - 1)))
        return 0;
    return s->out->nodes[s->order[at - 1]];
}

static bool search_from(struct search *s, size_t at)
{
    uint32_t first;

    if (at == s->request->count)
        return true;
    first = first_node(s, at);
    for (uint32_t i = first; i < s->stock->count && s->steps < s->steps_max; i++)
        if (may_use(s, i, at) && !was_tried(s, first, i) && try_node(s, at, i))
            return true;
    return false;
}

/* ---------------------------------------------------------------------------------- */

static bool devices_are_alike(const struct ms_stock *s)
{
    for (size_t i = 0; i < s->count; i++)
        for (uint32_t j = 1; j < s->nodes[i].device_count; j++) {
            const struct ms_device *a = &s->nodes[i].devices[0];
            const struct ms_device *b = &s->nodes[i].devices[j];

            if (a->kind != b->kind || a->memory != b->memory || a->domain != b->domain)
                return false;
        }
    return true;
}

static int search_init(struct search *s)
{
    const struct ms_place_request *r = s->request;

    s->steps_max = r->steps_max ? r->steps_max : MS_PLACE_STEPS_MAX;
    s->is_exact = devices_are_alike(s->stock);
    s->order = calloc(r->count, sizeof *s->order);
    s->on_node = calloc(s->stock->count ? s->stock->count : 1, sizeof *s->on_node);
    if (!s->order || !s->on_node)
        return -ENOMEM;
    for (size_t i = 0; i < r->count; i++)
        s->order[i] = i;
    qsort_r(s->order,
            r->count,
            sizeof *s->order,
            compare_bundles,
            (void *)(uintptr_t)r->bundles);
    return 0;
}

static void search_finish(struct search *s)
{
    free(s->order);
    free(s->on_node);
}

/* Try each domain; those that no node has as its first are none. */
static bool search_domains(struct search *s, bool (*place)(struct search *s))
{
    for (uint32_t i = 0; i < s->stock->count; i++) {
        if (s->domain_of[i] != i)
            continue;
        s->domain = i;
        if (place(s))
            return true;
    }
    return false;
}

static bool place_by_search(struct search *s)
{
    return search_from(s, 0);
}

int ms_place_mixed(struct ms_stock *stock,
                   const struct ms_place_request *r,
                   const uint32_t *domain_of,
                   struct ms_placement *p,
                   uint64_t *steps)
{
    MS_CLEANUP(search_finish)
    struct search s = {.stock = stock, .request = r, .domain_of = domain_of, .out = p};
    bool found;

    if (search_init(&s) < 0)
        return -ENOMEM;
    found = search_domains(&s, place_greedily);
    if (!found && r->count <= MS_PLACE_SEARCH_MAX) {
        s.steps = 0;
        found = search_domains(&s, place_by_search);
    }
    *steps = s.steps;
    if (found)
        return 0;
    if (s.steps >= s.steps_max || r->count > MS_PLACE_SEARCH_MAX || !s.is_exact)
        return -EAGAIN;
    return -ENOSPC;
}
