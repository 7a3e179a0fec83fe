/* Placement over many random cases, each from its seed: what must always be true, and
 * answers that are compared with slower ways to find them. */
#include "base/test_random.h"
#include "resource/place.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum {
    CASES = 100000,
    NODES_MAX = 6,
    BUNDLES_MAX = 6,
    DEVICES_MAX = 4,
    GROUPS_MAX = 4
};

/* ---- random stocks and requests -------------------------------------------------- */

static uint64_t dice;

static uint32_t roll(uint32_t sides)
{
    return test_roll(&dice, sides);
}

static const char *const racks[] = {"rack=a", "rack=b"};
static struct ms_selector in_a, not_b;

static void add_random_node(struct ms_stock *s, bool alike)
{
    char name[16];
    size_t i = s->count;
    uint32_t devices = roll(DEVICES_MAX + 1);

    snprintf(name, sizeof name, "n%zu", i);
    assert_true(ms_stock_append(s, name, roll(7) * 1000ull, roll(5), NULL) >= 0);
    for (uint32_t d = 0; d < devices; d++)
        assert_int_equal(
            ms_stock_add_devices(
                s, i, 1, 1, alike ? 8 : 4 * (1 + roll(2)), alike ? 0 : roll(2), NULL),
            0);
    if (roll(3))
        ms_stock_add_label(s, i, racks[roll(2)], NULL);
    if (roll(3) == 0)
        ms_stock_add_extra(s, i, "nic", roll(4), NULL);
    s->nodes[i].is_gone = roll(12) == 0;
}

static void random_stock(struct ms_stock *s, bool alike)
{
    uint32_t nodes = roll(NODES_MAX) + 1;

    *s = (struct ms_stock){0};
    assert_int_equal(ms_stock_kind(s, "gpu", NULL), 1);
    while (s->count < nodes)
        add_random_node(s, alike);
}

static const struct ms_extra_need one_nic = {"nic", 1};

static struct ms_bundle random_bundle(bool plain)
{
    struct ms_bundle b = {.cpu_milli = roll(4) * 1000ull, .memory = roll(3)};

    switch (roll(3)) {
    case 0:
        b.devices = roll(3);
        break;
    case 1:
        b.share_milli = 250 * (1 + roll(3));
        break;
    default:
        break;
    }
    if (ms_bundle_width(&b) && roll(2))
        b.device_memory = 1 + roll(8);
    if (!plain && b.devices > 1)
        b.one_domain = roll(2);
    if (roll(5) == 0) {
        b.extras = &one_nic;
        b.extra_count = 1;
    }
    if (roll(4) == 0)
        b.selector = roll(2) ? &in_a : &not_b;
    return b;
}

struct group {
    struct ms_bundle bundles[BUNDLES_MAX];
    struct ms_place_request request;
    struct ms_placement placement;
};

static void random_group(struct group *g, bool equal, bool plain)
{
    struct ms_bundle first = random_bundle(plain);
    size_t count = roll(BUNDLES_MAX) + 1;

    for (size_t i = 0; i < count; i++)
        g->bundles[i] = equal || roll(3) == 0 ? first : random_bundle(plain);
    g->request = (struct ms_place_request){.name = "g",
                                           .bundles = g->bundles,
                                           .count = count,
                                           .strategy = (enum ms_strategy)roll(4),
                                           .same = roll(5) ? NULL : "rack"};
}

/* ---- what must always be true ---------------------------------------------------- */

/* What is held, as text, for comparing. */
static void picture(const struct ms_stock *s, char *out, size_t room)
{
    size_t at = 0;

    for (size_t i = 0; i < s->count; i++) {
        const struct ms_stock_node *n = &s->nodes[i];

        at += (size_t)snprintf(out + at,
                               room - at,
                               "%llu %llu %u;",
                               (unsigned long long)n->cpu_milli_held,
                               (unsigned long long)n->memory_held,
                               n->whole);
        for (uint32_t d = 0; d < n->device_count; d++)
            at += (size_t)snprintf(out + at,
                                   room - at,
                                   "%u/%llu,",
                                   n->devices[d].held_milli,
                                   (unsigned long long)n->devices[d].memory_held);
        for (size_t x = 0; x < n->extra_count; x++)
            at += (size_t)snprintf(
                out + at, room - at, "%llu!", (unsigned long long)n->extras[x].held);
    }
    assert_true(at < room);
}

static void check_not_overcommitted(const struct ms_stock *s)
{
    for (size_t i = 0; i < s->count; i++) {
        const struct ms_stock_node *n = &s->nodes[i];
        uint32_t whole = 0;

        assert_true(n->cpu_milli_held <= n->cpu_milli);
        assert_true(n->memory_held <= n->memory);
        for (uint32_t d = 0; d < n->device_count; d++) {
            assert_true(n->devices[d].held_milli <= MS_WHOLE_MILLI);
            assert_true(n->devices[d].memory_held <= n->devices[d].memory);
            whole += n->devices[d].held_milli == 0;
        }
        assert_int_equal(whole, n->whole);
        for (size_t x = 0; x < n->extra_count; x++)
            assert_true(n->extras[x].held <= n->extras[x].total);
    }
}

