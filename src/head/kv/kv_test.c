/* kv_test.c - tests of kv.h: the key-value store of a head, pure */
#include "base/cleanup.h"
#include "base/limits.h"
#include "head/kv/kv.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct ms_kv_owner nobody = {MS_KV_NONE, 0};

static int put_as(struct ms_kv *kv,
                  const char *key,
                  const char *value,
                  struct ms_kv_owner owner,
                  bool only_if_absent)
{
    return ms_kv_put(kv,
                     &(struct ms_kv_put){.key = key,
                                         .value = (const uint8_t *)value,
                                         .len = strlen(value),
                                         .owner = owner,
                                         .only_if_absent = only_if_absent},
                     NULL);
}

static int put(struct ms_kv *kv, const char *key, const char *value)
{
    return put_as(kv, key, value, nobody, false);
}

static void assert_has(const struct ms_kv *kv, const char *key, const char *value)
{
    const struct ms_kv_entry *e = ms_kv_find(kv, key);

    if (!value) {
        assert_null(e);
        return;
    }
    assert_non_null(e);
    assert_int_equal(e->value->len, strlen(value));
    assert_memory_equal(e->value->data, value, e->value->len);
}

static void test_put_get_delete(void **state)
{
    MS_CLEANUP(ms_kv_finish) struct ms_kv kv;

    (void)state;
    ms_kv_init(&kv, 7);
    assert_int_equal(put(&kv, "b", "1"), 1);
    assert_int_equal(put(&kv, "a", "2"), 1);
    assert_int_equal(put(&kv, "b", "three"), 1);
    assert_has(&kv, "a", "2");
    assert_has(&kv, "b", "three");
    assert_has(&kv, "c", NULL);
    assert_int_equal(kv.revision, 3);
    assert_int_equal(kv.bytes, 8);
    assert_int_equal(ms_kv_delete(&kv, "b"), 1);
    assert_int_equal(ms_kv_delete(&kv, "b"), 0);
    assert_has(&kv, "b", NULL);
    assert_int_equal(kv.revision, 4);
    assert_int_equal(kv.bytes, 2);
}

static void test_only_one_is_the_first(void **state)
{
    MS_CLEANUP(ms_kv_finish) struct ms_kv kv;

    (void)state;
    ms_kv_init(&kv, 7);
    assert_int_equal(put_as(&kv, "k", "a", nobody, true), 1);
    assert_int_equal(put_as(&kv, "k", "b", nobody, true), 0);
    assert_has(&kv, "k", "a");
    assert_int_equal(kv.revision, 1);
}

static void test_entries_go_with_their_owner(void **state)
{
    const struct ms_kv_owner driver = {MS_KV_DRIVER, 5}, worker = {MS_KV_WORKER, 5};
    MS_CLEANUP(ms_kv_finish) struct ms_kv kv;

    (void)state;
    ms_kv_init(&kv, 7);
    put_as(&kv, "a", "1", driver, false);
    put_as(&kv, "b", "1", worker, false);
    put_as(&kv, "c", "1", nobody, false);
    put_as(&kv, "d", "1", driver, false);
    put_as(&kv, "d", "2", worker, false); /* who put it last */
    assert_int_equal(ms_kv_drop(&kv, driver), 1);
    assert_has(&kv, "a", NULL);
    assert_int_equal(ms_kv_drop(&kv, worker), 2);
    assert_has(&kv, "c", "1");
    assert_int_equal(kv.count, 1);
    assert_int_equal(kv.bytes, 2);
}

static void test_prefixes(void **state)
{
    static const char *const keys[] = {
        "a", "a/1", "a/2", "a0", "b", "\xf4\x8f\xbf\xbf"};
    MS_CLEANUP(ms_kv_finish) struct ms_kv kv;
    size_t first;

    (void)state;
    ms_kv_init(&kv, 7);
    for (size_t i = MS_COUNT(keys); i-- > 0;)
        put(&kv, keys[i], "");
    assert_int_equal(ms_kv_range(&kv, "a/", &first), 2);
    assert_string_equal(kv.entries[first]->key, "a/1");
    assert_int_equal(ms_kv_range(&kv, "a", &first), 4);
    assert_int_equal(ms_kv_range(&kv, "", &first), 6);
    assert_int_equal(ms_kv_range(&kv, "c", &first), 0);
    assert_int_equal(ms_kv_range(&kv, "\xf4\x8f\xbf\xbf", &first), 1);
}

