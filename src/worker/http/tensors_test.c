/* What a worker keeps for others: replaced, cleared, expired, and read meanwhile. */
#include "base/buf.h"
#include "base/clock.h"
#include "base/limits.h"
#include "worker/http/tensors.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* 1: its lease is to be waited for from now on. */
static int
add_first(struct ms_http_tensors *s, const char *id, const char *bytes, int64_t now_ns)
{
    struct ms_http_tensor with = {.id = (char *)(uintptr_t)id,
                                  .type = (char[]){"tensor"},
                                  .dtype = (char[]){"torch.uint8"},
                                  .shape = (char[]){"[1]"},
                                  .len = strlen(bytes),
                                  .memory = ms_bytes_copy(bytes, strlen(bytes))};

    return ms_http_tensors_add(s, &with, now_ns, NULL);
}

static int
add(struct ms_http_tensors *s, const char *id, const char *bytes, int64_t now_ns)
{
    int rc = add_first(s, id, bytes, now_ns);

    return rc < 0 ? rc : 0;
}

static void expect(struct ms_http_tensors *s, size_t count, uint64_t bytes)
{
    uint64_t found_bytes;
    size_t found;

    ms_http_tensors_stats(s, &found, &found_bytes);
    assert_int_equal(found, count);
    assert_int_equal(found_bytes, bytes);
}

static void test_replace_and_remove(void **state)
{
    struct ms_http_tensor *one;
    struct ms_http_tensors s;

    (void)state;
    ms_http_tensors_init(&s);
    assert_null(ms_http_tensors_find(&s, "a", 0));
    assert_int_equal(add(&s, "a", "123", 0), 0);
    assert_int_equal(add(&s, "b", "45", 0), 0);
    one = ms_http_tensors_find(&s, "a", 0);
    assert_non_null(one);
    assert_int_equal(add(&s, "a", "6", 0), 0);
    expect(&s, 2, 3);
    assert_memory_equal(one->memory, "123", 3); /* for as long as it is held */
    ms_http_tensor_unref(&s, one);
    assert_true(ms_http_tensors_remove(&s, "a"));
    assert_false(ms_http_tensors_remove(&s, "a"));
    expect(&s, 1, 2);
    assert_int_equal(s.own_bytes, 2);
    ms_http_tensors_finish(&s);
}

static void test_bad_names_and_limits(void **state)
{
    char longest[MS_HTTP_TENSOR_ID_MAX + 2];
    struct ms_http_tensors s;

    (void)state;
    ms_http_tensors_init(&s);
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    assert_int_equal(add(&s, longest, "1", 0), -EINVAL);
    assert_int_equal(add(&s, longest + 1, "1", 0), 0);
    assert_int_equal(add(&s, "", "1", 0), -EINVAL);
    assert_int_equal(add(&s, "a\"b", "1", 0), -EINVAL);
    s.own_bytes = MS_HTTP_TENSORS_OWN_MAX;
    assert_int_equal(add(&s, "full", "1", 0), -ENOSPC);
    s.own_bytes = 1;
    expect(&s, 1, 1);
    ms_http_tensors_finish(&s);
}

/* One that is replaced makes room for it, unless it is being read. */
static void test_replace_at_the_limits(void **state)
{
    struct ms_http_tensor *one;
    struct ms_http_tensors s;

    (void)state;
    ms_http_tensors_init(&s);
    assert_int_equal(add(&s, "a", "123", 0), 0);
    s.count += MS_HTTP_TENSORS_MAX - 1;
    assert_int_equal(add(&s, "a", "456", 0), 0);
    assert_int_equal(add(&s, "b", "1", 0), -ENOSPC);
    s.count = 1;
    s.own_bytes = MS_HTTP_TENSORS_OWN_MAX - 1;
    assert_int_equal(ms_http_tensors_room(&s, "a"), 4);
    assert_int_equal(ms_http_tensors_room(&s, "b"), 1);
    assert_int_equal(add(&s, "a", "12345", 0), -ENOSPC);
    assert_int_equal(add(&s, "a", "1234", 0), 0);
    assert_int_equal(s.own_bytes, MS_HTTP_TENSORS_OWN_MAX);
    one = ms_http_tensors_find(&s, "a", 0);
    assert_int_equal(add(&s, "a", "1", 0), -ENOSPC);
    assert_memory_equal(one->memory, "1234", 4);
    ms_http_tensor_unref(&s, one);
    assert_int_equal(add(&s, "a", "1", 0), 0);
    s.own_bytes = 1;
    expect(&s, 1, 1);
    ms_http_tensors_finish(&s);
}

