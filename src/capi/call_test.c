/* call_test.c - calls of the driver's C interface, to real processes */
#include "capi/test_rig.h"

#include <errno.h>

static int group_setup(void **state)
{
    (void)state;
    return rig_start(NULL);
}

static void test_arguments(void **state)
{
    VALUE args = one(7);
    VALUE kwargs = muster_value_map();
    VALUE result = NULL;
    struct muster_call_options o = MUSTER_CALL_OPTIONS;

    (void)state;
    muster_map_set(kwargs, "key", muster_value_text("value"));
    o.kwargs = kwargs;
    assert_int_equal(
        muster_cluster_call_sync(cluster, 2, "echo", args, &o, &result, &err), 0);
    assert_int_equal(integer(muster_list_at(muster_list_at(result, 0), 0)), 7);
    assert_string_equal(
        muster_value_get_text(muster_map_find(muster_list_at(result, 1), "key"), NULL),
        "value");
}

static void test_all(void **state)
{
    struct muster_value *results[WORKERS] = {NULL};

    (void)state;
    assert_int_equal(
        muster_cluster_call_all_sync(cluster, "rank", NULL, NULL, results, &err), 0);
    for (int i = 0; i < WORKERS; i++) {
        assert_int_equal(integer(results[i]), i);
        muster_value_destroy(results[i]);
    }
    assert_int_equal(
        muster_cluster_call_all_sync(cluster, "rank", NULL, NULL, NULL, &err), 0);
}

static void test_some(void **state)
{
    uint32_t ranks[] = {2, 0};
    struct muster_future *futures[2];

    (void)state;
    assert_int_equal(
        muster_cluster_call_some(cluster, ranks, 2, "rank", NULL, NULL, futures, &err),
        0);
    for (int i = 0; i < 2; i++) {
        VALUE v = NULL;

        assert_int_equal(muster_future_result(futures[i], &v, &err), 0);
        assert_int_equal(integer(v), ranks[i]);
        assert_int_equal(muster_future_result(futures[i], &v, &err), -EALREADY);
        muster_future_destroy(futures[i]);
    }
    ranks[1] = WORKERS;
    assert_int_equal(
        muster_cluster_call_some(cluster, ranks, 2, "rank", NULL, NULL, futures, &err),
        -ERANGE);
    assert_null(futures[0]);
}

static void test_failures(void **state)
{
    VALUE args = one(1);
    VALUE text = muster_value_text("not a list");
    VALUE result = NULL;
    struct muster_value *results[WORKERS] = {NULL};

    (void)state;
    assert_int_equal(
        muster_cluster_call_sync(cluster, 1, "fail_on", args, NULL, &result, &err),
        -EREMOTEIO);
    assert_int_equal(err.kind, MUSTER_ERROR_RAISED);
    assert_string_equal(err.type, "Chosen");
    assert_non_null(strstr(err.message, "it is rank 1"));
    assert_non_null(strstr(err.where, "three/1@"));
    assert_null(result);
    assert_int_equal(
        muster_cluster_call_sync(cluster, 0, "fly", NULL, NULL, NULL, &err), -ENOSYS);
    assert_int_equal(err.kind, MUSTER_ERROR_NO_METHOD);
    assert_int_equal(
        muster_cluster_call_sync(cluster, 0, "echo", text, NULL, NULL, &err), -EINVAL);
    assert_int_equal(err.kind, MUSTER_ERROR_BAD_ARGUMENT);
    assert_int_equal(
        muster_cluster_call_sync(cluster, WORKERS, "echo", NULL, NULL, NULL, NULL),
        -ERANGE);
    /* the others hang until nobody waits for them: the failure comes at once */
    muster_list_append(args, muster_value_bool(true));
    assert_int_equal(
        muster_cluster_call_all_sync(cluster, "fail_on", args, NULL, results, &err),
        -EREMOTEIO);
    assert_null(results[0]);
}

static void test_engine(void **state)
{
    struct muster_call_options o = MUSTER_CALL_OPTIONS;

    (void)state;
    o.engine = "other";
    assert_int_equal(muster_cluster_call_sync(cluster, 0, "rank", NULL, &o, NULL, &err),
                     -ENOENT);
    assert_int_equal(err.kind, MUSTER_ERROR_NO_ENGINE);
}

