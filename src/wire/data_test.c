/* DATA: lent by one side, put in its place by the other. */
#include "base/cleanup.h"
#include "io/tcp.h"
#include "wire/conn.h"
#include "wire/test_pipe.h"
#include "wire/transport/tls.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { PIECES = 12, SIZE = 3 << 20, DROPPED = 5 };

static const uint8_t secret[32] = "a secret of thirty-two bytes...";

struct couple {
    struct ms_conn *a, *b; /* a lends, b reads */
    uint8_t *from, *to;
    int fd; /* of `from` */
    size_t at[PIECES], len[PIECES];
    size_t placed;  /* the piece that comes */
    size_t came;    /* bytes of all */
    unsigned whole; /* pieces */
    unsigned sent;  /* on_sent */
    unsigned messages;
};

static uint8_t *on_data(void *arg, const struct ms_frame *head)
{
    struct couple *c = arg;

    c->placed = (size_t)head->call_id;
    assert_true(c->placed < PIECES);
    assert_int_equal(head->total, c->len[c->placed]);
    return c->placed == DROPPED ? NULL : c->to + c->at[c->placed];
}

static int on_part(void *arg, const struct ms_frame *head, size_t len, size_t rest)
{
    struct couple *c = arg;

    assert_int_equal(head->call_id, c->placed);
    c->came += len;
    if (rest == 0)
        c->whole++;
    return 0;
}

static int on_message(void *arg, struct ms_message *m)
{
    struct couple *c = arg;

    assert_int_equal(m->head.kind, MS_KIND_CONTROL);
    assert_int_equal(m->len, m->head.call_id);
    c->messages++;
    return 0;
}

static const struct ms_conn_sink sink = {
    .on_message = on_message, .on_data = on_data, .on_part = on_part};

static void on_sent(void *arg)
{
    ((struct couple *)arg)->sent++;
}

static void
couple_init(struct couple *c, struct ms_transport *a, struct ms_transport *b)
{
    uint64_t seed = 42;

    *c = (struct couple){.fd = memfd_create("lent", MFD_CLOEXEC)};
    assert_int_equal(ftruncate(c->fd, SIZE), 0);
    c->from = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, c->fd, 0);
    assert_ptr_not_equal(c->from, MAP_FAILED);
    c->to = calloc(1, SIZE);
    for (size_t i = 0; i < SIZE; i++)
        c->from[i] = (uint8_t)test_random(&seed);
    for (size_t i = 0, at = 0; i < PIECES; i++) {
        c->at[i] = at;
        c->len[i] = 1 + test_random(&seed) % (i % 3 ? 1000 : (size_t)700 << 10);
        at += c->len[i];
        assert_true(at <= SIZE);
    }
    c->a = ms_conn_create(a, NULL);
    c->b = ms_conn_create(b, NULL);
}

static void couple_finish(struct couple *c)
{
    ms_conn_destroy(c->a);
    ms_conn_destroy(c->b);
    munmap(c->from, SIZE);
    free(c->to);
    close(c->fd);
}

static void lend(struct couple *c, size_t i, bool is_file)
{
    struct ms_frame head = {.kind = MS_KIND_DATA, .call_id = i};
    struct ms_loan loan = {.data = c->from + c->at[i],
                           .len = c->len[i],
                           .fd = is_file ? c->fd : -1,
                           .at = c->at[i],
                           .on_sent = on_sent,
                           .arg = c};

    assert_int_equal(ms_conn_send_loan(c->a, &head, &loan), 0);
}

/* Data and messages by turns. */
static void send_all(struct couple *c, bool is_file)
{
    uint8_t body[PIECES] = {0};
    struct iovec iov = {body, 0};

    for (size_t i = 0; i < PIECES; i++) {
        struct ms_frame head = {.kind = MS_KIND_CONTROL, .call_id = i};

        lend(c, i, is_file);
        iov.iov_len = i;
        assert_int_equal(ms_conn_send(c->a, &head, &iov, 1), 0);
    }
}

static void check_all(const struct couple *c)
{
    size_t total = c->at[PIECES - 1] + c->len[PIECES - 1];

    assert_int_equal(c->came, total);
    assert_int_equal(c->whole, PIECES);
    assert_int_equal(c->sent, PIECES);
    for (size_t i = 0; i < PIECES; i++)
        if (i != DROPPED)
            assert_memory_equal(c->to + c->at[i], c->from + c->at[i], c->len[i]);
    for (size_t i = 0; i < c->len[DROPPED]; i++)
        assert_int_equal(c->to[c->at[DROPPED] + i], 0);
}

/* ---- through any steps ----------------------------------------------------------- */

