/* link_test.c - links over sockets and the network */
#include "base/limits.h"
#include "io/sock.h"
#include "proto/muster.pb-c.h"
#include "wire/frame.h"
#include "wire/link/test_site.h"

#include <sys/socket.h>

enum { SEEN_MAX = 600 };

/* One end of a link, and what it heard. */
struct end {
    struct ms_link *link;
    uint64_t seen[SEEN_MAX];
    size_t sizes[SEEN_MAX];
    size_t count;
    unsigned closed;
    int why;
    bool destroy_on_body, destroy_on_closed, answer;
};

struct couple {
    struct ms_loop *loop;
    struct end a, b;
    int fds[2];
};

static void on_body(void *arg, const uint8_t *body, size_t len)
{
    struct end *e = arg;
    Muster__LogLine *m = muster__log_line__unpack(NULL, len, body);

    assert_non_null(m);
    assert_true(e->count < SEEN_MAX);
    e->seen[e->count] = m->uid;
    e->sizes[e->count++] = m->text.len;
    muster__log_line__free_unpacked(m, NULL);
    if (e->answer)
        site_send_number(e->link, e->seen[e->count - 1] + 1000, 0);
    if (e->destroy_on_body) {
        ms_link_destroy(e->link);
        e->link = NULL;
    }
}

static void on_closed(void *arg, const struct ms_error *why)
{
    struct end *e = arg;

    e->closed++;
    e->why = why->code;
    if (e->destroy_on_closed) {
        ms_link_destroy(e->link);
        e->link = NULL;
    }
}

static const struct ms_link_ops ops = {.on_body = on_body, .on_closed = on_closed};

static void start(struct couple *c)
{
    memset(c, 0, sizeof *c);
    c->loop = ms_loop_create();
    assert_int_equal(ms_unix_pair(SOCK_STREAM, c->fds), 0);
    c->a.link = ms_link_create(c->loop, c->fds[0], &ops, &c->a);
    c->b.link = ms_link_create(c->loop, c->fds[1], &ops, &c->b);
    assert_non_null(c->a.link);
    assert_non_null(c->b.link);
}

static void stop(struct couple *c)
{
    ms_link_destroy(c->a.link);
    ms_link_destroy(c->b.link);
    ms_loop_destroy(c->loop);
}

static void run_until(struct couple *c, const size_t *count, size_t least)
{
    int64_t until_ns = ms_now_ns() + SITE_DEADLINE_NS;

    while (*count < least) {
        ms_loop_run_once(c->loop, true);
        assert_true(ms_now_ns() < until_ns);
    }
}

static void run_until_closed(struct couple *c, const struct end *e)
{
    int64_t until_ns = ms_now_ns() + SITE_DEADLINE_NS;

    while (!e->closed) {
        ms_loop_run_once(c->loop, true);
        assert_true(ms_now_ns() < until_ns);
    }
    for (int i = 0; i < 3; i++)
        ms_loop_run_once(c->loop, false);
    assert_int_equal(e->closed, 1);
}

/* Big and small ones, both ways, in order. */
static void test_messages_in_order(void **state)
{
    struct couple c;

    (void)state;
    start(&c);
    for (uint64_t i = 1; i <= 200; i++) {
        assert_int_equal(site_send_number(c.a.link, i, i % 10 ? i : 300000), 0);
        assert_int_equal(site_send_number(c.b.link, i, 3), 0);
    }
    assert_true(ms_link_queued(c.a.link) > 1000000);
    run_until(&c, &c.b.count, 200);
    run_until(&c, &c.a.count, 200);
    for (uint64_t i = 1; i <= 200; i++) {
        assert_int_equal(c.a.seen[i - 1], i);
        assert_int_equal(c.b.seen[i - 1], i);
        assert_int_equal(c.b.sizes[i - 1], i % 10 ? i : 300000);
    }
    assert_int_equal(ms_link_queued(c.a.link), 0);
    stop(&c);
}

static void test_an_empty_message(void **state)
{
    Muster__LogLine empty = MUSTER__LOG_LINE__INIT;
    struct couple c;

    (void)state;
    start(&c);
    assert_int_equal(ms_link_send(c.a.link, &empty.base), 0);
    run_until(&c, &c.b.count, 1);
    stop(&c);
}

static void test_answering_from_a_callback(void **state)
{
    struct couple c;

    (void)state;
    start(&c);
    c.b.answer = true;
    assert_int_equal(site_send_number(c.a.link, 1, 0), 0);
    run_until(&c, &c.a.count, 1);
    assert_int_equal(c.a.seen[0], 1001);
    stop(&c);
}