static void test_deadline(void **state)
{
    struct muster_call_options o = MUSTER_CALL_OPTIONS;

    (void)state;
    o.timeout_ns = 50 * MS_NS_PER_MS;
    assert_int_equal(muster_cluster_call_sync(cluster, 0, "hang", NULL, &o, NULL, &err),
                     -ETIMEDOUT);
    assert_int_equal(err.kind, MUSTER_ERROR_DEADLINE);
}

static void test_cancel_and_wait(void **state)
{
    FUTURE hanging = muster_cluster_call(cluster, 0, "hang", NULL, NULL, &err);
    FUTURE quick = muster_cluster_call(cluster, 1, "rank", NULL, NULL, &err);
    struct muster_future *both[] = {hanging, quick};

    (void)state;
    assert_int_equal(muster_future_wait_any(both, 2, 20 * MS_NS_PER_S), 1);
    assert_int_equal(muster_future_wait_any(both, 1, MS_NS_PER_MS), -ETIMEDOUT);
    assert_int_equal(muster_future_wait(hanging, MS_NS_PER_MS), -ETIMEDOUT);
    assert_false(muster_future_is_done(hanging));
    muster_future_cancel(hanging);
    assert_int_equal(muster_future_result(hanging, NULL, &err), -ECANCELED);
    assert_int_equal(err.kind, MUSTER_ERROR_CANCELLED);
}

static void test_stream(void **state)
{
    VALUE args = one(700);
    FUTURE f = muster_cluster_call(cluster, 0, "count", args, NULL, &err);
    struct muster_value *item = NULL;
    int64_t seen = 0;
    int rc;

    (void)state;
    while ((rc = muster_future_next(f, 20 * MS_NS_PER_S, &item, &err)) == 1) {
        assert_int_equal(integer(item), seen++);
        muster_value_destroy(item);
    }
    assert_int_equal(rc, 0);
    assert_int_equal(seen, 700);
    assert_int_equal(muster_future_result(f, NULL, &err), 0);
}

static void test_stream_that_fails(void **state)
{
    VALUE args = one(2);
    FUTURE f = NULL;
    struct muster_value *item = NULL;

    (void)state;
    muster_list_append(args, muster_value_bool(true));
    f = muster_cluster_call(cluster, 0, "count", args, NULL, &err);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(muster_future_next(f, 20 * MS_NS_PER_S, &item, &err), 1);
        muster_value_destroy(item);
    }
    assert_int_equal(muster_future_next(f, 20 * MS_NS_PER_S, &item, &err), -EREMOTEIO);
    assert_string_equal(err.type, "Tired");
}

static void test_bytes(void **state)
{
    FUTURE f = muster_cluster_call_bytes(cluster, 1, "reverse", "abc", 3, NULL, &err);
    VALUE result = NULL;
    size_t len = 0;

    (void)state;
    assert_int_equal(muster_future_result(f, &result, &err), 0);
    assert_memory_equal(muster_value_get_bytes(result, &len), "cba", 3);
    assert_int_equal(len, 3);
}

static void test_big_tensor(void **state)
{
    enum { SIZE = 4 << 20 };
    MS_CLEANUP(ms_cleanup_free) uint8_t *data = malloc(SIZE);
    uint64_t shape[] = {4, SIZE / 4};
    VALUE args = muster_value_list();
    VALUE result = NULL;
    const struct muster_value *back;

    (void)state;
    for (size_t i = 0; i < SIZE; i++)
        data[i] = (uint8_t)(i >> 3);
    muster_list_append(args, muster_value_tensor_view(MUSTER_UINT8, shape, 2, data));
    assert_int_equal(
        muster_cluster_call_sync(cluster, 0, "echo", args, NULL, &result, &err), 0);
    back = muster_list_at(muster_list_at(result, 0), 0);
    assert_int_equal(muster_tensor_shape(back)[1], SIZE / 4);
    assert_memory_equal(muster_tensor_data(back, NULL), data, SIZE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_arguments),
        cmocka_unit_test(test_all),
        cmocka_unit_test(test_some),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_engine),
        cmocka_unit_test(test_deadline),
        cmocka_unit_test(test_cancel_and_wait),
        cmocka_unit_test(test_stream),
        cmocka_unit_test(test_stream_that_fails),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_big_tensor),
    };

    return cmocka_run_group_tests_name("call", tests, group_setup, group_teardown);
}