static void check_bundle(const struct ms_stock *s, const struct group *g, size_t i)
{
    const struct ms_bundle *b = &g->bundles[i];
    const struct ms_placement *p = &g->placement;
    const struct ms_stock_node *n = &s->nodes[p->nodes[i]];

    assert_true(p->nodes[i] < s->count);
    assert_false(n->is_gone);
    assert_int_equal(p->first[i + 1] - p->first[i], ms_bundle_width(b));
    if (b->selector)
        assert_true(!ms_selector_misfit(b->selector, n->labels, n->label_count));
    for (uint32_t d = p->first[i]; d < p->first[i + 1]; d++) {
        assert_true(p->devices[d] < n->device_count);
        if (d > p->first[i])
            assert_true(p->devices[d] > p->devices[d - 1]);
        if (b->one_domain)
            assert_int_equal(n->devices[p->devices[d]].domain,
                             n->devices[p->devices[p->first[i]]].domain);
    }
}

static const char *rack_of(const struct ms_stock *s, uint32_t node)
{
    return ms_label_find(s->nodes[node].labels, s->nodes[node].label_count, "rack");
}

static void check_strategy(const struct ms_stock *s, const struct group *g)
{
    const uint32_t *nodes = g->placement.nodes;

    for (size_t i = 0; i < g->request.count; i++) {
        if (g->request.same)
            assert_string_equal(rack_of(s, nodes[i]), rack_of(s, nodes[0]));
        for (size_t j = 0; j < i; j++) {
            if (g->request.strategy == MS_STRATEGY_STRICT_PACK)
                assert_int_equal(nodes[i], nodes[j]);
            if (g->request.strategy == MS_STRATEGY_STRICT_SPREAD)
                assert_int_not_equal(nodes[i], nodes[j]);
        }
    }
}

static void check_placed(const struct ms_stock *s, const struct group *g)
{
    check_not_overcommitted(s);
    for (size_t i = 0; i < g->request.count; i++)
        check_bundle(s, g, i);
    check_strategy(s, g);
}

/* Groups come and go; each is all or none, and what goes leaves no trace. */
static void test_come_and_go(void **state)
{
    static char before[4096], after[4096];
    unsigned placed = 0;

    (void)state;
    for (uint64_t n = 0; n < CASES; n++) {
        struct group groups[GROUPS_MAX];
        int rc[GROUPS_MAX];
        struct ms_stock s;

        dice = test_seed(n);
        random_stock(&s, roll(2));
        for (size_t i = 0; i < GROUPS_MAX; i++) {
            random_group(&groups[i], roll(2), false);
            picture(&s, before, sizeof before);
            rc[i] = ms_place(&s, &groups[i].request, &groups[i].placement, NULL);
            if (rc[i] == 0) {
                placed++;
                check_placed(&s, &groups[i]);
                continue;
            }
            picture(&s, after, sizeof after);
            assert_true(rc[i] == -ENOSPC || rc[i] == -EAGAIN);
            assert_string_equal(before, after);
        }
        for (size_t i = 0; i < GROUPS_MAX; i++) /* in the order of their coming */
            if (rc[i] == 0)
                ms_place_release(&s, &groups[i].request, &groups[i].placement);
        for (size_t i = 0; i < s.count; i++) {
            assert_int_equal(s.nodes[i].cpu_milli_held, 0);
            assert_int_equal(s.nodes[i].memory_held, 0);
            assert_int_equal(s.nodes[i].whole, s.nodes[i].device_count);
        }
        check_not_overcommitted(&s);
        ms_stock_finish(&s);
    }
    assert_true(placed > CASES / 2); /* the cases are not all trivial */
}

/* ---- equal bundles: exact, and more nodes never hurt ----------------------------- */

/* How many fit on one node, found by taking them. */
static uint32_t fit(struct ms_stock_node *n, const struct ms_bundle *b)
{
    uint32_t devices[BUNDLES_MAX][DEVICES_MAX], count = 0;

    while (count < BUNDLES_MAX && ms_bundle_take(b, n, devices[count]))
        count++;
    for (uint32_t i = 0; i < count; i++)
        ms_bundle_give(b, n, devices[i]);
    return count;
}

static bool fits_in_rack(struct ms_stock *s, const struct group *g, const char *rack)
{
    uint32_t sum = 0, most = 0, any = 0;

    for (uint32_t i = 0; i < s->count; i++) {
        uint32_t room;

        if (rack && (!rack_of(s, i) || strcmp(rack_of(s, i), rack) != 0))
            continue;
        room = fit(&s->nodes[i], &g->bundles[0]);
        sum += room;
        any += room > 0;
        most = room > most ? room : most;
    }
    switch (g->request.strategy) {
    case MS_STRATEGY_STRICT_PACK:
        return most >= g->request.count;
    case MS_STRATEGY_STRICT_SPREAD:
        return any >= g->request.count;
    default:
        return sum >= g->request.count;
    }
}

