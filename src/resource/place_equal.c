/* place_equal.c - bundles of one kind, exactly */
#include "base/cleanup.h"
#include "resource/place_impl.h"

#include <errno.h>
#include <stdlib.h>

/* One attempt with equal bundles. */
struct attempt {
    const struct ms_stock *stock;
    const uint32_t *domain_of;
    enum ms_strategy strategy;
    uint32_t want;
    uint32_t *room;  /* [nodes] bundles that fit there */
    uint64_t *total; /* [nodes] of the domain whose first node this is */
};

static void attempt_finish(struct attempt *a)
{
    free(a->room);
    free(a->total);
}

/* What a node adds to its domain. */
static uint32_t worth(const struct attempt *a, size_t node)
{
    uint32_t room = a->room[node];

    return a->strategy == MS_STRATEGY_STRICT_SPREAD && room ? 1 : room;
}

static void measure(struct attempt *a, const struct ms_bundle *b)
{
    for (size_t i = 0; i < a->stock->count; i++) {
        uint32_t domain = a->domain_of[i];

        if (domain == UINT32_MAX)
            continue;
        a->room[i] = ms_bundle_room(b, &a->stock->nodes[i], UINT32_MAX);
        if (a->strategy != MS_STRATEGY_STRICT_PACK)
            a->total[domain] += worth(a, i);
        else if (a->room[i] > a->total[domain])
            a->total[domain] = a->room[i];
    }
}

static int attempt_init(struct attempt *a,
                        const struct ms_stock *s,
                        const struct ms_place_request *r,
                        const uint32_t *domain_of)
{
    size_t nodes = s->count ? s->count : 1;

    *a = (struct attempt){.stock = s,
                          .domain_of = domain_of,
                          .strategy = r->strategy,
                          .want = (uint32_t)r->count};
    a->room = calloc(nodes, sizeof *a->room);
    a->total = calloc(nodes, sizeof *a->total);
    if (!a->room || !a->total)
        return -ENOMEM;
    measure(a, &r->bundles[0]);
    return 0;
}

/* The domain with the least that suffices; UINT32_MAX: none does. */
static uint32_t choose_domain(const struct attempt *a)
{
    uint32_t best = UINT32_MAX;

    for (uint32_t i = 0; i < a->stock->count; i++)
        if (a->total[i] >= a->want &&
            (best == UINT32_MAX || a->total[i] < a->total[best]))
            best = i;
    return best;
}

/* Only the nodes of one domain are left. */
static void keep_domain(struct attempt *a, uint32_t domain)
{
    for (size_t i = 0; i < a->stock->count; i++)
        if (a->domain_of[i] != domain)
            a->room[i] = 0;
}

/* ---- from room to counts, which replace it --------------------------------------- */

/* The node with the least room that suffices for `want`, leaving out those that `skip`
 * marks; there is one. */
static size_t tightest(const struct attempt *a, const bool *skip, uint32_t want)
{
    size_t best = SIZE_MAX;

    for (size_t i = 0; i < a->stock->count; i++)
        if (!(skip && skip[i]) && a->room[i] >= want &&
            (best == SIZE_MAX || a->room[i] < a->room[best]))
            best = i;
    return best;
}

static void count_strict_pack(struct attempt *a)
{
    size_t node = tightest(a, NULL, a->want);

    for (size_t i = 0; i < a->stock->count; i++)
        a->room[i] = i == node ? a->want : 0;
}

struct roomy {
    uint32_t room, node;
};

static int compare_roomy(const void *a, const void *b)
{
    const struct roomy *x = a, *y = b;

    if (x->room != y->room)
        return x->room > y->room ? -1 : 1;
    return (x->node > y->node) - (x->node < y->node);
}

/* The roomiest nodes, and for the rest the node that it fills best. */
static int count_pack(struct attempt *a)
{
    size_t nodes = a->stock->count, count = 0;
    MS_CLEANUP(ms_cleanup_free) struct roomy *order = calloc(nodes, sizeof *order);
    MS_CLEANUP(ms_cleanup_free) bool *chosen = calloc(nodes, sizeof *chosen);
    uint32_t left = a->want;
    size_t last;

    if (!order || !chosen)
        return -ENOMEM;
    for (uint32_t i = 0; i < nodes; i++)
        if (a->room[i])
            order[count++] = (struct roomy){a->room[i], i};
    qsort(order, count, sizeof *order, compare_roomy);
    for (size_t i = 0; left > order[i].room; i++) {
        chosen[order[i].node] = true;
        left -= order[i].room;
    }
    last = tightest(a, chosen, left);
    for (size_t i = 0; i < nodes; i++)
        if (!chosen[i])
            a->room[i] = i == last ? left : 0;
    return 0;
}

static uint64_t filled(const struct attempt *a, uint32_t level)
{
    uint64_t sum = 0;

    for (size_t i = 0; i < a->stock->count; i++)
        sum += a->room[i] < level ? a->room[i] : level;
    return sum;
}

/* Fill all to the lowest level that suffices; what is too much is taken from the last
 * nodes that reach it. */
static void count_spread(struct attempt *a)
{
    uint32_t low = 1, high = a->want;
    uint64_t surplus;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (filled(a, middle) >= a->want)
            high = middle;
        else
            low = middle + 1;
    }
    surplus = filled(a, low) - a->want;
    for (size_t i = a->stock->count; i-- > 0;) {
        if (a->room[i] < low)
            continue;
        a->room[i] = surplus ? low - 1 : low;
        surplus -= surplus ? 1 : 0;
    }
}

static void count_strict_spread(struct attempt *a)
{
    uint32_t left = a->want;

    for (size_t i = 0; i < a->stock->count; i++) {
        a->room[i] = a->room[i] && left ? 1 : 0;
        left -= a->room[i];
    }
}

static int count_by_strategy(struct attempt *a)
{
    switch (a->strategy) {
    case MS_STRATEGY_PACK:
        return count_pack(a);
    case MS_STRATEGY_SPREAD:
        count_spread(a);
        return 0;
    case MS_STRATEGY_STRICT_PACK:
        count_strict_pack(a);
        return 0;
    case MS_STRATEGY_STRICT_SPREAD:
        count_strict_spread(a);
        return 0;
    }
    return -EINVAL;
}

/* ---------------------------------------------------------------------------------- */

int ms_place_equal(const struct ms_stock *s,
                   const struct ms_place_request *r,
                   const uint32_t *domain_of,
                   struct ms_placement *p)
{
    MS_CLEANUP(attempt_finish) struct attempt a = {0};
    int rc = attempt_init(&a, s, r, domain_of);
    uint32_t domain;
    size_t bundle = 0;

    if (rc < 0)
        return rc;
    domain = choose_domain(&a);
    if (domain == UINT32_MAX)
        return -ENOSPC;
    keep_domain(&a, domain);
    rc = count_by_strategy(&a);
    for (uint32_t i = 0; rc == 0 && i < s->count; i++)
        while (a.room[i]) {
            p->nodes[bundle++] = i;
            a.room[i]--;
        }
    return rc;
}
