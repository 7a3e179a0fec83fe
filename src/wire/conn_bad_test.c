/* What a connection does with a peer that breaks the protocol, and the handshake inside
 * of connections: cut anywhere, a byte at a time, wrong. */
#include "base/cleanup.h"
#include "base/limits.h"
#include "wire/conn.h"
#include "wire/test_pipe.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static const uint8_t secret[MS_SECRET_SIZE] = "the secret",
                     wrong[MS_SECRET_SIZE] = "no";
static const uint8_t nonce[32] = "n", session[MS_SESSION_SIZE] = "s";

static unsigned messages;

static int on_message(void *arg, struct ms_message *m)
{
    (void)arg;
    (void)m;
    messages++;
    return 0;
}

static const struct ms_conn_sink sink = {.on_message = on_message};

/* ---- frames that do not fit ------------------------------------------------------ */

/* Feed frames (with bodies of zeros) to a trusted connection; what reading gives. */
static int feed(const struct ms_frame *frames, size_t count, struct ms_error *err)
{
    struct test_pipe pipe;
    struct ms_conn *c;
    int rc = 1;

    test_pipe_init(&pipe);
    c = ms_conn_create(&pipe.end[0].transport, NULL);
    messages = 0;
    for (size_t i = 0; i < count; i++) {
        uint8_t head[MS_FRAME_SIZE];
        MS_CLEANUP(ms_cleanup_free) uint8_t *body = calloc(1, frames[i].length + 1);

        ms_frame_encode(&frames[i], head);
        test_pipe_put(&pipe.end[0], head, sizeof head);
        test_pipe_put(&pipe.end[0], body, frames[i].length);
    }
    while (rc > 0)
        rc = ms_conn_read(c, &sink, NULL, err);
    ms_conn_destroy(c);
    test_pipe_finish(&pipe);
    return rc;
}

static void test_pieces_that_do_not_fit(void **state)
{
    const struct ms_frame first = {
        .kind = MS_KIND_CALL, .call_id = 1, .length = 10, .total = 30};
    const struct ms_frame second = {.kind = MS_KIND_CALL,
                                    .call_id = 1,
                                    .length = 10,
                                    .total = 10,
                                    .flags = MS_FRAME_MORE_OF};
    struct ms_frame f[3] = {first, second, second};
    struct ms_error err = {0};

    (void)state;
    f[2].total = 20;
    assert_int_equal(feed(f, 3, NULL), -EAGAIN); /* as it should be */
    assert_int_equal(messages, 1);
    assert_int_equal(feed(&second, 1, &err), -EPROTO);
    assert_non_null(strstr(err.text, "a piece of no message"));
    f[2].total = 10; /* twice the same piece */
    assert_int_equal(feed(f, 3, NULL), -EPROTO);
    f[2].total = 21; /* a gap */
    assert_int_equal(feed(f, 3, NULL), -EPROTO);
    f[2].total = 20;
    f[2].length = 11; /* longer than the message */
    assert_int_equal(feed(f, 3, NULL), -EPROTO);
    f[1] = first; /* begun twice */
    assert_int_equal(feed(f, 2, &err), -EPROTO);
    assert_non_null(strstr(err.text, "began twice"));
    f[1].kind = MS_KIND_REPLY; /* another message of that number is another message */
    assert_int_equal(feed(f, 2, NULL), -EAGAIN);
    assert_int_equal(messages, 0);
}

static void test_too_many_under_way(void **state)
{
    struct ms_frame f[1025];
    struct ms_error err = {0};

    (void)state;
    for (size_t i = 0; i < MS_COUNT(f); i++)
        f[i] = (struct ms_frame){
            .kind = MS_KIND_CALL, .call_id = i + 1, .length = 1, .total = 2};
    assert_int_equal(feed(f, 1024, NULL), -EAGAIN);
    assert_int_equal(feed(f, 1025, &err), -EPROTO);
    assert_non_null(strstr(err.text, "1024"));
}

static void test_noise_instead_of_a_frame(void **state)
{
    static const char noise[MS_FRAME_SIZE] =
        "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
    struct test_pipe pipe;
    struct ms_conn *c;
    struct ms_error err = {0};

    (void)state;
    test_pipe_init(&pipe);
    c = ms_conn_create(&pipe.end[0].transport, NULL);
    test_pipe_put(&pipe.end[0], noise, sizeof noise);
    assert_int_equal(ms_conn_read(c, &sink, NULL, &err), -EPROTO);
    assert_non_null(strstr(err.text, "not a frame"));
    ms_conn_destroy(c);
    test_pipe_finish(&pipe);
}

