/* requests_test.c - tables, and random histories in which links are cut and askers replaced */
#include "base/cleanup.h"
#include "proto/muster.pb-c.h"
#include "wire/link/requests.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* ---- the asking side ------------------------------------------------------------- */

static void test_watermark(void **state)
{
    struct ms_requests r;
    struct ms_pending p[5] = {0};
    static const struct {
        unsigned removed;
        uint64_t watermark;
        size_t arrived;
    } steps[] = {{1, 0, 1}, {0, 2, 1}, {4, 2, 2}, {2, 3, 2}, {3, 5, 2}};

    (void)state;
    ms_requests_init(&r);
    assert_int_equal(ms_requests_watermark(&r), 0);
    for (size_t i = 0; i < MS_COUNT(p); i++) {
        assert_int_equal(ms_requests_add(&r, &p[i]), 0);
        assert_int_equal(p[i].number, i + 1);
        assert_ptr_equal(ms_requests_find(&r, i + 1), &p[i]);
    }
    for (size_t i = 0; i < MS_COUNT(steps); i++) {
        ms_requests_remove(&r, &p[steps[i].removed]);
        ms_requests_remove(&r, &p[steps[i].removed]); /* which changes nothing */
        assert_null(ms_requests_find(&r, steps[i].removed + 1));
        assert_int_equal(ms_requests_watermark(&r), steps[i].watermark);
        assert_int_equal(r.arrived_count, steps[i].arrived);
    }
    ms_requests_told(&r);
    assert_int_equal(r.arrived_count, 0);
    ms_requests_finish(&r);
}

/* ---- the answering side ---------------------------------------------------------- */

static uint64_t last_id;

/* 1: new; 0: under way, or over; 2: the answer is there. */
static int begin(struct ms_replies *r, uint64_t number)
{
    const struct ms_reply *kept = NULL;
    int rc = ms_replies_begin(r, number, &last_id, &kept);

    if (kept)
        assert_int_equal(kept->number, number);
    return kept ? 2 : rc;
}

static const struct ms_reply *answer(struct ms_replies *r, uint64_t number)
{
    Muster__AgentToHead m = MUSTER__AGENT_TO_HEAD__INIT;

    m.request = number;
    return ms_replies_keep(r, number, &m.base);
}

static void test_once(void **state)
{
    struct ms_replies r;

    (void)state;
    ms_replies_init(&r);
    ms_replies_set_asker(&r, 1);
    assert_int_equal(begin(&r, 7), 1);
    assert_int_equal(ms_replies_number(&r, last_id), 7);
    assert_int_equal(begin(&r, 7), 0);
    assert_non_null(answer(&r, 7));
    assert_null(answer(&r, 7)); /* the first one counts */
    assert_int_equal(begin(&r, 7), 2);
    ms_replies_set_asker(&r, 1);
    assert_int_equal(begin(&r, 7), 2);
    ms_replies_finish(&r);
}

static void test_settled(void **state)
{
    struct ms_replies r;

    (void)state;
    ms_replies_init(&r);
    ms_replies_set_asker(&r, 1);
    for (uint64_t i = 1; i <= 1000; i++) {
        assert_int_equal(begin(&r, i), 1);
        if (i != 3)
            assert_non_null(answer(&r, i));
    }
    assert_int_equal(r.by_number.count, 1000); /* whatever their number */
    ms_replies_settle(&r, 2, &(uint64_t){5}, 1);
    assert_int_equal(r.by_number.count, 997);
    assert_int_equal(begin(&r, 2), 0); /* over */
    assert_int_equal(begin(&r, 4), 2);
    ms_replies_settle(&r, 1, NULL, 0); /* an old one changes nothing */
    assert_int_equal(r.watermark, 2);
    ms_replies_settle(&r, 3, NULL, 0); /* which was given up */
    assert_null(answer(&r, 3));
    assert_int_equal(begin(&r, 3), 0);
    ms_replies_settle(&r, 1000, NULL, 0);
    assert_int_equal(r.by_number.count, 0);
    ms_replies_finish(&r);
}

static void test_a_question_may_be_asked_again(void **state)
{
    struct ms_replies r;

    (void)state;
    ms_replies_init(&r);
    assert_int_equal(begin(&r, 1), 1);
    ms_replies_forget(&r, 1);
    assert_int_equal(begin(&r, 1), 1);
    ms_replies_finish(&r);
}

