/* Records of our own, by themselves and against the records of the TLS library. */
#include "base/cleanup.h"
#include "wire/record.h"
#include "wire/tls_internal.h"
#include "wire/transport.h"

// clang-format off
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>
// clang-format on

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const uint8_t secret[MS_RECORD_SECRET] = {7, 7, 7};

struct keys {
    struct ms_record_key seal, open;
};

static void keys_init(struct keys *k)
{
    *k = (struct keys){0};
    assert_int_equal(ms_record_key_init(&k->seal, secret, true), 0);
    assert_int_equal(ms_record_key_init(&k->open, secret, false), 0);
}

static void keys_finish(struct keys *k)
{
    ms_record_key_finish(&k->seal);
    ms_record_key_finish(&k->open);
}

/* A record of `len` bytes 'x'; its length. */
static size_t make(struct keys *k, uint8_t *at, size_t len)
{
    memset(at + MS_RECORD_HEAD, 'x', len);
    assert_int_equal(ms_record_seal(&k->seal, MS_RECORD_DATA, at, len), 0);
    return MS_RECORD_HEAD + len + MS_RECORD_TAIL;
}

static void test_what_is_sealed_opens(void **state)
{
    static const size_t lengths[] = {0, 1, 15, 16, 17, 1000, MS_RECORD_PLAIN_MAX};
    static uint8_t at[MS_RECORD_HEAD + MS_RECORD_PLAIN_MAX + MS_RECORD_TAIL];
    enum ms_record_type type;
    struct keys k;

    (void)state;
    keys_init(&k);
    for (size_t i = 0; i < MS_COUNT(lengths); i++) {
        size_t whole = make(&k, at, lengths[i]);

        assert_int_equal(ms_record_length(at, whole), whole);
        assert_int_equal(ms_record_length(at, MS_RECORD_HEAD - 1), 0);
        if (lengths[i] > 15)
            assert_memory_not_equal(at + MS_RECORD_HEAD, "xxxxxxxxxxxxxxxx", 16);
        assert_int_equal(ms_record_open(&k.open, at, whole, &type), lengths[i]);
        assert_int_equal(type, MS_RECORD_DATA);
        for (size_t j = 0; j < lengths[i]; j++)
            assert_int_equal(at[MS_RECORD_HEAD + j], 'x');
        if (i == 3) {
            assert_int_equal(ms_record_key_renew(&k.seal), 0);
            assert_int_equal(ms_record_key_renew(&k.open), 0);
        }
    }
    keys_finish(&k);
}

/* Every bit counts, and so does the order. */
static void test_what_was_changed_does_not(void **state)
{
    uint8_t record[128], copy[128];
    enum ms_record_type type;
    struct keys k;
    size_t whole;

    (void)state;
    for (size_t bit = 0; bit < 8 * 30; bit++) {
        keys_init(&k);
        whole = make(&k, record, 8);
        record[bit / 8] ^= (uint8_t)(1u << (bit % 8));
        if (ms_record_length(record, whole) == (ssize_t)whole)
            assert_int_equal(ms_record_open(&k.open, record, whole, &type), -EBADMSG);
        keys_finish(&k);
    }
    keys_init(&k);
    whole = make(&k, record, 8);
    memcpy(copy, record, whole);
    assert_int_equal(ms_record_open(&k.open, record, whole, &type), 8);
    assert_int_equal(ms_record_open(&k.open, copy, whole, &type), -EBADMSG); /* again */
    keys_finish(&k);
}

static void test_heads(void **state)
{
    static const uint8_t bad[][MS_RECORD_HEAD] = {{22, 3, 3, 0, 100},
                                                  {23, 2, 3, 0, 100},
                                                  {23, 3, 3, 0, 16},
                                                  {23, 3, 3, 0x41, 1},
                                                  {'G', 'E', 'T', ' ', '/'}};

    (void)state;
    for (size_t i = 0; i < MS_COUNT(bad); i++)
        assert_int_equal(ms_record_length(bad[i], MS_RECORD_HEAD), -EPROTO);
}

/* ---- with the library on the other side -------------------------------------------- */

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
    assert_non_null(strstr(err.text, "changed on its way"));
    both_end(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_sealed_opens),
        cmocka_unit_test(test_what_was_changed_does_not),
        cmocka_unit_test(test_heads),
        cmocka_unit_test(test_the_library_as_a_client),
        cmocka_unit_test(test_the_library_as_a_server),
        cmocka_unit_test(test_long_and_in_pieces),
        cmocka_unit_test(test_an_intruder_is_noticed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
