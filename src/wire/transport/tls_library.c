/* tls_library.c - what is asked of the TLS library, and the buffers below it: it reads
 * from the feed and writes to `out`, and never sees the socket. */
#include "wire/transport/tls_impl.h"

#include <assert.h>
#include <errno.h>
#include <openssl/err.h>
#include <string.h>

/* ---- the BIO ---------------------------------------------------------------------- */

static int bio_read(BIO *b, char *at, size_t room, size_t *n)
{
    struct ms_tls_feed *feed = ((struct transport_tls *)BIO_get_data(b))->feed;

    BIO_clear_retry_flags(b);
    if (!feed || feed->len == 0) {
        BIO_set_retry_read(b);
        return 0;
    }
    *n = room < feed->len ? room : feed->len;
    memcpy(at, feed->data, *n);
    feed->data += *n;
    feed->len -= *n;
    return 1;
}

static int bio_write(BIO *b, const char *data, size_t len, size_t *n)
{
    struct transport_tls *t = BIO_get_data(b);

    BIO_clear_retry_flags(b);
    if (ms_buf_append(&t->out, data, len) < 0)
        return -1;
    *n = len;
    return 1;
}

static long bio_ctrl(BIO *b, int cmd, long number, void *pointer)
{
    (void)b;
    (void)number;
    (void)pointer;
    return cmd == BIO_CTRL_FLUSH;
}

BIO_METHOD *ms_tls_bio_method(void)
{
    BIO_METHOD *m = BIO_meth_new(BIO_TYPE_SOURCE_SINK | BIO_get_new_index(), "muster");

    if (m && BIO_meth_set_read_ex(m, bio_read) && BIO_meth_set_write_ex(m, bio_write) &&
        BIO_meth_set_ctrl(m, bio_ctrl))
        return m;
    BIO_meth_free(m);
    return NULL;
}

int ms_tls_start(struct transport_tls *t, bool is_server)
{
    SSL *ssl = SSL_new(t->tls->ctx);
    BIO *bio = ssl ? BIO_new(t->tls->method) : NULL;

    if (!bio) {
        SSL_free(ssl);
        return -ENOMEM;
    }
    BIO_set_data(bio, t);
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl, bio, bio);
    t->ssl = ssl;
    if (is_server) {
        SSL_set_accept_state(ssl);
        return 0;
    }
    SSL_set_connect_state(ssl);
    SSL_set_verify(ssl, SSL_VERIFY_PEER, NULL); /* and no certificate is right */
    ms_tls_shake(t);                            /* its first words wait in `out` */
    return 0;
}

/* ---- failing ---------------------------------------------------------------------- */

int ms_tls_break_off(struct transport_tls *t, int code, const char *reason)
{
    snprintf(t->reason, sizeof t->reason, "%s", reason);
    atomic_store(&t->failed, code);
    return code;
}

/* The library has failed for good, and knows why. */
static int fail(struct transport_tls *t, int code)
{
    unsigned long first = ERR_peek_error();
    const char *text = first ? ERR_reason_error_string(first) : NULL;

    ERR_clear_error();
    return ms_tls_break_off(t, code, text ? text : "no reason is known");
}

/* ---- the handshake ---------------------------------------------------------------- */

/* A handshake fails for one reason: the other side does not know the secret. */
int ms_tls_shake(struct transport_tls *t)
{
    int rc;

    if (atomic_load(&t->failed))
        return atomic_load(&t->failed);
    ERR_clear_error();
    rc = SSL_do_handshake(t->ssl);
    if (rc == 1 && SSL_session_reused(t->ssl)) {
        atomic_store(&t->is_open, true);
        return 0;
    }
    if (rc != 1 && SSL_get_error(t->ssl, rc) == SSL_ERROR_WANT_READ)
        return -EAGAIN;
    return fail(t, -EACCES); /* also without our key: it must not be */
}

/* ---- records ---------------------------------------------------------------------- */

/* One that was made counts; after so many the next one is under a new key. */
static void count_record(struct transport_tls *t)
{
    if (++t->sealed < t->tls->records_max)
        return;
    if (SSL_key_update(t->ssl, SSL_KEY_UPDATE_NOT_REQUESTED) == 1)
        t->sealed = 0;
    else
        ERR_clear_error(); /* not in the middle of the other's: at the next record */
}

int ms_tls_seal(struct transport_tls *t, const uint8_t *data, size_t len)
{
    size_t done = 0;
    int rc;

    assert(len && len <= MS_TLS_RECORD_MAX);
    ERR_clear_error();
    rc = SSL_write_ex(t->ssl, data, len, &done);
    if (rc == 1) {
        assert(done == len);
        count_record(t);
        return 0;
    }
    if (SSL_get_error(t->ssl, rc) == SSL_ERROR_WANT_READ)
        return -EAGAIN; /* the rest of a message about keys has to come first */
    return fail(t, -EPROTO);
}

ssize_t ms_tls_open(struct transport_tls *t, uint8_t *at, size_t room)
{
    size_t n = 0;
    int rc;

    ERR_clear_error();
    rc = SSL_read_ex(t->ssl, at, room, &n);
    if (rc == 1) {
        t->has_opened = SSL_pending(t->ssl) > 0;
        return (ssize_t)n;
    }
    t->has_opened = false;
    switch (SSL_get_error(t->ssl, rc)) {
    case SSL_ERROR_WANT_READ:
        return -EAGAIN;
    case SSL_ERROR_ZERO_RETURN:
        t->has_ended = true;
        return 0;
    default:
        return fail(t, -EPROTO);
    }
}
