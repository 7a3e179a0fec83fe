/* Messages through a transport that gives a few bytes at a time. */
#include "base/cleanup.h"
#include "base/limits.h"
#include "wire/conn.h"
#include "wire/test_pipe.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { SEEN_MAX = 4096 };

struct seen {
    struct ms_frame head;
    size_t len;
    uint8_t first, last;
    bool owned;
};

/* Two connections, and what the second one was handed. */
struct couple {
    struct test_pipe pipe;
    struct ms_conn *a, *b;
    struct seen seen[SEEN_MAX];
    size_t count;
    uint64_t begun[SEEN_MAX];
    size_t begun_count;
    int stop_with;
    struct ms_error err;
};

static int on_begin(void *arg, const struct ms_frame *head)
{
    struct couple *c = arg;

    c->begun[c->begun_count++] = head->call_id;
    return 0;
}

/* Bodies are one byte, named by the call, all over. */
static int on_message(void *arg, struct ms_message *m)
{
    struct couple *c = arg;
    struct seen *s = &c->seen[c->count++];

    assert_true(c->count < SEEN_MAX);
    assert_int_equal(m->head.length <= m->len, true);
    *s = (struct seen){.head = m->head, .len = m->len, .owned = m->owned};
    for (size_t i = 0; i < m->len; i++)
        if (m->body[i] != (uint8_t)m->head.call_id)
            fail_msg("byte %zu of message %llu is wrong",
                     i,
                     (unsigned long long)m->head.call_id);
    return c->stop_with;
}

static const struct ms_conn_sink sink = {.on_begin = on_begin,
                                         .on_message = on_message};

static void start(struct couple *c)
{
    memset(c, 0, sizeof *c);
    test_pipe_init(&c->pipe);
    c->a = ms_conn_create(&c->pipe.end[0].transport, NULL);
    c->b = ms_conn_create(&c->pipe.end[1].transport, NULL);
    assert_non_null(c->a);
    assert_non_null(c->b);
}

static void stop(struct couple *c)
{
    ms_conn_destroy(c->a);
    ms_conn_destroy(c->b);
    test_pipe_finish(&c->pipe);
}

static void
send_kind(struct couple *c, uint8_t kind, uint64_t id, uint16_t op, size_t len)
{
    struct ms_frame head = {.kind = kind, .call_id = id, .op = op};
    MS_CLEANUP(ms_cleanup_free) uint8_t *body = malloc(len + 1);
    struct iovec iov[2] = {{body, len / 3}, {body + len / 3, len - len / 3}};

    memset(body, (uint8_t)id, len + 1);
    assert_int_equal(ms_conn_send(c->a, &head, iov, 2), 0);
}

static void send_call(struct couple *c, uint64_t id, size_t len)
{
    send_kind(c, MS_KIND_CALL, id, 0, len);
}

/* Let it flow until all is there, or b's reading fails. */
static int flow(struct couple *c)
{
    int rc = 0;

    while (rc >= 0 || rc == -EAGAIN) {
        if (ms_conn_flush(c->a) < 0)
            return -EPIPE;
        rc = ms_conn_read(c->b, &sink, c, &c->err);
        if (rc == -EAGAIN && !ms_conn_wants_write(c->a) && c->pipe.end[1].in.len == 0)
            return 0;
    }
    return rc;
}

static void test_small_messages(void **state)
{
    struct couple c;

    (void)state;
    start(&c);
    for (uint64_t id = 1; id <= 100; id++)
        send_call(&c, id, (size_t)id % 7);
    assert_int_equal(flow(&c), 0);
    assert_int_equal(c.count, 100);
    for (uint64_t id = 1; id <= 100; id++) {
        assert_int_equal(c.seen[id - 1].head.call_id, id);
        assert_int_equal(c.seen[id - 1].len, id % 7);
        assert_false(c.seen[id - 1].owned);
    }
    stop(&c);
}

