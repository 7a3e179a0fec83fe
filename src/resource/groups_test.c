/* groups_test.c - placement groups in the books */
#include "base/clock.h"
#include "resource/books.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { DEADLINE = 100 };

struct fixture {
    struct ms_books books;
    struct ms_error err;
};

static void start(struct fixture *f, unsigned nodes, unsigned gpus)
{
    char name[16];

    *f = (struct fixture){0};
    ms_books_init(&f->books);
    assert_int_equal(ms_stock_kind(&f->books.stock, "gpu", NULL), 1);
    for (unsigned i = 0; i < nodes; i++) {
        snprintf(name, sizeof name, "n%u", i);
        assert_true(ms_stock_append(&f->books.stock, name, 8000, 1 << 30, NULL) >= 0);
        assert_int_equal(ms_stock_add_devices(&f->books.stock, i, 1, gpus, 0, 0, NULL),
                         0);
    }
}

static void finish(struct fixture *f)
{
    ms_books_finish(&f->books);
}

static int ask(struct fixture *f,
               const char *name,
               uint32_t gpus,
               size_t count,
               int64_t deadline_ns,
               struct ms_group **out)
{
    struct ms_bundle bundles[8];
    struct ms_place_request r = {.name = name, .bundles = bundles, .count = count};

    for (size_t i = 0; i < count; i++)
        bundles[i] = (struct ms_bundle){.devices = gpus};
    return ms_books_ask(&f->books, &r, 0, 0, deadline_ns, out, NULL, &f->err);
}

static void test_placed_and_removed(void **state)
{
    struct fixture f;
    struct ms_group *a, *b;

    (void)state;
    start(&f, 2, 4);
    assert_int_equal(ask(&f, "a", 2, 3, 0, &a), 0);
    assert_int_equal(a->state, MS_PLACEMENT_PLACED);
    assert_ptr_equal(ms_books_find_group(&f.books, "a"), a);
    assert_int_equal(ask(&f, "a", 1, 1, 0, &b), -EEXIST);
    assert_int_equal(ask(&f, "a/b", 1, 1, 0, &b), -EINVAL);
    assert_int_equal(ms_books_remove(&f.books, a, NULL), 0);
    assert_null(ms_books_find_group(&f.books, "a"));
    assert_int_equal(f.books.stock.nodes[0].whole + f.books.stock.nodes[1].whole, 8);
    finish(&f);
}

static void test_never_possible_is_said_at_once(void **state)
{
    struct fixture f;
    struct ms_group *a, *b;

    (void)state;
    start(&f, 2, 4);
    assert_int_equal(ask(&f, "a", 4, 2, 0, &a), 0);
    assert_int_equal(ask(&f, "b", 5, 1, DEADLINE, &b), -ENOSPC);
    assert_int_equal(ask(&f, "b", 1, 1, 0, &b), -EBUSY);
    assert_non_null(strstr(f.err.text, "held by others"));
    assert_int_equal(f.books.groups.count, 1);
    finish(&f);
}

static void test_waiting_is_served_in_order(void **state)
{
    struct fixture f;
    struct ms_group *a, *b, *c, *d;

    (void)state;
    start(&f, 1, 4);
    assert_int_equal(ask(&f, "a", 3, 1, 0, &a), 0);
    assert_int_equal(ask(&f, "b", 4, 1, DEADLINE, &b), 0);
    assert_int_equal(ask(&f, "c", 2, 1, DEADLINE, &c), 0);
    assert_int_equal(ask(&f, "d", 1, 1, DEADLINE, &d), 0);
    assert_int_equal(b->state, MS_PLACEMENT_WAITING);
    assert_int_equal(c->state, MS_PLACEMENT_WAITING);
    assert_int_equal(d->state, MS_PLACEMENT_PLACED); /* there was room */
    assert_int_equal(ms_books_deadline(&f.books), DEADLINE);
    assert_null(ms_books_next(&f.books));
    assert_int_equal(ms_books_remove(&f.books, a, NULL), 0);
    assert_ptr_equal(ms_books_next(&f.books), c); /* b does not fit yet */
    assert_null(ms_books_next(&f.books));
    assert_int_equal(ms_books_remove(&f.books, d, NULL), 0);
    assert_null(ms_books_next(&f.books));
    assert_int_equal(ms_books_remove(&f.books, c, NULL), 0);
    assert_ptr_equal(ms_books_next(&f.books), b);
    assert_int_equal(b->state, MS_PLACEMENT_PLACED);
    assert_int_equal(ms_books_deadline(&f.books), MS_NEVER);
    finish(&f);
}

