/* At most once: whatever breaks and whenever, a call completes exactly once, runs at
 * most once, and a reply that was kept is found again. */
#include "base/limits.h"
#include "wire/server/server_impl.h"
#include "wire/test_raw.h"

enum { CALLS = 300 };

/* ---- a client whose connection breaks -------------------------------------------- */

static _Atomic unsigned runs[CALLS];

/* Count the runs of each call by the number in its argument, and break now and then. */
static void count_runs(struct rig *rig, struct ms_request *r)
{
    uint32_t number;

    if (r->len < sizeof number)
        abort();
    memcpy(&number, r->body, sizeof number);
    atomic_fetch_add(&runs[number], 1);
    if (number % 7 == 3)
        rig_break(rig);
    rig_reply(r, "done");
    if (number % 7 == 5)
        rig_break(rig);
}

static void test_breaks_all_the_time(void **state)
{
    struct rig rig = {.engine = count_runs};
    struct ms_call *calls[CALLS];
    struct ms_peer *peer;
    MS_CLEANUP(ms_cleanup_free) uint8_t *data = calloc(1, MS_RESEND_MAX);

    (void)state;
    memset(runs, 0, sizeof runs);
    rig_start(&rig);
    peer = ms_peer_ref(rig.peer); /* the engine breaks it to the end */
    for (uint32_t i = 0; i < CALLS; i++) {
        struct ms_call_spec spec = {.waits = i % 3 == 0};
        size_t len = i % 10 ? 4 : 4 + 1000 * (size_t)i;

        memcpy(data, &i, sizeof i);
        calls[i] = rig_call_spec(&rig, "any", data, len, &spec);
        if (i % 4 == 1)
            rig_break(&rig);
        if (i % 5 == 0 && i >= 5)
            rig_wait(calls[i - 5]);
    }
    for (uint32_t i = 0; i < CALLS; i++)
        rig_expect(calls[i], "done");
    for (uint32_t i = 0; i < CALLS; i++)
        assert_int_equal(runs[i], 1);
    rig_stop(&rig);
    ms_peer_unref(peer);
}

/* The connection is broken before the first byte of the call could be sent. */
static void test_broken_before_sending(void **state)
{
    struct rig rig = {0};

    (void)state;
    rig_start(&rig);
    rig_expect(rig_call(&rig, "echo", "1"), "1");
    rig_break(&rig);
    rig_expect(rig_call(&rig, "echo", "2"), "2");
    assert_int_equal(rig.executed, 2);
    rig_stop(&rig);
}

/* It breaks while the call runs, and the answer finds the new connection. */
static void test_broken_while_it_runs(void **state)
{
    struct rig rig = {0};
    struct ms_call *c;

    (void)state;
    rig_start(&rig);
    c = rig_call(&rig, "hold", "x");
    rig_wait_count(&rig, &rig.held, 1);
    rig_break(&rig);
    rig_wait_conns(&rig, 2);
    rig_open(&rig, 1);
    rig_expect(c, "x");
    assert_int_equal(rig.executed, 1);
    rig_stop(&rig);
}

/* Too big to be kept by the client, but the worker has it: nothing is lost. */
static void test_a_big_call_is_attached_again(void **state)
{
    struct rig rig = {0};
    struct ms_call_spec spec = {0};
    MS_CLEANUP(ms_cleanup_free) uint8_t *data = calloc(1, 2 * MS_RESEND_MAX);
    struct ms_outcome o;
    struct ms_call *c;

    (void)state;
    rig_start(&rig);
    c = rig_call_spec(&rig, "hold", data, 2 * MS_RESEND_MAX, &spec);
    rig_wait_count(&rig, &rig.held, 1);
    rig_break(&rig);
    rig_wait_conns(&rig, 2);
    rig_open(&rig, 1);
    rig_wait(c);
    ms_call_outcome(c, &o);
    assert_int_equal(o.kind, MS_KIND_REPLY);
    assert_int_equal(o.len, 2 * MS_RESEND_MAX);
    ms_call_unref(c);
    assert_int_equal(rig.executed, 1);
    rig_stop(&rig);
}

