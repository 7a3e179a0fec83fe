/* Layouts over many random cases, beside placement groups: what must always be true, and
 * whether a layout exists compared with a naive reading of the rules. */
#include "base/cleanup.h"
#include "base/test_random.h"
#include "resource/layout.h"
#include "resource/place.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { CASES = 100000, NODES_MAX = 5, DEVICES_MAX = 4, IDS_MAX = 24, STEPS = 5 };

static uint64_t dice;

static uint32_t roll(uint32_t sides)
{
    return test_roll(&dice, sides);
}

static void random_stock(struct ms_stock *s)
{
    uint32_t nodes = roll(NODES_MAX) + 1;

    *s = (struct ms_stock){0};
    assert_int_equal(ms_stock_kind(s, "gpu", NULL), 1);
    for (uint32_t i = 0; i < nodes; i++) {
        char name[16];

        snprintf(name, sizeof name, "n%u", (i * 7 + 3) % 11);
        assert_true(ms_stock_append(s, name, roll(9) * 1000ull, roll(12), NULL) >= 0);
        assert_int_equal(
            ms_stock_add_devices(s, i, 1, roll(DEVICES_MAX + 1), roll(2) * 8, 0, NULL),
            0);
        s->nodes[i].is_gone = roll(15) == 0;
    }
}

/* Ids from all there are and one more, in order or shuffled; sometimes one is repeated. */
static size_t random_ids(const struct ms_scope *scope, uint32_t per, uint32_t *out)
{
    uint32_t pool[IDS_MAX + 1], all = ms_scope_devices(scope) + roll(2), count,
                                from = 0;

    for (uint32_t i = 0; i < all; i++)
        pool[i] = i;
    count = roll(all + 1);
    if (per && roll(5))
        count -= count % per;
    if (roll(2))
        from = roll(all - count + 1);
    for (uint32_t i = 0; from == 0 && i < count && roll(3); i++) {
        uint32_t j = i + roll(all - i), id = pool[j];

        pool[j] = pool[i];
        pool[i] = id;
    }
    memcpy(out, pool + from, count * sizeof *out);
    if (count > 1 && roll(8) == 0)
        out[count - 1] = out[0];
    return count;
}

struct step {
    struct ms_layout_request request;
    uint32_t ids[IDS_MAX + 1];
    struct ms_layout layout;
};

static void random_step(struct step *t, const struct ms_scope *scope)
{
    uint32_t per = roll(5);

    *t = (struct step){.request = {.cluster = "c",
                                   .scope = scope,
                                   .world_size = roll(6),
                                   .devices_per_worker = per,
                                   .cpu_milli = roll(3) * 500ull,
                                   .memory = roll(3)}};
    if (roll(3)) {
        t->request.device_count = random_ids(scope, per, t->ids);
        t->request.devices = t->ids;
        if (roll(4))
            t->request.world_size = 0;
        if (t->request.device_count)
            t->request.device_memory = roll(3) * 2;
    }
}

/* ---- the rules, with no cleverness ----------------------------------------------- */

/* One more piece on a node; false if it does not fit. */
static bool take(struct ms_stock_node *n, const struct ms_layout_request *r)
{
    if (n->is_gone ||
        (r->cpu_milli && n->cpu_milli_held + r->cpu_milli > n->cpu_milli) ||
        (r->memory && n->memory_held + r->memory > n->memory))
        return false;
    n->cpu_milli_held += r->cpu_milli;
    n->memory_held += r->memory;
    return true;
}

/* The node of a rank's device for the first time? */
static bool is_new_node(const struct ms_layout_request *r, size_t i, size_t node)
{
    for (size_t k = i - i % r->devices_per_worker; k < i; k++) {
        uint32_t index;
        size_t other;

        if (ms_scope_find(r->scope, r->devices[k], &other, &index) && other == node)
            return false;
    }
    return true;
}

static bool can_have_device(const struct ms_stock *s,
                            struct ms_stock_node *nodes,
                            const struct ms_layout_request *r,
                            size_t i)
{
    const struct ms_device *d;
    uint32_t index;
    size_t node;

    if (!ms_scope_find(r->scope, r->devices[i], &node, &index))
        return false;
    for (size_t k = 0; k < i; k++)
        if (r->devices[k] == r->devices[i])
            return false;
    d = &s->nodes[r->scope->nodes[node]].devices[index];
    if (d->held_milli || d->memory_held + r->device_memory > d->memory)
        return d->held_milli == 0 && r->device_memory == 0;
    return !is_new_node(r, i, node) || take(&nodes[r->scope->nodes[node]], r);
}

/* Devices of a node of the scope that nobody has. */
static size_t
free_devices(const struct ms_stock *s, const struct ms_layout_request *r, size_t i)
{
    const struct ms_stock_node *n = &s->nodes[r->scope->nodes[i]];
    size_t count = 0;

    for (uint32_t d = 0; d < ms_scope_devices_of(r->scope, i); d++)
        count += ms_device_is_free(&n->devices[d]);
    return count;
}