static void test_changes_are_told_in_order(void **state)
{
    MS_CLEANUP(ms_kv_finish) struct ms_kv kv;
    const struct ms_kv_entry *c;

    (void)state;
    ms_kv_init(&kv, 7);
    put(&kv, "x/a", "1");
    put(&kv, "y", "2");
    put(&kv, "x/a", "3");
    ms_kv_delete(&kv, "x/a");
    c = ms_kv_next_change(&kv, "x/", 0);
    assert_int_equal(c->revision, 1);
    assert_memory_equal(c->value->data, "1", 1); /* as it was then */
    c = ms_kv_next_change(&kv, "x/", c->revision);
    assert_int_equal(c->revision, 3);
    c = ms_kv_next_change(&kv, "x/", c->revision);
    assert_int_equal(c->revision, 4);
    assert_null(c->value);
    assert_null(ms_kv_next_change(&kv, "x/", c->revision));
    assert_null(ms_kv_next_change(&kv, "z", 0));
    assert_true(ms_kv_has_changes(&kv, 0));
    assert_true(ms_kv_has_changes(&kv, 4));
    assert_false(ms_kv_has_changes(&kv, 5)); /* of a store that was before */
}

static void test_old_changes_are_forgotten(void **state)
{
    MS_CLEANUP(ms_kv_finish) struct ms_kv kv;
    char value[16];

    (void)state;
    ms_kv_init(&kv, 7);
    for (unsigned i = 0; i < MS_KV_HISTORY_MAX + 10; i++) {
        snprintf(value, sizeof value, "%u", i);
        put(&kv, "k", value);
    }
    assert_false(ms_kv_has_changes(&kv, 9));
    assert_true(ms_kv_has_changes(&kv, 10));
    assert_int_equal(ms_kv_next_change(&kv, "k", 0)->revision, 11);
    assert_int_equal(kv.change_count, MS_KV_HISTORY_MAX);
}

static void test_big_changes_are_forgotten_sooner(void **state)
{
    MS_CLEANUP(ms_kv_finish) struct ms_kv kv;
    MS_CLEANUP(ms_cleanup_free) uint8_t *big = calloc(1, MS_KV_VALUE_MAX);
    struct ms_kv_put p = {.key = "k", .value = big, .len = MS_KV_VALUE_MAX};

    (void)state;
    assert_non_null(big);
    ms_kv_init(&kv, 7);
    for (int i = 0; i < 8; i++)
        assert_int_equal(ms_kv_put(&kv, &p, NULL), 1);
    assert_true(kv.change_bytes <= MS_KV_HISTORY_BYTES);
    assert_int_equal(kv.change_count, 3);
    assert_int_equal(kv.bytes, 1 + MS_KV_VALUE_MAX);
}

static void test_limits_are_told_and_change_nothing(void **state)
{
    MS_CLEANUP(ms_kv_finish) struct ms_kv kv;
    MS_CLEANUP(ms_cleanup_free) uint8_t *big = calloc(1, MS_KV_VALUE_MAX + 1);
    char key[MS_KV_KEY_MAX + 2];
    struct ms_error err = {0};
    struct ms_kv_put p = {.key = key, .value = big};

    (void)state;
    assert_non_null(big);
    ms_kv_init(&kv, 7);
    memset(key, 'k', sizeof key);
    key[sizeof key - 1] = 0;
    assert_int_equal(ms_kv_put(&kv, &p, &err), -EINVAL);
    assert_non_null(strstr(err.text, "512"));
    key[0] = 0;
    assert_int_equal(ms_kv_put(&kv, &p, &err), -EINVAL);
    strcpy(key, "k");
    p.len = MS_KV_VALUE_MAX + 1;
    assert_int_equal(ms_kv_put(&kv, &p, &err), -E2BIG);
    assert_non_null(strstr(err.text, "'k'"));
    p.len = MS_KV_VALUE_MAX;
    for (unsigned i = 0; i < MS_KV_BYTES_MAX / MS_KV_VALUE_MAX - 1; i++) {
        snprintf(key, sizeof key, "%u", i);
        assert_int_equal(ms_kv_put(&kv, &p, &err), 1);
    }
    strcpy(key, "last");
    assert_int_equal(ms_kv_put(&kv, &p, &err), -ENOSPC);
    assert_has(&kv, "last", NULL);
}

