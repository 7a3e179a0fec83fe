/* Answers that nobody wants any more: what they grant is given back, once. */
#include "wire/client/client_impl.h"
#include "wire/server/server_impl.h"
#include "wire/test_rig.h"

struct abandoned {
    struct rig rig;
    _Atomic unsigned granted, dropped, unread, refused; /* answers */
    _Atomic unsigned paused, go_on;                     /* the client's loop */
    bool breaks, stops;
};

/* Answers "stored" when it may, perhaps after its connection broke. */
static void answer_stored(struct rig *rig, struct ms_request *r)
{
    struct abandoned *t = rig->data;
    struct iovec iov = {(char[]){"stored"}, 6};
    unsigned ticket = atomic_load(&rig->held) + 1;

    rig_count(rig, &rig->held);
    rig_wait_count(rig, &rig->gate, ticket);
    if (t->breaks)
        rig_break(rig);
    if (ms_request_reply(r, MS_CODEC_STORED, &iov, 1) < 0)
        rig_count(rig, &t->refused);
}

static void *on_stored(void *arg, const uint8_t *body, size_t len)
{
    struct abandoned *t = ((struct rig *)arg)->data;

    if (len != 6 || memcmp(body, "stored", 6) != 0)
        abort();
    rig_count(&t->rig, &t->granted);
    return t;
}

static void on_stored_drop(void *token)
{
    struct abandoned *t = token;

    rig_count(&t->rig, &t->dropped);
}

static void on_unread(void *arg, const struct ms_request *r)
{
    struct abandoned *t = ((struct rig *)arg)->data;

    if (r->reply_codec != MS_CODEC_STORED || r->reply_len != 6)
        abort();
    rig_count(&t->rig, &t->unread);
}

static void late_start(struct abandoned *t)
{
    t->rig.engine = answer_stored;
    t->rig.on_stored = on_stored;
    t->rig.on_stored_drop = on_stored_drop;
    t->rig.ops.on_unread = on_unread;
    t->rig.data = t;
    rig_start(&t->rig);
}

/* The client reads nothing until it may. */
static void pause_loop(void *arg)
{
    struct abandoned *t = arg;

    rig_count(&t->rig, &t->paused);
    rig_wait_count(&t->rig, &t->go_on, 1);
    if (t->stops)
        ms_loop_stop(t->rig.client_loop);
}

static void late_pause(struct abandoned *t)
{
    assert_int_equal(ms_loop_post(t->rig.client_loop, pause_loop, t), 0);
    rig_wait_count(&t->rig, &t->paused, 1);
}

static size_t replies_kept(struct ms_server *s)
{
    size_t n = 0;

    pthread_mutex_lock(&s->lock);
    ms_list_each (l, &s->ledgers, struct ms_ledger, link)
        ms_list_each (r, &l->kept, struct ms_request, ledger_link)
            n++;
    pthread_mutex_unlock(&s->lock);
    return n;
}

static void wait_kept(struct abandoned *t)
{
    int64_t until_ns = ms_now_ns() + RIG_DEADLINE_NS;

    while (replies_kept(t->rig.server) == 0 && ms_now_ns() < until_ns)
        usleep(1000);
    assert_int_equal(replies_kept(t->rig.server), 1);
}

static void expect_one_given_back(struct abandoned *t)
{
    rig_wait_count(&t->rig, &t->dropped, 1);
    rig_stop(&t->rig);
    assert_int_equal(t->granted, 1);
    assert_int_equal(t->dropped, 1);
    assert_int_equal(t->unread, 0);
}

/* The answer has left the worker, and its caller, who has not read it, gives up. */
static void give_up_late(struct abandoned *t)
{
    struct ms_call *c;

    late_start(t);
    c = rig_call(&t->rig, "any", "x");
    rig_wait_count(&t->rig, &t->rig.held, 1);
    late_pause(t);
    rig_open(&t->rig, 1);
    wait_kept(t);
    ms_call_cancel(c);
    rig_count(&t->rig, &t->go_on);
    rig_expect_failure(c, MUSTER__FAILURE__KIND__CANCELLED);
    expect_one_given_back(t);
}

/* The answer is on its way when its caller gives up. */
static void test_answer_crosses_the_cancel(void **state)
{
    struct abandoned t = {0};

    (void)state;
    give_up_late(&t);
}

/* It got lost with its connection: it is asked for. */
static void test_answer_is_lost_with_its_connection(void **state)
{
    struct abandoned t = {.breaks = true};

    (void)state;
    give_up_late(&t);
}

/* The last reference to the peer has gone before the answer comes. */
static void test_answer_outlives_the_peer(void **state)
{
    struct abandoned t = {0};
    struct ms_call *c;

    (void)state;
    late_start(&t);
    c = rig_call(&t.rig, "any", "x");
    rig_wait_count(&t.rig, &t.rig.held, 1);
    late_pause(&t);
    rig_open(&t.rig, 1);
    wait_kept(&t);
    ms_call_cancel(c);
    ms_call_unref(c);
    ms_peer_unref(t.rig.peer);
    t.rig.peer = NULL;
    rig_count(&t.rig, &t.go_on);
    expect_one_given_back(&t);
}

/* The handler is told that its answer was not sent. */
static void test_answer_to_a_cancelled_call(void **state)
{
    struct abandoned t = {0};
    struct ms_call *c;

    (void)state;
    late_start(&t);
    c = rig_call(&t.rig, "any", "x");
    rig_wait_count(&t.rig, &t.rig.held, 1);
    ms_call_cancel(c);
    rig_wait_count(&t.rig, &t.rig.cancelled, 1);
    rig_open(&t.rig, 1);
    rig_wait_count(&t.rig, &t.refused, 1);
    rig_expect_failure(c, MUSTER__FAILURE__KIND__CANCELLED);
    rig_stop(&t.rig);
    assert_int_equal(t.granted, 0);
}

/* The client ends with an answer that it has not read, and another that is not made yet. */
static void test_client_ends(void **state)
{
    struct abandoned t = {.stops = true};
    struct rig *rig = &t.rig;
    struct ms_call *c[2];

    (void)state;
    late_start(&t);
    c[0] = rig_call(rig, "any", "x");
    c[1] = rig_call(rig, "any", "y");
    rig_wait_count(rig, &rig->held, 1);
    late_pause(&t);
    rig_open(rig, 1);
    rig_wait_count(rig, &rig->held, 2);
    wait_kept(&t);
    rig_count(rig, &t.go_on);
    pthread_join(rig->client_thread, NULL);
    ms_client_destroy(rig->client, "the test ends it");
    rig_wait_count(rig, &t.unread, 1);
    rig_open(rig, 1);
    rig_wait_count(rig, &t.refused, 1);
    for (int i = 0; i < 2; i++)
        rig_expect_failure(c[i], MUSTER__FAILURE__KIND__SHUTTING_DOWN);
    ms_peer_unref(rig->peer);
    ms_loop_destroy(rig->client_loop);
    rig->client = NULL;
    rig_stop(rig);
    assert_int_equal(t.granted, 0);
    assert_int_equal(t.unread, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_answer_crosses_the_cancel),
        cmocka_unit_test(test_answer_is_lost_with_its_connection),
        cmocka_unit_test(test_answer_outlives_the_peer),
        cmocka_unit_test(test_answer_to_a_cancelled_call),
        cmocka_unit_test(test_client_ends),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