struct two {
    struct rig *rig;
    struct ms_call *held, *queued;
};

/* On the client's loop: it cannot connect again before this is over. */
static void break_and_cancel(void *arg)
{
    struct two *two = arg;

    rig_break(two->rig);
    ms_call_cancel(two->held);
    ms_call_cancel(two->queued);
}

/* What was cancelled while there was no connection is cancelled there, too. */
static void test_cancelled_while_broken(void **state)
{
    struct rig rig = {0};
    struct two two = {.rig = &rig};
    struct ms_call *next;

    (void)state;
    rig_start(&rig);
    two.held = rig_call(&rig, "hold", "x");
    two.queued = rig_call(&rig, "echo", "never");
    rig_wait_count(&rig, &rig.held, 1);
    rig_on_loop(&rig, rig.client_loop, break_and_cancel, &two);
    rig_expect_failure(two.held, MUSTER__FAILURE__KIND__CANCELLED);
    rig_expect_failure(two.queued, MUSTER__FAILURE__KIND__CANCELLED);
    next = rig_call(&rig, "echo", "next"); /* connects again */
    rig_wait_count(&rig, &rig.cancelled, 1);
    rig_open(&rig, 1);
    rig_expect(next, "next");
    assert_int_equal(rig.executed, 2);
    rig_stop(&rig);
}

/* ---- a client that says exactly this --------------------------------------------- */

static void test_a_kept_reply_is_sent_again(void **state)
{
    struct rig rig = {.no_client = true};
    struct raw raw;

    (void)state;
    rig_start(&rig);
    raw_open(&raw, &rig, 1, MS_LANE_CALL);
    raw_call(&raw, 1, 0, "one");
    raw_expect(&raw, 1, "one");
    raw_close(&raw); /* without an ack */
    raw_open(&raw, &rig, 1, MS_LANE_CALL);
    raw_call(&raw, 1, MS_FRAME_RESEND, "one");
    raw_expect(&raw, 1, "one");
    raw_call(&raw, 1, MS_FRAME_RESEND | MS_FRAME_BARE, "");
    raw_wait(&raw, MS_KIND_REPLY, 1, 1);
    assert_int_equal(rig.executed, 1);
    raw_close(&raw);
    rig_stop(&rig);
}

/* A call that never came, or whose reply was acknowledged, is not a kept one. */
static void test_what_is_unknown_is_lost(void **state)
{
    struct rig rig = {.no_client = true};
    struct ms_frame ack = {.kind = MS_KIND_PING, .call_id = 99, .ack = 1};
    struct raw raw;

    (void)state;
    rig_start(&rig);
    raw_open(&raw, &rig, 1, MS_LANE_CALL);
    raw_call(&raw, 1, 0, "one");
    raw_expect(&raw, 1, "one");
    raw_send(&raw, &ack, NULL, 0);
    raw_wait(&raw, MS_KIND_PONG, 99, 0);
    raw_close(&raw);
    raw_open(&raw, &rig, 1, MS_LANE_CALL);
    raw_call(&raw, 1, MS_FRAME_RESEND, "one");
    raw_expect_failure(&raw, 1, MUSTER__FAILURE__KIND__LOST);
    raw_call(&raw, 2, MS_FRAME_RESEND, "two"); /* this one never came: it may run */
    raw_expect(&raw, 2, "two");
    raw_call(&raw, 3, MS_FRAME_RESEND | MS_FRAME_BARE, "");
    raw_expect_failure(&raw, 3, MUSTER__FAILURE__KIND__LOST);
    assert_int_equal(rig.executed, 2);
    raw_close(&raw);
    rig_stop(&rig);
}

static void send_attach(struct raw *raw, uint64_t last, uint64_t open)
{
    struct ms_frame head = {.kind = MS_KIND_ATTACH, .call_id = last};
    uint64_t body[2] = {0, open};

    raw_send(raw, &head, body, open ? sizeof body : sizeof body[0]);
}

