/* seats_test.c - groups that clusters bring along: shared, grown, moved, cut, found again */
#include "resource/books.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { GIB = 1 << 30 };

/* Nodes n0, n1, ... of 8 CPUs, 8 GiB and 4 devices; rack r0 has two of them, r1 the next. */
struct fixture {
    struct ms_books books;
    struct ms_bundle bundle;
    struct ms_place_request like;
    struct ms_error err;
};

static void start(struct fixture *f, unsigned nodes)
{
    char text[16];

    *f = (struct fixture){0};
    ms_books_init(&f->books);
    assert_int_equal(ms_stock_kind(&f->books.stock, "gpu", NULL), 1);
    for (unsigned i = 0; i < nodes; i++) {
        struct ms_stock *s = &f->books.stock;

        snprintf(text, sizeof text, "n%u", i);
        assert_true(ms_stock_append(s, text, 8000, (uint64_t)8 * GIB, NULL) >= 0);
        assert_int_equal(ms_stock_add_devices(s, i, 1, 4, 0, 0, NULL), 0);
        snprintf(text, sizeof text, "rack=r%u", i / 2);
        assert_int_equal(ms_stock_add_label(s, i, text, NULL), 0);
    }
    f->bundle = (struct ms_bundle){.devices = 2, .cpu_milli = 1000, .memory = GIB};
    f->like = (struct ms_place_request){.name = "g", .bundles = &f->bundle};
}

static void finish(struct fixture *f)
{
    ms_books_finish(&f->books);
}

/* Ranks of a cluster; what the head does with the claim. */
static int stand_at(struct fixture *f,
                    const char *cluster,
                    uint32_t first,
                    uint32_t count,
                    const struct ms_known_seat *known)
{
    struct ms_seat seats[16];
    struct ms_seats_request r = {
        .like = &f->like, .first = first, .count = count, .known = known};
    struct ms_claim_request claim = {
        .is_more = first > 0,
        .request = {.cluster = cluster, .world_size = count},
        .seats = seats,
        .seat_count = count};
    struct ms_claim *made;
    int rc = ms_books_seat(&f->books, &r, seats, NULL, &f->err);

    return rc < 0 ? rc : ms_books_claim(&f->books, &claim, &made, NULL, &f->err);
}

static int stand(struct fixture *f, const char *cluster, uint32_t first, uint32_t count)
{
    return stand_at(f, cluster, first, count, NULL);
}

/* On these nodes only. */
static int
move(struct fixture *f, uint32_t rank, const char *const *nodes, size_t count)
{
    struct ms_scope_request scope = {
        .devices_per_node = MS_ALL_DEVICES, .names = nodes, .name_count = count};
    struct ms_seat seat;
    struct ms_seats_request r = {.like = &f->like, .first = rank, .count = 1};
    struct ms_place_request like = f->like;

    like.scope = count ? &scope : NULL;
    r.like = &like;
    return ms_books_seat(&f->books, &r, &seat, NULL, &f->err);
}

static const struct ms_group *group(const struct fixture *f)
{
    return ms_books_find_group(&f->books, "g");
}

static uint32_t at(const struct fixture *f, size_t bundle)
{
    assert_true(bundle < group(f)->placement.count);
    return group(f)->placement.nodes[bundle];
}

static uint32_t of_claim(const struct fixture *f, const char *cluster, uint32_t rank)
{
    const struct ms_claim *c = ms_books_find_claim(&f->books, cluster);

    assert_non_null(c);
    return c->layout.pieces[rank].node;
}

/* Nothing of any node is held. */
static void expect_all_free(const struct fixture *f)
{
    for (size_t i = 0; i < f->books.stock.count; i++) {
        const struct ms_stock_node *n = &f->books.stock.nodes[i];

        assert_int_equal(n->whole, 4);
        assert_int_equal(n->cpu_milli_held, 0);
        assert_int_equal(n->memory_held, 0);
    }
}

