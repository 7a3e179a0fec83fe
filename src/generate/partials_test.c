/* partials_test.c - surplus that was begun: kept, taken, let go; against a plain list */
#include "generate/partials.h"

#include "base/cleanup.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static int released;

static void release(void *what)
{
    released++;
    free(what);
}

static void clean(struct ms_partials **p)
{
    ms_partials_destroy(*p);
}
#define PARTIALS MS_CLEANUP(clean) struct ms_partials *

static void
keep(struct ms_partials *p, uint64_t key, uint32_t tokens, uint32_t oldest, char name)
{
    char *what = malloc(1);

    assert_non_null(what);
    *what = name;
    assert_int_equal(ms_partials_keep(p,
                                      &(struct ms_partial){.key = key,
                                                           .asked = 1,
                                                           .tokens = tokens,
                                                           .oldest = oldest,
                                                           .what = what}),
                     0);
}

static char take(struct ms_partials *p, uint64_t key, uint64_t asked, uint32_t below)
{
    char *what = ms_partials_take(p, key, asked, below), name = what ? *what : '-';

    free(what);
    return name;
}

static void test_the_oldest_of_the_prompt(void **state)
{
    PARTIALS p = ms_partials_create(1000, release);

    (void)state;
    assert_int_equal(take(p, 1, 1, 99), '-');
    keep(p, 1, 10, 0, 'a');
    keep(p, 2, 10, 0, 'b');
    keep(p, 1, 50, 0, 'c');
    keep(p, 1, 10, 0, 'd');
    assert_true(ms_partials_has(p, 1));
    assert_false(ms_partials_has(p, 3));
    assert_false(ms_partials_has(p, 0));
    assert_int_equal(take(p, 1, 2, 99), '-'); /* something else was asked */
    assert_int_equal(take(p, 0, 1, 99), '-'); /* without a key nothing is the same */
    assert_int_equal(take(p, 1, 1, 10), '-'); /* they would be whole */
    assert_int_equal(take(p, 1, 1, 50), 'a');
    assert_int_equal(take(p, 1, 1, 50), 'd');
    assert_int_equal(take(p, 1, 1, 51), 'c');
    assert_int_equal(take(p, 1, 1, 99), '-');
    assert_false(ms_partials_has(p, 1));
    assert_int_equal(take(p, 2, 1, 99), 'b');
    assert_int_equal(ms_partials_stats(p).held, 0);
    assert_int_equal(ms_partials_stats(p).tokens, 0);
    assert_int_equal(ms_partials_stats(p).kept, 4);
    assert_int_equal(ms_partials_stats(p).resumed, 4);
}

static void test_too_much_and_too_old_is_let_go(void **state)
{
    PARTIALS p = ms_partials_create(100, release);

    (void)state;
    released = 0;
    keep(p, 1, 40, 3, 'a');
    keep(p, 2, 40, 4, 'b');
    keep(p, 1, 40, 5, 'c');
    assert_int_equal(released, 1);
    ms_partials_expire(p, 5);
    assert_int_equal(released, 2);
    assert_int_equal(take(p, 2, 1, 99), '-');
    assert_int_equal(take(p, 1, 1, 99), 'c');
    keep(p, 1, 101, 5, 'd'); /* more than there is room for */
    assert_int_equal(released, 3);
    assert_int_equal(ms_partials_keep(p, &(struct ms_partial){.key = 0, .tokens = 1}),
                     -EINVAL);
    assert_int_equal(ms_partials_keep(p, &(struct ms_partial){.key = 1, .tokens = 0}),
                     -EINVAL);
    keep(p, 1, 10, 5, 'e'); /* goes with it */
}

/* ---- random histories -------------------------------------------------------------- */

enum { HISTORIES = 1000, EVENTS = 200, ROOM = 300, KEYS = 5 };

struct model {
    struct ms_partial at[EVENTS];
    size_t count;
    uint64_t tokens;
};

static uint32_t roll(uint64_t *seed, uint32_t n)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return (uint32_t)((*seed >> 33) % n);
}

static void model_remove(struct model *m, size_t i)
{
    m->tokens -= m->at[i].tokens;
    memmove(m->at + i, m->at + i + 1, (--m->count - i) * sizeof *m->at);
}

static void model_keep(struct model *m, struct ms_partial one)
{
    m->at[m->count++] = one;
    m->tokens += one.tokens;
    while (m->tokens > ROOM)
        model_remove(m, 0);
}

static const void *model_take(struct model *m, struct ms_partial like)
{
    for (size_t i = 0; i < m->count; i++)
        if (m->at[i].key == like.key && m->at[i].asked == like.asked &&
            m->at[i].tokens < like.tokens) {
            const void *what = m->at[i].what;

            model_remove(m, i);
            return what;
        }
    return NULL;
}

static void model_expire(struct model *m, uint32_t version)
{
    for (size_t i = m->count; i-- > 0;)
        if (m->at[i].oldest < version)
            model_remove(m, i);
}

static void forget(void *what)
{
    (void)what; /* a number of the model's */
}

static void play(uint64_t seed)
{
    PARTIALS p = ms_partials_create(ROOM, forget);
    struct model m = {0};

    for (uintptr_t i = 1; i <= EVENTS; i++) {
        struct ms_partial one = {.key = 1 + roll(&seed, KEYS),
                                 .asked = roll(&seed, 2),
                                 .tokens = 1 + roll(&seed, 90),
                                 .oldest = (uint32_t)i / 20 + roll(&seed, 3),
                                 .what = (void *)i};
        uint32_t what = roll(&seed, 10);

        if (what == 0) {
            ms_partials_expire(p, (uint32_t)i / 20);
            model_expire(&m, (uint32_t)i / 20);
        } else if (what < 6) {
            assert_int_equal(ms_partials_keep(p, &one), 0);
            model_keep(&m, one);
        } else {
            assert_ptr_equal(ms_partials_take(p, one.key, one.asked, one.tokens),
                             model_take(&m, one));
        }
        assert_int_equal(ms_partials_stats(p).held, m.count);
        assert_int_equal(ms_partials_stats(p).tokens, m.tokens);
        assert_true(m.tokens <= ROOM);
    }
}

static void test_random_histories(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= HISTORIES; seed++)
        play(seed * UINT64_C(0x9E3779B97F4A7C15));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_oldest_of_the_prompt),
        cmocka_unit_test(test_too_much_and_too_old_is_let_go),
        cmocka_unit_test(test_random_histories),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
