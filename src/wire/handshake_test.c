/* handshake_test.c - tests of handshake.h: both sides prove the secret before
 * anything else is parsed */
#include "wire/handshake.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { IDENTITY = 4711 };

static const uint8_t secret[MS_SECRET_SIZE] = "a secret of thirty-two bytes...";
static const uint8_t wrong[MS_SECRET_SIZE] = "A secret of thirty-two bytes...";
static const uint8_t nonce_c[32] = "the client's nonce", nonce_s[32] = "the server's";
static const uint8_t session[MS_SESSION_SIZE] = "session of tests";

/* What went over the wire. */
struct talk {
    uint8_t hello[MS_HELLO_CLIENT_SIZE];
    uint8_t answer[MS_HELLO_SERVER_SIZE];
    uint8_t proof[MS_HELLO_SERVER_SIZE];
    int client_rc, server_rc;
    struct ms_error err;
};

static struct ms_handshake client_of(const uint8_t *its_secret, uint64_t expected)
{
    struct ms_handshake h;

    ms_handshake_init_client(
        &h, its_secret, nonce_c, session, MS_LANE_CONTROL, expected);
    return h;
}

static struct ms_handshake server_of(const uint8_t *its_secret, const uint8_t *nonce)
{
    struct ms_handshake h;

    ms_handshake_init_server(&h, its_secret, nonce, IDENTITY);
    return h;
}

/* Go through the whole exchange, or until somebody refuses. */
static void run(struct ms_handshake *c, struct ms_handshake *s, struct talk *t)
{
    size_t len;

    *t = (struct talk){.client_rc = 1, .server_rc = 1};
    memcpy(t->hello, c->hello_client, sizeof t->hello);
    assert_int_equal(ms_handshake_need(s), MS_HELLO_CLIENT_SIZE);
    t->server_rc = ms_handshake_step(s, t->hello, t->answer, &len, &t->err);
    if (len == 0)
        return;
    assert_int_equal(len, MS_HELLO_SERVER_SIZE);
    assert_int_equal(ms_handshake_need(c), MS_HELLO_SERVER_SIZE);
    t->client_rc = ms_handshake_step(c, t->answer, t->proof, &len, &t->err);
    if (t->client_rc < 0) {
        assert_int_equal(len, 0);
        assert_false(c->done);
        return;
    }
    assert_int_equal(len, MS_PROOF_SIZE);
    assert_int_equal(ms_handshake_need(s), MS_PROOF_SIZE);
    t->server_rc = ms_handshake_step(s, t->proof, t->answer, &len, &t->err);
    assert_int_equal(len, 0);
}

static void test_both_know_the_secret(void **state)
{
    struct ms_handshake c = client_of(secret, IDENTITY), s = server_of(secret, nonce_s);
    struct talk t;

    (void)state;
    run(&c, &s, &t);
    assert_int_equal(t.client_rc, 0);
    assert_int_equal(t.server_rc, 0);
    assert_true(c.done && s.done);
    assert_int_equal(ms_handshake_need(&c), 0);
    assert_int_equal(ms_handshake_need(&s), 0);
    assert_int_equal(c.identity, IDENTITY);
    assert_int_equal(s.lane, MS_LANE_CONTROL);
    assert_memory_equal(s.session, session, sizeof session);
}

static void test_any_identity_will_do(void **state)
{
    struct ms_handshake c = client_of(secret, 0), s = server_of(secret, nonce_s);
    struct talk t;

    (void)state;
    run(&c, &s, &t);
    assert_int_equal(t.client_rc, 0);
    assert_int_equal(c.identity, IDENTITY);
}

static void test_server_without_the_secret(void **state)
{
    struct ms_handshake c = client_of(secret, 0), s = server_of(wrong, nonce_s);
    struct talk t;

    (void)state;
    run(&c, &s, &t);
    assert_int_equal(t.client_rc, -EACCES);
    assert_non_null(strstr(t.err.text, "server does not know the secret"));
}

/* Such a client stops by itself; one that goes on regardless is refused. */
static void test_client_without_the_secret(void **state)
{
    struct ms_handshake c = client_of(wrong, 0), s = server_of(secret, nonce_s);
    uint8_t guess[MS_PROOF_SIZE] = {0};
    struct talk t;
    size_t len;

    (void)state;
    run(&c, &s, &t);
    assert_int_equal(t.client_rc, -EACCES);
    assert_false(s.done);
    assert_int_equal(ms_handshake_step(&s, guess, t.answer, &len, &t.err), -EACCES);
    assert_int_equal(len, 0);
    assert_false(s.done);
    assert_non_null(strstr(t.err.text, "client does not know the secret"));
}

