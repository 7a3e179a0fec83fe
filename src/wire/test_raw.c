/* test_raw.c - a client that says exactly what a test wants, frame by frame */
#include "wire/test_raw.h"
#include "base/name.h"
#include "io/sock.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

static int on_message(void *arg, struct ms_message *m)
{
    struct raw *r = arg;
    struct raw_message *seen = &r->seen[r->count++];

    assert_true(r->count < RAW_SEEN_MAX);
    seen->head = m->head;
    seen->len = m->len;
    seen->body = ms_message_take(m);
    return 0;
}

/* Wait for bytes and read them. */
static void step(struct raw *r)
{
    static const struct ms_conn_sink sink = {.on_message = on_message};
    struct pollfd p = {.fd = ms_conn_fd(r->conn), .events = POLLIN};
    int rc;

    assert_int_equal(r->end, 0);
    ms_conn_flush(r->conn);
    if (ms_conn_wants_write(r->conn))
        p.events |= POLLOUT;
    assert_int_equal(poll(&p, 1, (int)(RIG_DEADLINE_NS / MS_NS_PER_MS)), 1);
    rc = ms_conn_read(r->conn, &sink, r, NULL);
    if (rc < 0 && rc != -EAGAIN)
        r->end = rc;
}

void raw_open(struct raw *r, struct rig *rig, unsigned session, uint8_t lane)
{
    uint8_t id[MS_SESSION_SIZE] = {0}, nonce[32];
    struct ms_handshake h;
    int fd = ms_unix_connect(rig->path, SOCK_STREAM, NULL);

    memset(r, 0, sizeof *r);
    memcpy(id, &session, sizeof session);
    assert_true(fd >= 0);
    assert_int_equal(ms_random_bytes(nonce, sizeof nonce), 0);
    ms_handshake_init_client(&h, rig->secret, nonce, id, lane, RIG_UID);
    r->conn = ms_conn_create(ms_transport_unix(fd), &h);
    assert_non_null(r->conn);
    while (!ms_conn_is_ready(r->conn))
        step(r);
}

void raw_close(struct raw *r)
{
    for (size_t i = 0; i < r->count; i++)
        free(r->seen[i].body);
    r->count = 0;
    ms_conn_destroy(r->conn);
    r->conn = NULL;
}

void raw_send(struct raw *r, const struct ms_frame *head, const void *body, size_t len)
{
    struct iovec iov = {(void *)(uintptr_t)body, len};

    assert_int_equal(ms_conn_send(r->conn, head, &iov, 1), 0);
}

void raw_call(struct raw *r, uint64_t id, uint16_t flags, const char *text)
{
    struct ms_frame head = {
        .kind = MS_KIND_CALL, .op = MS_OP_CONFIGURE, .call_id = id, .flags = flags};

    raw_send(r, &head, text, strlen(text));
}

void raw_write(struct raw *r, const void *data, size_t len)
{
    const uint8_t *at = data;

    while (len) {
        ssize_t n = send(ms_conn_fd(r->conn), at, len, MSG_NOSIGNAL);

        if (n < 0 && errno == EAGAIN) {
            struct pollfd p = {.fd = ms_conn_fd(r->conn), .events = POLLOUT};

            assert_int_equal(poll(&p, 1, (int)(RIG_DEADLINE_NS / MS_NS_PER_MS)), 1);
            continue;
        }
        if (n < 0)
            return; /* it was closed: the test sees that */
        at += n;
        len -= (size_t)n;
    }
}

const struct raw_message *
raw_wait(struct raw *r, uint8_t kind, uint64_t id, size_t skip)
{
    for (size_t i = skip;; i++) {
        while (i >= r->count)
            step(r);
        if (r->seen[i].head.kind == kind && r->seen[i].head.call_id == id)
            return &r->seen[i];
    }
}

void raw_expect(struct raw *r, uint64_t id, const char *text)
{
    const struct raw_message *m = raw_wait(r, MS_KIND_REPLY, id, 0);

    assert_int_equal(m->len, strlen(text));
    assert_memory_equal(m->body, text, m->len);
}

void raw_expect_failure(struct raw *r, uint64_t id, Muster__Failure__Kind kind)
{
    const struct raw_message *m = raw_wait(r, MS_KIND_ERROR, id, 0);
    Muster__Failure *f = muster__failure__unpack(NULL, m->len, m->body);

    assert_non_null(f);
    assert_int_equal(f->kind, kind);
    muster__failure__free_unpacked(f, NULL);
}

void raw_sync(struct raw *r)
{
    static uint64_t number;
    struct ms_frame ping = {.kind = MS_KIND_PING, .call_id = ++number};

    raw_send(r, &ping, NULL, 0);
    raw_wait(r, MS_KIND_PONG, ping.call_id, 0);
}

void raw_wait_closed(struct raw *r)
{
    while (!r->end)
        step(r);
    assert_int_equal(r->end, -EPIPE);
}