static bool is_feasible(struct ms_stock *s, const struct group *g)
{
    if (!g->request.same)
        return fits_in_rack(s, g, NULL);
    return fits_in_rack(s, g, "a") || fits_in_rack(s, g, "b");
}

static void test_equal_bundles_are_exact_and_monotone(void **state)
{
    unsigned placed = 0;

    (void)state;
    for (uint64_t n = 0; n < CASES; n++) {
        struct ms_stock s;
        struct group g;
        int rc;

        dice = test_seed(CASES + n);
        random_stock(&s, roll(2));
        random_group(&g, true, false);
        rc = ms_place(&s, &g.request, &g.placement, NULL);
        if (rc == 0)
            ms_place_release(&s, &g.request, &g.placement);
        assert_int_equal(rc, is_feasible(&s, &g) ? 0 : -ENOSPC);
        if (rc == 0) {
            placed++;
            add_random_node(&s, roll(2));
            assert_int_equal(ms_place(&s, &g.request, &g.placement, NULL), 0);
            ms_placement_finish(&g.placement);
        }
        ms_stock_finish(&s);
    }
    assert_true(placed > CASES / 4 && placed < CASES);
}

/* ---- mixed bundles: the same answer as trying everything ------------------------- */

static bool
may_put(const struct ms_stock *s, const struct group *g, size_t at, uint32_t node)
{
    if (g->request.same && !rack_of(s, node))
        return false;
    for (size_t i = 0; i < at; i++) {
        if (g->request.same &&
            strcmp(rack_of(s, node), rack_of(s, g->placement.nodes[i])) != 0)
            return false;
        if (g->request.strategy == MS_STRATEGY_STRICT_PACK &&
            node != g->placement.nodes[i])
            return false;
        if (g->request.strategy == MS_STRATEGY_STRICT_SPREAD &&
            node == g->placement.nodes[i])
            return false;
    }
    return true;
}

static bool exhaust(struct ms_stock *s, struct group *g, size_t at);

static bool exhaust_node(struct ms_stock *s, struct group *g, size_t at, uint32_t node)
{
    const struct ms_bundle *b = &g->bundles[at];
    struct ms_stock_node *n = &s->nodes[node];
    uint32_t devices[DEVICES_MAX];
    bool found = false;

    g->placement.nodes[at] = node;
    if (b->share_milli) {
        for (uint32_t d = 0; d < n->device_count && !found; d++)
            if (ms_bundle_take_at(b, n, d)) {
                found = exhaust(s, g, at + 1);
                ms_bundle_give(b, n, &d);
            }
        return found;
    }
    if (!ms_bundle_take(b, n, devices))
        return false;
    found = exhaust(s, g, at + 1);
    ms_bundle_give(b, n, devices);
    return found;
}

static bool exhaust(struct ms_stock *s, struct group *g, size_t at)
{
    if (at == g->request.count)
        return true;
    for (uint32_t node = 0; node < s->count; node++)
        if (may_put(s, g, at, node) && exhaust_node(s, g, at, node))
            return true;
    return false;
}

static void test_mixed_bundles_agree_with_exhaustion(void **state)
{
    unsigned full = 0, searched = 0;

    (void)state;
    for (uint64_t n = 0; n < CASES; n++) {
        uint32_t nodes[BUNDLES_MAX];
        struct ms_stock s;
        struct group g;
        int rc;

        dice = test_seed(2 * CASES + n);
        random_stock(&s, true);
        random_group(&g, false, true);
        g.request.count = g.request.count > 4 ? 4 : g.request.count;
        rc = ms_place(&s, &g.request, &g.placement, NULL);
        if (rc == 0)
            ms_place_release(&s, &g.request, &g.placement);
        assert_true(rc == 0 || rc == -ENOSPC); /* small: always to the end */
        g.placement.nodes = nodes;
        if (rc == -ENOSPC) {
            assert_false(exhaust(&s, &g, 0));
            full++;
        }
        searched += rc == 0;
        ms_stock_finish(&s);
    }
    assert_true(full > CASES / 10 && searched > CASES / 10);
}

static int make_selectors(void **state)
{
    (void)state;
    return ms_selector_add(&in_a, "rack", "a", NULL) ||
           ms_selector_add(&not_b, "rack", "!in(b)", NULL);
}

static int drop_selectors(void **state)
{
    (void)state;
    ms_selector_finish(&in_a);
    ms_selector_finish(&not_b);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_come_and_go),
        cmocka_unit_test(test_equal_bundles_are_exact_and_monotone),
        cmocka_unit_test(test_mixed_bundles_agree_with_exhaustion),
    };

    return cmocka_run_group_tests(tests, make_selectors, drop_selectors);
}