/* Any sizes, through any steps, arrive whole; first pieces keep their order. */
static void test_random_sizes_and_steps(void **state)
{
    static const size_t steps[] = {
        1, 2, 3, 7, 47, 48, 49, 1000, 65535, 65584, 70000, 0};
    struct couple c;

    (void)state;
    for (size_t s = 0; s < MS_COUNT(steps); s++) {
        size_t limit = steps[s] && steps[s] < 40 ? 3000 : 400000;
        uint64_t sizes[64], last = 0;
        size_t big = 0;

        start(&c);
        c.pipe.step = steps[s];
        c.pipe.room = steps[s] % 2 ? 0 : 100000;
        c.pipe.is_random = true;
        for (uint64_t id = 1; id < 64; id++) {
            sizes[id] = test_random(&c.pipe.seed) % limit;
            if (test_random(&c.pipe.seed) % 3)
                sizes[id] %= 200;
            big += sizes[id] > MS_CHUNK_MAX;
            send_call(&c, id, sizes[id]);
        }
        assert_int_equal(flow(&c), 0);
        assert_int_equal(c.count, 63);
        assert_int_equal(c.begun_count, big);
        for (size_t i = 0; i < c.count; i++) {
            assert_int_equal(c.seen[i].len, sizes[c.seen[i].head.call_id]);
            assert_int_equal(c.seen[i].owned, c.seen[i].len > MS_CHUNK_MAX);
            if (c.seen[i].owned)
                continue;
            assert_true(c.seen[i].head.call_id > last);
            last = c.seen[i].head.call_id;
        }
        for (size_t i = 1; i < c.begun_count; i++)
            assert_true(c.begun[i] > c.begun[i - 1]);
        assert_int_equal(ms_conn_queued(c.a), 0);
        stop(&c);
    }
}

/* A small message passes a big one that is under way, and soon. */
static void test_a_small_message_overtakes(void **state)
{
    const size_t big = (size_t)64 << 20;
    uint64_t before;
    struct couple c;

    (void)state;
    start(&c);
    c.pipe.room = 200000;
    send_call(&c, 1, big);
    for (int i = 0; i < 10; i++) {
        ms_conn_read(c.b, &sink, &c, NULL);
        ms_conn_flush(c.a);
    }
    assert_int_equal(c.count, 0);
    before = c.pipe.written;
    send_call(&c, 2, 100);
    while (c.count == 0) {
        ms_conn_flush(c.a);
        ms_conn_read(c.b, &sink, &c, NULL);
    }
    assert_int_equal(c.seen[0].head.call_id, 2);
    /* what was in frames already, and what the pipe holds */
    assert_true(c.pipe.written - before < (1u << 20));
    assert_int_equal(flow(&c), 0);
    assert_int_equal(c.count, 2);
    assert_int_equal(c.seen[1].len, big);
    stop(&c);
}

/* Small ones without end do not stop a big one. */
static void test_a_big_message_does_not_starve(void **state)
{
    struct couple c;
    bool arrived = false;

    (void)state;
    start(&c);
    c.pipe.room = 50000;
    send_call(&c, 1, 10 * MS_CHUNK_MAX);
    for (uint64_t id = 2; !arrived; id++) {
        assert_true(id < SEEN_MAX - 2);
        while (ms_conn_queued(c.a) < 12 * MS_CHUNK_MAX) /* always some that are fresh */
            send_call(&c, id, 1000);
        ms_conn_flush(c.a);
        ms_conn_read(c.b, &sink, &c, NULL);
        while (c.count)
            arrived |= c.seen[--c.count].head.call_id == 1;
    }
    stop(&c);
}

/* Items and reply of one call never pass each other, whatever their sizes; those of
 * another call do. */
