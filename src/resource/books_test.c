/* books_test.c - tests of books.h: the stock, and who holds what of it */
#include "base/cleanup.h"
#include "resource/books.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define GIB ((uint64_t)1 << 30)

static const uint32_t ids[] = {0, 1, 2, 3, 4, 5, 6, 7};

static void add_node(struct ms_books *b, const char *name, uint32_t devices)
{
    const struct ms_shape_devices d = {.count = devices, .memory = 80 * GIB};
    MS_CLEANUP(ms_shape_cleanup) Muster__NodeShape *shape = ms_shape_create(name);
    static char rack[] = "rack=r1", nonsense[] = "nonsense";
    char *labels[] = {rack, nonsense};
    Muster__NodeShape s;

    assert_int_equal(ms_shape_add_devices(shape, &d, NULL), 0);
    s = *shape;
    s.cpus = 8;
    s.memory = 32 * GIB;
    s.labels = labels;
    s.n_labels = 2;
    assert_int_equal(ms_books_node_came(b, &s, NULL), 0);
}

static int setup(void **state)
{
    struct ms_books *b = malloc(sizeof *b);

    ms_books_init(b);
    add_node(b, "n2", 4);
    add_node(b, "n10", 4);
    *state = b;
    return 0;
}

static void check_empty(const struct ms_books *b)
{
    for (size_t i = 0; i < b->stock.count; i++) {
        assert_int_equal(b->stock.nodes[i].cpu_milli_held, 0);
        assert_int_equal(b->stock.nodes[i].memory_held, 0);
        assert_int_equal(b->stock.nodes[i].whole, b->stock.nodes[i].device_count);
    }
}

static int teardown(void **state)
{
    struct ms_books *b = *state;

    ms_books_finish(b);
    free(b);
    return 0;
}

/* ---- asking ---------------------------------------------------------------------- */

static struct ms_claim_request mapping(const char *cluster, size_t first, size_t count)
{
    return (struct ms_claim_request){.owner = 7,
                                     .scope = {.devices_per_node = MS_ALL_DEVICES},
                                     .request = {.cluster = cluster,
                                                 .devices = ids + first,
                                                 .device_count = count,
                                                 .devices_per_worker = 1}};
}

static struct ms_claim *claim(struct ms_books *b, const struct ms_claim_request *r)
{
    struct ms_error err = {0};
    struct ms_claim *c = NULL;

    if (ms_books_claim(b, r, &c, NULL, &err) < 0)
        fail_msg("%s", err.text);
    return c;
}

static void refuse(struct ms_books *b,
                   const struct ms_claim_request *r,
                   int code,
                   const char *text,
                   const char *line)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf table = {0};
    struct ms_error err = {0};
    struct ms_claim *c = NULL;

    assert_int_equal(ms_books_claim(b, r, &c, &table, &err), code);
    assert_null(c);
    if (!strstr(err.text, text))
        fail_msg("the sentence is \"%s\"", err.text);
    if (line && (!table.len || !strstr(ms_buf_str(&table), line)))
        fail_msg("the table is\n%s", table.len ? ms_buf_str(&table) : "nothing");
}

static struct ms_group *
group(struct ms_books *b, const char *name, size_t count, struct ms_bundle each)
{
    struct ms_bundle bundles[8];
    struct ms_place_request r = {.name = name, .bundles = bundles, .count = count};
    struct ms_error err = {0};
    struct ms_group *g = NULL;

    for (size_t i = 0; i < count; i++)
        bundles[i] = each;
    if (ms_books_ask(b, &r, 7, 0, 0, &g, NULL, &err) < 0)
        fail_msg("%s", err.text);
    return g;
}

/* ---- nodes ----------------------------------------------------------------------- */

static void test_nodes_come_in_any_order(void **state)
{
    struct ms_books *b = *state;
    struct ms_claim_request r = mapping("actor", 4, 2); /* on n10 */
    struct ms_claim *c = claim(b, &r);
    struct ms_group *g = group(b, "g", 1, (struct ms_bundle){.devices = 4});

    assert_string_equal(b->stock.nodes[c->layout.pieces[0].node].name, "n10");
    assert_string_equal(b->stock.nodes[g->placement.nodes[0]].name, "n2");
    add_node(b, "n1", 2);
    add_node(b, "n3", 2);
    assert_string_equal(b->stock.nodes[0].name, "n1");
    assert_string_equal(b->stock.nodes[2].name, "n3");
    assert_string_equal(b->stock.nodes[c->layout.pieces[0].node].name, "n10");
    assert_string_equal(b->stock.nodes[g->placement.nodes[0]].name, "n2");
    ms_books_drop_cluster(b, "actor");
    assert_int_equal(ms_books_remove(b, g, NULL), 0);
    check_empty(b);
}

