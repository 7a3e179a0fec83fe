/* Completions for those that cannot block, and engines with a loop of their own. */
#include "wire/client/client_impl.h"
#include "wire/server/server_impl.h"
#include "wire/test_rig.h"

#include <poll.h>
#include <sched.h>
#include <stdio.h>

static bool is_readable(struct ms_inbox *i, int wait_ms)
{
    struct pollfd p = {.fd = ms_inbox_fd(i), .events = POLLIN};

    return poll(&p, 1, wait_ms) == 1;
}

/* Wait for tags and take them: what comes over a connection may not be the whole. */
static size_t take(struct ms_inbox *i, uint64_t *tags, size_t room)
{
    size_t n;

    do {
        assert_true(is_readable(i, (int)(RIG_DEADLINE_NS / MS_NS_PER_MS)));
        n = ms_inbox_take(i, tags, room);
    } while (n == 0);
    return n;
}

static void test_a_tag_for_each_call(void **state)
{
    struct rig rig = {0};
    struct ms_inbox *inbox = ms_inbox_create();
    struct ms_call *calls[100];
    uint64_t tags[7];
    bool seen[100] = {0};
    size_t count = 0;

    (void)state;
    rig_start(&rig);
    for (size_t i = 0; i < 100; i++) {
        calls[i] = rig_call(&rig, "echo", "x");
        assert_int_equal(ms_call_notify(calls[i], inbox, i), 0);
    }
    while (count < 100) {
        size_t n = take(inbox, tags, MS_COUNT(tags));

        for (size_t i = 0; i < n; i++) {
            assert_true(ms_call_is_done(calls[tags[i]]));
            assert_false(seen[tags[i]]);
            seen[tags[i]] = true;
        }
        count += n;
    }
    assert_false(is_readable(inbox, 0));
    assert_int_equal(ms_inbox_take(inbox, tags, 7), 0);
    for (size_t i = 0; i < 100; i++)
        rig_expect(calls[i], "x");
    ms_inbox_unref(inbox);
    rig_stop(&rig);
}

static void test_what_is_done_is_told_at_once(void **state)
{
    struct rig rig = {0};
    struct ms_inbox *inbox = ms_inbox_create();
    struct ms_call *c;
    uint64_t tag;

    (void)state;
    rig_start(&rig);
    c = rig_call(&rig, "echo", "x");
    rig_wait(c);
    assert_int_equal(ms_call_notify(c, inbox, 7), 0);
    assert_int_equal(ms_inbox_take(inbox, &tag, 1), 1);
    assert_int_equal(tag, 7);
    assert_int_equal(ms_call_notify(c, inbox, 8), 0); /* twice: two tags */
    ms_call_unref(c);                                 /* its tag stays */
    assert_int_equal(ms_inbox_take(inbox, &tag, 1), 1);
    assert_int_equal(tag, 8);
    ms_inbox_unref(inbox);
    rig_stop(&rig);
}

/* An inbox that goes before its calls, and calls that go before their inbox. */
static void test_either_may_go_first(void **state)
{
    struct rig rig = {0};
    struct ms_inbox *inbox = ms_inbox_create(), *other = ms_inbox_create();
    struct ms_call *c;

    (void)state;
    rig_start(&rig);
    c = rig_call(&rig, "hold", "x");
    assert_int_equal(ms_call_notify(c, inbox, 1), 0);
    assert_int_equal(ms_call_notify(c, other, 1), 0);
    ms_inbox_unref(inbox);
    rig_open(&rig, 1);
    rig_expect(c, "x");
    assert_true(is_readable(other, (int)(RIG_DEADLINE_NS / MS_NS_PER_MS)));
    ms_inbox_unref(other);
    rig_stop(&rig);
}

static void test_items_are_told(void **state)
{
    struct rig rig = {0};
    struct ms_inbox *inbox = ms_inbox_create();
    struct ms_call_spec spec = {.stream = true};
    struct ms_call *c;
    uint64_t tag;
    unsigned items = 0;
    bool done = false;

    (void)state;
    rig_start(&rig);
    c = rig_call_spec(&rig, "stream", "600", 3, &spec);
    assert_int_equal(ms_call_notify(c, inbox, 3), 0);
    while (!done) {
        uint8_t codec, *body;
        size_t len;

        assert_int_equal(take(inbox, &tag, 1), 1);
        done = ms_call_is_done(c);
        while (ms_call_take_item(c, &codec, &body, &len, NULL)) {
            items++;
            free(body);
        }
    }
    assert_int_equal(items, 600);
    ms_call_unref(c);
    ms_inbox_unref(inbox);
    rig_stop(&rig);
}

