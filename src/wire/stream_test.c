/* Streams: windows, cancels, breaks, fast and slow ends. */
#include "base/limits.h"
#include "wire/client/client_impl.h"
#include "wire/test_rig.h"

#include <stdio.h>

static struct ms_call *stream(struct rig *rig, const char *count)
{
    struct ms_call_spec spec = {.stream = true};

    return rig_call_spec(rig, "stream", count, strlen(count), &spec);
}

/* The next item, waiting for it; false at the end. */
static bool take(struct ms_call *c, char *text, size_t room)
{
    uint8_t codec, *body;
    size_t len;

    while (!ms_call_take_item(c, &codec, &body, &len, NULL)) {
        if (ms_call_is_done(c) && !ms_call_has_items(c))
            return false;
        rig_wait(c);
    }
    assert_true(len < room);
    memcpy(text, body, len);
    text[len] = 0;
    free(body);
    return true;
}

static void expect_items(struct ms_call *c, int from, int to)
{
    char text[32], want[32];

    for (int i = from; i < to; i++) {
        assert_true(take(c, text, sizeof text));
        snprintf(want, sizeof want, "%d", i);
        assert_string_equal(text, want);
    }
}

static void expect_end(struct ms_call *c)
{
    struct ms_outcome o;
    char text[32];

    assert_false(take(c, text, sizeof text));
    ms_call_outcome(c, &o);
    assert_int_equal(o.kind, MS_KIND_REPLY);
    assert_true(o.ends_stream);
    ms_call_unref(c);
}

static void test_items_and_an_end(void **state)
{
    struct rig rig = {0};
    struct ms_call *c;

    (void)state;
    rig_start(&rig);
    c = stream(&rig, "5");
    expect_items(c, 0, 5);
    expect_end(c);
    expect_end(stream(&rig, "0")); /* a stream of nothing is a stream */
    rig_stop(&rig);
}

/* A call that may stream but does not. */
static void test_a_plain_answer(void **state)
{
    struct rig rig = {0};
    struct ms_call_spec spec = {.stream = true};
    struct ms_outcome o;
    struct ms_call *c;

    (void)state;
    rig_start(&rig);
    c = rig_call_spec(&rig, "echo", "x", 1, &spec);
    rig_wait(c);
    ms_call_outcome(c, &o);
    assert_false(o.ends_stream);
    rig_expect(c, "x");
    rig_stop(&rig);
}

static unsigned count_items(struct ms_call *c)
{
    unsigned n = 0;

    pthread_mutex_lock(&c->peer->lock);
    ms_list_each (i, &c->items, struct item, link) {
        (void)i;
        n++;
    }
    pthread_mutex_unlock(&c->peer->lock);
    return n;
}

/* A generator that is faster than its reader stops at the window. */
static void test_a_slow_reader(void **state)
{
    struct rig rig = {0};
    struct ms_call *c;

    (void)state;
    rig_start(&rig);
    c = stream(&rig, "1000");
    for (int64_t until_ns = ms_now_ns() + RIG_DEADLINE_NS;
         count_items(c) < MS_STREAM_WINDOW;)
        assert_true(ms_now_ns() < until_ns);
    for (int i = 0; i < 100; i += 10) {
        expect_items(c, i, i + 10);
        assert_true(count_items(c) <= MS_STREAM_WINDOW);
    }
    expect_items(c, 100, 1000);
    expect_end(c);
    rig_stop(&rig);
}

/* One that is slower: each item is there when it is sent. */
static void hold_between(struct rig *rig, struct ms_request *r)
{
    for (unsigned i = 0; i < 3; i++) {
        char text[32];
        struct iovec iov = {text, (size_t)snprintf(text, sizeof text, "%u", i)};

        rig_count(rig, &rig->held);
        rig_wait_count(rig, &rig->gate, i + 1);
        if (ms_request_item(r, MS_CODEC_BYTES, &iov, 1) < 0)
            break;
    }
    rig_reply(r, "end");
}

static void test_a_slow_generator(void **state)
{
    struct rig rig = {.engine = hold_between};
    struct ms_call *c;

    (void)state;
    rig_start(&rig);
    c = stream(&rig, "");
    for (int i = 0; i < 3; i++) {
        rig_wait_count(&rig, &rig.held, (unsigned)i + 1);
        assert_false(ms_call_has_items(c));
        assert_false(ms_call_is_done(c));
        rig_open(&rig, 1);
        expect_items(c, i, i + 1);
    }
    expect_end(c);
    rig_stop(&rig);
}

static void test_many_streams_at_once(void **state)
{
    struct rig rig = {0};
    struct ms_call *c[8];

    (void)state;
    rig_start(&rig);
    for (size_t i = 0; i < MS_COUNT(c); i++)
        c[i] = stream(&rig, "700");
    for (size_t i = 0; i < MS_COUNT(c); i++) {
        expect_items(c[i], 0, 700);
        expect_end(c[i]);
    }
    rig_stop(&rig);
}

/* Big items stay in order, and the end stays behind them. */
static void big_items(struct rig *rig, struct ms_request *r)
{
    uint8_t *data = calloc(1, 500000);

    (void)rig;
    for (unsigned i = 0; i < 20; i++) {
        struct iovec iov = {data, i % 3 ? 10 : 500000};

        data[0] = (uint8_t)i;
        while (ms_request_item(r, MS_CODEC_BYTES, &iov, 1) == -EAGAIN)
            ms_request_item_wait(r, MS_NEVER);
    }
    free(data);
    rig_reply(r, "end");
}