static void test_node_that_goes_breaks_groups(void **state)
{
    struct ms_books *b = *state;
    struct ms_claim_request r = mapping("late", 0, 1);
    struct ms_group *g = group(b, "g", 2, (struct ms_bundle){.devices = 4});

    ms_books_node_gone(b, "n2");
    assert_int_equal(g->state, MS_PLACEMENT_BROKEN);
    assert_ptr_equal(ms_books_next(b), g);
    refuse(
        b, &r, -ENOSPC, "but a placement group holds it", ">  n10   0-3      0-3 g ");
    assert_int_equal(ms_books_remove(b, g, NULL), 0);
    add_node(b, "n2", 6); /* it is back, and bigger */
    assert_int_equal(b->stock.nodes[0].device_count, 6);
    check_empty(b);
}

/* ---- clusters -------------------------------------------------------------------- */

static void test_what_is_claimed_is_not_claimed_again(void **state)
{
    struct ms_books *b = *state;
    struct ms_claim_request r = mapping("actor", 0, 8), other = mapping("critic", 0, 8);

    r.request.cpu_milli = 1500; /* 4 on each node: 6 of 8 CPUs */
    other.request.cpu_milli = 600;
    claim(b, &r);
    refuse(b, &r, -EEXIST, "there is a cluster 'actor' already", NULL);
    refuse(b,
           &other,
           -ENOSPC,
           "4 workers on node 'n2' would need 2.4 CPUs, and 2 is what is free",
           ">  n2    0-3      0-3 actor  2 of 8 ");
    other.request.cpu_milli = 500;
    claim(b, &other);
    r.request.cluster = "third";
    r.request.cpu_milli = 1;
    refuse(b, &r, -ENOSPC, "and 0 is what is free", "0-3 actor+critic");
    ms_books_drop_cluster(b, "actor");
    claim(b, &r);
    ms_books_drop_cluster(b, "critic");
    ms_books_drop_cluster(b, "third");
    check_empty(b);
}

/* Beside what it has; the last of it can be given back alone. */
static void test_more_for_a_cluster(void **state)
{
    struct ms_books *b = *state;
    struct ms_claim_request r = mapping("actor", 0, 2), more = mapping("actor", 2, 2);
    struct ms_claim *first;

    r.request.cpu_milli = more.request.cpu_milli = 2000;
    first = claim(b, &r);
    refuse(b, &more, -EEXIST, "'actor' already", NULL);
    more.is_more = true;
    claim(b, &more);
    assert_int_equal(b->stock.nodes[0].cpu_milli_held, 8000);
    assert_ptr_equal(ms_books_find_claim(b, "actor"), first);
    ms_books_drop_newest(b, "actor");
    assert_int_equal(b->stock.nodes[0].cpu_milli_held, 4000);
    assert_ptr_equal(ms_books_find_claim(b, "actor"), first);
    ms_books_drop_newest(b, "other"); /* holds nothing */
    claim(b, &more);
    ms_books_drop_cluster(b, "actor"); /* all of it */
    check_empty(b);
}

static void test_what_could_be_had_if_all_were_free(void **state)
{
    struct ms_books *b = *state;
    struct ms_claim_request r = mapping("actor", 0, 8), other = mapping("critic", 0, 8);
    struct ms_group *g = group(b, "g", 1, (struct ms_bundle){.cpu_milli = 1000});
    struct ms_seat seat = {g, 0};

    r.request.cpu_milli = 1500;
    r.request.device_memory = 60 * GIB;
    other.request.cpu_milli = 2000;
    other.request.device_memory = 80 * GIB;
    claim(b, &r);
    refuse(b, &other, -ENOSPC, "", NULL);
    assert_true(ms_books_is_possible(b, &other));
    other.request.cpu_milli = 2001; /* 4 on a node of 8 CPUs */
    assert_false(ms_books_is_possible(b, &other));
    other.request.cpu_milli = 0;
    other.request.device_memory = 81 * GIB;
    assert_false(ms_books_is_possible(b, &other));
    other.request.device_memory = 0;
    other.scope.devices_per_node = 2; /* 4 ids */
    assert_false(ms_books_is_possible(b, &other));
    other =
        (struct ms_claim_request){.request = {.cluster = "seated", .cpu_milli = 1000},
                                  .seats = &seat,
                                  .seat_count = 1};
    assert_true(ms_books_is_possible(b, &other));
    other.request.cpu_milli = 1001;
    assert_false(ms_books_is_possible(b, &other));
    assert_int_equal(b->stock.nodes[0].cpu_milli_held, 7000); /* nothing has changed */
    ms_books_drop_cluster(b, "actor");
    assert_int_equal(ms_books_remove(b, g, NULL), 0);
    check_empty(b);
}