static void test_failures_are_told(void **state)
{
    struct rig rig = {.exit_wait_ns = MS_NS_PER_MS};
    struct ms_inbox *inbox = ms_inbox_create();
    struct ms_call *c;
    uint64_t tag;

    (void)state;
    rig_start(&rig);
    rig_stop_server(&rig);
    c = rig_call(&rig, "echo", "x");
    assert_int_equal(ms_call_notify(c, inbox, 9), 0);
    assert_int_equal(take(inbox, &tag, 1), 1);
    rig_expect_failure(c, MUSTER__FAILURE__KIND__UNREACHABLE);
    ms_inbox_unref(inbox);
    rig_stop(&rig);
}

/* ---- who reads --------------------------------------------------------------------- */

/* Looked at without reading: ms_call_is_done reads where an inbox has the connection. */
static bool has_ended(struct ms_call *c)
{
    MS_LOCK(&c->peer->lock);

    return c->done;
}

static bool has_ended_soon(struct ms_call *c)
{
    int64_t until_ns = ms_now_ns() + RIG_DEADLINE_NS;

    while (!has_ended(c) && ms_now_ns() < until_ns)
        sched_yield();
    return has_ended(c);
}

/* Nobody takes: first the inbox has the connection, and then the loop reads. */
static void test_an_inbox_that_nobody_takes_from(void **state)
{
    struct rig rig = {0};
    struct ms_inbox *inbox = ms_inbox_create();
    struct ms_call *c;
    uint64_t tag;

    (void)state;
    rig_start(&rig);
    c = rig_call(&rig, "hold", "x");
    assert_int_equal(ms_call_notify(c, inbox, 1), 0);
    rig_open(&rig, 1);
    assert_true(is_readable(inbox, (int)(RIG_DEADLINE_NS / MS_NS_PER_MS)));
    assert_true(has_ended_soon(c));
    assert_int_equal(take(inbox, &tag, 1), 1);
    rig_expect(c, "x");
    ms_inbox_unref(inbox);
    rig_stop(&rig);
}

/* Who only looks whether it is done need not wait for the loop. */
static void test_looking_beside_an_inbox(void **state)
{
    struct rig rig = {0};
    struct ms_inbox *inbox = ms_inbox_create();
    struct ms_call *c;
    uint64_t tag;

    (void)state;
    rig_start(&rig);
    rig_expect(rig_call(&rig, "echo", "x"), "x"); /* the handshake is over */
    for (unsigned i = 0; i < 20; i++) {
        c = rig_call(&rig, "hold", "x");
        assert_int_equal(ms_call_notify(c, inbox, i), 0);
        while (ms_now_ns() <= c->begun_ns + MS_SPIN_NS)
            assert_false(ms_call_is_done(c));
        assert_false(ms_call_is_done(c));
        rig_open(&rig, 1);
        assert_true(is_readable(inbox, (int)(RIG_DEADLINE_NS / MS_NS_PER_MS)));
        assert_true(has_ended_soon(c));
        assert_int_equal(take(inbox, &tag, 1), 1);
        assert_int_equal(tag, i);
        rig_expect(c, "x");
    }
    ms_inbox_unref(inbox);
    rig_stop(&rig);
}

static void test_an_inbox_that_rests(void **state)
{
    struct rig rig = {0};
    struct ms_inbox *inbox = ms_inbox_create();
    struct ms_call *c;
    uint64_t tag;

    (void)state;
    rig_start(&rig);
    for (unsigned i = 0; i < 20; i++) { /* it may hear of calls again after that */
        c = rig_call(&rig, "hold", "x");
        assert_int_equal(ms_call_notify(c, inbox, i), 0);
        ms_inbox_rest(inbox);
        rig_open(&rig, 1);
        assert_true(has_ended_soon(c));
        assert_int_equal(ms_inbox_take(inbox, &tag, 1), 1);
        assert_int_equal(tag, i);
        rig_expect(c, "x");
    }
    ms_inbox_unref(inbox);
    rig_stop(&rig);
}

/* Two inboxes hear of calls of one peer, of which one is taken from. */
static void test_two_inboxes_of_a_peer(void **state)
{
    struct rig rig = {0};
    struct ms_inbox *idle = ms_inbox_create(), *busy = ms_inbox_create();
    struct ms_call *first, *second;
    uint64_t tag;

    (void)state;
    rig_start(&rig);
    first = rig_call(&rig, "hold", "x");
    assert_int_equal(ms_call_notify(first, idle, 1), 0);
    second = rig_call(&rig, "hold", "y");
    assert_int_equal(ms_call_notify(second, busy, 2), 0);
    rig_open(&rig, 2);
    assert_int_equal(take(busy, &tag, 1), 1);
    assert_int_equal(tag, 2);
    rig_expect(second, "y");
    assert_int_equal(take(idle, &tag, 1), 1);
    assert_int_equal(tag, 1);
    rig_expect(first, "x");
    ms_inbox_unref(idle);
    ms_inbox_unref(busy);
    rig_stop(&rig);
}

