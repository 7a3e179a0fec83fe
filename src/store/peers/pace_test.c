/* A way with a narrow place, simulated: is its queue short, and the place in use? */
#include "store/peers/pace.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#define STEP_US 5000u /* between two looks */

struct way {
    double capacity; /* bytes a second */
    double others;   /* what others send through it */
    double queue;    /* bytes that wait */
    double sent;     /* ours, in all */
    uint32_t min_rtt_us;
    double srtt_us; /* as a kernel smooths it */
    double tick_queue_us;
    double worst_us; /* of the second half */
};

/* The sender's own limit: a link of 100 Gbit/s. */
#define LINE_RATE 12.5e9
/* What waits at most: 50 ms, as cheap switches have it. */
#define DEEP_S 0.05

static double run(struct way *w, struct ms_pace *p, int steps)
{
    double arrived = 0;

    for (int i = 0; i < steps; i++) {
        double rate = p->rate == UINT64_MAX ? LINE_RATE : (double)p->rate;
        double in = (rate + w->others) * STEP_US / 1e6, out;
        double ours;

        w->queue += in;
        out = w->capacity * STEP_US / 1e6;
        if (out > w->queue)
            out = w->queue;
        w->queue -= out;
        if (w->queue > w->capacity * DEEP_S)
            w->queue = w->capacity * DEEP_S; /* the rest is lost, and sent again */
        ours = out * rate / (rate + w->others);
        arrived += ours;
        w->tick_queue_us = w->queue / w->capacity * 1e6;
        if (i > steps / 2 && w->tick_queue_us > w->worst_us)
            w->worst_us = w->tick_queue_us;
        w->srtt_us += (w->min_rtt_us + w->tick_queue_us - w->srtt_us) / 2;
        ms_pace_step(
            p, (uint32_t)w->srtt_us, w->min_rtt_us, (uint64_t)(ours / STEP_US * 1e6));
    }
    return arrived / (w->capacity * steps * STEP_US / 1e6);
}

static void test_the_queue_is_short_and_the_way_is_used(void **unused)
{
    static const struct {
        double capacity;
        uint32_t rtt_us;
    } ways[] = {
        {125e6, 100}, {125e6, 5000}, {1.25e9, 60}, {12.5e6, 200}, {1.25e9, 20000}};

    (void)unused;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        struct way w = {.capacity = ways[i].capacity,
                        .min_rtt_us = ways[i].rtt_us,
                        .srtt_us = ways[i].rtt_us};
        uint32_t allowed =
            ways[i].rtt_us > MS_PACE_QUEUE_US ? ways[i].rtt_us : MS_PACE_QUEUE_US;
        struct ms_pace p;

        ms_pace_init(&p);
        assert_true(run(&w, &p, 2000) > 0.85);
        assert_true(w.worst_us < 4 * allowed);
    }
}

static void test_it_does_not_give_way_without_end(void **unused)
{
    struct way w = {.capacity = 125e6, .min_rtt_us = 100, .srtt_us = 100};
    struct ms_pace p;

    (void)unused;
    ms_pace_init(&p);
    run(&w, &p, 1000);
    w.others = 250e6; /* somebody who does not care */
    run(&w, &p, 1000);
    assert_true((double)p.rate >= 125e6 / MS_PACE_SHARE_MIN / 4);
    w.others = 0;
    assert_true(run(&w, &p, 2000) > 0.8); /* and it comes back */
}

static void test_nothing_is_known(void **unused)
{
    struct ms_pace p;

    (void)unused;
    ms_pace_init(&p);
    assert_true(ms_pace_step(&p, 100, 100, 0) == UINT64_MAX);
    assert_true(ms_pace_step(&p, 150, 100, 125000000) == UINT64_MAX);  /* no queue */
    assert_true(ms_pace_step(&p, 9000, 100, 125000000) == UINT64_MAX); /* once */
    ms_pace_init(&p);
    assert_true(ms_pace_step(&p, 50000, 100, 1000) == MS_PACE_RATE_MIN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_queue_is_short_and_the_way_is_used),
        cmocka_unit_test(test_it_does_not_give_way_without_end),
        cmocka_unit_test(test_nothing_is_known),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
