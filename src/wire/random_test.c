/* A million random frames: most look like frames, few make sense. Nothing crashes, no
 * message is made up, and the server answers others all the while. The sequence is the same
 * in every run. */
#include "base/limits.h"
#include "wire/test_pipe.h"
#include "wire/test_raw.h"

enum {
    FRAMES_CONN = 950000,  /* to a connection, in memory */
    FRAMES_SERVER = 50000, /* to a server, by somebody who knows the secret */
    BURST = 50,            /* frames to one connection of the server */
    BODY_MAX = 96,
};

static uint64_t state_now = 20261115;

/* xorshift64* */
static uint64_t draw(void)
{
    state_now ^= state_now >> 12;
    state_now ^= state_now << 25;
    state_now ^= state_now >> 27;
    return state_now * UINT64_C(2685821657736338717);
}

static uint64_t below(uint64_t n)
{
    return draw() % n;
}

/* Mostly small, sometimes at a limit, sometimes anything. */
static uint64_t number(uint64_t small)
{
    static const uint64_t edges[] = {0,
                                     1,
                                     MS_CHUNK_MAX,
                                     MS_CHUNK_MAX + 1,
                                     MS_MESSAGE_MAX + 1,
                                     UINT64_MAX,
                                     INT64_MAX};

    switch (below(16)) {
    case 0:
        return edges[below(MS_COUNT(edges))];
    case 1:
        return draw() | UINT64_C(1) << 40; /* beyond every length that is accepted */
    default:
        return below(small);
    }
}

/* Its bytes, and how many. One in eight is noise from end to end. */
static size_t make(uint8_t *out)
{
    size_t len = below(BODY_MAX);
    struct ms_frame f = {
        .kind = (uint8_t)below(MS_KIND_LAST + 3),
        .codec = (uint8_t)below(MS_CODEC_LAST + 2),
        .op = (uint16_t)(below(2) ? number(512) : MS_OP_CONFIGURE),
        .flags = (uint16_t)(below(3) ? 0 : below(MS_FRAME_FLAGS + 2)),
        .length = (uint32_t)(below(32) ? len : number(BODY_MAX)),
        .core = (uint32_t)number(8),
        .call_id = number(20),
        .budget_ns = number(3),
        .ack = number(4),
    };

    f.total = below(4) ? f.length : number(3 * BODY_MAX);
    ms_frame_encode(&f, out);
    for (size_t i = 0; i < len; i++)
        out[MS_FRAME_SIZE + i] = (uint8_t)draw();
    if (below(8) == 0)
        for (size_t i = 0; i < MS_FRAME_SIZE; i++)
            out[i] = (uint8_t)draw();
    return MS_FRAME_SIZE + len;
}

/* ---- a connection ---------------------------------------------------------------- */

static size_t messages;

static int on_message(void *arg, struct ms_message *m)
{
    (void)arg;
    assert_in_range(m->head.kind, 1, MS_KIND_LAST);
    assert_true(m->len <= MS_CONTROL_MAX);
    messages++;
    return 0;
}

static void test_connection(void **state)
{
    static const struct ms_conn_sink sink = {.on_message = on_message};
    size_t sent = 0, refused = 0;

    (void)state;
    while (sent < FRAMES_CONN) {
        uint8_t bytes[MS_FRAME_SIZE + BODY_MAX];
        struct test_pipe pipe;
        struct ms_conn *c;
        int rc = -EAGAIN;

        test_pipe_init(&pipe);
        c = ms_conn_create(&pipe.end[0].transport, NULL);
        assert_non_null(c);
        while (rc == -EAGAIN && sent < FRAMES_CONN) {
            test_pipe_put(&pipe.end[0], bytes, make(bytes));
            sent++;
            while ((rc = ms_conn_read(c, &sink, NULL, NULL)) > 0)
                ;
        }
        refused += rc != -EAGAIN;
        ms_conn_destroy(c);
        test_pipe_finish(&pipe);
    }
    assert_true(messages > FRAMES_CONN / 100); /* some made sense */
    assert_true(refused > FRAMES_CONN / 100);  /* and most did not */
}

/* ---- a server -------------------------------------------------------------------- */

static void test_server(void **state)
{
    struct rig rig = {.no_client = true};
    unsigned session = 0, fds;
    struct raw raw;

    (void)state;
    rig_start(&rig);
    raw_open(&raw, &rig, ++session, MS_LANE_CALL);
    raw_sync(&raw);
    fds = rig_open_fds();
    for (size_t sent = 0; sent < FRAMES_SERVER; sent += BURST) {
        uint8_t bytes[BURST * (MS_FRAME_SIZE + BODY_MAX)];
        struct raw bad;
        size_t len = 0;

        for (size_t i = 0; i < BURST; i++)
            len += make(bytes + len);
        raw_open(&bad, &rig, ++session, (uint8_t)below(2));
        raw_write(&bad, bytes, len);
        raw_close(&bad);
        if (sent % (100 * BURST) == 0)
            raw_sync(&raw); /* the one that behaves is served */
    }
    raw_call(&raw, 1, 0, "alive");
    raw_expect(&raw, 1, "alive");
    /* and what was closed is closed on both sides; the last ones may be under way */
    assert_true(rig_open_fds() <= fds + 8);
    raw_close(&raw);
    rig_stop(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_connection),
        cmocka_unit_test(test_server),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