static void test_another_asker_begins_anew(void **state)
{
    struct ms_replies r;
    uint64_t old;

    (void)state;
    ms_replies_init(&r);
    ms_replies_set_asker(&r, 1);
    assert_int_equal(begin(&r, 7), 1);
    answer(&r, 7);
    assert_int_equal(begin(&r, 8), 1);
    old = last_id;
    ms_replies_settle(&r, 6, NULL, 0);
    ms_replies_set_asker(&r, 2);
    assert_int_equal(begin(&r, 1), 1);
    assert_int_equal(begin(&r, 8), 1);
    assert_int_not_equal(last_id, old);
    assert_int_equal(ms_replies_number(&r, old), 0); /* to nobody */
    assert_int_equal(ms_replies_number(&r, last_id), 8);
    ms_replies_finish(&r);
}

/* ---- random histories ------------------------------------------------------------ */

enum { ASKS_MAX = 400, QUEUE_MAX = 8 * ASKS_MAX };

/* What was asked; its place in `asks` is its own answer. */
struct ask {
    struct ms_pending pending;
    uint64_t asker, number;
    unsigned runs, answers;
    bool is_over; /* given up, or of an asker that is gone */
};

struct wire_message {
    size_t ask;
    uint64_t number, watermark, arrived[ASKS_MAX];
    size_t count;
};

static struct {
    uint64_t random;
    struct ms_requests requests;
    struct ms_replies replies;
    struct ask asks[ASKS_MAX];
    size_t asked;
    uint64_t asker;
    bool is_up;
    struct wire_message to[QUEUE_MAX], back[QUEUE_MAX];
    size_t to_at, to_end, back_at, back_end;
    struct {
        uint64_t id;
        size_t ask;
    } running[ASKS_MAX];
    size_t running_count;
} sim;

static size_t draw(size_t below)
{
    sim.random = sim.random * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (size_t)(sim.random >> 33) % below;
}

static void send_request(struct ask *a)
{
    struct wire_message *m;

    if (!sim.is_up || sim.to_end == QUEUE_MAX)
        return;
    m = &sim.to[sim.to_end++];
    m->ask = (size_t)(a - sim.asks);
    m->number = a->pending.number;
    m->watermark = ms_requests_watermark(&sim.requests);
    m->count = sim.requests.arrived_count;
    for (size_t i = 0; i < m->count; i++)
        m->arrived[i] = sim.requests.arrived[i];
    ms_requests_told(&sim.requests);
}

static void send_reply(size_t ask, uint64_t number)
{
    if (sim.is_up && sim.back_end < QUEUE_MAX)
        sim.back[sim.back_end++] = (struct wire_message){.ask = ask, .number = number};
}

static void ask_one(void)
{
    struct ask *a = &sim.asks[sim.asked];

    if (sim.asked == ASKS_MAX)
        return;
    sim.asked++;
    assert_int_equal(ms_requests_add(&sim.requests, &a->pending), 0);
    a->asker = sim.asker;
    a->number = a->pending.number;
    send_request(a);
}

static void request_comes(void)
{
    const struct wire_message *m = &sim.to[sim.to_at];
    const struct ms_reply *kept = NULL;
    uint64_t id;
    int rc;

    if (sim.to_at == sim.to_end)
        return;
    sim.to_at++;
    ms_replies_settle(&sim.replies, m->watermark, m->arrived, m->count);
    rc = ms_replies_begin(&sim.replies, m->number, &id, &kept);
    if (kept)
        send_reply(m->ask, m->number);
    if (rc != 1)
        return;
    assert_int_equal(++sim.asks[m->ask].runs, 1); /* never twice */
    sim.running[sim.running_count].id = id;
    sim.running[sim.running_count++].ask = m->ask;
}

static void one_completes(void)
{
    size_t i = sim.running_count ? draw(sim.running_count) : 0, ask;
    uint64_t number;

    if (!sim.running_count)
        return;
    ask = sim.running[i].ask;
    number = ms_replies_number(&sim.replies, sim.running[i].id);
    sim.running[i] = sim.running[--sim.running_count];
    if (sim.asks[ask].asker != sim.asker) {
        assert_int_equal(number, 0);
        return;
    }
    assert_int_equal(number, sim.asks[ask].number);
    answer(&sim.replies, number);
    send_reply(ask, number);
}