static void test_owner_that_goes_gives_back(void **state)
{
    struct ms_books *b = *state;
    struct ms_claim_request r = mapping("actor", 0, 1);
    struct ms_group *kept;

    claim(b, &r);
    group(b, "mine", 1, (struct ms_bundle){.devices = 1});
    kept = group(b, "detached", 1, (struct ms_bundle){.devices = 1});
    kept->detached = true;
    ms_books_drop_owner(b, 7);
    assert_null(ms_books_find_group(b, "mine"));
    assert_ptr_equal(ms_books_find_group(b, "detached"), kept);
    assert_non_null(ms_books_find_claim(b, "actor")); /* until its workers have ended */
    ms_books_drop_cluster(b, "actor");
    assert_int_equal(ms_books_remove(b, kept, NULL), 0);
    check_empty(b);
}

static void test_workers_that_were_found(void **state)
{
    struct ms_books *b = *state;
    uint32_t devices[] = {1, 2, 99};
    struct ms_piece piece = {.count = 3};
    struct ms_layout what = {
        .pieces = &piece, .devices = devices, .cpu_milli = 6000, .memory = GIB};
    struct ms_claim_request r = mapping("new", 0, 1);

    assert_int_equal(ms_books_adopt(b, "old", 0, 9, "n2", &what), 0);
    assert_int_equal(ms_books_adopt(b, "old", 0, 9, "n2", &what), 0); /* once */
    assert_int_equal(ms_books_adopt(b, "old", 1, 9, "n2", &what), 0);
    assert_int_equal(ms_books_adopt(b, "old", 2, 9, "nowhere", &what), -ENOENT);
    assert_int_equal(b->stock.nodes[0].cpu_milli_held, 12000); /* more than there is */
    assert_int_equal(b->stock.nodes[0].devices[1].mapped, 2);
    r.request.cpu_milli = 1;
    refuse(b, &r, -ENOSPC, "and 0 is what is free", "1-2 old");
    r.request.cluster = "old";
    refuse(b, &r, -EEXIST, "there is a cluster 'old' already", NULL);
    ms_books_drop_cluster(b, "old");
    check_empty(b);
}

/* ---- in groups ------------------------------------------------------------------- */

static void test_clusters_in_a_group(void **state)
{
    struct ms_books *b = *state;
    struct ms_group *g =
        group(b, "g", 4, (struct ms_bundle){.devices = 2, .cpu_milli = 2000});
    struct ms_seat seats[] = {{g, 0}, {g, 1}, {g, 2}, {g, 3}},
                   swapped[] = {{g, 3}, {g, 2}};
    struct ms_claim_request r = {.owner = 7, .seats = seats, .seat_count = 4};
    struct ms_error err = {0};
    struct ms_claim *c;

    r.request = (struct ms_layout_request){.cluster = "a", .cpu_milli = 1500};
    c = claim(b, &r);
    assert_int_equal(c->layout.world_size, 4);
    assert_memory_equal(c->layout.devices, ((uint32_t[]){0, 1, 2, 3, 0, 1, 2, 3}), 32);
    r.request.cluster = "b";
    refuse(b,
           &r,
           -ENOSPC,
           "a worker wants 1.5 CPUs, and bundle 0 of group 'g' has 0.5 of its own left",
           NULL);
    r.seats = swapped;
    r.seat_count = 2;
    r.request.cpu_milli = 500;
    c = claim(b, &r);
    assert_int_equal(c->layout.pieces[0].node, g->placement.nodes[3]);
    assert_int_equal(ms_books_remove(b, g, &err), -EBUSY);
    assert_string_equal(err.text,
                        "group 'g': cluster 'a' stands in it; destroy that first");
    ms_books_drop_owner(b, 8);
    ms_books_drop_cluster(b, "a");
    assert_int_equal(g->uses[0].cpu_milli, 0);
    assert_int_equal(g->uses[3].cpu_milli, 500);
    ms_books_drop_owner(b, 7); /* the group ends with its last cluster */
    assert_null(ms_books_find_group(b, "g"));
    assert_int_equal(b->groups.count, 1);
    ms_books_drop_cluster(b, "b");
    assert_int_equal(b->groups.count, 0);
    check_empty(b);
}

