/* env_test.c - tests of env.h: an environment under construction */
#include "base/env.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* The value of the one entry of this name; NULL: there is none. */
static const char *get(const struct ms_env *e, const char *name)
{
    size_t len = strlen(name);
    const char *value = NULL;

    for (size_t i = 0; i < e->count; i++)
        if (strncmp(e->entries[i], name, len) == 0 && e->entries[i][len] == '=') {
            assert_null(value);
            value = e->entries[i] + len + 1;
        }
    return value;
}

static void test_later_entries_win(void **state)
{
    char a[] = "A=1", ab[] = "AB=2", again[] = "A=3=x";
    char *entries[] = {a, ab, again};
    struct ms_env e;

    (void)state;
    ms_env_init(&e);
    assert_null(get(&e, "A"));
    assert_int_equal(ms_env_set_all(&e, entries, 3), 0);
    assert_int_equal(ms_env_printf(&e, "N=%d", 5), 0);
    assert_int_equal(e.count, 3);
    assert_null(e.entries[3]);
    assert_string_equal(get(&e, "A"), "3=x");
    assert_string_equal(get(&e, "AB"), "2");
    assert_string_equal(get(&e, "N"), "5");
    assert_null(get(&e, "B"));
    ms_env_drop(&e, "A");
    ms_env_drop(&e, "A");
    assert_null(get(&e, "A"));
    assert_int_equal(e.count, 2);
    assert_string_equal(e.entries[1], "N=5");
    assert_null(e.entries[2]);
    ms_env_finish(&e);
}

static void test_what_is_no_entry_is_refused(void **state)
{
    struct ms_env e;

    (void)state;
    ms_env_init(&e);
    assert_int_equal(ms_env_set(&e, "NAME"), -EINVAL);
    assert_int_equal(ms_env_set(&e, "=value"), -EINVAL);
    assert_int_equal(ms_env_set(&e, ""), -EINVAL);
    assert_int_equal(e.count, 0);
    ms_env_finish(&e);
}

static void test_many(void **state)
{
    struct ms_env e;

    (void)state;
    ms_env_init(&e);
    for (int i = 0; i < 500; i++)
        assert_int_equal(ms_env_printf(&e, "NAME_%d=%d", i, i), 0);
    assert_int_equal(e.count, 500);
    assert_null(e.entries[500]);
    assert_string_equal(get(&e, "NAME_499"), "499");
    ms_env_finish(&e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_later_entries_win),
        cmocka_unit_test(test_what_is_no_entry_is_refused),
        cmocka_unit_test(test_many),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
