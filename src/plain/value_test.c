/* Values in memory: who owns what, and what cannot be done. */
#include "base/cleanup.h"
#include "base/limits.h"
#include "muster/value.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static void destroy(struct muster_value **v)
{
    muster_value_destroy(*v);
}

#define OWNED MS_CLEANUP(destroy) struct muster_value *

static void test_kinds_are_checked(void **state)
{
    OWNED v = muster_value_int(3);
    bool truth = true;
    double real = 0;
    size_t len = 99;

    (void)state;
    assert_int_equal(muster_value_get_bool(v, &truth), -EINVAL);
    assert_true(truth); /* failure left no trace */
    assert_int_equal(muster_value_get_float(v, &real), 0);
    assert_true(real == 3);
    assert_null(muster_value_get_text(v, &len));
    assert_int_equal(len, 99);
    assert_null(muster_list_at(v, 0));
    assert_null(muster_map_find(v, "x"));
    assert_null(muster_tensor_shape(v));
    assert_int_equal(muster_value_get_int(NULL, NULL), -EINVAL);
}

static void test_append_takes_also_on_failure(void **state)
{
    OWNED number = muster_value_int(1);
    OWNED list = muster_value_list();
    MS_CLEANUP(ms_cleanup_free) void *data = NULL;
    size_t len;

    (void)state;
    assert_int_equal(muster_list_append(number, muster_value_text("lost")), -EINVAL);
    assert_int_equal(muster_list_append(NULL, muster_value_text("lost")), -ENOMEM);
    assert_int_equal(muster_list_append(list, NULL), -ENOMEM);
    assert_int_equal(muster_list_append(list, muster_value_text("\xff")), -ENOMEM);
    assert_int_equal(muster_value_encode(list, &data, &len), -ENOMEM);
}

static void test_map_replaces(void **state)
{
    OWNED map = muster_value_map();
    const char *key = NULL;
    int64_t n = 0;

    (void)state;
    for (int i = 0; i < 20; i++)
        assert_int_equal(
            muster_map_set(map, i % 2 ? "odd" : "even", muster_value_int(i)), 0);
    assert_int_equal(muster_map_count(map), 2);
    assert_int_equal(muster_value_get_int(muster_map_at(map, 1, &key), &n), 0);
    assert_string_equal(key, "odd");
    assert_int_equal(n, 19);
    assert_null(muster_map_at(map, 2, NULL));
    assert_int_equal(muster_map_set(map, "\xff", muster_value_null()), -EINVAL);
}

/* A tree that came in a message may become a part of another value. */
static void test_a_tree_moves(void **state)
{
    OWNED list = muster_value_list();
    MS_CLEANUP(ms_cleanup_free) void *data = NULL;
    size_t len = 0;

    (void)state;
    muster_list_append(list, muster_value_text("inner"));
    assert_int_equal(muster_value_encode(list, &data, &len), 0);
    assert_int_equal(muster_list_append(list, muster_value_decode(data, len, NULL)), 0);
    assert_string_equal(
        muster_value_get_text(muster_list_at(muster_list_at(list, 1), 0), NULL),
        "inner");
}

static void test_tensors(void **state)
{
    uint64_t shape[] = {2, 2};
    OWNED t = muster_value_tensor(MUSTER_INT32, shape, 2, NULL);
    OWNED scalar = muster_value_tensor(MUSTER_FLOAT64, NULL, 0, NULL);
    int32_t *numbers = muster_tensor_data_mut(t);

    (void)state;
    assert_non_null(numbers);
    assert_int_equal(numbers[3], 0);
    numbers[3] = 5;
    assert_int_equal(((const int32_t *)muster_tensor_data(t, NULL))[3], 5);
    assert_int_equal(muster_tensor_count(scalar), 1);
    assert_null(muster_value_tensor((enum muster_dtype)77, shape, 2, NULL));
    assert_null(muster_value_tensor_view(MUSTER_INT8, shape, 2, NULL));
    assert_null(muster_value_tensor(MUSTER_INT8, shape, MUSTER_DIMS_MAX + 1, NULL));
    assert_string_equal(muster_dtype_name(MUSTER_BFLOAT16), "bfloat16");
}

/* Deeper than a stack is. */
static void test_a_deep_value_is_freed(void **state)
{
    struct muster_value *v = muster_value_list();
    void *data = NULL;
    size_t len = 0;

    (void)state;
    for (int i = 0; i < 1000000; i++) {
        struct muster_value *outer = i % 2 ? muster_value_map() : muster_value_list();

        assert_int_equal(
            i % 2 ? muster_map_set(outer, "x", v) : muster_list_append(outer, v), 0);
        if (i % 3 == 0 && i % 2 == 0) /* others beside it */
            assert_int_equal(muster_list_append(outer, muster_value_text("beside")), 0);
        v = outer;
    }
    assert_int_equal(muster_value_encode(v, &data, &len), -E2BIG);
    assert_null(muster_value_copy(v));
    muster_value_destroy(v);
}

/* What could not be put in is told by the same errno when it is sent. */
static void test_a_list_beyond_the_limit(void **state)
{
    struct muster_value *list = muster_value_list();
    void *data = NULL;
    size_t len = 0;

    (void)state;
    for (size_t i = 0; i < MS_PLAIN_NODES_MAX; i++)
        assert_int_equal(muster_list_append(list, muster_value_null()), 0);
    assert_int_equal(muster_list_append(list, muster_value_null()), -E2BIG);
    assert_int_equal(muster_value_encode(list, &data, &len), -E2BIG);
    muster_value_destroy(list);
}

static void test_null_is_an_error(void **state)
{
    (void)state;
    assert_null(muster_value_tensor(MUSTER_FLOAT32, NULL, 2, NULL));
    assert_null(muster_value_tensor_view(MUSTER_FLOAT32, NULL, 1, ""));
    assert_null(muster_value_bytes(NULL, 3));
    assert_null(muster_value_text_n(NULL, 3));
    muster_value_destroy(muster_value_bytes(NULL, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_kinds_are_checked),
        cmocka_unit_test(test_append_takes_also_on_failure),
        cmocka_unit_test(test_map_replaces),
        cmocka_unit_test(test_a_tree_moves),
        cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_a_deep_value_is_freed),
        cmocka_unit_test(test_a_list_beyond_the_limit),
        cmocka_unit_test(test_null_is_an_error),
    };

    return cmocka_run_group_tests_name("value", tests, NULL, NULL);
}