static void test_a_group_that_ends_with_its_cluster(void **state)
{
    struct ms_books *b = *state;
    struct ms_group *g = group(b, "g", 2, (struct ms_bundle){.devices = 1});
    struct ms_seat seats[] = {{g, 0}, {g, 1}};
    struct ms_claim_request r = {.owner = 7, .seats = seats, .seat_count = 2};

    g->ends_with_cluster = true;
    r.request.cluster = "a";
    claim(b, &r);
    ms_books_drop_newest(b, "a"); /* as a plan does */
    assert_ptr_equal(ms_books_find_group(b, "g"), g);
    claim(b, &r);
    ms_books_drop_cluster(b, "a");
    assert_int_equal(b->groups.count, 0);
    check_empty(b);
}

static void test_seats_that_are_none(void **state)
{
    struct ms_books *b = *state;
    struct ms_group *g = group(b, "g", 2, (struct ms_bundle){.devices = 4});
    struct ms_seat seats[] = {{g, 0}, {g, 2}};
    struct ms_claim_request r = {
        .seats = seats, .seat_count = 2, .request = {.cluster = "a"}};

    refuse(b, &r, -EINVAL, "group 'g' has 2 bundles, not 3", NULL);
    seats[1].bundle = 1;
    r.request.world_size = 3;
    refuse(b, &r, -ENOSPC, "it fits with world_size=2", NULL);
    r.request.world_size = 0;
    r.request.devices = ids;
    r.request.device_count = 1;
    refuse(b, &r, -EINVAL, "a device mapping makes no sense", NULL);
    r.request.device_count = 0;
    ms_books_node_gone(b, "n10");
    refuse(b, &r, -EINVAL, "a node of it is gone", NULL);
    assert_int_equal(g->users, 0);
    assert_int_equal(ms_books_remove(b, g, NULL), 0);
    check_empty(b);
}

static void test_group_in_a_scope(void **state)
{
    static const char *const names[] = {"n10"};
    struct ms_books *b = *state;
    struct ms_bundle bundles[] = {{.devices = 1}, {.devices = 1}, {.devices = 1}};
    const struct ms_scope_request scope = {
        .devices_per_node = 2, .names = names, .name_count = 1};
    struct ms_place_request r = {.bundles = bundles, .count = 2, .scope = &scope};
    MS_CLEANUP(ms_buf_finish) struct ms_buf table = {0};
    struct ms_group *g = NULL, *more = NULL;
    struct ms_error err = {0};

    assert_int_equal(ms_books_ask(b, &r, 7, 0, 0, &g, NULL, NULL), 0);
    assert_string_equal(g->name, "group-1");
    assert_memory_equal(g->placement.nodes, ((uint32_t[]){1, 1}), 8);
    assert_memory_equal(g->placement.devices, ((uint32_t[]){0, 1}), 8);
    assert_int_equal(b->stock.nodes[1].whole, 2);
    r.count = 1;
    assert_int_equal(ms_books_ask(b, &r, 7, 0, 0, &more, &table, &err), -EBUSY);
    assert_non_null(strstr(ms_buf_str(&table), ">  n10   8 of 8"));
    assert_non_null(strstr(ms_buf_str(&table), "0-1 group-1"));
    assert_null(strstr(ms_buf_str(&table), "n2"));
    r.count = 3;
    assert_int_equal(ms_books_ask(b, &r, 7, 0, 100, &more, NULL, &err), -ENOSPC);
    r.count = 2;
    assert_int_equal(ms_books_ask(b, &r, 7, 0, 100, &more, NULL, &err), 0);
    assert_int_equal(more->state, MS_PLACEMENT_WAITING);
    assert_int_equal(ms_books_remove(b, g, NULL), 0);
    assert_int_equal(more->state, MS_PLACEMENT_PLACED);
    assert_ptr_equal(ms_books_next(b), more);
    assert_int_equal(ms_books_remove(b, more, NULL), 0);
    check_empty(b);
}