/* A session that the server has forgotten: what was sent before may have run. */
static void test_a_forgotten_session(void **state)
{
    struct rig rig = {.no_client = true, .server_grace_ns = 1};
    struct raw raw;

    (void)state;
    rig_start(&rig);
    raw_open(&raw, &rig, 1, MS_LANE_CALL);
    raw_call(&raw, 1, 0, "one");
    raw_expect(&raw, 1, "one");
    raw_close(&raw);
    for (bool gone = false; !gone;) {
        pthread_mutex_lock(&rig.server->lock);
        gone = ms_list_is_empty(&rig.server->ledgers);
        pthread_mutex_unlock(&rig.server->lock);
    }
    raw_open(&raw, &rig, 1, MS_LANE_CALL);
    send_attach(&raw, 3, 2);
    raw_call(&raw, 2, MS_FRAME_RESEND, "two");
    raw_expect_failure(&raw, 2, MUSTER__FAILURE__KIND__LOST);
    raw_call(&raw, 3, 0, "three"); /* never sent before */
    raw_expect(&raw, 3, "three");
    assert_int_equal(rig.executed, 2);
    raw_close(&raw);
    rig_stop(&rig);
}

static void test_attach_forgets_the_rest(void **state)
{
    struct rig rig = {.no_client = true};
    struct raw raw;

    (void)state;
    rig_start(&rig);
    raw_open(&raw, &rig, 1, MS_LANE_CALL);
    for (uint64_t id = 1; id <= 10; id++)
        raw_call(&raw, id, 0, "x");
    raw_expect(&raw, 10, "x");
    raw_close(&raw);
    raw_open(&raw, &rig, 1, MS_LANE_CALL);
    send_attach(&raw, 9, 4);
    raw_sync(&raw);
    pthread_mutex_lock(&rig.server->lock);
    ms_list_each (l, &rig.server->ledgers, struct ms_ledger, link)
        assert_int_equal(l->requests.count,
                         2); /* 4, and 10 of which nothing was said */
    pthread_mutex_unlock(&rig.server->lock);
    raw_call(&raw, 4, MS_FRAME_RESEND, "x");
    raw_expect(&raw, 4, "x");
    assert_int_equal(rig.executed, 10);
    raw_close(&raw);
    rig_stop(&rig);
}

/* Two connections of one session: the newer one counts, the older one is closed. */
static void test_a_newer_connection_replaces(void **state)
{
    struct rig rig = {.no_client = true};
    static struct raw old, new;

    (void)state;
    rig_start(&rig);
    raw_open(&old, &rig, 1, MS_LANE_CALL);
    raw_call(&old, 1, 0, "x");
    raw_expect(&old, 1, "x");
    raw_open(&new, &rig, 1, MS_LANE_CALL);
    raw_wait_closed(&old);
    raw_call(&new, 1, MS_FRAME_RESEND, "x");
    raw_expect(&new, 1, "x");
    raw_call(&new, 2, 0, "y");
    raw_expect(&new, 2, "y");
    assert_int_equal(rig.executed, 2);
    raw_close(&old);
    raw_close(&new);
    rig_stop(&rig);
}

/* A call whose pieces will never come does not stop others; sent again, it has its old
 * place. */
