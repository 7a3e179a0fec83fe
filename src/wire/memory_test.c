/* A peer that announces much and sends little: what it costs is what it has sent. */
#include "base/limits.h"
#include "wire/conn_impl.h"
#include "wire/test_pipe.h"
#include "wire/test_raw.h"

#include <malloc.h>

enum {
    PARTIALS = 1024,     /* as many as may be under way */
    SMALL = 1 << 10,     /* what else a message under way may cost */
    BUFFERS = 512 << 10, /* of a connection */
    PEERS = 8
};

/* Bytes that malloc has given out; of a sanitizer's malloc it knows nothing. */
static size_t allocated(void)
{
    struct mallinfo2 m = mallinfo2();

    return m.uordblks + m.hblkhd;
}

static int on_message(void *arg, struct ms_message *m)
{
    (void)m;
    ++*(unsigned *)arg;
    return 0;
}

static const struct ms_conn_sink sink = {.on_message = on_message};

/* A connection, and what comes in over it. */
struct end {
    struct test_pipe pipe;
    struct ms_conn *conn;
    unsigned messages;
};

static void start(struct end *e)
{
    *e = (struct end){0};
    test_pipe_init(&e->pipe);
    e->conn = ms_conn_create(&e->pipe.end[0].transport, NULL);
    assert_non_null(e->conn);
}

static void stop(struct end *e)
{
    ms_conn_destroy(e->conn);
    test_pipe_finish(&e->pipe);
}

static void put(struct end *e, uint64_t id, uint64_t total, size_t at, size_t len)
{
    struct ms_frame f = {.kind = MS_KIND_CALL,
                         .call_id = id,
                         .flags = at ? MS_FRAME_MORE_OF : 0,
                         .length = (uint32_t)len,
                         .total = at ? at : total};
    static const uint8_t zeros[MS_CHUNK_MAX];
    uint8_t head[MS_FRAME_SIZE];

    ms_frame_encode(&f, head);
    test_pipe_put(&e->pipe.end[0], head, sizeof head);
    test_pipe_put(&e->pipe.end[0], zeros, len);
}

static void read_all(struct end *e)
{
    int rc = 1;

    while (rc > 0)
        rc = ms_conn_read(e->conn, &sink, &e->messages, NULL);
    assert_int_equal(rc, -EAGAIN);
}

/* Memory for bodies. */
static size_t room(const struct end *e)
{
    size_t sum = 0;

    ms_list_each (p, &e->conn->partials, struct partial, link)
        sum += p->room;
    return sum;
}

static void test_what_is_announced_costs_little(void **state)
{
    struct end e;
    size_t before;

    (void)state;
    start(&e);
    for (unsigned i = 0; i < PARTIALS; i++)
        put(&e, i + 1, MS_MESSAGE_MAX, 0, 1);
    before = allocated();
    read_all(&e);
    assert_int_equal(e.conn->partial_count, PARTIALS);
    assert_true(room(&e) <= PARTIALS * MS_MESSAGE_ROOM_MIN);
    assert_true(allocated() <
                before + PARTIALS * (MS_MESSAGE_ROOM_MIN + SMALL) + BUFFERS);
    stop(&e);
}

/* At no time is there more than twice what has come, and at the end no more than that. */
static void test_memory_follows_what_comes(void **state)
{
    const size_t total = (3 << 20) + 1, step = 50 << 10;
    struct end e;

    (void)state;
    start(&e);
    for (size_t have = 0; have < total;) {
        size_t len = total - have < step ? total - have : step;
        bool is_last = have + len == total;

        put(&e, 1, total, have, is_last ? len - 1 : len);
        read_all(&e);
        have += len;
        assert_in_range(room(&e), have - 1, 2 * have);
    }
    assert_int_equal(room(&e), total);
    assert_int_equal(e.messages, 0);
    put(&e, 1, total, total - 1, 1);
    read_all(&e);
    assert_int_equal(e.messages, 1);
    stop(&e);
}

/* The same by peers that have proven themselves, to a server that goes on. */
static void test_a_server_with_such_peers(void **state)
{
    struct rig rig = {0};
    struct raw raw[PEERS];
    struct ms_frame f = {
        .kind = MS_KIND_CALL, .op = 16, .length = 1, .total = MS_MESSAGE_MAX};
    size_t before;

    (void)state;
    rig_start(&rig);
    rig_expect(rig_call(&rig, "echo", "before"), "before");
    before = allocated();
    for (unsigned i = 0; i < PEERS; i++) {
        uint8_t bytes[MS_FRAME_SIZE + 1] = {0};

        raw_open(&raw[i], &rig, i + 1, MS_LANE_CALL);
        for (f.call_id = 1; f.call_id <= 100; f.call_id++) {
            ms_frame_encode(&f, bytes);
            raw_write(&raw[i], bytes, sizeof bytes);
        }
        raw_sync(&raw[i]);
    }
    assert_true(allocated() <
                before +
                    PEERS * (100 * (MS_MESSAGE_ROOM_MIN + 2 * SMALL) + 2 * BUFFERS));
    rig_expect(rig_call(&rig, "echo", "after"), "after");
    for (unsigned i = 0; i < PEERS; i++)
        raw_close(&raw[i]);
    rig_stop(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_announced_costs_little),
        cmocka_unit_test(test_memory_follows_what_comes),
        cmocka_unit_test(test_a_server_with_such_peers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