static void test_group_waits_for_a_cluster(void **state)
{
    struct ms_books *b = *state;
    struct ms_claim_request r = mapping("actor", 0, 8);
    struct ms_bundle bundle = {.devices = 1};
    struct ms_place_request q = {.name = "g", .bundles = &bundle, .count = 1};
    struct ms_group *g = NULL;

    claim(b, &r);
    assert_int_equal(ms_books_ask(b, &q, 7, 0, 100, &g, NULL, NULL), 0);
    assert_int_equal(g->state, MS_PLACEMENT_WAITING);
    ms_books_drop_cluster(b, "actor");
    assert_int_equal(g->state, MS_PLACEMENT_PLACED);
    assert_int_equal(ms_books_remove(b, g, NULL), 0);
    check_empty(b);
}

/* ---- at random ------------------------------------------------------------------- */

static uint32_t roll(uint64_t *seed, uint32_t sides)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33) % sides;
}

static void random_step(struct ms_books *b, uint64_t *seed)
{
    char name[16];
    struct ms_bundle bundle = {.devices = roll(seed, 3), .cpu_milli = 500};
    struct ms_place_request q = {.name = name, .bundles = &bundle, .count = 1};
    struct ms_claim_request r = mapping(name, roll(seed, 4), 1 + roll(seed, 4));
    struct ms_group *g = NULL;
    struct ms_seat seat = {0};
    struct ms_claim *c;
    bool is_possible;
    int rc;

    snprintf(name, sizeof name, "x%u", roll(seed, 9));
    g = ms_books_find_group(b, name);
    switch (roll(seed, 6)) {
    case 0:
        ms_books_ask(b, &q, roll(seed, 3), 0, roll(seed, 2) * 100, &g, NULL, NULL);
        break;
    case 1:
        if (g)
            ms_books_remove(b, g, NULL);
        break;
    case 2:
        if (g) {
            seat.group = g;
            r.seats = &seat;
            r.seat_count = 1;
            r.request.device_count = 0;
        }
        r.request.cpu_milli = roll(seed, 4) * 200;
        r.owner = roll(seed, 3);
        r.is_more = roll(seed, 2);
        is_possible = ms_books_is_possible(b, &r);
        rc = ms_books_claim(b, &r, &c, NULL, NULL);
        assert_true(rc < 0 || is_possible || r.seats); /* what fits could be had */
        break;
    case 3:
        if (roll(seed, 2))
            ms_books_drop_newest(b, name);
        else
            ms_books_drop_cluster(b, name);
        break;
    case 4:
        ms_books_drop_owner(b, roll(seed, 3));
        break;
    default:
        snprintf(name, sizeof name, "n%u", roll(seed, 5));
        if (roll(seed, 2))
            ms_books_node_gone(b, name);
        else
            add_node(b, name, 2);
    }
    while (ms_books_next(b))
        ;
}

static void check_books(const struct ms_books *b)
{
    for (size_t i = 0; i < b->stock.count; i++) {
        const struct ms_stock_node *n = &b->stock.nodes[i];

        assert_true(n->cpu_milli_held <= n->cpu_milli);
        for (uint32_t d = 0; d < n->device_count; d++)
            assert_true(!n->devices[d].held_milli || !n->devices[d].mapped);
    }
}

static void test_at_random(void **state)
{
    (void)state;
    for (uint64_t n = 0; n < 2000; n++) {
        struct ms_books b;
        uint64_t seed = n;

        ms_books_init(&b);
        add_node(&b, "n2", 3);
        for (int i = 0; i < 40; i++) {
            random_step(&b, &seed);
            check_books(&b);
        }
        while (!ms_list_is_empty(&b.claims)) {
            char name[16];

            snprintf(name,
                     sizeof name,
                     "%s",
                     ms_list_first(&b.claims, struct ms_claim, link)->cluster);
            ms_books_drop_cluster(&b, name);
        }
        for (uint64_t owner = 0; owner < 8; owner++)
            ms_books_drop_owner(&b, owner);
        check_empty(&b);
        assert_int_equal(b.groups.count, 0);
        ms_books_finish(&b);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_nodes_come_in_any_order),
        TEST(test_node_that_goes_breaks_groups),
        TEST(test_what_is_claimed_is_not_claimed_again),
        TEST(test_more_for_a_cluster),
        TEST(test_what_could_be_had_if_all_were_free),
        TEST(test_owner_that_goes_gives_back),
        TEST(test_workers_that_were_found),
        TEST(test_clusters_in_a_group),
        TEST(test_seats_that_are_none),
        TEST(test_a_group_that_ends_with_its_cluster),
        TEST(test_group_in_a_scope),
        TEST(test_group_waits_for_a_cluster),
        TEST(test_at_random),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
