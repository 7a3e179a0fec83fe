/* Calls through a network that says nothing: suspicion, healing, the end of the grace. */
#include "wire/test_proxy.h"
#include "wire/test_rig.h"

#include <poll.h>

/* Silence: suspect after MS_SUSPECT_NS; healed, although the old connection stays mute, the
 * calls are answered soon, each having run once. */
static void test_cut_and_healed(void **state)
{
    struct rig rig = {.tls = MS_TLS_ON};
    struct ms_call *running, *later;
    struct proxy proxy;
    int64_t called_ns, cut_ns, healed_ns;

    (void)state;
    proxy_rig_start(&proxy, &rig);
    called_ns = ms_now_ns();
    running = rig_call(&rig, "hold", "running");
    rig_wait_count(&rig, &rig.held, 1);
    proxy_cut(&proxy);
    cut_ns = ms_now_ns();
    later = rig_call(&rig, "echo", "later");
    rig_wait_count(&rig, &rig.suspected, 1);
    assert_true(ms_now_ns() - cut_ns < MS_SUSPECT_NS + RIG_BUSY_NS);
    assert_true(ms_now_ns() - called_ns >= MS_SUSPECT_NS);
    rig_open(&rig, 2);
    proxy_heal(&proxy, true);
    healed_ns = ms_now_ns();
    rig_expect(running, "running");
    rig_expect(later, "later");
    assert_true(ms_now_ns() - healed_ns < 4 * MS_NS_PER_S + RIG_BUSY_NS);
    rig_wait_count(&rig, &rig.cleared, 1);
    assert_int_equal(atomic_load(&rig.executed), 2);
    assert_int_equal(atomic_load(&rig.asked), 0);
    rig_stop(&rig);
    proxy_stop(&proxy);
}

/* Silence for longer than the grace. */
static void test_cut_for_too_long(void **state)
{
    struct rig rig = {.tls = MS_TLS_ON, .client_grace_ns = 4 * MS_NS_PER_S};
    struct ms_call *c;
    struct proxy proxy;
    int64_t called_ns, cut_ns;

    (void)state;
    proxy_rig_start(&proxy, &rig);
    called_ns = ms_now_ns();
    c = rig_call(&rig, "hold", "x");
    rig_wait_count(&rig, &rig.held, 1);
    proxy_cut(&proxy);
    cut_ns = ms_now_ns();
    rig_expect_failure_text(c, MUSTER__FAILURE__KIND__UNREACHABLE, "it was silent for");
    assert_true(ms_now_ns() - called_ns >= rig.client_grace_ns);
    assert_true(ms_now_ns() - cut_ns < rig.client_grace_ns + RIG_BUSY_NS);
    assert_int_equal(atomic_load(&rig.asked), 0);
    proxy_heal(&proxy, true);
    rig_open(&rig, 1);
    rig_expect(rig_call(&rig, "echo", "again"), "again"); /* a later call tries again */
    rig_stop(&rig);
    proxy_stop(&proxy);
}

/* Nobody answers a SYN: tried until the grace, and nobody is asked how it ended. */
static void test_unreachable(void **state)
{
    struct rig rig = {.client_grace_ns = 2500 * MS_NS_PER_MS};
    struct ms_call *c;
    struct proxy proxy;

    (void)state;
    proxy_rig_start(&proxy, &rig);
    proxy_cut(&proxy);
    c = rig_call(&rig, "echo", "x");
    rig_expect_failure_text(c, MUSTER__FAILURE__KIND__UNREACHABLE, "could not be made");
    assert_int_equal(atomic_load(&rig.asked), 0);
    rig_stop(&rig);
    proxy_stop(&proxy);
}

/* A link that is only slow is not suspected, although the answer takes long. */
static void test_slow_is_not_silent(void **state)
{
    struct rig rig = {.tls = MS_TLS_ON};
    struct ms_call *c;
    struct proxy proxy;

    (void)state;
    proxy_rig_start(&proxy, &rig);
    proxy.delay_ns = 50 * MS_NS_PER_MS;
    c = rig_call(&rig, "hold", "slow");
    rig_wait_count(&rig, &rig.held, 1);
    assert_int_equal(ms_call_wait(c, ms_now_ns() + MS_SUSPECT_NS + MS_NS_PER_S),
                     -ETIMEDOUT);
    assert_int_equal(atomic_load(&rig.suspected), 0);
    rig_open(&rig, 1);
    rig_expect(c, "slow");
    rig_stop(&rig);
    proxy_stop(&proxy);
}

static void stand_still(void *arg)
{
    const int64_t *for_ns = arg;

    poll(NULL, 0, (int)(*for_ns / MS_NS_PER_MS));
}

static void look_around(void *arg)
{
    (void)arg;
}

/* The client's own thread is not run for longer than the grace, and so does not ask: when
 * it goes on, the call does too. */
static void test_deaf_is_not_silent(void **state)
{
    struct rig rig = {.tcp = "127.0.0.1", .client_grace_ns = MS_SUSPECT_NS};
    int64_t suspended_ns = rig.client_grace_ns + MS_PING_NS;
    struct ms_call *c;

    (void)state;
    rig_start(&rig);
    c = rig_call(&rig, "hold", "x");
    rig_wait_count(&rig, &rig.held, 1);
    rig_on_loop(&rig, rig.client_loop, stand_still, &suspended_ns);
    for (int i = 0; i < 2; i++) /* its timer has had its turn */
        rig_on_loop(&rig, rig.client_loop, look_around, NULL);
    assert_int_equal(atomic_load(&rig.suspected), 0);
    rig_open(&rig, 1);
    rig_expect(c, "x");
    rig_stop(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cut_and_healed),
        cmocka_unit_test(test_cut_for_too_long),
        cmocka_unit_test(test_unreachable),
        cmocka_unit_test(test_slow_is_not_silent),
        cmocka_unit_test(test_deaf_is_not_silent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