static void test_a_stream_stays_in_order(void **state)
{
    struct couple c;

    (void)state;
    start(&c);
    c.pipe.room = 30000;
    send_kind(&c, MS_KIND_ITEM, 1, 1, 300000);
    send_kind(&c, MS_KIND_ITEM, 1, 2, 10);
    send_kind(&c, MS_KIND_ITEM, 1, 3, 200000);
    send_kind(&c, MS_KIND_REPLY, 1, 4, 0);
    send_kind(&c, MS_KIND_REPLY, 2, 5, 10);
    assert_int_equal(flow(&c), 0);
    assert_int_equal(c.count, 5);
    assert_int_equal(c.seen[0].head.op, 5);
    for (uint16_t i = 1; i < 5; i++)
        assert_int_equal(c.seen[i].head.op, i);
    stop(&c);
}

static void test_control_messages_stay_in_order(void **state)
{
    struct couple c;

    (void)state;
    start(&c);
    c.pipe.room = 30000;
    for (uint64_t id = 1; id <= 20; id++)
        send_kind(&c, MS_KIND_CONTROL, id, 0, id % 3 ? 10 : 150000);
    assert_int_equal(flow(&c), 0);
    assert_int_equal(c.count, 20);
    for (uint64_t id = 1; id <= 20; id++)
        assert_int_equal(c.seen[id - 1].head.call_id, id);
    stop(&c);
}

static void test_too_long_for_its_kind(void **state)
{
    struct ms_frame head = {.kind = MS_KIND_METHOD};
    uint8_t name[MS_METHOD_NAME_MAX + 1] = {0};
    struct iovec iov = {name, sizeof name};
    struct couple c;

    (void)state;
    start(&c);
    assert_int_equal(ms_conn_send(c.a, &head, &iov, 1), -EMSGSIZE);
    send_call(&c, 1, 5); /* the connection is as it was */
    assert_int_equal(flow(&c), 0);
    assert_int_equal(c.count, 1);
    stop(&c);
}

static void test_a_sink_that_refuses(void **state)
{
    struct couple c;

    (void)state;
    start(&c);
    c.stop_with = -ENOMEM;
    send_call(&c, 1, 5);
    send_call(&c, 2, 5);
    assert_int_equal(flow(&c), -ENOMEM);
    assert_int_equal(c.count, 1);
    stop(&c);
}

static void test_end_of_file(void **state)
{
    struct couple c;

    (void)state;
    start(&c);
    send_call(&c, 1, 5);
    ms_conn_destroy(c.a);
    c.a = NULL;
    assert_int_equal(ms_conn_read(c.b, &sink, &c, &c.err), 1);
    assert_int_equal(c.count, 1); /* what was sent before is not lost */
    assert_int_equal(ms_conn_read(c.b, &sink, &c, &c.err), -EPIPE);
    stop(&c);
}

static void test_messages_can_be_kept(void **state)
{
    struct ms_message small = {.body = (const uint8_t *)"abc", .len = 3}, empty = {0};
    uint8_t *memory = malloc(4), *taken;
    struct ms_message big = {.body = memory, .len = 4, .owned = memory};

    (void)state;
    taken = ms_message_take(&small);
    assert_memory_equal(taken, "abc", 3);
    free(taken);
    taken = ms_message_take(&empty);
    assert_non_null(taken);
    free(taken);
    assert_ptr_equal(ms_message_take(&big), memory); /* not copied */
    assert_null(big.owned);
    free(memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_messages),
        cmocka_unit_test(test_random_sizes_and_steps),
        cmocka_unit_test(test_a_small_message_overtakes),
        cmocka_unit_test(test_a_big_message_does_not_starve),
        cmocka_unit_test(test_a_stream_stays_in_order),
        cmocka_unit_test(test_control_messages_stay_in_order),
        cmocka_unit_test(test_too_long_for_its_kind),
        cmocka_unit_test(test_a_sink_that_refuses),
        cmocka_unit_test(test_end_of_file),
        cmocka_unit_test(test_messages_can_be_kept),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