static bool is_possible(const struct ms_stock *s, const struct ms_layout_request *r)
{
    struct ms_stock_node nodes[NODES_MAX];
    uint32_t per = r->devices_per_worker;
    size_t placed = 0;

    if (r->scope->count == 0)
        return false;
    memcpy(nodes, s->nodes, s->count * sizeof *nodes);
    if (r->device_count == 0) {
        for (size_t i = 0; i < r->scope->count; i++) {
            size_t most = per ? free_devices(s, r, i) / per : r->world_size;

            for (size_t k = 0; k < most; k++)
                placed += take(&nodes[r->scope->nodes[i]], r);
        }
        return r->world_size > 0 && placed >= r->world_size;
    }
    if (per == 0 || r->device_count % per ||
        (r->world_size && r->device_count != (size_t)per * r->world_size))
        return false;
    for (size_t i = 0; i < r->device_count; i++)
        if (!can_have_device(s, nodes, r, i))
            return false;
    return true;
}

/* ---- what must be true ----------------------------------------------------------- */

/* Nothing is held twice: no device by a bundle and a mapping, no amount beyond what is. */
static void check_stock(const struct ms_stock *s)
{
    for (size_t i = 0; i < s->count; i++) {
        const struct ms_stock_node *n = &s->nodes[i];
        uint32_t whole = 0;

        assert_true(n->cpu_milli_held <= n->cpu_milli && n->memory_held <= n->memory);
        for (uint32_t d = 0; d < n->device_count; d++) {
            assert_true(n->devices[d].memory_held <= n->devices[d].memory);
            assert_true(n->devices[d].held_milli <= MS_WHOLE_MILLI);
            assert_true(!n->devices[d].held_milli || !n->devices[d].mapped);
            whole += ms_device_is_free(&n->devices[d]);
        }
        assert_int_equal(whole, n->whole);
    }
}

/* Every rank has the devices that were named for it, and no two have the same one. */
static void check_layout(const struct step *t)
{
    const struct ms_layout_request *r = &t->request;
    const struct ms_layout *l = &t->layout;

    for (uint32_t rank = 0; rank < l->world_size; rank++) {
        uint32_t devices = 0;

        assert_true(l->first[rank] < l->first[rank + 1]);
        for (uint32_t i = l->first[rank]; i < l->first[rank + 1]; i++) {
            devices += l->pieces[i].count;
            for (uint32_t k = l->first[rank]; k < i; k++)
                assert_int_not_equal(l->pieces[i].node, l->pieces[k].node);
        }
        assert_int_equal(devices, r->devices_per_worker);
        if (r->device_count == 0)
            assert_int_equal(l->first[rank + 1], l->first[rank] + 1);
    }
    for (size_t i = 0; i < r->device_count; i++) {
        uint32_t index, rank = (uint32_t)(i / r->devices_per_worker), found = 0;
        size_t node;

        assert_true(ms_scope_find(r->scope, r->devices[i], &node, &index));
        for (uint32_t p = l->first[rank]; p < l->first[rank + 1]; p++)
            for (uint32_t k = 0; k < l->pieces[p].count; k++)
                found += l->pieces[p].node == r->scope->nodes[node] &&
                         l->devices[l->pieces[p].first + k] == index;
        assert_int_equal(found, 1);
        if (i % r->devices_per_worker == 0)
            assert_int_equal(l->pieces[l->first[rank]].node, r->scope->nodes[node]);
    }
}

/* No node has two ranks more than one that still has room. */
static void check_even(const struct ms_stock *s, const struct step *t)
{
    uint32_t counts[NODES_MAX] = {0};

    if (t->request.device_count || t->request.devices_per_worker)
        return;
    for (uint32_t r = 0; r < t->layout.world_size; r++)
        counts[t->layout.pieces[r].node]++;
    for (size_t i = 0; i < s->count; i++)
        for (size_t k = 0; k < s->count; k++)
            if (counts[i] > counts[k] + 1) {
                struct ms_stock_node n = s->nodes[k];

                assert_false(take(&n, &t->request));
            }
}

static void check_same(const struct ms_layout *a, const struct ms_layout *b)
{
    uint32_t pieces = a->first[a->world_size];

    assert_int_equal(a->world_size, b->world_size);
    assert_memory_equal(a->first, b->first, (a->world_size + 1) * sizeof *a->first);
    assert_memory_equal(a->pieces, b->pieces, pieces * sizeof *a->pieces);
    for (uint32_t i = 0; i < pieces; i++)
        assert_memory_equal(a->devices + a->pieces[i].first,
                            b->devices + b->pieces[i].first,
                            a->pieces[i].count * sizeof *a->devices);
}