/* No memory is taken for a length beyond its limit. */
static void test_a_length_beyond_its_limit(void **state)
{
    struct ms_frame f = {
        .kind = MS_KIND_CALL, .call_id = 1, .length = 1, .total = MS_MESSAGE_MAX + 1};

    (void)state;
    assert_int_equal(feed(&f, 1, NULL), -EMSGSIZE);
}

/* ---- handshakes ------------------------------------------------------------------ */

struct couple {
    struct test_pipe pipe;
    struct ms_conn *client, *server;
    int client_rc, server_rc;
    struct ms_error err;
};

static void start_lane(struct couple *c,
                       const uint8_t *client_knows,
                       uint64_t expected,
                       uint8_t lane)
{
    struct ms_handshake h;

    memset(c, 0, sizeof *c);
    messages = 0;
    test_pipe_init(&c->pipe);
    ms_handshake_init_client(&h, client_knows, nonce, session, lane, expected);
    c->client = ms_conn_create(&c->pipe.end[0].transport, &h);
    ms_handshake_init_server(&h, secret, nonce, 9);
    c->server = ms_conn_create(&c->pipe.end[1].transport, &h);
    assert_non_null(c->client);
    assert_non_null(c->server);
}

static void start(struct couple *c, const uint8_t *client_knows, uint64_t expected)
{
    start_lane(c, client_knows, expected, MS_LANE_CALL);
}

static void stop(struct couple *c)
{
    ms_conn_destroy(c->client);
    ms_conn_destroy(c->server);
    test_pipe_finish(&c->pipe);
}

static bool is_over(int rc)
{
    return rc < 0 && rc != -EAGAIN;
}

/* Until both are ready and quiet, somebody refuses, or `bytes` have been written. */
static void flow(struct couple *c, uint64_t bytes)
{
    unsigned idle = 0;

    while (idle < 100 && c->pipe.written < bytes && !is_over(c->client_rc) &&
           !is_over(c->server_rc)) {
        uint64_t before = c->pipe.written;

        ms_conn_flush(c->client);
        ms_conn_flush(c->server);
        c->server_rc = ms_conn_read(c->server, &sink, NULL, &c->err);
        c->client_rc = ms_conn_read(c->client, &sink, NULL, &c->err);
        idle = c->pipe.written == before && c->client_rc < 0 && c->server_rc < 0
                   ? idle + 1
                   : 0;
    }
}

static void send_call(struct ms_conn *c, uint64_t id, size_t len)
{
    struct ms_frame head = {.kind = MS_KIND_CALL, .call_id = id};
    MS_CLEANUP(ms_cleanup_free) uint8_t *body = calloc(1, len + 1);
    struct iovec iov = {body, len};

    assert_int_equal(ms_conn_send(c, &head, &iov, 1), 0);
}

/* What is sent before the proof waits for it. */
static void test_handshake_a_byte_at_a_time(void **state)
{
    static const size_t steps[] = {0, 1, 2, 31, 1000};
    struct couple c;

    (void)state;
    for (size_t i = 0; i < MS_COUNT(steps); i++) {
        start(&c, secret, 9);
        c.pipe.step = steps[i];
        c.pipe.is_random = steps[i];
        send_call(c.client, 1, 10);
        send_call(c.client, 2, 100000);
        send_call(c.client, 3, 0);
        flow(&c, UINT64_MAX);
        assert_true(ms_conn_is_ready(c.client));
        assert_true(ms_conn_is_ready(c.server));
        assert_int_equal(messages, 3);
        assert_int_equal(ms_conn_handshake(c.client)->identity, 9);
        assert_memory_equal(
            ms_conn_handshake(c.server)->session, session, sizeof session);
        stop(&c);
    }
}