/* Two inboxes hear of one call, and an owner goes: neither waits for the other. */
static void test_two_inboxes_of_a_call(void **state)
{
    struct rig rig = {0};
    struct ms_inbox *idle = ms_inbox_create(), *busy = ms_inbox_create();
    struct ms_call *c;
    uint64_t tag;

    (void)state;
    rig_start(&rig);
    c = rig_call(&rig, "hold", "x");
    assert_int_equal(ms_call_notify(c, busy, 1), 0);
    assert_ptr_equal(c->peer->inbox, busy);
    assert_int_equal(ms_call_notify(c, idle, 2), 0);
    assert_null(c->peer->inbox);
    rig_open(&rig, 1);
    assert_int_equal(take(busy, &tag, 1), 1);
    assert_int_equal(tag, 1);
    assert_int_equal(take(idle, &tag, 1), 1);
    rig_expect(c, "x");
    c = rig_call(&rig, "hold", "y");
    assert_int_equal(ms_call_notify(c, busy, 3), 0);
    ms_inbox_unref(busy);
    rig_open(&rig, 1);
    assert_true(has_ended_soon(c));
    rig_expect(c, "y");
    ms_inbox_unref(idle);
    rig_stop(&rig);
}

/* A thread that waits reads in the place of the inbox. */
static void test_a_call_that_waits_beside_an_inbox(void **state)
{
    struct rig rig = {0};
    struct ms_inbox *inbox = ms_inbox_create();
    struct ms_call *c;
    uint64_t tag;

    (void)state;
    rig_start(&rig);
    for (unsigned i = 0; i < 100; i++) {
        c = rig_call(&rig, "echo", "x");
        assert_int_equal(ms_call_notify(c, inbox, i), 0);
        rig_expect(rig_call(&rig, "echo", "y"), "y");
        assert_int_equal(take(inbox, &tag, 1), 1);
        assert_int_equal(tag, i);
        rig_expect(c, "x");
    }
    ms_inbox_unref(inbox);
    rig_stop(&rig);
}

/* ---- engines with a loop of their own -------------------------------------------- */

static void on_queued(void *arg)
{
    struct rig *rig = arg;

    rig_count(rig, &rig->held);
}

/* Take what is there whenever something is; many are open at once. */
static void *run_async(void *arg)
{
    struct rig *rig = arg;
    struct ms_request *open[50];
    size_t count = 0;

    for (unsigned told = 0; count < MS_COUNT(open);) {
        struct ms_request *r;

        rig_wait_count(rig, &rig->held, told + 1);
        told = atomic_load(&rig->held);
        while ((r = ms_server_engine_poll(rig->server)))
            open[count++] = r;
    }
    while (count) /* the last one first */
        rig_reply(open[--count], "async");
    return NULL;
}

static void test_an_async_engine(void **state)
{
    struct rig rig = {.no_client = false};
    struct ms_call *calls[50];
    pthread_t thread;

    (void)state;
    rig_start(&rig);
    rig_expect(rig_call(&rig, "echo", "x"), "x"); /* it began as a sync one */
    ms_server_engine_stop(rig.server);
    pthread_join(rig.engine_thread, NULL);
    rig.no_engine = true; /* nothing to join at the end */
    pthread_mutex_lock(&rig.server->lock);
    rig.ops.on_queued = on_queued;
    pthread_mutex_unlock(&rig.server->lock);
    ms_server_engine_is_async(rig.server);
    assert_int_equal(pthread_create(&thread, NULL, run_async, &rig), 0);
    for (size_t i = 0; i < MS_COUNT(calls); i++)
        calls[i] = rig_call(&rig, "any", "x");
    for (size_t i = 0; i < MS_COUNT(calls); i++)
        rig_expect(calls[i], "async");
    pthread_join(thread, NULL);
    rig_stop(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_tag_for_each_call),
        cmocka_unit_test(test_what_is_done_is_told_at_once),
        cmocka_unit_test(test_either_may_go_first),
        cmocka_unit_test(test_items_are_told),
        cmocka_unit_test(test_failures_are_told),
        cmocka_unit_test(test_an_inbox_that_nobody_takes_from),
        cmocka_unit_test(test_looking_beside_an_inbox),
        cmocka_unit_test(test_an_inbox_that_rests),
        cmocka_unit_test(test_two_inboxes_of_a_peer),
        cmocka_unit_test(test_two_inboxes_of_a_call),
        cmocka_unit_test(test_a_call_that_waits_beside_an_inbox),
        cmocka_unit_test(test_an_async_engine),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
