/* inventory_test.c - tests of inventory.h: what a backend has told of its
 * reservations, put in order */
#include "orchestrator/inventory.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static struct ms_inventory_entry *
with_pieces(struct ms_inventory *m, const char *key, size_t count)
{
    struct ms_inventory_entry *r = ms_inventory_add(m, key);

    assert_non_null(r);
    assert_int_equal(ms_inventory_add_pieces(r, count), 0);
    return r;
}

static int tell(struct ms_inventory *m,
                struct ms_inventory_entry *r,
                uint32_t incarnation,
                enum ms_phase phase,
                const char *node)
{
    struct ms_lent_piece said = {.number = 1,
                                 .incarnation = incarnation,
                                 .phase = phase,
                                 .cause = phase == MS_PHASE_ENDED ? MS_CAUSE_EXITED : 0,
                                 .node = node};

    return ms_inventory_update(m, r, &said);
}

static void test_only_news_count(void **state)
{
    struct ms_inventory m;
    struct ms_inventory_entry *r;

    (void)state;
    ms_inventory_init(&m, 100);
    r = with_pieces(&m, "k", 3);
    assert_int_equal(tell(&m, r, 1, MS_PHASE_RUNNING, "n1"), 1);
    assert_int_equal(tell(&m, r, 1, MS_PHASE_RUNNING, "n1"), 0);  /* twice */
    assert_int_equal(tell(&m, r, 1, MS_PHASE_STARTING, "n1"), 0); /* late */
    assert_int_equal(tell(&m, r, 1, MS_PHASE_ENDED, "n1"), 1);
    assert_int_equal(tell(&m, r, 1, MS_PHASE_ENDED, "n2"), 0); /* it ended once */
    assert_int_equal(tell(&m, r, 2, MS_PHASE_STARTING, "n2"), 1);
    assert_int_equal(tell(&m, r, 1, MS_PHASE_ENDED, "n1"), 0); /* the one before */
    assert_int_equal(ms_inventory_piece(r, 1)->phase, MS_PHASE_STARTING);
    assert_string_equal(ms_inventory_piece(r, 1)->node, "n2");
    assert_int_equal(m.cursor, 103);
    ms_inventory_finish(&m);
}

static void test_changes_are_read_in_order(void **state)
{
    struct ms_inventory m;
    struct ms_inventory_entry *r;
    struct ms_orch_event e;

    (void)state;
    ms_inventory_init(&m, 5);
    r = with_pieces(&m, "k", 2);
    assert_int_equal(ms_inventory_next(&m, 5, &e), 0);
    assert_int_equal(ms_inventory_next(&m, 4, &e), -ESTALE);
    assert_int_equal(ms_inventory_next(&m, 6, &e), -ESTALE);
    tell(&m, r, 1, MS_PHASE_STARTING, "a");
    tell(&m, r, 1, MS_PHASE_RUNNING, "a");
    ms_inventory_remove(&m, r);
    assert_int_equal(ms_inventory_next(&m, 5, &e), 1);
    assert_int_equal(e.cursor, 6);
    assert_int_equal(e.piece->phase, MS_PHASE_STARTING);
    assert_int_equal(ms_inventory_next(&m, 6, &e), 1);
    assert_int_equal(e.piece->phase, MS_PHASE_RUNNING);
    assert_int_equal(ms_inventory_next(&m, 7, &e), 1); /* piece 0 */
    assert_true(e.gone);
    assert_string_equal(e.key, "k");
    assert_int_equal(ms_inventory_next(&m, 8, &e), 1);
    assert_int_equal(e.piece->number, 1);
    assert_int_equal(ms_inventory_next(&m, 9, &e), 0);
    ms_inventory_finish(&m);
}

static void test_old_changes_are_dropped(void **state)
{
    struct ms_inventory m;
    struct ms_inventory_entry *r;
    struct ms_orch_event e;

    (void)state;
    ms_inventory_init(&m, 0);
    r = with_pieces(&m, "k", 2);
    for (uint32_t i = 1; i <= MS_INVENTORY_LOG_MAX + 10; i++)
        assert_int_equal(tell(&m, r, i, MS_PHASE_RUNNING, NULL), 1);
    assert_int_equal(ms_inventory_next(&m, 9, &e), -ESTALE);
    assert_int_equal(ms_inventory_next(&m, 10, &e), 1);
    assert_int_equal(e.piece->incarnation, 11);
    ms_inventory_finish(&m);
}

static void test_pieces_keep_their_numbers(void **state)
{
    struct ms_inventory m;
    struct ms_inventory_entry *r;
    struct ms_orch_answer a;

    (void)state;
    ms_inventory_init(&m, 0);
    r = with_pieces(&m, "k", 4);
    assert_int_equal(ms_inventory_remove_piece(&m, r, 1), 0);
    assert_int_equal(ms_inventory_remove_piece(&m, r, 1), 0);
    assert_null(ms_inventory_piece(r, 1));
    assert_int_equal(tell(&m, r, 1, MS_PHASE_RUNNING, NULL), 0); /* it is gone */
    assert_int_equal(ms_inventory_add_pieces(r, 2), 4);
    assert_int_equal(ms_inventory_answer(&m, "k", &a), 0);
    assert_int_equal(a.reservations[0].count, 5);
    assert_int_equal(a.reservations[0].pieces[1]->number, 2);
    assert_int_equal(a.reservations[0].pieces[4]->number, 5);
    ms_inventory_answer_finish(&a);
    assert_int_equal(ms_inventory_answer(&m, "other", &a), -ENOENT);
    assert_int_equal(r->in_phase[MS_PHASE_PENDING], r->count);
    ms_inventory_finish(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_news_count),
        cmocka_unit_test(test_changes_are_read_in_order),
        cmocka_unit_test(test_old_changes_are_dropped),
        cmocka_unit_test(test_pieces_keep_their_numbers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