/* Against a model that is too simple to be wrong. */
static void test_random(void **state)
{
    enum { KEYS = 40, STEPS = 20000 };
    MS_CLEANUP(ms_kv_finish) struct ms_kv kv;
    int model[KEYS] = {0}; /* 0: none */
    uint64_t changes = 0;
    unsigned seed = 20261116;

    (void)state;
    ms_kv_init(&kv, 7);
    for (int step = 1; step <= STEPS; step++) {
        int k = rand_r(&seed) % KEYS;
        char key[16], value[16];

        snprintf(key, sizeof key, "k%02d", k);
        snprintf(value, sizeof value, "%d", step);
        if (rand_r(&seed) % 3 == 0) {
            assert_int_equal(ms_kv_delete(&kv, key), model[k] != 0);
            changes += model[k] != 0;
            model[k] = 0;
        } else {
            bool absent = rand_r(&seed) % 2;
            bool stores = !absent || model[k] == 0;

            assert_int_equal(put_as(&kv, key, value, nobody, absent), stores);
            changes += stores;
            model[k] = stores ? step : model[k];
        }
        snprintf(value, sizeof value, "%d", model[k]);
        assert_has(&kv, key, model[k] ? value : NULL);
        assert_int_equal(kv.revision, changes);
    }
}

static void test_numbers(void **state)
{
    struct ms_kv kv;
    struct ms_error err = {0};
    int64_t value = 99;

    (void)state;
    ms_kv_init(&kv, 1);
    assert_int_equal(ms_kv_add(&kv, "n", 3, &value, NULL), 1);
    assert_int_equal(value, 3);
    assert_int_equal(ms_kv_add(&kv, "n", -5, &value, NULL), 1);
    assert_int_equal(value, -2);
    assert_memory_equal(ms_kv_find(&kv, "n")->value->data, "-2", 2);
    assert_int_equal(ms_kv_add(&kv, "n", INT64_MIN + 2, &value, NULL), 1);
    assert_int_equal(ms_kv_add(&kv, "n", -1, &value, &err), -ERANGE);
    assert_int_equal(ms_kv_add(&kv, "n", INT64_MAX, &value, NULL), 1);
    assert_int_equal(value, -1);
    for (const char *const *text =
             (const char *const[]){"", "-", "+1", " 1", "1x", "x", NULL};
         *text;
         text++) {
        put(&kv, "t", *text);
        assert_int_equal(ms_kv_add(&kv, "t", 1, &value, &err), -EINVAL);
        assert_int_equal(ms_kv_find(&kv, "t")->value->len, strlen(*text));
    }
    assert_int_equal(ms_kv_add(&kv, "", 1, &value, &err), -EINVAL);
    ms_kv_finish(&kv);
}

static int swap(struct ms_kv *kv, const char *key, const char *from, const char *to)
{
    struct ms_kv_put p = {.key = key,
                          .value = (const uint8_t *)to,
                          .len = strlen(to),
                          .owner = {.kind = MS_KV_NONE}};

    return ms_kv_compare_set(kv, &p, (const uint8_t *)from, strlen(from), NULL);
}

static void test_compare_set(void **state)
{
    struct ms_kv kv;

    (void)state;
    ms_kv_init(&kv, 1);
    assert_int_equal(swap(&kv, "k", "a", "b"), 0); /* there is none */
    assert_null(ms_kv_find(&kv, "k"));
    assert_int_equal(swap(&kv, "k", "", "a"), 1);
    assert_int_equal(swap(&kv, "k", "", "b"), 0);
    assert_int_equal(swap(&kv, "k", "x", "b"), 0);
    assert_int_equal(swap(&kv, "k", "a", "b"), 1);
    assert_memory_equal(ms_kv_find(&kv, "k")->value->data, "b", 1);
    assert_int_equal(swap(&kv, "", "", "b"), -EINVAL);
    ms_kv_finish(&kv);
}

static void test_delete_below(void **state)
{
    struct ms_kv kv;

    (void)state;
    ms_kv_init(&kv, 1);
    put(&kv, "a", "1");
    put(&kv, "b/1", "1");
    put(&kv, "b/2", "1");
    put(&kv, "b0", "1");
    assert_int_equal(ms_kv_delete_below(&kv, "b/"), 2);
    assert_int_equal(kv.count, 2);
    assert_non_null(ms_kv_find(&kv, "b0"));
    assert_int_equal(ms_kv_delete_below(&kv, "c"), 0);
    ms_kv_finish(&kv);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_compare_set),
        cmocka_unit_test(test_delete_below),
        cmocka_unit_test(test_put_get_delete),
        cmocka_unit_test(test_only_one_is_the_first),
        cmocka_unit_test(test_entries_go_with_their_owner),
        cmocka_unit_test(test_prefixes),
        cmocka_unit_test(test_changes_are_told_in_order),
        cmocka_unit_test(test_old_changes_are_forgotten),
        cmocka_unit_test(test_big_changes_are_forgotten_sooner),
        cmocka_unit_test(test_limits_are_told_and_change_nothing),
        cmocka_unit_test(test_random),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