static void test_another_server_than_expected(void **state)
{
    struct ms_handshake c = client_of(secret, IDENTITY + 1);
    struct ms_handshake s = server_of(secret, nonce_s);
    struct talk t;

    (void)state;
    run(&c, &s, &t);
    assert_int_equal(t.client_rc, -ESTALE);
}

/* A recorded exchange proves nothing to a server (or a client) with a fresh nonce. */
static void test_replay(void **state)
{
    static const uint8_t fresh[32] = "another nonce";
    struct ms_handshake c = client_of(secret, 0), s = server_of(secret, nonce_s);
    struct ms_handshake again = server_of(secret, fresh), victim;
    struct talk recorded;
    uint8_t out[MS_HELLO_SERVER_SIZE], answer[MS_HELLO_SERVER_SIZE];
    size_t len;

    (void)state;
    memset(answer, 0, sizeof answer);
    memcpy(recorded.hello, c.hello_client, sizeof recorded.hello);
    assert_int_equal(ms_handshake_step(&s, recorded.hello, answer, &len, NULL), 0);
    assert_int_equal(ms_handshake_step(&c, answer, recorded.proof, &len, NULL), 0);

    assert_int_equal(ms_handshake_step(&again, recorded.hello, out, &len, NULL), 0);
    assert_int_equal(ms_handshake_step(&again, recorded.proof, out, &len, NULL),
                     -EACCES);

    ms_handshake_init_client(&victim, secret, fresh, session, MS_LANE_CALL, 0);
    assert_int_equal(ms_handshake_step(&victim, answer, out, &len, NULL), -EACCES);
}

/* The server's own words are no proof of the client's. */
static void test_reflection(void **state)
{
    struct ms_handshake c = client_of(secret, 0), s = server_of(secret, nonce_s);
    uint8_t answer[MS_HELLO_SERVER_SIZE], out[MS_HELLO_SERVER_SIZE];
    size_t len;

    (void)state;
    assert_int_equal(ms_handshake_step(&s, c.hello_client, answer, &len, NULL), 0);
    assert_int_equal(
        ms_handshake_step(&s, answer + sizeof answer - MS_PROOF_SIZE, out, &len, NULL),
        -EACCES);
}

static void test_client_of_another_version(void **state)
{
    struct ms_handshake c = client_of(secret, 0), s = server_of(secret, nonce_s);
    uint8_t hello[MS_HELLO_CLIENT_SIZE], answer[MS_HELLO_SERVER_SIZE];
    uint8_t out[MS_HELLO_SERVER_SIZE];
    struct ms_error err = {0};
    size_t len;

    (void)state;
    memcpy(hello, c.hello_client, sizeof hello);
    hello[4] = MS_HANDSHAKE_MAJOR + 1;
    assert_int_equal(ms_handshake_step(&s, hello, answer, &len, &err),
                     -EPROTONOSUPPORT);
    assert_int_equal(len, MS_HELLO_SERVER_SIZE); /* it is told */
    assert_non_null(strstr(err.text, "the client speaks protocol 2.1, this side 1.1"));
    assert_int_equal(ms_handshake_step(&c, answer, out, &len, &err), -EPROTONOSUPPORT);
    assert_non_null(strstr(err.text, "protocol 1.1) refuses protocol 1.1"));
    assert_int_equal(len, 0);
}

static void test_server_of_another_version(void **state)
{
    struct ms_handshake c = client_of(secret, 0), s = server_of(secret, nonce_s);
    uint8_t answer[MS_HELLO_SERVER_SIZE], out[MS_HELLO_SERVER_SIZE];
    struct ms_error err = {0};
    size_t len;

    (void)state;
    assert_int_equal(ms_handshake_step(&s, c.hello_client, answer, &len, NULL), 0);
    answer[4] = 9;
    assert_int_equal(ms_handshake_step(&c, answer, out, &len, &err), -EPROTONOSUPPORT);
    assert_non_null(strstr(err.text, "the server speaks protocol 9.1, this side 1.1"));
}

/* What is new in it is not used, but it is understood; and what is reserved is ignored. */
static void test_a_newer_minor_version(void **state)
{
    struct ms_handshake c = client_of(secret, IDENTITY), s = server_of(secret, nonce_s);
    struct talk t;

    (void)state;
    c.hello_client[6] = MS_HANDSHAKE_MINOR + 7;
    c.hello_client[7] = 0xAB;
    run(&c, &s, &t);
    assert_int_equal(t.client_rc, 0);
    assert_int_equal(t.server_rc, 0);
    assert_int_equal(s.minor, MS_HANDSHAKE_MINOR + 7);
    assert_int_equal(c.minor, MS_HANDSHAKE_MINOR);
}