static void test_shared_and_gone_with_the_last(void **state)
{
    struct fixture f;

    (void)state;
    start(&f, 2);
    f.like.count = 3;
    assert_int_equal(stand(&f, "b", 0, 2), 0); /* the smaller one may be first */
    assert_int_equal(group(&f)->request.count, 3);
    assert_int_equal(stand(&f, "a", 0, 3), 0);
    assert_int_equal(f.books.groups.count, 1);
    for (uint32_t i = 0; i < 2; i++)
        assert_int_equal(of_claim(&f, "a", i), of_claim(&f, "b", i));
    assert_int_equal(f.books.stock.nodes[0].whole + f.books.stock.nodes[1].whole, 2);
    ms_books_drop_cluster(&f.books, "a");
    assert_int_equal(group(&f)->request.count, 3);
    assert_int_equal(stand(&f, "a", 0, 3), 0); /* it comes again, to its places */
    ms_books_drop_cluster(&f.books, "a");
    ms_books_drop_cluster(&f.books, "b");
    assert_null(group(&f));
    expect_all_free(&f);
    finish(&f);
}

static void test_no_room_changes_nothing(void **state)
{
    struct fixture f;

    (void)state;
    start(&f, 2);
    assert_int_equal(stand(&f, "a", 0, 5), -ENOSPC);
    assert_null(group(&f));
    expect_all_free(&f);
    assert_int_equal(stand(&f, "a", 0, 3), 0);
    assert_int_equal(stand(&f, "a", 3, 2), -ENOSPC);
    assert_int_equal(group(&f)->request.count, 3);
    assert_int_equal(stand(&f, "a", 3, 1), 0);
    f.like.name = "h";
    assert_int_equal(stand(&f, "b", 0, 1), -ENOSPC);
    assert_non_null(strstr(f.err.text, "held by others"));
    finish(&f);
}

static void test_fewer_ranks_give_back(void **state)
{
    struct fixture f;

    (void)state;
    start(&f, 2);
    assert_int_equal(stand(&f, "a", 0, 2), 0);
    assert_int_equal(stand(&f, "a", 2, 2), 0);
    assert_int_equal(ms_books_reseat(&f.books, "a", 0, "g", 3, NULL), 0);
    assert_int_equal(group(&f)->request.count, 3);
    assert_int_equal(group(&f)->users, 1);
    assert_int_equal(ms_books_reseat(&f.books, "a", 0, "g", 4, NULL), -ENOENT);
    ms_books_drop_cluster(&f.books, "a");
    expect_all_free(&f);
    finish(&f);
}

static void test_moves_from_a_node_that_is_gone(void **state)
{
    struct fixture f;
    uint32_t lost;

    (void)state;
    start(&f, 3);
    f.like.strategy = MS_STRATEGY_STRICT_SPREAD;
    assert_int_equal(stand(&f, "a", 0, 2), 0);
    assert_int_equal(stand(&f, "b", 0, 2), 0);
    lost = at(&f, 1);
    ms_books_node_gone(&f.books, f.books.stock.nodes[lost].name);
    assert_int_equal(group(&f)->state, MS_PLACEMENT_PLACED);
    assert_int_equal(stand(&f, "b", 1, 1), 0);
    assert_int_not_equal(at(&f, 1), lost);
    assert_int_not_equal(at(&f, 1), at(&f, 0));        /* as the strategy says */
    assert_int_equal(of_claim(&f, "a", 1), at(&f, 1)); /* who shares it goes with it */
    assert_int_equal(f.books.stock.nodes[lost].whole, 4);
    ms_books_drop_cluster(&f.books, "a");
    ms_books_drop_cluster(&f.books, "b");
    expect_all_free(&f);
    finish(&f);
}

static void test_moves_among_nodes(void **state)
{
    static const char *const second[] = {"n1"}, *const both[] = {"n0", "n1"};
    struct fixture f;

    (void)state;
    start(&f, 2);
    assert_int_equal(stand(&f, "a", 0, 2), 0);
    assert_int_equal(at(&f, 1), 0);
    assert_int_equal(move(&f, 1, both, 2), 0); /* it is there */
    assert_int_equal(at(&f, 1), 0);
    assert_int_equal(move(&f, 1, second, 1), 0);
    assert_int_equal(at(&f, 1), 1);
    f.like.strategy = MS_STRATEGY_STRICT_PACK;
    assert_int_equal(move(&f, 0, second, 1), 0);
    assert_int_equal(move(&f, 1, both, 1), -ENOSPC); /* the other is on n1 */
    assert_int_equal(at(&f, 0), 1);
    assert_int_equal(at(&f, 1), 1);
    ms_books_drop_cluster(&f.books, "a");
    expect_all_free(&f);
    finish(&f);
}

