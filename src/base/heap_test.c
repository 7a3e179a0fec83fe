/* heap_test.c - tests of heap.h: freed memory that the process keeps to use again */
#include "base/heap.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <cmocka.h>

enum { ARRAYS = 4, ARRAY_BYTES = 4 << 20 };

/* As an expression of numpy does: some arrays at a time, and all are freed. */
static void use_arrays(void)
{
    void *arrays[ARRAYS];

    for (int i = 0; i < ARRAYS; i++) {
        arrays[i] = malloc(ARRAY_BYTES);
        assert_non_null(arrays[i]);
        memset(arrays[i], i, ARRAY_BYTES);
    }
    for (int i = 0; i < ARRAYS; i++)
        free(arrays[i]);
}

static long faults(void)
{
    struct rusage usage;

    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return usage.ru_minflt;
}

static void test_settings_of_the_user_hold(void **state)
{
    static const char *const settings[][2] = {
        {"MALLOC_TRIM_THRESHOLD_", "131072"},
        {"MALLOC_MMAP_THRESHOLD_", "131072"},
        {"MALLOC_TOP_PAD_", "0"},
        {"GLIBC_TUNABLES", "glibc.malloc.trim_threshold=131072"}};

    (void)state;
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        assert_int_equal(setenv(settings[i][0], settings[i][1], 1), 0);
        assert_false(ms_heap_keep());
        assert_int_equal(unsetenv(settings[i][0]), 0);
    }
}

static void test_freed_memory_is_used_again(void **state)
{
    long before;

    (void)state;
    setenv("GLIBC_TUNABLES", "glibc.pthread.rseq=1", 1); /* not of malloc */
    assert_true(ms_heap_keep());
    use_arrays();
    before = faults();
    use_arrays();
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    assert_in_range(faults() - before, 0, 64); /* of thousands */
#endif
    (void)before;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_settings_of_the_user_hold),
        cmocka_unit_test(test_freed_memory_is_used_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