/* Amounts that can be compared: they have no padding. */
static void snapshot(const struct ms_stock *s, uint64_t *out)
{
    for (size_t i = 0; i < s->count; i++) {
        const struct ms_stock_node *n = &s->nodes[i];

        *out++ = n->cpu_milli_held;
        *out++ = n->memory_held;
        *out++ = n->whole;
        for (uint32_t d = 0; d < n->device_count; d++) {
            *out++ = n->devices[d].held_milli;
            *out++ = n->devices[d].memory_held;
            *out++ = n->devices[d].mapped;
        }
    }
}

enum { SNAPSHOT = NODES_MAX * (3 + 3 * DEVICES_MAX) };

static struct ms_layout clone(const struct ms_layout *l)
{
    struct ms_layout c = *l;
    uint32_t pieces = l->first[l->world_size], devices = 0;

    for (uint32_t i = 0; i < pieces; i++)
        devices += l->pieces[i].count;
    c.first = calloc(l->world_size + 1, sizeof *c.first);
    c.pieces = calloc(pieces, sizeof *c.pieces);
    c.devices = calloc(devices + 1, sizeof *c.devices);
    memcpy(c.first, l->first, (l->world_size + 1) * sizeof *c.first);
    memcpy(c.pieces, l->pieces, pieces * sizeof *c.pieces);
    memcpy(c.devices, l->devices, devices * sizeof *c.devices);
    return c;
}

/* One cluster comes. If it can it is made, given back, and made again the same way; if not
 * nothing has changed. */
static bool try_step(struct ms_stock *s, struct step *t)
{
    uint64_t before[SNAPSHOT] = {0}, after[SNAPSHOT] = {0}, held[SNAPSHOT] = {0};
    MS_CLEANUP(ms_buf_finish) struct ms_buf table = {0};
    struct ms_layout first = {0}, copy;
    struct ms_error err = {0};
    bool possible = is_possible(s, &t->request);
    int rc;

    snapshot(s, before);
    rc = ms_layout_make(s, &t->request, &first, NULL, &table, &err);
    if (possible != (rc == 0))
        fail_msg("it is %spossible, but %d %s", possible ? "" : "im", rc, err.text);
    if (rc == 0) {
        copy = clone(&first);
        ms_layout_release(s, &copy);
    } else {
        assert_true((rc == -EINVAL || rc == -ENOSPC) && err.text[0] &&
                    strchr(ms_buf_str(&table), '>'));
    }
    snapshot(s, after);
    assert_memory_equal(before, after, sizeof before);
    if (rc < 0)
        return false;
    assert_int_equal(ms_layout_make(s, &t->request, &t->layout, NULL, NULL, &err), 0);
    check_same(&first, &t->layout);
    check_layout(t);
    check_even(s, t);
    check_stock(s);
    snapshot(s, held);
    ms_layout_hold(s, &first); /* as much again, and given back */
    ms_layout_release(s, &first);
    snapshot(s, after);
    assert_memory_equal(held, after, sizeof held);
    return true;
}

static void give_back(struct ms_stock *s, struct step *steps, uint32_t count)
{
    while (count) { /* in any order */
        uint32_t at = roll(count);

        ms_layout_release(s, &steps[at].layout);
        steps[at] = steps[--count];
        check_stock(s);
    }
}

/* Clusters come, and a group somewhere in between; in the end all is as it was. */
static void run_case(uint64_t n, uint32_t good[3])
{
    static const struct ms_scope_request all = {.devices_per_node = MS_ALL_DEVICES};
    uint64_t empty[SNAPSHOT] = {0}, end[SNAPSHOT] = {0};
    struct ms_bundle b = {.devices = 1};
    struct ms_place_request request = {.name = "g", .bundles = &b, .count = 1};
    struct ms_placement placement;
    struct step steps[STEPS];
    struct ms_scope scope = {0};
    struct ms_stock s;
    uint32_t held = 0;
    bool placed = false;

    dice = test_seed(n);
    random_stock(&s);
    if (roll(2))
        b = (struct ms_bundle){.share_milli = 300, .cpu_milli = roll(2) * 1000ull};
    snapshot(&s, empty);
    for (uint32_t i = 0;
         i < STEPS && (scope.count || !ms_scope_init(&scope, &s, &all, NULL, NULL));
         i++) {
        if (!placed && roll(2))
            placed = ms_place(&s, &request, &placement, NULL) == 0;
        check_stock(&s);
        random_step(&steps[held], &scope);
        steps[held].request.devices = steps[held].ids;
        if (try_step(&s, &steps[held]))
            good[steps[held++].request.device_count > 0]++;
    }
    good[2] += placed && held;
    if (placed)
        ms_place_release(&s, &request, &placement);
    give_back(&s, steps, held);
    snapshot(&s, end);
    assert_memory_equal(empty, end, sizeof empty);
    ms_scope_finish(&scope);
    ms_stock_finish(&s);
}

static void test_random_cases(void **state)
{
    uint32_t good[3] = {0};

    (void)state;
    for (uint64_t n = 0; n < CASES; n++)
        run_case(n, good);
    for (size_t i = 0; i < MS_COUNT(good); i++)
        assert_true(good[i] > CASES / 10); /* there was something to check */
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_random_cases)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
