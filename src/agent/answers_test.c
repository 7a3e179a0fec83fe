#include "agent/answers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static uint64_t last; /* our number of what was asked last */

static enum ms_answers_is ask(struct ms_answers *a, uint64_t request)
{
    const uint8_t *data = NULL;
    size_t len = 0;
    enum ms_answers_is is = ms_answers_ask(a, request, &last, &data, &len);

    if (is == MS_ANSWERS_KNOWN) {
        assert_int_equal(len, sizeof request);
        assert_memory_equal(data, &request, len); /* each is its own answer here */
    }
    return is;
}

/* Answer what goes by this number of ours. */
static void put(struct ms_answers *a, uint64_t number)
{
    uint64_t request = ms_answers_request(a, number);

    ms_answers_put(a, number, (const uint8_t *)&request, sizeof request);
}

static void test_once(void **state)
{
    struct ms_answers a;

    (void)state;
    ms_answers_init(&a);
    ms_answers_set_head(&a, 1);
    assert_int_equal(ask(&a, 7), MS_ANSWERS_NEW);
    assert_int_equal(ask(&a, 7), MS_ANSWERS_UNDER_WAY);
    assert_int_equal(ms_answers_request(&a, last), 7);
    put(&a, last);
    put(&a, last);
    assert_int_equal(ask(&a, 7), MS_ANSWERS_KNOWN);
    ms_answers_set_head(&a, 1);
    assert_int_equal(ask(&a, 7), MS_ANSWERS_KNOWN);
    ms_answers_finish(&a);
}

static void test_another_head_begins_anew(void **state)
{
    struct ms_answers a;
    uint64_t old;

    (void)state;
    ms_answers_init(&a);
    ms_answers_set_head(&a, 1);
    assert_int_equal(ask(&a, 7), MS_ANSWERS_NEW);
    put(&a, last);
    assert_int_equal(ask(&a, 8), MS_ANSWERS_NEW);
    old = last;
    ms_answers_set_head(&a, 2);
    assert_int_equal(ask(&a, 7), MS_ANSWERS_NEW);
    assert_int_equal(ask(&a, 8), MS_ANSWERS_NEW);
    assert_int_equal(ms_answers_request(&a, old), 0); /* to nobody */
    put(&a, old);
    assert_int_equal(ask(&a, 8), MS_ANSWERS_UNDER_WAY);
    ms_answers_finish(&a);
}

static void test_bounded(void **state)
{
    struct ms_answers a;

    (void)state;
    ms_answers_init(&a);
    ms_answers_set_head(&a, 1);
    for (uint64_t i = 1; i <= MS_ANSWERS_KEPT + 1; i++) {
        assert_int_equal(ask(&a, i), MS_ANSWERS_NEW);
        put(&a, last);
    }
    assert_int_equal(a.by_request.count, MS_ANSWERS_KEPT);
    assert_int_equal(ask(&a, 2), MS_ANSWERS_KNOWN);
    assert_int_equal(ask(&a, 1), MS_ANSWERS_NEW);
    ms_answers_finish(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_once),
        cmocka_unit_test(test_another_head_begins_anew),
        cmocka_unit_test(test_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