static void test_new_ones_are_in_the_same_rack(void **state)
{
    struct fixture f;

    (void)state;
    start(&f, 4);
    f.like.same = "rack";
    assert_int_equal(stand(&f, "a", 0, 1), 0);
    assert_int_equal(at(&f, 0), 0);
    assert_int_equal(stand(&f, "a", 1, 3), 0);
    assert_int_equal(at(&f, 3), 1);
    assert_int_equal(stand(&f, "a", 4, 1), -ENOSPC);
    finish(&f);
}

static void test_more_memory(void **state)
{
    struct fixture f;

    (void)state;
    start(&f, 2);
    f.bundle = (struct ms_bundle){.memory = (uint64_t)3 * GIB};
    assert_int_equal(stand(&f, "a", 0, 2), 0);
    f.bundle.memory = (uint64_t)5 * GIB;
    assert_int_equal(stand(&f, "a", 1, 1), 0); /* there is room where it is */
    assert_int_equal(at(&f, 1), 0);
    assert_int_equal(f.books.stock.nodes[0].memory_held, (uint64_t)8 * GIB);
    assert_int_equal(move(&f, 0, NULL, 0), 0); /* and none for the other */
    assert_int_equal(at(&f, 0), 1);
    f.bundle.memory = (uint64_t)9 * GIB;
    assert_int_equal(stand(&f, "a", 1, 1), -ENOSPC);
    assert_int_equal(f.books.stock.nodes[0].memory_held, (uint64_t)5 * GIB);
    ms_books_drop_cluster(&f.books, "a");
    expect_all_free(&f);
    finish(&f);
}

static void test_shares_of_one_device(void **state)
{
    struct fixture f;

    (void)state;
    start(&f, 1);
    f.bundle = (struct ms_bundle){.share_milli = 500};
    assert_int_equal(stand(&f, "a", 0, 1), 0);
    f.like.name = "h";
    assert_int_equal(stand(&f, "b", 0, 1), 0);
    assert_int_equal(f.books.stock.nodes[0].whole, 3);
    assert_int_equal(ms_books_find_claim(&f.books, "a")->layout.devices[0],
                     ms_books_find_claim(&f.books, "b")->layout.devices[0]);
    finish(&f);
}

static void test_found_where_they_were(void **state)
{
    static const uint32_t first[] = {2, 3}, second[] = {0, 1};
    const struct ms_known_seat known[] = {
        {"n1", first, 2}, {"n7", second, 2}, {"n1", second, 2}};
    struct fixture f;

    (void)state;
    start(&f, 2);
    assert_int_equal(stand_at(&f, "a", 0, 3, known), 0);
    assert_int_equal(at(&f, 0), 1);
    assert_int_equal(group(&f)->placement.devices[0], 2);
    assert_int_equal(at(&f, 1), 0); /* its node has not come */
    assert_int_equal(at(&f, 2), 1);
    assert_int_equal(stand_at(&f, "b", 0, 3, known), 0);
    assert_int_equal(f.books.stock.nodes[1].whole, 0);
    assert_int_equal(f.books.stock.nodes[0].whole, 2);
    ms_books_drop_cluster(&f.books, "a");
    ms_books_drop_cluster(&f.books, "b");
    expect_all_free(&f);
    finish(&f);
}

static void test_a_name_of_another_group(void **state)
{
    struct fixture f;
    struct ms_place_request other;
    struct ms_group *g;

    (void)state;
    start(&f, 1);
    other = f.like;
    other.count = 1;
    assert_int_equal(ms_books_ask(&f.books, &other, 0, 0, 0, &g, NULL, NULL), 0);
    assert_int_equal(stand(&f, "a", 0, 1), -EEXIST);
    assert_int_equal(ms_books_remove(&f.books, g, NULL), 0);
    assert_int_equal(stand(&f, "a", 0, 1), 0);
    finish(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shared_and_gone_with_the_last),
        cmocka_unit_test(test_no_room_changes_nothing),
        cmocka_unit_test(test_fewer_ranks_give_back),
        cmocka_unit_test(test_moves_from_a_node_that_is_gone),
        cmocka_unit_test(test_moves_among_nodes),
        cmocka_unit_test(test_new_ones_are_in_the_same_rack),
        cmocka_unit_test(test_more_memory),
        cmocka_unit_test(test_shares_of_one_device),
        cmocka_unit_test(test_found_where_they_were),
        cmocka_unit_test(test_a_name_of_another_group),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
