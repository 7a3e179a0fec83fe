/* exits_test.c - tests of exits.h: how the last workers ended, for those who ask
 * later */
#include "wire/client/exits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static int set_up(void **state)
{
    static struct ms_exits e;

    ms_exits_init(&e);
    *state = &e;
    return 0;
}

static int tear_down(void **state)
{
    ms_exits_finish(*state);
    return 0;
}

static void add(struct ms_exits *e, uint64_t uid)
{
    Muster__WorkerExited x = MUSTER__WORKER_EXITED__INIT;
    Muster__Exit exit = MUSTER__EXIT__INIT;
    char line[] = "the last line";
    char *lines[] = {line};

    exit.code = (int32_t)uid;
    exit.n_last_lines = 1;
    exit.last_lines = lines;
    x.uid = uid;
    x.exit = &exit;
    assert_int_equal(ms_exits_add(e, &x), 0);
}

static void test_old_ones_are_forgotten(void **state)
{
    struct ms_exits *e = *state;

    assert_null(ms_exits_find(e, 1));
    for (uint64_t uid = 1; uid <= MS_EXITS_KEPT + 1; uid++)
        add(e, uid);
    assert_null(ms_exits_find(e, 1));
    assert_int_equal(ms_exits_find(e, 2)->exit->code, 2);
    assert_int_equal(ms_exits_find(e, MS_EXITS_KEPT + 1)->exit->code,
                     MS_EXITS_KEPT + 1);
}

static void test_lines_of_old_ones_go_first(void **state)
{
    struct ms_exits *e = *state;

    for (uint64_t uid = 1; uid <= MS_EXITS_LINES_KEPT + 1; uid++)
        add(e, uid);
    assert_int_equal(ms_exits_find(e, 1)->exit->n_last_lines, 0);
    assert_int_equal(ms_exits_find(e, 2)->exit->n_last_lines, 1);
}

static void test_askers(void **state)
{
    struct ms_exits *e = *state;

    assert_int_equal(ms_exits_take_asker(e, 9), 0);
    assert_int_equal(ms_exits_ask(e, 1, 9), 0);
    assert_int_equal(ms_exits_ask(e, 1, 9), 0);
    assert_int_equal(ms_exits_ask(e, 2, 9), 0);
    assert_int_equal(ms_exits_ask(e, 3, 9), 0);
    assert_int_equal(ms_exits_ask(e, 3, 8), 0);
    ms_exits_forget_asker(e, 2);
    assert_int_equal(ms_exits_take_asker(e, 9), 1);
    assert_int_equal(ms_exits_take_asker(e, 9), 3);
    assert_int_equal(ms_exits_take_asker(e, 9), 0);
    assert_int_equal(e->ask_count, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_old_ones_are_forgotten, set_up, tear_down),
        cmocka_unit_test_setup_teardown(
            test_lines_of_old_ones_go_first, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_askers, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