static void test_half_a_call(void **state)
{
    struct rig rig = {.no_client = true};
    struct ms_frame half = {.kind = MS_KIND_CALL,
                            .op = MS_OP_CONFIGURE,
                            .call_id = 1,
                            .length = 4,
                            .total = 8};
    static struct raw raw, other;
    uint8_t bytes[MS_FRAME_SIZE + 4] = {0};

    (void)state;
    rig_start(&rig);
    raw_open(&raw, &rig, 1, MS_LANE_CALL);
    raw_open(&other, &rig, 2, MS_LANE_CALL);
    ms_frame_encode(&half, bytes);
    raw_write(&raw, bytes, sizeof bytes);
    raw_call(&raw, 2, 0, "behind");
    raw_sync(&raw);
    raw_call(&other, 1, 0, "x");
    raw_expect(&other, 1, "x"); /* another session's */
    assert_int_equal(rig.executed, 1);
    raw_close(&raw);
    raw_open(&raw, &rig, 1, MS_LANE_CALL);
    raw_call(&raw, 2, MS_FRAME_RESEND, "behind");
    raw_sync(&raw);
    assert_int_equal(rig.executed, 1); /* not before the first */
    raw_call(&raw, 1, MS_FRAME_RESEND, "first");
    raw_expect(&raw, 1, "first");
    raw_expect(&raw, 2, "behind");
    assert_int_equal(rig.executed, 3);
    raw_close(&raw);
    raw_close(&other);
    rig_stop(&rig);
}

/* The same, but its client gives it up. */
static void test_half_a_call_is_cancelled(void **state)
{
    struct rig rig = {.no_client = true};
    struct ms_frame half = {.kind = MS_KIND_CALL,
                            .op = MS_OP_CONFIGURE,
                            .call_id = 1,
                            .length = 4,
                            .total = 8};
    struct ms_frame cancel = {.kind = MS_KIND_CANCEL, .call_id = 1};
    struct ms_frame rest = half, ack = {.kind = MS_KIND_PING, .call_id = 9, .ack = 1};
    uint8_t bytes[MS_FRAME_SIZE + 4] = {0};
    struct raw raw;

    (void)state;
    rig_start(&rig);
    raw_open(&raw, &rig, 1, MS_LANE_CALL);
    ms_frame_encode(&half, bytes);
    raw_write(&raw, bytes, sizeof bytes);
    raw_call(&raw, 2, 0, "behind");
    raw_send(&raw, &cancel, NULL, 0);
    raw_expect(&raw, 2, "behind");
    raw_expect_failure(&raw, 1, MUSTER__FAILURE__KIND__CANCELLED);
    raw_send(&raw, &ack, NULL, 0);
    rest.flags = MS_FRAME_MORE_OF; /* its last piece comes after all */
    rest.total = 4;
    ms_frame_encode(&rest, bytes);
    raw_write(&raw, bytes, sizeof bytes);
    raw_call(&raw, 3, 0, "still here");
    raw_expect(&raw, 3, "still here");
    assert_int_equal(rig.executed, 2);
    raw_close(&raw);
    rig_stop(&rig);
}

/* On the control lane nothing outlives the connection. */
static void test_a_control_session_ends(void **state)
{
    struct rig rig = {.no_client = true};
    struct raw raw;

    (void)state;
    rig_start(&rig);
    raw_open(&raw, &rig, 1, MS_LANE_CONTROL);
    raw_call(&raw, 1, 0, "x");
    raw_expect(&raw, 1, "x");
    raw_close(&raw);
    for (bool gone = false; !gone;) {
        pthread_mutex_lock(&rig.server->lock);
        gone = ms_list_is_empty(&rig.server->ledgers);
        pthread_mutex_unlock(&rig.server->lock);
    }
    rig_stop(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_breaks_all_the_time),
        cmocka_unit_test(test_broken_before_sending),
        cmocka_unit_test(test_broken_while_it_runs),
        cmocka_unit_test(test_a_big_call_is_attached_again),
        cmocka_unit_test(test_cancelled_while_broken),
        cmocka_unit_test(test_a_kept_reply_is_sent_again),
        cmocka_unit_test(test_what_is_unknown_is_lost),
        cmocka_unit_test(test_a_forgotten_session),
        cmocka_unit_test(test_attach_forgets_the_rest),
        cmocka_unit_test(test_a_newer_connection_replaces),
        cmocka_unit_test(test_half_a_call),
        cmocka_unit_test(test_half_a_call_is_cancelled),
        cmocka_unit_test(test_a_control_session_ends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