/* Whoever sees the other end go in the middle closes too; nothing is handed out. */
static void test_handshake_cut_anywhere(void **state)
{
    const uint64_t whole = MS_HELLO_CLIENT_SIZE + MS_HELLO_SERVER_SIZE + MS_PROOF_SIZE;
    struct couple c;

    (void)state;
    for (uint64_t cut = 0; cut < whole; cut++) {
        for (int side = 0; side < 2; side++) {
            start(&c, secret, 9);
            c.pipe.step = 1;
            flow(&c, cut);
            ms_conn_destroy(side ? c.server : c.client);
            if (side)
                c.server = NULL;
            else
                c.client = NULL;
            do
                c.client_rc =
                    ms_conn_read(side ? c.client : c.server, &sink, NULL, &c.err);
            while (c.client_rc > 0);
            assert_int_equal(c.client_rc, -EPIPE);
            assert_int_equal(messages, 0);
            stop(&c);
        }
    }
}

static void test_wrong_secret(void **state)
{
    struct couple c;

    (void)state;
    start(&c, wrong, 9);
    send_call(c.client, 1, 10);
    flow(&c, UINT64_MAX);
    assert_int_equal(c.client_rc, -EACCES);
    assert_false(ms_conn_is_ready(c.client) || ms_conn_is_ready(c.server));
    assert_int_equal(messages, 0);
    stop(&c);
}

static void test_wrong_identity(void **state)
{
    struct couple c;

    (void)state;
    start(&c, secret, 10);
    flow(&c, UINT64_MAX);
    assert_int_equal(c.client_rc, -ESTALE);
    stop(&c);
}

/* Frames instead of a hello, or of a proof, are noise. */
static void test_frames_before_the_proof(void **state)
{
    struct ms_frame f = {.kind = MS_KIND_CALL, .call_id = 1};
    uint8_t noise[2 * MS_FRAME_SIZE] = {0};
    struct couple c;

    (void)state;
    ms_frame_encode(&f, noise);
    start(&c, secret, 9);
    test_pipe_put(&c.pipe.end[1], noise, sizeof noise);
    assert_int_equal(ms_conn_read(c.server, &sink, NULL, &c.err), -EPROTO);
    stop(&c);

    start(&c, secret, 9);
    ms_conn_flush(c.client);
    ms_conn_read(c.server, &sink, NULL, &c.err);
    test_pipe_put(&c.pipe.end[1], noise, sizeof noise);
    assert_int_equal(ms_conn_read(c.server, &sink, NULL, &c.err), -EACCES);
    assert_int_equal(messages, 0);
    stop(&c);
}

static bool has_more(struct ms_transport *t)
{
    const struct test_pipe_end *e = MS_CONTAINER(t, struct test_pipe_end, transport);

    return e->in_at < e->in.len;
}

/* Whoever takes over a connection gets also what its transport has received, of which no
 * poll will tell. */
static void test_released_with_bytes_in_the_transport(void **state)
{
    struct couple c;
    struct ms_transport *t = &c.pipe.end[1].transport;
    struct ms_transport_ops ops;

    (void)state;
    start_lane(&c, secret, 9, MS_LANE_LINK);
    ops = *t->ops;
    ops.has_more = has_more;
    t->ops = &ops;
    send_call(c.client, 1, 50000);
    send_call(c.client, 2, 50000);
    for (unsigned i = 0; i < 3; i++) {
        ms_conn_flush(c.client);
        assert_int_equal(ms_conn_read(c.server, &sink, NULL, &c.err), 1);
        ms_conn_flush(c.server);
        ms_conn_read(c.client, &sink, NULL, &c.err);
        if (ms_conn_is_ready(c.server))
            break;
    }
    assert_true(has_more(t)); /* it did not fit behind the handshake */
    assert_int_equal(messages, 0);
    assert_int_equal(ms_conn_release(c.server, &sink, NULL, &c.err), 0);
    assert_int_equal(messages, 2);
    stop(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pieces_that_do_not_fit),
        cmocka_unit_test(test_too_many_under_way),
        cmocka_unit_test(test_noise_instead_of_a_frame),
        cmocka_unit_test(test_a_length_beyond_its_limit),
        cmocka_unit_test(test_handshake_a_byte_at_a_time),
        cmocka_unit_test(test_handshake_cut_anywhere),
        cmocka_unit_test(test_wrong_secret),
        cmocka_unit_test(test_wrong_identity),
        cmocka_unit_test(test_frames_before_the_proof),
        cmocka_unit_test(test_released_with_bytes_in_the_transport),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