static void test_deadlines(void **state)
{
    struct fixture f;
    struct ms_group *a, *b, *c;

    (void)state;
    start(&f, 1, 2);
    assert_int_equal(ask(&f, "a", 2, 1, 0, &a), 0);
    assert_int_equal(ask(&f, "b", 1, 1, DEADLINE, &b), 0);
    assert_int_equal(ask(&f, "c", 1, 1, 2 * DEADLINE, &c), 0);
    ms_books_expire(&f.books, DEADLINE - 1);
    assert_null(ms_books_next(&f.books));
    ms_books_expire(&f.books, DEADLINE);
    assert_ptr_equal(ms_books_next(&f.books), b);
    assert_int_equal(b->state, MS_PLACEMENT_FAILED);
    assert_non_null(strstr(b->why.text, "held by others until its deadline"));
    assert_int_equal(ms_books_remove(&f.books, b, NULL), 0);
    assert_int_equal(ms_books_remove(&f.books, c, NULL),
                     0); /* nobody waits for it any more */
    assert_int_equal(f.books.groups.count, 1);
    finish(&f);
}

static void test_nodes_come_and_go(void **state)
{
    struct fixture f;
    struct ms_group *a, *b;

    (void)state;
    start(&f, 2, 2);
    assert_int_equal(ask(&f, "a", 2, 2, 0, &a), 0);
    assert_int_equal(ask(&f, "b", 1, 2, DEADLINE, &b), 0);
    ms_books_node_gone(&f.books, "n1");
    assert_ptr_equal(ms_books_next(&f.books), a);
    assert_int_equal(a->state, MS_PLACEMENT_BROKEN);
    assert_true(ms_stock_append(&f.books.stock, "n2", 8000, 1 << 30, NULL) == 2);
    assert_int_equal(ms_stock_add_devices(&f.books.stock, 2, 1, 4, 0, 0, NULL), 0);
    ms_books_retry(&f.books);
    assert_ptr_equal(ms_books_next(&f.books), b);
    assert_int_equal(b->placement.nodes[0], 2);
    assert_int_equal(ms_books_remove(&f.books, a, NULL), 0);
    assert_int_equal(f.books.stock.nodes[1].whole, 2);
    finish(&f);
}

static void test_requests_are_copied(void **state)
{
    struct fixture f;
    struct ms_selector s = {0};
    struct ms_group *a;
    char name[] = "nic", label[] = "zone";

    (void)state;
    start(&f, 1, 2);
    assert_int_equal(ms_stock_add_extra(&f.books.stock, 0, "nic", 4, NULL), 0);
    assert_int_equal(ms_selector_add(&s, label, "!in(a,b)", NULL), 0);
    {
        struct ms_extra_need need = {name, 1};
        struct ms_bundle b = {.extras = &need, .extra_count = 1, .selector = &s};
        struct ms_bundle bundles[] = {b, b, {.devices = 1}};
        struct ms_place_request r = {.name = "a", .bundles = bundles, .count = 3};

        assert_int_equal(ms_books_ask(&f.books, &r, 0, 0, 0, &a, NULL, NULL), 0);
        memset(bundles, 0xff, sizeof bundles);
    }
    ms_selector_finish(&s);
    memset(name, 'x', 3);
    assert_int_equal(f.books.stock.nodes[0].extras[0].held, 2);
    assert_int_equal(ms_books_remove(&f.books, a, NULL), 0);
    assert_int_equal(f.books.stock.nodes[0].extras[0].held, 0);
    finish(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_placed_and_removed),
        cmocka_unit_test(test_never_possible_is_said_at_once),
        cmocka_unit_test(test_waiting_is_served_in_order),
        cmocka_unit_test(test_deadlines),
        cmocka_unit_test(test_nodes_come_and_go),
        cmocka_unit_test(test_requests_are_copied),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
