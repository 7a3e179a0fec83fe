/* Calls that are made in a row: the loop leaves their answers to the thread that will wait, but
 * not for long. */
#include "wire/client/client_impl.h"
#include "wire/test_rig.h"

#include <sched.h>

static enum peer_armed armed(struct rig *rig)
{
    MS_LOCK(&rig->peer->lock);

    return rig->peer->armed;
}

/* On a busy machine there is time between any two calls: begin again until there is none. */
static size_t call_in_a_row(struct rig *rig, struct ms_call **calls, size_t room)
{
    int64_t end_ns = ms_now_ns() + RIG_DEADLINE_NS;
    size_t n = 0;

    while (armed(rig) != ARMED_LATER) {
        assert_true(ms_now_ns() < end_ns);
        for (size_t i = 0; n == room && i < n; i++)
            rig_expect(calls[i], "x");
        n = n == room ? 0 : n;
        calls[n++] = rig_call(rig, "echo", "x");
    }
    return n;
}

static void test_the_loop_reads_in_the_end(void **state)
{
    struct rig rig = {0};
    struct ms_call *calls[64];
    int64_t end_ns;
    size_t n;

    (void)state;
    rig_start(&rig);
    n = call_in_a_row(&rig, calls, MS_COUNT(calls));
    end_ns = ms_now_ns() + RIG_DEADLINE_NS;
    while (atomic_load(&rig.client->outstanding)) { /* nobody waits, and nobody looks */
        assert_true(ms_now_ns() < end_ns);
        sched_yield();
    }
    for (size_t i = 0; i < n; i++)
        rig_expect(calls[i], "x");
    rig_stop(&rig);
}

static void test_who_waits_reads(void **state)
{
    struct rig rig = {0};
    struct ms_call *calls[64];
    size_t n;

    (void)state;
    rig_start(&rig);
    n = call_in_a_row(&rig, calls, MS_COUNT(calls));
    for (size_t i = n; i-- > 0;) /* the last first */
        rig_expect(calls[i], "x");
    assert_int_equal(armed(&rig), NOT_ARMED);
    rig_stop(&rig);
}

static void test_who_asks_is_told(void **state)
{
    struct rig rig = {0};
    struct ms_call *calls[64];
    int64_t end_ns;
    size_t n;

    (void)state;
    rig_start(&rig);
    n = call_in_a_row(&rig, calls, MS_COUNT(calls));
    end_ns = ms_now_ns() + RIG_DEADLINE_NS;
    while (!ms_call_is_done(calls[n - 1]))
        assert_true(ms_now_ns() < end_ns);
    for (size_t i = 0; i < n; i++)
        rig_expect(calls[i], "x");
    rig_stop(&rig);
}

/* Of calls that an inbox hears of by the loop, each is told at once. */
static void test_the_loop_reads_for_an_inbox(void **state)
{
    struct rig rig = {0};
    struct ms_inbox *inbox = ms_inbox_create();
    struct ms_call *first, *calls[10];

    (void)state;
    rig_start(&rig);
    first = rig_call(&rig, "hold", "x");
    calls[0] = rig_call(&rig, "echo", "x"); /* two are open: the inbox does not read */
    assert_int_equal(ms_call_notify(calls[0], inbox, 1), 0);
    for (size_t i = 1; i < MS_COUNT(calls); i++) {
        calls[i] = rig_call(&rig, "echo", "x");
        assert_int_not_equal(armed(&rig), ARMED_LATER);
    }
    rig_open(&rig, 1);
    rig_expect(first, "x");
    for (size_t i = 0; i < MS_COUNT(calls); i++)
        rig_expect(calls[i], "x");
    ms_inbox_unref(inbox);
    rig_stop(&rig);
}

static void test_deadlines_of_calls_in_a_row(void **state)
{
    struct ms_call_spec late = {.deadline_ns = MS_NEVER};
    struct rig rig = {0};
    struct ms_call *first, *calls[20];
    struct ms_outcome o;

    (void)state;
    rig_start(&rig);
    first = rig_call(&rig, "hold", "x");
    for (size_t i = 0; i < MS_COUNT(calls); i++) {
        late.deadline_ns = ms_now_ns() + (int64_t)(MS_COUNT(calls) - i) * MS_NS_PER_MS;
        calls[i] = rig_call_spec(&rig, "echo", "x", 1, &late);
    }
    for (size_t i = 0; i < MS_COUNT(calls); i++) {
        int64_t end_ns = ms_now_ns() + RIG_DEADLINE_NS;

        while (!ms_call_is_done(calls[i]))
            assert_true(ms_now_ns() < end_ns);
        ms_call_outcome(calls[i], &o);
        assert_int_equal(o.kind, MS_KIND_ERROR);
        ms_call_unref(calls[i]);
    }
    rig_open(&rig, 1);
    rig_expect(first, "x");
    rig_stop(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_loop_reads_in_the_end),
        cmocka_unit_test(test_who_waits_reads),
        cmocka_unit_test(test_who_asks_is_told),
        cmocka_unit_test(test_the_loop_reads_for_an_inbox),
        cmocka_unit_test(test_deadlines_of_calls_in_a_row),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