static void test_in_memory(void **unused)
{
    static const size_t steps[] = {7, 48, 1000, 65535, 0};

    (void)unused;
    for (size_t s = 0; s < MS_COUNT(steps); s++) {
        struct test_pipe pipe;
        struct couple c;

        test_pipe_init(&pipe);
        pipe.step = steps[s];
        pipe.room = 100000;
        pipe.is_random = true;
        couple_init(&c, &pipe.end[0].transport, &pipe.end[1].transport);
        send_all(&c, true); /* a transport without send_file reads memory */
        while (c.messages < PIECES) {
            int rc = ms_conn_flush(c.a);

            assert_int_equal(rc, 0);
            rc = ms_conn_read(c.b, &sink, &c, NULL);
            assert_true(rc >= 0 || rc == -EAGAIN);
        }
        check_all(&c);
        couple_finish(&c);
        test_pipe_finish(&pipe);
    }
}

static void test_a_loan_ends_with_its_connection(void **unused)
{
    struct test_pipe pipe;
    struct couple c;

    (void)unused;
    test_pipe_init(&pipe);
    pipe.room = 1000;
    couple_init(&c, &pipe.end[0].transport, &pipe.end[1].transport);
    send_all(&c, false);
    assert_true(c.sent < PIECES);
    ms_conn_destroy(c.a);
    c.a = NULL;
    assert_int_equal(c.sent, PIECES);
    couple_finish(&c);
    test_pipe_finish(&pipe);
}

static void test_nobody_has_asked(void **unused)
{
    static const struct ms_conn_sink deaf = {.on_message = on_message};
    struct test_pipe pipe;
    struct ms_error err = {0};
    struct couple c;

    (void)unused;
    test_pipe_init(&pipe);
    couple_init(&c, &pipe.end[0].transport, &pipe.end[1].transport);
    lend(&c, 1, false);
    assert_int_equal(ms_conn_read(c.b, &deaf, &c, &err), -EPROTO);
    assert_non_null(strstr(err.text, "nobody has asked"));
    couple_finish(&c);
    test_pipe_finish(&pipe);
}

/* ---- over sockets ---------------------------------------------------------------- */

static void connect_both(int fd[2])
{
    struct sockaddr_storage sa;
    socklen_t len = sizeof sa;
    struct ms_error err = {0};
    uint16_t port = 0;
    int listener = ms_tcp_listen("127.0.0.1", &port, &err);
    struct pollfd p = {.fd = listener, .events = POLLIN};

    assert_true(listener >= 0);
    assert_int_equal(ms_tcp_numeric("127.0.0.1", port, &sa, &len), 0);
    fd[0] = ms_tcp_connect((struct sockaddr *)&sa, len, &err);
    assert_int_equal(poll(&p, 1, 5000), 1);
    fd[1] = ms_tcp_accept(listener);
    assert_true(fd[0] >= 0 && fd[1] >= 0);
    close(listener);
}

static void flow(struct couple *c)
{
    while (c->messages < PIECES) {
        struct pollfd p[2] = {{.fd = ms_conn_fd(c->a), .events = POLLIN},
                              {.fd = ms_conn_fd(c->b), .events = POLLIN}};
        int rc;

        assert_int_equal(ms_conn_flush(c->a), 0);
        assert_int_equal(ms_conn_flush(c->b), 0);
        if (ms_conn_wants_write(c->a))
            p[0].events |= POLLOUT;
        assert_true(poll(p, 2, 5000) > 0);
        rc = ms_conn_read(c->b, &sink, c, NULL);
        assert_true(rc >= 0 || rc == -EAGAIN);
        rc = ms_conn_read(c->a, &sink, c, NULL);
        assert_true(rc >= 0 || rc == -EAGAIN);
    }
}

static void test_from_a_file(void **unused)
{
    struct couple c;
    int fd[2];

    (void)unused;
    connect_both(fd);
    couple_init(&c, ms_transport_tcp(fd[0]), ms_transport_tcp(fd[1]));
    send_all(&c, true);
    flow(&c);
    check_all(&c);
    couple_finish(&c);
}

static void test_under_tls(void **unused)
{
    struct ms_tls *tls = ms_tls_create(secret);
    struct couple c;
    int fd[2];

    (void)unused;
    assert_non_null(tls);
    connect_both(fd);
    couple_init(
        &c, ms_transport_tls(fd[0], tls, false), ms_transport_tls(fd[1], tls, true));
    send_all(&c, true);
    flow(&c);
    check_all(&c);
    couple_finish(&c);
    ms_tls_unref(tls);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_memory),
        cmocka_unit_test(test_a_loan_ends_with_its_connection),
        cmocka_unit_test(test_nobody_has_asked),
        cmocka_unit_test(test_from_a_file),
        cmocka_unit_test(test_under_tls),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
