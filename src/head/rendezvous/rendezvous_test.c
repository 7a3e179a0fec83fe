/* rendezvous_test.c - who waits for news of a rendezvous that goes */
#include "base/cleanup.h"
#include "head/test_serve.h"

static struct test_events told[2];
static struct ms_head *drivers[2];

static int setup(void **state)
{
    if (serve_setup(state) < 0)
        return -1;
    for (size_t i = 0; i < 2; i++) {
        events_init(&told[i]);
        drivers[i] = serve_join(&told[i]);
    }
    return 0;
}

static int teardown(void **state)
{
    for (size_t i = 0; i < 2; i++)
        if (drivers[i])
            ms_head_stop(MS_TAKE(drivers[i]), 0);
    return serve_teardown(state);
}

static struct ms_head_op *join(struct ms_head *h)
{
    Muster__JoinRendezvous m = MUSTER__JOIN_RENDEZVOUS__INIT;

    m.name = (char[]){"x"};
    m.key = (char[]){"a"};
    m.min = m.max = 2;
    m.last_call_ns = m.join_ns = 600 * (uint64_t)MS_NS_PER_S;
    return ops_request(h, MUSTER__DRIVER_TO_HEAD__BODY_JOIN_RENDEZVOUS, &m);
}

static struct ms_head_op *ask(struct ms_head *h, uint64_t wait_ns)
{
    Muster__AskRendezvous m = MUSTER__ASK_RENDEZVOUS__INIT;

    m.name = (char[]){"x"};
    m.wait_ns = wait_ns;
    return ops_request(h, MUSTER__DRIVER_TO_HEAD__BODY_RENDEZVOUS, &m);
}

/* How many wait; it is asked behind all that this driver has asked before. */
static uint32_t count_waiting(struct ms_head_op *op)
{
    uint32_t waiting = ((const Muster__RendezvousStatus *)ops_message(op))->waiting;

    ms_head_op_unref(op);
    return waiting;
}

/* One member waits at the head, and the other driver for news. */
static struct ms_head_op *begin(struct ms_head_op **joined)
{
    struct ms_head_op *news;

    *joined = join(drivers[0]);
    assert_int_equal(count_waiting(ask(drivers[0], 0)), 1);
    news = ask(drivers[1], 600 * (uint64_t)MS_NS_PER_S);
    assert_int_equal(count_waiting(ask(drivers[1], 0)), 1);
    return news;
}

static void test_the_last_member_leaves(void **state)
{
    Muster__LeaveRendezvous m = MUSTER__LEAVE_RENDEZVOUS__INIT;
    struct ms_head_op *joined, *news = begin(&joined);

    (void)state;
    m.name = (char[]){"x"};
    m.key = (char[]){"a"};
    ops_expect(
        ops_request(drivers[0], MUSTER__DRIVER_TO_HEAD__BODY_LEAVE_RENDEZVOUS, &m),
        0,
        NULL);
    ops_expect(joined, -ESTALE, "has left");
    assert_int_equal(count_waiting(news), 0);
    assert_int_equal(count_waiting(ask(drivers[1], 0)), 0);
}

static void test_the_last_member_dies(void **state)
{
    struct ms_head_op *joined, *news = begin(&joined);

    (void)state;
    ms_head_stop(MS_TAKE(drivers[0]), 0);
    ms_head_op_unref(joined);
    assert_int_equal(count_waiting(news), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_the_last_member_leaves, setup, teardown),
        cmocka_unit_test_setup_teardown(test_the_last_member_dies, setup, teardown),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