static void test_plain_where_tls_is_due(void **state)
{
    struct ms_handshake c = client_of(secret, IDENTITY), s = server_of(secret, nonce_s);
    struct talk t;

    (void)state;
    s.refuses_plain = true;
    run(&c, &s, &t);
    assert_int_equal(t.server_rc, -ENOKEY);
    assert_int_equal(t.client_rc, -ENOKEY);
    assert_non_null(strstr(t.err.text, "wants TLS"));
    assert_false(s.done || c.done);
}

/* Change each bit of each message: nothing is accepted, and nothing breaks. */
static void test_every_flipped_bit(void **state)
{
    (void)state;
    for (size_t bit = 0; bit < 8 * MS_HELLO_CLIENT_SIZE; bit++) {
        struct ms_handshake c = client_of(secret, 0), s = server_of(secret, nonce_s);
        uint8_t hello[MS_HELLO_CLIENT_SIZE], answer[MS_HELLO_SERVER_SIZE];
        uint8_t proof[MS_HELLO_SERVER_SIZE];
        size_t len;

        memcpy(hello, c.hello_client, sizeof hello);
        hello[bit / 8] ^= (uint8_t)(1 << bit % 8);
        if (ms_handshake_step(&s, hello, answer, &len, NULL) == 0)
            assert_int_equal(ms_handshake_step(&c, answer, proof, &len, NULL), -EACCES);
    }
    for (size_t bit = 0; bit < 8 * MS_HELLO_SERVER_SIZE; bit++) {
        struct ms_handshake c = client_of(secret, 0), s = server_of(secret, nonce_s);
        uint8_t answer[MS_HELLO_SERVER_SIZE], proof[MS_HELLO_SERVER_SIZE];
        size_t len;

        assert_int_equal(ms_handshake_step(&s, c.hello_client, answer, &len, NULL), 0);
        answer[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_true(ms_handshake_step(&c, answer, proof, &len, NULL) < 0);
        assert_int_equal(len, 0);
    }
    for (size_t bit = 0; bit < 8 * MS_PROOF_SIZE; bit++) {
        struct ms_handshake c = client_of(secret, 0), s = server_of(secret, nonce_s);
        uint8_t answer[MS_HELLO_SERVER_SIZE], proof[MS_HELLO_SERVER_SIZE];
        size_t len;

        assert_int_equal(ms_handshake_step(&s, c.hello_client, answer, &len, NULL), 0);
        assert_int_equal(ms_handshake_step(&c, answer, proof, &len, NULL), 0);
        proof[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_equal(ms_handshake_step(&s, proof, answer, &len, NULL), -EACCES);
    }
}

static void test_unknown_lane_and_noise(void **state)
{
    struct ms_handshake c = client_of(secret, 0), s = server_of(secret, nonce_s);
    uint8_t hello[MS_HELLO_CLIENT_SIZE], answer[MS_HELLO_SERVER_SIZE];
    size_t len;

    (void)state;
    memcpy(hello, c.hello_client, sizeof hello);
    hello[5] = MS_LANE_LINK + 1;
    assert_int_equal(ms_handshake_step(&s, hello, answer, &len, NULL), -EPROTO);
    assert_int_equal(len, 0);
    memset(hello, 'G', sizeof hello);
    assert_int_equal(ms_handshake_step(&s, hello, answer, &len, NULL), -EPROTO);
    assert_int_equal(len, 0);
}

static void test_finish_wipes_the_secret(void **state)
{
    static const uint8_t zero[MS_SECRET_SIZE];
    struct ms_handshake c = client_of(secret, 0);

    (void)state;
    ms_handshake_finish(&c);
    assert_memory_equal(c.secret, zero, sizeof zero);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_both_know_the_secret),
        cmocka_unit_test(test_any_identity_will_do),
        cmocka_unit_test(test_server_without_the_secret),
        cmocka_unit_test(test_client_without_the_secret),
        cmocka_unit_test(test_another_server_than_expected),
        cmocka_unit_test(test_replay),
        cmocka_unit_test(test_reflection),
        cmocka_unit_test(test_client_of_another_version),
        cmocka_unit_test(test_server_of_another_version),
        cmocka_unit_test(test_a_newer_minor_version),
        cmocka_unit_test(test_plain_where_tls_is_due),
        cmocka_unit_test(test_every_flipped_bit),
        cmocka_unit_test(test_unknown_lane_and_noise),
        cmocka_unit_test(test_finish_wipes_the_secret),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
