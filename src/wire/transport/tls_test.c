/* The transport against the TLS library as anybody uses it, and against itself. */
#include "base/cleanup.h"
#include "wire/transport/tls_impl.h"

// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on

#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

struct both {
    struct ms_tls *tls;
    struct ms_transport *ours;
    SSL *theirs;
    int fd;
};

static void wait_for(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};

    poll(&p, 1, 20);
}

/* The library shakes hands, or reads, while we do what we have to. */
static void both_start(struct both *b, bool we_serve)
{
    uint8_t key[32] = {9};
    char nothing[16];
    int fds[2], rc = 0;

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    b->tls = ms_tls_create(key);
    b->ours = ms_transport_tls(fds[0], b->tls, we_serve);
    b->theirs = SSL_new(b->tls->ctx);
    b->fd = fds[1];
    SSL_set_fd(b->theirs, fds[1]);
    if (we_serve)
        SSL_set_connect_state(b->theirs);
    else
        SSL_set_accept_state(b->theirs);
    while (rc != 1 || !b->ours->ops->is_open(b->ours)) {
        if (rc != 1)
            rc = SSL_do_handshake(b->theirs);
        assert_true(rc == 1 || SSL_get_error(b->theirs, rc) == SSL_ERROR_WANT_READ);
        assert_int_equal(b->ours->ops->flush(b->ours), 0);
        if (!b->ours->ops->is_open(b->ours))
            assert_int_equal(b->ours->ops->read(b->ours, nothing, sizeof nothing),
                             -EAGAIN);
    }
}

static void both_end(struct both *b)
{
    SSL_free(b->theirs);
    close(b->fd);
    ms_transport_destroy(b->ours);
    ms_tls_unref(b->tls);
}

static void say(struct both *b, const char *text)
{
    struct iovec iov[] = {{(void *)(uintptr_t)text, 1},
                          {(void *)(uintptr_t)(text + 1), strlen(text) - 1}};

    assert_int_equal(b->ours->ops->write(b->ours, iov, 2), strlen(text));
}

static void hear(struct both *b, const char *text)
{
    char got[64] = "";
    ssize_t n;

    while ((n = b->ours->ops->read(b->ours, got, sizeof got)) == -EAGAIN)
        wait_for(b->ours->fd);
    assert_int_equal(n, strlen(text));
    assert_memory_equal(got, text, (size_t)n);
}

static void they_say(struct both *b, const char *text)
{
    assert_int_equal(SSL_write(b->theirs, text, (int)strlen(text)), strlen(text));
}

static void they_hear(struct both *b, const char *text)
{
    char got[64] = "";
    int n;

    while ((n = SSL_read(b->theirs, got, sizeof got)) <= 0) {
        assert_int_equal(SSL_get_error(b->theirs, n), SSL_ERROR_WANT_READ);
        wait_for(b->fd);
    }
    assert_int_equal(n, strlen(text));
    assert_memory_equal(got, text, (size_t)n);
}

static void talk_to_the_library(bool we_serve)
{
    struct both b;

    both_start(&b, we_serve);
    say(&b, "one");
    they_hear(&b, "one");
    they_say(&b, "two");
    hear(&b, "two");
    /* they renew their key and want the same of us; and once more */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(SSL_key_update(b.theirs, SSL_KEY_UPDATE_REQUESTED), 1);
        they_say(&b, "three");
        hear(&b, "three");
        say(&b, "four");
        they_hear(&b, "four");
    }
    SSL_shutdown(b.theirs);
    hear(&b, "");
    both_end(&b);
}

static void test_the_library_as_a_client(void **state)
{
    (void)state;
    talk_to_the_library(true);
}

static void test_the_library_as_a_server(void **state)
{
    (void)state;
    talk_to_the_library(false);
}

/* More than a record, read in small pieces. */
static void test_long_and_in_pieces(void **state)
{
    enum { SIZE = 50000 };
    uint8_t *data = malloc(SIZE), *got = malloc(SIZE);
    size_t sent = 0, have = 0;
    struct both b;

    (void)state;
    for (size_t i = 0; i < SIZE; i++)
        data[i] = (uint8_t)(i * 31 >> 3);
    both_start(&b, true);
    while (have < SIZE) {
        size_t n;
        ssize_t r;

        if (sent < SIZE && SSL_write_ex(b.theirs, data + sent, SIZE - sent, &n) > 0)
            sent += n;
        r = b.ours->ops->read(
            b.ours, got + have, SIZE - have < 700 ? SIZE - have : 700);
        if (r > 0)
            have += (size_t)r;
        else
            assert_int_equal(r, -EAGAIN);
        assert_true(have <= sent || sent < SIZE);
    }
    assert_memory_equal(data, got, SIZE);
    assert_false(b.ours->ops->has_more(b.ours));
    both_end(&b);
    free(data);
    free(got);
}

