/* copy_test.c - tests of copy.h: copying what is bigger than caches */
#include "base/copy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { ROOM = 600, EDGE = 0xEE };

static void check(size_t to_at, size_t from_at, size_t len)
{
    uint8_t from[ROOM], to[ROOM], wanted[ROOM];

    for (size_t i = 0; i < ROOM; i++)
        from[i] = (uint8_t)(i * 7 + len);
    memset(to, EDGE, sizeof to);
    memset(wanted, EDGE, sizeof wanted);
    memcpy(wanted + to_at, from + from_at, len);
    ms_copy_past_cache(to + to_at, from + from_at, len);
    assert_memory_equal(to, wanted, ROOM);
}

static void test_any_length_from_anywhere_to_anywhere(void **unused)
{
    (void)unused;
    for (size_t to_at = 0; to_at < 130; to_at += 3)
        for (size_t from_at = 0; from_at < 20; from_at += 5)
            for (size_t len = 0; len < 400; len += 1 + len / 7)
                check(to_at, from_at, len);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_any_length_from_anywhere_to_anywhere),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