static void test_too_big(void **state)
{
    struct couple c;

    (void)state;
    start(&c);
    assert_int_equal(site_send_number(c.a.link, 1, MS_CONTROL_MAX), -EMSGSIZE);
    assert_int_equal(site_send_number(c.a.link, 2, 0), 0); /* and all is as it was */
    run_until(&c, &c.b.count, 1);
    assert_int_equal(c.b.seen[0], 2);
    stop(&c);
}

/* The last words of the other side are heard before its end, even if we speak between.
 */
static void test_last_words(void **state)
{
    struct couple c;

    (void)state;
    start(&c);
    for (uint64_t i = 1; i <= 5; i++)
        assert_int_equal(site_send_number(c.b.link, i, 100), 0);
    ms_link_destroy(c.b.link);
    c.b.link = NULL;
    assert_int_equal(site_send_number(c.a.link, 1, 0), -EPIPE);
    assert_int_equal(c.a.closed, 0); /* never from inside send */
    assert_int_equal(site_send_number(c.a.link, 2, 0), -EPIPE);
    run_until_closed(&c, &c.a);
    assert_int_equal(c.a.count, 5);
    assert_int_equal(c.a.why, -EPIPE);
    assert_int_equal(site_send_number(c.a.link, 3, 0), -EPIPE);
    stop(&c);
}

static void test_destroyed_by_its_own_callback(void **state)
{
    struct couple c;
    int fds_wanted = 3;

    (void)state;
    start(&c);
    c.b.destroy_on_body = true;
    c.a.destroy_on_closed = true;
    while (fds_wanted--)
        assert_int_equal(site_send_number(c.a.link, 1, 10), 0);
    run_until_closed(&c, &c.a);
    assert_int_equal(c.b.count, 1); /* what came behind it is not told */
    assert_null(c.a.link);
    assert_null(c.b.link);
    stop(&c);
}

static void test_noise(void **state)
{
    struct couple c;

    (void)state;
    start(&c);
    assert_int_equal(
        send(c.fds[0], "noise noise noise noise noise noise noise noise", 48, 0), 48);
    run_until_closed(&c, &c.b);
    assert_int_equal(c.b.why, -EPROTO);
    assert_int_equal(c.b.count, 0);
    stop(&c);
}

/* Only control messages: a call has no place here. */
static void test_another_kind(void **state)
{
    struct ms_frame f = {.kind = MS_KIND_CALL, .call_id = 1};
    uint8_t bytes[MS_FRAME_SIZE];
    struct couple c;

    (void)state;
    ms_frame_encode(&f, bytes);
    start(&c);
    assert_int_equal(send(c.fds[0], bytes, sizeof bytes, 0), sizeof bytes);
    run_until_closed(&c, &c.b);
    assert_int_equal(c.b.why, -EPROTO);
    stop(&c);
}

/* A message cut in the middle is not told. */
static void test_cut(void **state)
{
    struct couple c;

    (void)state;
    start(&c);
    assert_int_equal(site_send_number(c.a.link, 1, 10), 0);
    assert_int_equal(site_send_number(c.a.link, 2, 2000000), 0);
    assert_true(ms_link_queued(c.a.link) > 0);
    ms_link_destroy(c.a.link);
    c.a.link = NULL;
    run_until_closed(&c, &c.b);
    assert_int_equal(c.b.count, 1);
    stop(&c);
}

static void test_drain(void **state)
{
    struct couple c;
    int64_t before_ns;

    (void)state;
    start(&c);
    assert_int_equal(site_send_number(c.a.link, 1, 2000000), 0);
    before_ns = ms_now_ns();
    ms_link_drain(c.a.link, before_ns + 20 * MS_NS_PER_MS); /* nobody reads */
    assert_true(ms_link_queued(c.a.link) > 0);
    assert_true(ms_now_ns() - before_ns < 10 * MS_NS_PER_S);
    ms_link_destroy(c.b.link);
    c.b.link = NULL;
    ms_link_drain(c.a.link, ms_now_ns() + 20 * MS_NS_PER_S); /* nobody will: at once */
    assert_true(ms_now_ns() - before_ns < 10 * MS_NS_PER_S);
    stop(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages_in_order),
        cmocka_unit_test(test_an_empty_message),
        cmocka_unit_test(test_answering_from_a_callback),
        cmocka_unit_test(test_too_big),
        cmocka_unit_test(test_last_words),
        cmocka_unit_test(test_destroyed_by_its_own_callback),
        cmocka_unit_test(test_noise),
        cmocka_unit_test(test_another_kind),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_drain),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