/* A byte that somebody has put into the stream ends it. */
static void test_an_intruder_is_noticed(void **state)
{
    static const char junk[] = "\x17\x03\x03\x00\x20jjjjjjjjjjjjjjjjjjjjjjjjjjjjjjjj";
    struct ms_error err = {0};
    struct both b;
    char got[64];

    (void)state;
    both_start(&b, true);
    assert_int_equal(write(b.fd, junk, sizeof junk - 1), sizeof junk - 1);
    assert_int_equal(b.ours->ops->read(b.ours, got, sizeof got), -EPROTO);
    assert_int_equal(b.ours->ops->read(b.ours, got, sizeof got), -EPROTO);
    assert_true(b.ours->ops->explain(b.ours, &err));
    assert_non_null(strstr(err.text, "TLS broke"));
    both_end(&b);
}

/* ---- two transports --------------------------------------------------------------- */

enum {
    RECORDS_MAX = 5,
    THREADS_BYTES = 4 << 20,
    MUCH = 3 << 20,
    IDLE = 50,
    IDLE_BYTES_MAX = 24 << 10
};

struct couple {
    struct ms_tls *tls;
    struct ms_transport *end[2];
};

static void couple_shake(struct couple *c)
{
    char nothing[16];

    for (int i = 0;
         !c->end[0]->ops->is_open(c->end[0]) || !c->end[1]->ops->is_open(c->end[1]);
         i ^= 1) {
        assert_int_equal(c->end[i]->ops->flush(c->end[i]), 0);
        assert_int_equal(c->end[i]->ops->read(c->end[i], nothing, sizeof nothing),
                         -EAGAIN);
    }
}

