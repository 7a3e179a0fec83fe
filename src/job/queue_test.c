/* queue_test.c - tests of queue.h: which of the jobs on one machine may start, and
 * what the others wait for */
#include "base/test_random.h"
#include "job/queue.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const struct ms_job_demand machine = {8000, 64, 4};

static struct ms_job_claim
claim(int32_t priority, int64_t age, uint64_t cpus, bool is_holding)
{
    return (struct ms_job_claim){.place = {priority, age, (uint64_t)age},
                                 .wants = {.cpu_milli = cpus * 1000},
                                 .is_holding = is_holding};
}

static void test_by_priority_then_age(void **state)
{
    struct ms_job_claim all[] = {claim(0, 1, 4, true),
                                 claim(0, 2, 4, false),
                                 claim(5, 4, 4, false),
                                 claim(5, 3, 4, false)};

    (void)state;
    assert_int_equal(ms_job_queue_decide(all, 4, &machine, NULL), 0);
    assert_int_equal(all[3].lacks, MS_JOB_LACKS_NOTHING);
    assert_int_equal(all[2].lacks, MS_JOB_LACKS_CPUS);
    assert_int_equal(all[2].want, 4000);
    assert_int_equal(all[2].free, 0);
    assert_int_equal(all[1].lacks, MS_JOB_LACKS_TURN);
    assert_int_equal(all[1].behind, 2);
}

static void test_nobody_overtakes(void **state)
{
    struct ms_job_claim all[] = {
        claim(0, 1, 6, true), claim(0, 2, 4, false), claim(0, 3, 1, false)};
    struct ms_job_demand left;

    (void)state;
    assert_int_equal(ms_job_queue_decide(all, 3, &machine, &left), 0);
    assert_int_equal(all[1].lacks, MS_JOB_LACKS_CPUS);
    assert_int_equal(all[1].free, 2000);
    assert_int_equal(all[2].lacks, MS_JOB_LACKS_TURN);
    assert_int_equal(left.cpu_milli, 0);
}

static void test_one_that_wants_more_than_there_is_runs_alone(void **state)
{
    struct ms_job_claim all[] = {claim(0, 1, 100, false), claim(0, 2, 1, false)};

    (void)state;
    assert_int_equal(ms_job_queue_decide(all, 2, &machine, NULL), 0);
    assert_int_equal(all[0].lacks, MS_JOB_LACKS_NOTHING);
    assert_int_equal(all[1].lacks, MS_JOB_LACKS_CPUS);
    all[0].is_holding = true;
    assert_int_equal(ms_job_queue_decide(all, 2, &machine, NULL), 0);
    assert_int_equal(all[1].lacks, MS_JOB_LACKS_CPUS);
    assert_int_equal(ms_job_queue_decide(all + 1, 1, &machine, NULL), 0);
    assert_int_equal(all[1].lacks, MS_JOB_LACKS_NOTHING);
}

static void test_memory_and_devices(void **state)
{
    struct ms_job_claim all[] = {claim(0, 1, 1, true), claim(0, 2, 0, false)};
    struct ms_job_demand no_devices = machine;

    (void)state;
    all[0].wants.memory = 60;
    all[1].wants.memory = 5;
    assert_int_equal(ms_job_queue_decide(all, 2, &machine, NULL), 0);
    assert_int_equal(all[1].lacks, MS_JOB_LACKS_MEMORY);
    all[0].wants.memory = 0;
    all[0].wants.devices = 3;
    all[1].wants.devices = 2;
    assert_int_equal(ms_job_queue_decide(all, 2, &machine, NULL), 0);
    assert_int_equal(all[1].lacks, MS_JOB_LACKS_DEVICES);
    assert_int_equal(all[1].free, 1);
    no_devices.devices = 0; /* they are only described */
    assert_int_equal(ms_job_queue_decide(all, 2, &no_devices, NULL), 0);
    assert_int_equal(all[1].lacks, MS_JOB_LACKS_NOTHING);
}

static void test_who_wants_nothing_never_waits(void **state)
{
    struct ms_job_claim all[] = {
        claim(0, 1, 8, true), claim(0, 2, 1, false), claim(-9, 3, 0, false)};

    (void)state;
    assert_int_equal(ms_job_queue_decide(all, 3, &machine, NULL), 0);
    assert_int_equal(all[1].lacks, MS_JOB_LACKS_CPUS);
    assert_int_equal(all[2].lacks, MS_JOB_LACKS_NOTHING);
}

/* Jobs come and go at random: never more is held than there is, but by one alone; all get
 * their turn, and nobody of a lower place starts before one that waits. */
static void test_random_jobs_all_get_their_turn(void **state)
{
    enum { JOBS = 12 };

    (void)state;
    for (uint64_t number = 1; number <= 500; number++) {
        uint64_t seed = test_seed(number);
        struct ms_job_claim all[JOBS];
        size_t count = 1 + test_roll(&seed, JOBS), left = count;

        for (size_t i = 0; i < count; i++)
            all[i] = claim((int32_t)test_roll(&seed, 3),
                           (int64_t)i,
                           1 + test_roll(&seed, 12),
                           false);
        for (int turn = 0; left > 0; turn++) {
            uint64_t held = 0;
            size_t holders = 0, gone;

            assert_true(turn < 2 * JOBS);
            assert_int_equal(ms_job_queue_decide(all, count, &machine, NULL), 0);
            for (size_t i = 0; i < count; i++)
                for (size_t k = 0; k < count; k++)
                    if (!all[i].lacks && !all[i].is_holding && all[k].lacks)
                        assert_true(ms_job_queue_compare(&all[i].place, &all[k].place) <
                                    0);
            for (size_t i = 0; i < count; i++) {
                all[i].is_holding = !all[i].lacks;
                held += all[i].is_holding ? all[i].wants.cpu_milli : 0;
                holders += all[i].is_holding && all[i].wants.cpu_milli;
            }
            assert_true(holders > 0);
            assert_true(held <= machine.cpu_milli || holders == 1);
            do
                gone = test_roll(&seed, (uint32_t)count);
            while (!all[gone].is_holding || !all[gone].wants.cpu_milli);
            all[gone].wants.cpu_milli = 0; /* it has ended */
            left--;
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_by_priority_then_age),
        cmocka_unit_test(test_nobody_overtakes),
        cmocka_unit_test(test_one_that_wants_more_than_there_is_runs_alone),
        cmocka_unit_test(test_memory_and_devices),
        cmocka_unit_test(test_who_wants_nothing_never_waits),
        cmocka_unit_test(test_random_jobs_all_get_their_turn),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