static void test_half_a_bfloat16(void **state)
{
    struct ms_http_tensor with = {.id = (char[]){"a"},
                                  .type = (char[]){"tensor"},
                                  .dtype = (char[]){"torch.bfloat16"},
                                  .shape = (char[]){"[1]"},
                                  .len = 3,
                                  .memory = ms_bytes_copy("123", 3)};
    struct ms_http_tensors s;

    (void)state;
    ms_http_tensors_init(&s);
    assert_int_equal(ms_http_tensors_add(&s, &with, 0, NULL), -EINVAL);
    expect(&s, 0, 0);
    ms_http_tensors_finish(&s);
}

static void test_lease(void **state)
{
    struct ms_http_tensors s;

    (void)state;
    ms_http_tensors_init(&s);
    assert_true(ms_http_tensors_expire(&s, MS_HTTP_TENSOR_LEASE_NS) == MS_NEVER);
    assert_int_equal(add(&s, "idle", "1", 0), 0);
    assert_int_equal(add(&s, "used", "1", 0), 0);
    ms_http_tensor_unref(&s, ms_http_tensors_find(&s, "used", 10));
    assert_true(ms_http_tensors_expire(&s, MS_HTTP_TENSOR_LEASE_NS - 1) ==
                MS_HTTP_TENSOR_LEASE_NS);
    expect(&s, 2, 2);
    assert_true(ms_http_tensors_expire(&s, MS_HTTP_TENSOR_LEASE_NS) ==
                MS_HTTP_TENSOR_LEASE_NS + 10);
    assert_null(ms_http_tensors_find(&s, "idle", 0));
    expect(&s, 1, 1);
    ms_http_tensors_finish(&s);
}

/* Each is waited for by somebody, whoever finds none meanwhile. */
static void test_who_waits_for_the_lease(void **state)
{
    struct ms_http_tensors s;

    (void)state;
    ms_http_tensors_init(&s);
    assert_int_equal(add_first(&s, "", "1", 0), -EINVAL);
    assert_int_equal(add_first(&s, "a", "1", 0), 1);
    assert_int_equal(add_first(&s, "b", "1", 0), 0);
    ms_http_tensors_remove(&s, "a");
    ms_http_tensors_remove(&s, "b");
    assert_int_equal(add_first(&s, "c", "1", 0), 0); /* the one who waits will see it */
    assert_true(ms_http_tensors_expire(&s, 1) == MS_HTTP_TENSOR_LEASE_NS);
    assert_int_equal(add_first(&s, "d", "1", 0), 0);
    assert_true(ms_http_tensors_expire(&s, MS_HTTP_TENSOR_LEASE_NS) == MS_NEVER);
    assert_int_equal(add_first(&s, "e", "1", 0), 1);
    ms_http_tensors_finish(&s);
}

static void test_many(void **state)
{
    enum { MANY = 5000 };
    struct ms_http_tensors s;
    char id[16];

    (void)state;
    ms_http_tensors_init(&s);
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < MANY; i++) {
            snprintf(id, sizeof id, "%d", i * 7919 % MANY);
            assert_int_equal(add(&s, id, id, 0), 0);
        }
    assert_int_equal(s.count, MANY);
    for (int i = 0; i < MANY; i += 2) {
        snprintf(id, sizeof id, "%d", i);
        assert_true(ms_http_tensors_remove(&s, id));
    }
    assert_int_equal(s.count, MANY / 2);
    ms_http_tensors_finish(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_replace_and_remove),
                                       cmocka_unit_test(test_bad_names_and_limits),
                                       cmocka_unit_test(test_replace_at_the_limits),
                                       cmocka_unit_test(test_half_a_bfloat16),
                                       cmocka_unit_test(test_lease),
                                       cmocka_unit_test(test_who_waits_for_the_lease),
                                       cmocka_unit_test(test_many)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
