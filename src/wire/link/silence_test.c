/* silence_test.c - a link's end, and the other side's silence */
#include "base/limits.h"
#include "wire/link/test_site.h"
#include "wire/test_proxy.h"

#include <poll.h>
#include <stdio.h>

enum how { ENDED, ENDED_UNREAD, BROKEN, HOWS };

/* An end is one also if its side has not read all that had come; what the network cuts is
 * none. */
static void test_ended_or_broken(void **state)
{
    struct proxy proxy;
    struct site s;
    char address[64];

    (void)state;
    site_start(&s, "127.0.0.1", MS_TLS_AUTO);
    proxy_start(&proxy, s.port);
    snprintf(address, sizeof address, "127.0.0.1:%u", proxy.port);
    for (enum how how = 0; how < HOWS; how++) {
        struct site_end e = {0};

        site_dial_with(&s,
                       &e,
                       how == BROKEN ? address : s.address,
                       MS_TLS_OFF,
                       s.secret,
                       SITE_DEADLINE_NS);
        site_run_until(&s, &e.opened, 1);
        site_talk(&s, &e);
        if (how == ENDED_UNREAD)
            assert_int_equal(site_send_number(s.there.link, 1, 0), 0);
        if (how == BROKEN)
            proxy_reset(&proxy);
        else
            site_end_finish(&e);
        site_run_until(&s, &s.there.closed, 1);
        assert_int_equal(ms_link_has_ended(&s.there.why), how != BROKEN);
        site_end_finish(&e);
    }
    site_stop(&s);
    proxy_stop(&proxy);
}

/* A cut link is suspected by both sides, stays open, and is cleared by both when it heals. */
static void test_silence(void **state)
{
    struct site s;
    struct site_end e = {0};
    struct proxy proxy;
    char address[64];
    int64_t cut_ns;

    (void)state;
    site_start(&s, "127.0.0.1", MS_TLS_ON);
    proxy_start(&proxy, s.port);
    snprintf(address, sizeof address, "127.0.0.1:%u", proxy.port);
    site_dial_with(&s, &e, address, MS_TLS_ON, s.secret, SITE_DEADLINE_NS);
    site_run_until(&s, &e.opened, 1);
    site_talk(&s, &e);
    assert_false(ms_link_is_suspect(e.link));
    proxy_cut(&proxy);
    cut_ns = ms_now_ns();
    site_run_until(&s, &e.suspected, 1);
    site_run_until(&s, &s.there.suspected, 1);
    assert_true(ms_now_ns() - cut_ns < MS_SUSPECT_NS + SITE_BUSY_NS);
    assert_true(ms_link_is_suspect(e.link) && ms_link_is_open(e.link));
    proxy_heal(&proxy, false);
    site_run_until(&s, &e.cleared, 1);
    site_run_until(&s, &s.there.cleared, 1);
    site_talk(&s, &e);
    assert_int_equal(e.suspected + s.there.suspected, 2);
    assert_int_equal(e.closed + s.there.closed, 0);
    site_end_finish(&e);
    site_stop(&s);
    proxy_stop(&proxy);
}

/* Nothing is said for longer than suspicion takes, and nobody is suspected. */
static void test_idle_is_not_silent(void **state)
{
    struct site s;
    struct site_end e = {0};
    int64_t until_ns;

    (void)state;
    site_start(&s, "127.0.0.1", MS_TLS_ON);
    site_dial(&s, &e, MS_TLS_ON);
    site_run_until(&s, &e.opened, 1);
    site_talk(&s, &e);
    until_ns = ms_now_ns() + MS_SUSPECT_NS + MS_NS_PER_S;
    while (ms_now_ns() < until_ns) /* heart-beats wake it */
        ms_loop_run_once(s.loop, true);
    assert_int_equal(e.suspected + s.there.suspected, 0);
    site_end_finish(&e);
    site_stop(&s);
}

/* This process is not run for longer than suspicion takes: neither side heard or said
 * anything, and neither is suspected for it. */
static void test_deaf_is_not_silent(void **state)
{
    struct site s;
    struct site_end e = {0};

    (void)state;
    site_start(&s, "127.0.0.1", MS_TLS_OFF);
    site_dial(&s, &e, MS_TLS_OFF);
    site_run_until(&s, &e.opened, 1);
    site_talk(&s, &e);
    poll(NULL, 0, (MS_SUSPECT_NS + MS_SUSPENDED_NS) / MS_NS_PER_MS);
    site_talk(&s, &e);
    assert_int_equal(e.suspected + s.there.suspected, 0);
    site_end_finish(&e);
    site_stop(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ended_or_broken),
        cmocka_unit_test(test_silence),
        cmocka_unit_test(test_idle_is_not_silent),
        cmocka_unit_test(test_deaf_is_not_silent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