static void test_big_items(void **state)
{
    struct rig rig = {.engine = big_items};
    struct ms_call *c;

    (void)state;
    rig_start(&rig);
    c = stream(&rig, "");
    for (unsigned i = 0; i < 20;) {
        uint8_t codec, *body;
        size_t len;

        rig_wait(c);
        if (!ms_call_take_item(c, &codec, &body, &len, NULL))
            continue;
        assert_int_equal(body[0], i);
        assert_int_equal(len, i % 3 ? 10 : 500000);
        free(body);
        i++;
    }
    expect_end(c);
    rig_stop(&rig);
}

/* ---- ends ------------------------------------------------------------------------ */

static void test_cancel_a_stream(void **state)
{
    struct rig rig = {0};
    struct ms_call *c;

    (void)state;
    rig_start(&rig);
    c = stream(&rig, "1000000"); /* it waits for the window, and is woken */
    expect_items(c, 0, 3);
    ms_call_cancel(c);
    rig_expect_failure(c, MUSTER__FAILURE__KIND__CANCELLED);
    rig_expect(rig_call(&rig, "echo", "next"), "next");
    rig_stop(&rig);
}

/* What has not arrived is sent again, once, and in order. */
static void test_a_broken_stream_goes_on(void **state)
{
    struct rig rig = {0};

    (void)state;
    rig_start(&rig);
    for (int every = 1; every < 400; every += 57) {
        struct ms_call *c = stream(&rig, "3000");

        for (int at = 0; at < 3000; at += 50) {
            expect_items(c, at, at + 50);
            if (at % every == 0)
                rig_break(&rig);
        }
        expect_end(c);
    }
    rig_stop(&rig);
}

/* More than may be kept is on its way: that is lost, and says so. */
static void huge_items(struct rig *rig, struct ms_request *r)
{
    size_t len = MS_STREAM_KEPT_MAX / 2 + 1;
    uint8_t *data = calloc(1, len);
    struct iovec iov = {data, len};

    (void)rig;
    if (r->flags & MS_FRAME_STREAM)
        for (int i = 0; i < 3 && ms_request_item(r, MS_CODEC_BYTES, &iov, 1) == 0; i++)
            rig_count(rig, &rig->held);
    rig_wait_count(rig, &rig->gate, 1);
    free(data);
    rig_reply(r, "end");
}

static void test_too_much_to_be_kept(void **state)
{
    struct rig rig = {.engine = huge_items};
    struct ms_call *c;
    uint8_t codec, *body;
    size_t len;

    (void)state;
    rig_start(&rig);
    c = stream(&rig, "");
    rig_wait_count(&rig, &rig.held, 3);
    rig_break(&rig);
    rig_open(&rig, 1);
    while (!ms_call_is_done(c) || ms_call_has_items(c))
        if (ms_call_take_item(c, &codec, &body, &len, NULL))
            free(body);
        else
            rig_wait(c);
    rig_expect_failure(c, MUSTER__FAILURE__KIND__LOST);
    rig_stop(&rig);
}

/* Also if its end had been sent, but had not arrived. */
static void break_at_the_end(struct rig *rig, struct ms_request *r)
{
    struct iovec iov = {(void *)(uintptr_t) "0", 1};

    if (r->flags & MS_FRAME_STREAM) {
        ms_request_item(r, MS_CODEC_BYTES, &iov, 1);
        rig_break(rig);
    }
    rig_reply(r, "end");
}

static void test_broken_before_its_end_arrived(void **state)
{
    struct rig rig = {.engine = break_at_the_end};
    char text[32];

    (void)state;
    rig_start(&rig);
    for (int i = 0; i < 50; i++) {
        struct ms_call *c = stream(&rig, "");
        struct ms_outcome o;
        unsigned items = 0;

        while (take(c, text, sizeof text))
            items++;
        ms_call_outcome(c, &o);
        assert_int_equal(o.kind, MS_KIND_REPLY);
        assert_int_equal(items, 1);
        ms_call_unref(c);
    }
    rig_stop(&rig);
}

/* The session goes while the generator waits for its window. */
static void test_the_client_goes_away(void **state)
{
    struct rig rig = {.server_grace_ns = 1};
    struct ms_call *c;
    char text[32];

    (void)state;
    rig_start(&rig);
    c = stream(&rig, "1000000");
    expect_items(c, 0, 3);
    for (unsigned i = 0; !ms_call_is_done(c); i++) {
        if (i % 100 == 0)
            rig_break(&rig); /* until the server has not seen us in between */
        take(c, text, sizeof text);
    }
    while (take(c, text, sizeof text))
        ;
    rig_expect_failure(c, MUSTER__FAILURE__KIND__LOST);
    rig_expect(rig_call(&rig, "echo", "next"), "next"); /* the engine is free */
    rig_stop(&rig);
}

/* Items of a forgotten stream are thrown away, and it ends by itself. */
static void test_a_stream_nobody_reads(void **state)
{
    struct rig rig = {0};

    (void)state;
    rig_start(&rig);
    ms_call_unref(stream(&rig, "200"));
    rig_expect(rig_call(&rig, "echo", "next"), "next");
    rig_stop(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_items_and_an_end),
        cmocka_unit_test(test_a_plain_answer),
        cmocka_unit_test(test_a_slow_reader),
        cmocka_unit_test(test_a_slow_generator),
        cmocka_unit_test(test_many_streams_at_once),
        cmocka_unit_test(test_big_items),
        cmocka_unit_test(test_cancel_a_stream),
        cmocka_unit_test(test_a_broken_stream_goes_on),
        cmocka_unit_test(test_too_much_to_be_kept),
        cmocka_unit_test(test_broken_before_its_end_arrived),
        cmocka_unit_test(test_the_client_goes_away),
        cmocka_unit_test(test_a_stream_nobody_reads),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
