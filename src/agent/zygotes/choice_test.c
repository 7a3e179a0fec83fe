/* choice_test.c - which zygote a worker comes from */
#include "agent/zygotes/zygote_impl.h"
#include "base/clock.h"
#include "base/limits.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { ROOM = 8 };

/* Zygotes without processes; the key's only module is what tells them apart. */
struct rig {
    struct ms_list list;
    struct ms_zygote at[ROOM];
    Muster__DriverContext keys[ROOM];
    char *modules[ROOM][3];
    size_t count;
};

static char env_a[] = "A=1", env_b[] = "A=2", one[] = "one", two[] = "two",
            folder[] = "/job";
static char *envs[] = {env_a, env_b};

static void set_key(Muster__DriverContext *k, char **modules, size_t count, int env)
{
    *k = (Muster__DriverContext){.working_dir = folder,
                                 .env = &envs[env],
                                 .n_env = 1,
                                 .preload = modules,
                                 .n_preload = count};
}

static void rig_init(struct rig *r)
{
    memset(r, 0, sizeof *r);
    ms_list_init(&r->list);
}

static struct ms_zygote *add(struct rig *r, int modules, int env, int64_t used_ns)
{
    size_t i = r->count++;
    struct ms_zygote *z = &r->at[i];

    r->modules[i][0] = one;
    r->modules[i][1] = two;
    set_key(&r->keys[i], r->modules[i], (size_t)modules, env);
    z->key = &r->keys[i];
    z->state = MS_ZYGOTE_READY;
    z->used_ns = used_ns;
    ms_list_init(&z->queue);
    ms_list_init(&z->sent);
    ms_list_init(&z->link);
    ms_list_add_tail(&r->list, &z->link);
    return z;
}

static void test_the_one_of_a_key(void **state)
{
    struct rig r;
    struct ms_zygote *plain, *more, *other;

    (void)state;
    rig_init(&r);
    plain = add(&r, 0, 0, 1);
    more = add(&r, 1, 0, 1);
    other = add(&r, 1, 1, 1);
    assert_ptr_equal(ms_zygote_find(&r.list, plain->key), plain);
    assert_ptr_equal(ms_zygote_find(&r.list, more->key), more);
    assert_ptr_equal(ms_zygote_find(&r.list, other->key), other);
    more->state = MS_ZYGOTE_UNFORKABLE; /* remembered */
    assert_ptr_equal(ms_zygote_find(&r.list, more->key), more);
    more->is_stale = true;
    assert_null(ms_zygote_find(&r.list, more->key));
    other->state = MS_ZYGOTE_DEAD;
    assert_null(ms_zygote_find(&r.list, other->key));
}

static void test_base_has_most_and_nothing_else(void **state)
{
    struct rig r;
    struct ms_zygote *plain, *more, *all;
    Muster__DriverContext want;
    char *modules[] = {two, one};

    (void)state;
    rig_init(&r);
    plain = add(&r, 0, 0, 1);
    more = add(&r, 1, 0, 1);
    all = add(&r, 2, 1, 1); /* of another environment */
    set_key(&want, modules, 2, 0);
    assert_ptr_equal(ms_zygote_find_base(&r.list, &want), more);
    more->state = MS_ZYGOTE_UNFORKABLE;
    assert_ptr_equal(ms_zygote_find_base(&r.list, &want), plain);
    plain->is_stale = true;
    assert_null(ms_zygote_find_base(&r.list, &want));
    set_key(&want, modules, 0, 1);
    assert_null(ms_zygote_find_base(&r.list, &want));
    assert_ptr_equal(ms_zygote_find_richer(&r.list, &want), all);
}

