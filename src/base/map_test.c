/* map_test.c - tests of map.h: from a 64-bit key to a pointer */
#include "base/cleanup.h"
#include "base/map.h"
#include "base/test_random.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <string.h>

#include <cmocka.h>

enum { KEYS = 200, STEPS = 20000 };

/* Distinct, never 0; even ones are dense, odd ones differ in the high bits only, so
 * that runs collide and wrap around the end of the table. */
static uint64_t key_of(size_t i)
{
    return i % 2 ? (uint64_t)i << 44 : i + 2;
}

static void test_bad_keys_and_duplicates(void **state)
{
    MS_CLEANUP(ms_map_finish) struct ms_map m;
    int one, two;

    (void)state;
    ms_map_init(&m);
    assert_null(ms_map_find(&m, 7));
    assert_null(ms_map_remove(&m, 7));
    assert_int_equal(ms_map_add(&m, 0, &one), -EINVAL);
    assert_int_equal(ms_map_add(&m, 7, &one), 0);
    assert_int_equal(ms_map_add(&m, 7, &two), -EEXIST);
    assert_ptr_equal(ms_map_find(&m, 7), &one);
    assert_null(ms_map_find(&m, 0));
    assert_null(ms_map_remove(&m, 0));
    assert_int_equal(m.count, 1);
}

static void check_against_model(const struct ms_map *m, char *const model[KEYS])
{
    size_t held = 0, walked = 0, at = 0;
    bool seen[KEYS] = {false};
    const char *v;

    for (size_t i = 0; i < KEYS; i++) {
        assert_ptr_equal(ms_map_find(m, key_of(i)), model[i]);
        held += model[i] != NULL;
    }
    assert_int_equal(m->count, held);
    while ((v = ms_map_next(m, &at))) {
        size_t i = 0;

        while (i < KEYS && model[i] != v)
            i++;
        assert_in_range(i, 0, KEYS - 1);
        assert_false(seen[i]);
        seen[i] = true;
        walked++;
    }
    assert_int_equal(walked, held);
}

static void test_random_steps_agree_with_a_model(void **state)
{
    MS_CLEANUP(ms_map_finish) struct ms_map m;
    static char values[KEYS];
    char *model[KEYS] = {NULL};
    uint64_t seed = 20241117;

    (void)state;
    ms_map_init(&m);
    for (size_t step = 0; step < STEPS; step++) {
        size_t i = test_random(&seed) % KEYS;
        /* phases of mostly adding and mostly removing, to be full and empty in turn */
        bool add = test_random(&seed) % 8 < (step / 1000 % 2 ? 2u : 6u);

        if (add) {
            int rc = ms_map_add(&m, key_of(i), &values[i]);

            assert_int_equal(rc, model[i] ? -EEXIST : 0);
            model[i] = &values[i];
        } else {
            assert_ptr_equal(ms_map_remove(&m, key_of(i)), model[i]);
            model[i] = NULL;
        }
        if (step % 97 == 0)
            check_against_model(&m, model);
    }
    check_against_model(&m, model);
}

static void test_finish_leaves_an_empty_map(void **state)
{
    struct ms_map m;
    int value;

    (void)state;
    ms_map_init(&m);
    assert_int_equal(ms_map_add(&m, 1, &value), 0);
    ms_map_finish(&m);
    assert_null(ms_map_find(&m, 1));
    assert_int_equal(m.count, 0);
    ms_map_finish(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_keys_and_duplicates),
        cmocka_unit_test(test_random_steps_agree_with_a_model),
        cmocka_unit_test(test_finish_leaves_an_empty_map),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