static void reply_comes(void)
{
    const struct wire_message *m = &sim.back[sim.back_at];
    struct ms_pending *p;
    struct ask *a;

    if (sim.back_at == sim.back_end)
        return;
    sim.back_at++;
    p = ms_requests_find(&sim.requests, m->number);
    if (!p)
        return;
    a = MS_CONTAINER(p, struct ask, pending);
    assert_ptr_equal(a, &sim.asks[m->ask]); /* the answer is its own */
    a->answers++;
    ms_requests_remove(&sim.requests, p);
}

static void give_up(void)
{
    struct ask *a = sim.asked ? &sim.asks[draw(sim.asked)] : NULL;

    if (!a || ms_requests_find(&sim.requests, a->number) != &a->pending)
        return;
    a->is_over = true;
    ms_requests_remove(&sim.requests, &a->pending);
}

/* Some of what is under way still arrives, on either side. */
static void cut(void)
{
    size_t to = draw(4), back = draw(4);

    while (to-- > 0)
        request_comes();
    while (back-- > 0)
        reply_comes();
    sim.is_up = false;
    sim.to_at = sim.to_end = sim.back_at = sim.back_end = 0;
}

static void resume(void)
{
    sim.is_up = true;
    ms_replies_set_asker(&sim.replies, sim.asker);
    ms_list_each (p, &sim.requests.open, struct ms_pending, link)
        send_request(MS_CONTAINER(p, struct ask, pending));
}

static void replace_asker(void)
{
    cut();
    ms_list_each (p, &sim.requests.open, struct ms_pending, link)
        MS_CONTAINER(p, struct ask, pending)->is_over = true;
    ms_requests_finish(&sim.requests);
    ms_requests_init(&sim.requests);
    sim.asker++;
    resume();
}

static void step(void)
{
    switch (draw(20)) {
    case 0:
        cut();
        break;
    case 1:
        give_up();
        break;
    case 2:
        if (draw(20) == 0)
            replace_asker();
        break;
    case 3:
    case 4:
        if (!sim.is_up)
            resume();
        break;
    case 5:
    case 6:
    case 7:
        ask_one();
        break;
    case 8:
    case 9:
    case 10:
    case 11:
        reply_comes();
        break;
    case 12:
    case 13:
    case 14:
        one_completes();
        break;
    default:
        request_comes();
    }
}

static void settle_all(void)
{
    if (!sim.is_up)
        resume();
    while (sim.to_at < sim.to_end || sim.running_count || sim.back_at < sim.back_end) {
        request_comes();
        one_completes();
        reply_comes();
    }
    assert_true(ms_list_is_empty(&sim.requests.open));
    for (size_t i = 0; i < sim.asked; i++)
        if (!sim.asks[i].is_over) {
            assert_int_equal(sim.asks[i].answers, 1);
            assert_int_equal(sim.asks[i].runs, 1);
        }
    assert_true(sim.requests.last >= sim.replies.newest);
    ms_replies_settle(&sim.replies, ms_requests_watermark(&sim.requests), NULL, 0);
    assert_int_equal(sim.replies.by_number.count, 0); /* nothing is left behind */
}

static void test_random_histories(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        memset(&sim, 0, sizeof sim);
        sim.random = seed;
        sim.asker = 1;
        sim.is_up = true;
        ms_requests_init(&sim.requests);
        ms_replies_init(&sim.replies);
        ms_replies_set_asker(&sim.replies, sim.asker);
        for (unsigned i = 0; i < 2000 && sim.to_end < QUEUE_MAX - ASKS_MAX; i++)
            step();
        if (sim.to_end >= QUEUE_MAX - ASKS_MAX)
            cut();
        settle_all();
        ms_requests_finish(&sim.requests);
        ms_replies_finish(&sim.replies);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_watermark),
        cmocka_unit_test(test_once),
        cmocka_unit_test(test_settled),
        cmocka_unit_test(test_a_question_may_be_asked_again),
        cmocka_unit_test(test_another_asker_begins_anew),
        cmocka_unit_test(test_random_histories),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