static void test_imports_change_variables(void **state)
{
    struct rig r;
    struct ms_zygote *z;
    Muster__DriverContext after, want;
    char *modules[] = {one, two};

    (void)state;
    rig_init(&r);
    z = add(&r, 1, 0, 1);
    set_key(&want, modules, 1, 1);
    assert_null(ms_zygote_find(&r.list, &want));
    set_key(&after, modules, 1, 1);
    z->after = &after;
    assert_ptr_equal(ms_zygote_find(&r.list, &want), z);
    assert_ptr_equal(ms_zygote_find(&r.list, z->key), z);
    want.n_preload = 2;
    assert_ptr_equal(ms_zygote_find_base(&r.list, &want), z);
    want.n_preload = 0;
    assert_ptr_equal(ms_zygote_find_richer(&r.list, &want), z);
}

static void test_idle(void **state)
{
    struct rig r;
    struct ms_zygote *base, *derived;
    struct ms_list item;

    (void)state;
    rig_init(&r);
    base = add(&r, 0, 0, 1);
    derived = add(&r, 1, 0, 1);
    derived->base = base;
    assert_false(ms_zygote_is_idle(&r.list, base)); /* it would take the other along */
    assert_true(ms_zygote_is_idle(&r.list, derived));
    derived->waiters.len = 8;
    assert_false(ms_zygote_is_idle(&r.list, derived));
    derived->waiters.len = 0;
    ms_list_init(&item);
    ms_list_add_tail(&derived->sent, &item);
    assert_false(ms_zygote_is_idle(&r.list, derived));
    derived->state = MS_ZYGOTE_DEAD;
    assert_true(ms_zygote_is_idle(&r.list, base));
}

static void test_ends_without_a_driver(void **state)
{
    struct rig r;
    struct ms_zygote *z, *held;
    int64_t end = 5 + MS_ZYGOTE_IDLE_NS;

    (void)state;
    rig_init(&r);
    z = add(&r, 0, 0, 5);
    held = add(&r, 1, 0, 1);
    held->drivers.len = 8;
    assert_int_equal(ms_zygote_next_end_ns(&r.list), end);
    assert_null(ms_zygote_find_over(&r.list, end - 1));
    assert_ptr_equal(ms_zygote_find_over(&r.list, end), z);
    z->state = MS_ZYGOTE_DEAD;
    assert_int_equal(ms_zygote_next_end_ns(&r.list), MS_NEVER);
    assert_null(ms_zygote_find_over(&r.list, MS_NEVER - 1));
}

static void test_stale_ends_when_idle(void **state)
{
    struct rig r;
    struct ms_zygote *base, *derived;

    (void)state;
    rig_init(&r);
    base = add(&r, 0, 0, 1);
    derived = add(&r, 1, 0, 1);
    derived->base = base;
    base->is_stale = derived->is_stale = true;
    base->drivers.len = derived->drivers.len = 8;
    assert_ptr_equal(ms_zygote_find_over(&r.list, 2), derived); /* leaves first */
    derived->state = MS_ZYGOTE_DEAD;
    assert_ptr_equal(ms_zygote_find_over(&r.list, 2), base);
}

static void test_who_gives_its_place(void **state)
{
    struct rig r;
    struct ms_zygote *old, *recent, *orphan;

    (void)state;
    rig_init(&r);
    recent = add(&r, 0, 0, 30);
    old = add(&r, 1, 0, 10);
    orphan = add(&r, 1, 1, 40);
    recent->drivers.len = old->drivers.len = 8;
    assert_ptr_equal(ms_zygote_find_replaceable(&r.list), orphan);
    orphan->waiters.len = 8;
    assert_ptr_equal(ms_zygote_find_replaceable(&r.list), old);
    old->waiters.len = 8;
    assert_ptr_equal(ms_zygote_find_replaceable(&r.list), recent);
    recent->waiters.len = 8;
    assert_null(ms_zygote_find_replaceable(&r.list));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_one_of_a_key),
        cmocka_unit_test(test_base_has_most_and_nothing_else),
        cmocka_unit_test(test_imports_change_variables),
        cmocka_unit_test(test_idle),
        cmocka_unit_test(test_ends_without_a_driver),
        cmocka_unit_test(test_stale_ends_when_idle),
        cmocka_unit_test(test_who_gives_its_place),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