static void couple_start(struct couple *c)
{
    uint8_t key[32] = {9};
    int fds[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    c->tls = ms_tls_create(key);
    c->tls->records_max = RECORDS_MAX;
    for (int i = 0; i < 2; i++)
        c->end[i] = ms_transport_tls(fds[i], c->tls, i == 0);
    couple_shake(c);
}

static void couple_end(struct couple *c)
{
    ms_transport_destroy(c->end[0]);
    ms_transport_destroy(c->end[1]);
    ms_tls_unref(c->tls);
}

/* Both ends renew, in the middle of everything, and nobody notices. */
static void test_a_key_is_renewed(void **state)
{
    struct couple c;

    (void)state;
    couple_start(&c);
    for (uint32_t i = 0; i < 20 * RECORDS_MAX; i++) {
        struct ms_transport *from = c.end[i % 3 == 0], *to = c.end[i % 3 != 0];
        struct iovec iov = {&i, sizeof i};
        uint32_t got = 0;

        assert_int_equal(from->ops->write(from, &iov, 1), sizeof i);
        assert_int_equal(to->ops->read(to, &got, sizeof got), sizeof got);
        assert_int_equal(got, i);
        assert_in_range(ms_tls_of(from)->sealed, 0, RECORDS_MAX - 1);
    }
    couple_end(&c);
}

/* Byte number i of what an end sends. */
static uint8_t byte_at(size_t i)
{
    return (uint8_t)(i * 31 >> 3);
}

static void *write_all(void *arg)
{
    struct ms_transport *t = arg;
    uint8_t data[3000];

    for (size_t done = 0; done < THREADS_BYTES;) {
        size_t len = 1 + done % sizeof data;
        struct iovec iov[] = {{data, len / 2}, {data + len / 2, len - len / 2}};
        struct pollfd p = {.fd = t->fd, .events = POLLOUT};
        ssize_t n;

        for (size_t i = 0; i < len; i++)
            data[i] = byte_at(done + i);
        n = t->ops->write(t, iov, 2);
        if (n > 0)
            done += (size_t)n;
        else if (n == -EAGAIN)
            poll(&p, 1, 20);
        else
            return NULL;
    }
    while (t->ops->wants_write(t) && t->ops->flush(t) == 0)
        poll(NULL, 0, 1);
    return t;
}

static void *read_all(void *arg)
{
    struct ms_transport *t = arg;
    uint8_t data[5000];

    for (size_t have = 0; have < THREADS_BYTES;) {
        ssize_t n = t->ops->read(t, data, 1 + have % sizeof data);

        if (n == -EAGAIN)
            wait_for(t->fd);
        else if (n <= 0)
            return NULL;
        for (ssize_t i = 0; i < n; i++)
            if (data[i] != byte_at(have + (size_t)i))
                return NULL;
        have += n > 0 ? (size_t)n : 0;
    }
    return t;
}

/* Each end is read by one thread and written to by another. */
static void test_both_ways_at_once(void **state)
{
    pthread_t threads[4];
    struct couple c;

    (void)state;
    couple_start(&c);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(
            pthread_create(
                &threads[i], NULL, i < 2 ? write_all : read_all, c.end[i % 2]),
            0);
    for (size_t i = 0; i < 4; i++) {
        void *end = NULL;

        assert_int_equal(pthread_join(threads[i], &end), 0);
        assert_non_null(end);
    }
    couple_end(&c);
}

/* Room for many records at once, which are cut where reads of the socket end. */
static void test_much_room(void **state)
{
    uint8_t *data = malloc(MUCH), *got = calloc(1, MUCH);
    size_t sent = 0, have = 0, most = 0;
    struct couple c;

    (void)state;
    for (size_t i = 0; i < MUCH; i++)
        data[i] = byte_at(i);
    couple_start(&c);
    while (have < MUCH) {
        struct iovec iov = {data + sent, MUCH - sent};
        ssize_t n = sent < MUCH ? c.end[0]->ops->write(c.end[0], &iov, 1) : 0;

        assert_true(n >= 0 || n == -EAGAIN);
        sent += n > 0 ? (size_t)n : 0;
        if (n > 0)
            continue; /* until the socket is full */
        assert_int_equal(c.end[0]->ops->flush(c.end[0]), 0);
        n = c.end[1]->ops->read(c.end[1], got + have, MUCH - have);
        assert_true(n > 0 || n == -EAGAIN);
        have += n > 0 ? (size_t)n : 0;
        most = n > (ssize_t)most ? (size_t)n : most;
    }
    assert_memory_equal(data, got, MUCH);
    assert_true(most > MS_TLS_RECORD_MAX);
    couple_end(&c);
    free(data);
    free(got);
}

static size_t allocated(void)
{
    struct mallinfo2 m = mallinfo2();

    return m.uordblks + m.hblkhd;
}

/* What one lazy connection costs that has talked; a sanitizer's malloc counts nothing. */
static void test_idle_ones_are_small(void **state)
{
    struct couple c[IDLE];
    uint8_t key[32] = {9}, data[16384] = {1};
    struct ms_tls *tls = ms_tls_create(key);
    size_t before = 0;

    (void)state;
    for (size_t i = 0; i < IDLE; i++) {
        struct iovec iov = {data, sizeof data};
        int fds[2];

        if (i == 1)
            before = allocated(); /* the first one pays for all */
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
        for (int j = 0; j < 2; j++) {
            c[i].end[j] = ms_transport_tls(fds[j], tls, j == 0);
            c[i].end[j]->ops->set_lazy(c[i].end[j]);
        }
        couple_shake(&c[i]);
        for (int j = 0; j < 2; j++) {
            struct ms_transport *from = c[i].end[j], *to = c[i].end[!j];

            assert_int_equal(from->ops->write(from, &iov, 1), sizeof data);
            assert_int_equal(to->ops->read(to, data, sizeof data), sizeof data);
        }
    }
    assert_true(allocated() - before < (size_t)2 * IDLE * IDLE_BYTES_MAX);
    for (size_t i = 0; i < IDLE; i++) {
        ms_transport_destroy(c[i].end[0]);
        ms_transport_destroy(c[i].end[1]);
    }
    ms_tls_unref(tls);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_library_as_a_client),
        cmocka_unit_test(test_the_library_as_a_server),
        cmocka_unit_test(test_long_and_in_pieces),
        cmocka_unit_test(test_an_intruder_is_noticed),
        cmocka_unit_test(test_a_key_is_renewed),
        cmocka_unit_test(test_both_ways_at_once),
        cmocka_unit_test(test_much_room),
        cmocka_unit_test(test_idle_ones_are_small),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
