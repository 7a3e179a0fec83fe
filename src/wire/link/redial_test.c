/* redial_test.c - a link that is dialled again: a head that comes later, goes, is silent, refuses */
#include "base/limits.h"
#include "wire/link/redial.h"
#include "wire/link/test_site.h"
#include "wire/test_proxy.h"

#include <stdio.h>

struct owner {
    struct ms_redial redial;
    unsigned opened, greeted, heard, lost, back, failed;
    unsigned refuse; /* so many greetings */
    bool is_done;    /* no further attempts */
    struct ms_error why;
};

static int on_open(void *arg, struct ms_link *link)
{
    struct owner *o = arg;

    o->opened++;
    return site_send_number(link, 1, 0);
}

static void
on_greeting(void *arg, struct ms_redial_line *line, const uint8_t *body, size_t len)
{
    struct owner *o = arg;

    (void)body;
    assert_true(len > 0);
    assert_true(line->is_hello_sent);
    o->greeted++;
    if (o->greeted <= o->refuse)
        ms_redial_refuse(line);
    else
        ms_redial_welcome(line);
}

static bool on_body(void *arg, const uint8_t *body, size_t len)
{
    struct owner *o = arg;

    (void)body;
    (void)len;
    return ++o->heard != 3; /* the third one means nothing */
}

static bool on_lost(void *arg, int64_t since_ns, const struct ms_error *why)
{
    struct owner *o = arg;

    assert_true(since_ns <= ms_now_ns());
    o->lost++;
    o->why = *why;
    return !o->is_done;
}

static void on_back(void *arg)
{
    struct owner *o = arg;

    o->back++;
}

static bool on_failed(void *arg, const struct ms_error *why)
{
    struct owner *o = arg;

    o->failed++;
    o->why = *why;
    return !o->is_done;
}

static const struct ms_redial_ops ops = {.on_open = on_open,
                                         .on_greeting = on_greeting,
                                         .on_body = on_body,
                                         .on_lost = on_lost,
                                         .on_back = on_back,
                                         .on_failed = on_failed};

static void begin(struct owner *o, struct site *s, const char *address)
{
    const struct ms_link_dial dial = {.addresses = address,
                                      .secret = s->secret,
                                      .tls = MS_TLS_AUTO,
                                      .deadline_ns = MS_NEVER};

    assert_int_equal(ms_redial_init(&o->redial, s->loop, &dial, &ops, o), 0);
    ms_redial_start(&o->redial);
}

static void say(struct owner *o, struct site *s)
{
    unsigned heard = o->heard;

    assert_non_null(ms_redial_link(&o->redial));
    assert_int_equal(site_send_number(ms_redial_link(&o->redial), 2, 0), 0);
    site_run_until(s, &o->heard, heard + 1);
}

/* Attempts fail until somebody listens; what the other side ends is dialled again. */
static void test_comes_later_and_goes(void **state)
{
    struct owner o = {0};
    struct site s, first;
    char address[64];

    (void)state;
    site_start(&first, "127.0.0.1", MS_TLS_AUTO); /* a port that is free then */
    snprintf(address, sizeof address, "%s", first.address);
    site_stop(&first);
    site_start(&s, NULL, MS_TLS_AUTO);
    begin(&o, &s, address);
    site_run_until(&s, &o.failed, 2);
    assert_int_equal(o.why.code, -ECONNREFUSED);
    assert_null(ms_redial_link(&o.redial));
    s.port = first.port;
    site_listen(&s, "127.0.0.1");
    site_run_until(&s, &o.greeted, 1);
    say(&o, &s);
    site_end_finish(&s.there);
    site_run_until(&s, &o.lost, 1);
    assert_true(ms_link_has_ended(&o.why));
    assert_null(ms_redial_link(&o.redial));
    site_run_until(&s, &o.greeted, 2);
    say(&o, &s);
    assert_int_equal(o.lost, 1);
    ms_redial_finish(&o.redial);
    site_stop(&s);
}

/* A refusal is followed by another attempt, and so is a message that is none. */
static void test_refused_and_misunderstood(void **state)
{
    struct owner o = {.refuse = 2};
    struct site s;

    (void)state;
    site_start(&s, "127.0.0.1", MS_TLS_AUTO);
    begin(&o, &s, s.address);
    site_run_until(&s, &o.greeted, 3);
    assert_int_equal(o.failed, 0);
    for (int i = 0; i < 3; i++)
        say(&o, &s);
    site_run_until(&s, &o.lost, 1);
    assert_int_equal(o.why.code, -EPROTO);
    site_run_until(&s, &o.greeted, 4);
    say(&o, &s);
    ms_redial_finish(&o.redial);
    site_stop(&s);
}

/* A wrong secret: its owner wants no other attempt. */
static void test_gives_up(void **state)
{
    struct owner o = {.is_done = true};
    struct ms_link_dial dial = {.deadline_ns = MS_NEVER};
    const uint8_t wrong[32] = {1};
    struct site s;

    (void)state;
    site_start(&s, "127.0.0.1", MS_TLS_AUTO);
    dial.addresses = s.address;
    dial.secret = wrong;
    assert_int_equal(ms_redial_init(&o.redial, s.loop, &dial, &ops, &o), 0);
    ms_redial_start(&o.redial);
    site_run_until(&s, &o.failed, 1);
    assert_int_equal(o.why.code, -EACCES);
    assert_null(ms_redial_link(&o.redial));
    assert_int_equal(o.opened, 0);
    ms_redial_finish(&o.redial);
    site_stop(&s);
}

/* A silent link stays up until another one is; one that is heard again first is kept. */
static void test_silent(void **state)
{
    struct owner o = {0};
    struct proxy proxy;
    struct ms_link *before;
    struct site s;

    (void)state;
    site_start(&s, "127.0.0.1", MS_TLS_AUTO);
    proxy_start(&proxy, s.port);
    snprintf(proxy.address, sizeof proxy.address, "127.0.0.1:%u", proxy.port);
    begin(&o, &s, proxy.address);
    site_run_until(&s, &o.greeted, 1);
    before = ms_redial_link(&o.redial);
    proxy_cut(&proxy);
    site_run_until(&s, &o.lost, 1);
    assert_int_equal(o.why.code, -ETIMEDOUT);
    assert_ptr_equal(ms_redial_link(&o.redial), before);
    proxy_heal(&proxy, true); /* the old connection stays mute */
    site_run_until(&s, &o.greeted, 2);
    assert_ptr_not_equal(ms_redial_link(&o.redial), before);
    assert_int_equal(o.back, 0);
    say(&o, &s);
    ms_redial_finish(&o.redial);
    proxy_stop(&proxy);
    site_stop(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_comes_later_and_goes),
        cmocka_unit_test(test_refused_and_misunderstood),
        cmocka_unit_test(test_gives_up),
        cmocka_unit_test(test_silent),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
