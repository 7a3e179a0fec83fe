/* spin_test.c - tests of spin.h: leases to poll instead of sleeping */
#include "base/clock.h"
#include "base/limits.h"
#include "wire/spin.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { OWNERS = 64 };

static const int64_t soon_ns = MS_SPIN_NS, later_ns = 100 * MS_SPIN_NS;

static uint64_t pair(uint64_t i)
{
    return i << 40 | 77; /* as random ones: the high bits differ */
}

static char path[64];

static int make_page(void **state)
{
    int fd;

    (void)state;
    snprintf(path, sizeof path, "/tmp/muster-spin-XXXXXX");
    fd = mkstemp(path);
    if (fd < 0 || ftruncate(fd, 4096) < 0)
        return -1;
    return close(fd);
}

static int drop_page(void **state)
{
    (void)state;
    return unlink(path);
}

static void test_without_a_page_nobody_spins(void **state)
{
    (void)state;
    assert_null(ms_spin_open("/nonexistent/page"));
    assert_false(ms_spin_take(NULL, pair(1), 1));
    ms_spin_close(NULL);
}

static void test_a_short_file_is_no_page(void **state)
{
    (void)state;
    assert_int_equal(truncate(path, 100), 0);
    assert_null(ms_spin_open(path));
}

/* As many as there are cores but one, and no more. */
static void test_leases_are_limited(void **state)
{
    struct ms_spin *s = ms_spin_open(path);
    unsigned taken = 0;
    int64_t now_ns = ms_now_ns();

    (void)state;
    assert_non_null(s);
    for (uint64_t i = 1; i <= OWNERS; i++)
        taken += ms_spin_take(s, pair(i), now_ns);
    assert_int_equal(taken,
                     ms_spin_cores() - 1 < OWNERS ? ms_spin_cores() - 1 : OWNERS);
    ms_spin_close(s);
}

static void test_a_lease_is_renewed_and_stolen(void **state)
{
    struct ms_spin *s = ms_spin_open(path), *other = ms_spin_open(path);
    unsigned slots = ms_spin_cores() - 1;
    int64_t now_ns = ms_now_ns();

    (void)state;
    if (slots == 0) {
        print_message("# skipped: one core has no lease\n");
        skip();
    }
    for (uint64_t i = 1; i <= slots; i++)
        assert_true(ms_spin_take(s, pair(i), now_ns));
    /* another process sees the same page */
    assert_false(ms_spin_take(other, pair(OWNERS), now_ns + soon_ns));
    /* renewed by its pair, even long after, if nobody came meanwhile */
    assert_true(ms_spin_take(s, pair(1), now_ns + later_ns));
    assert_false(ms_spin_take(other, pair(OWNERS), now_ns + later_ns) && slots == 1);
    /* unused for a moment: anybody's */
    assert_true(ms_spin_take(other, pair(OWNERS), now_ns + 2 * later_ns));
    if (slots == 1)
        assert_false(ms_spin_take(s, pair(1), now_ns + 2 * later_ns));
    ms_spin_close(s);
    ms_spin_close(other);
}

/* A pair has one lease, however many are free. */
static void test_a_pair_has_one_lease(void **state)
{
    struct ms_spin *s = ms_spin_open(path);
    int64_t now_ns = ms_now_ns();
    unsigned taken = 0;

    (void)state;
    for (int i = 0; i < 10; i++)
        ms_spin_take(s, pair(1), now_ns);
    for (uint64_t i = 2; i <= OWNERS; i++)
        taken += ms_spin_take(s, pair(i), now_ns);
    if (ms_spin_cores() > 1 && ms_spin_cores() <= OWNERS)
        assert_int_equal(taken, ms_spin_cores() - 2);
    ms_spin_close(s);
}

/* The counter of microseconds in a slot wraps after 12 days. */
static void test_time_wraps(void **state)
{
    struct ms_spin *s = ms_spin_open(path);
    int64_t wrap_ns = (INT64_C(1) << 40) * MS_NS_PER_US;

    (void)state;
    if (ms_spin_cores() != 2) {
        print_message("# skipped: needs two cores, which are one lease\n");
        skip();
    }
    assert_true(ms_spin_take(s, pair(1), wrap_ns - soon_ns));
    assert_false(ms_spin_take(s, pair(2), wrap_ns + soon_ns));
    assert_true(ms_spin_take(s, pair(2), wrap_ns + later_ns));
    ms_spin_close(s);
}

/* Whatever is in the page, nobody reads behind it. */
static void test_a_page_of_noise(void **state)
{
    uint8_t noise[4096];
    FILE *f = fopen(path, "w");
    struct ms_spin *s;

    (void)state;
    memset(noise, 0xff, sizeof noise);
    assert_int_equal(fwrite(noise, sizeof noise, 1, f), 1);
    fclose(f);
    s = ms_spin_open(path);
    assert_non_null(s);
    for (uint64_t i = 1; i <= 2 * OWNERS; i++)
        ms_spin_take(s, pair(i), ms_now_ns());
    ms_spin_close(s);
}

static void test_cores_follow_affinity(void **state)
{
    cpu_set_t all, one;
    int core = sched_getcpu();

    (void)state;
    assert_true(ms_spin_cores() >= 1);
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(ms_spin_cores(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

#define WITH_PAGE(test) cmocka_unit_test_setup_teardown(test, make_page, drop_page)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_a_page_nobody_spins),
        WITH_PAGE(test_a_short_file_is_no_page),
        WITH_PAGE(test_leases_are_limited),
        WITH_PAGE(test_a_lease_is_renewed_and_stolen),
        WITH_PAGE(test_a_pair_has_one_lease),
        WITH_PAGE(test_time_wraps),
        WITH_PAGE(test_a_page_of_noise),
        cmocka_unit_test(test_cores_follow_affinity),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
