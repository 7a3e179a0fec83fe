/* The handshake of a TLS connection: the library, the buffers below it, and the secrets that it
 * tells. */
#include "wire/transport_tls_impl.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <string.h>

/* ---- the BIO ---------------------------------------------------------------------- */

static int bio_read(BIO *b, char *at, size_t room, size_t *n)
{
    struct transport_tls *t = BIO_get_data(b);

    BIO_clear_retry_flags(b);
    if (t->feed_len == 0) {
        BIO_set_retry_read(b);
        return 0;
    }
    *n = room < t->feed_len ? room : t->feed_len;
    memcpy(at, t->feed, *n);
    t->feed += *n;
    t->feed_len -= *n;
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

/* ---- secrets and steps ----------------------------------------------------------- */

/* The library has failed for good. It was still shaking hands: the other side does not know
 * the secret, nothing else is left that could go wrong there. */
static int fail(struct transport_tls *t)
{
    unsigned long code = ERR_peek_last_error();
    const char *text = code ? ERR_reason_error_string(code) : NULL;

    snprintf(t->reason, sizeof t->reason, "%s", text ? text : "no reason is known");
    atomic_store(&t->failed, -EACCES);
    ERR_clear_error();
    return -EACCES;
}

/* "CLIENT_TRAFFIC_SECRET_0 <random> <secret>", in hex. */
static bool take_secret(const char *line, const char *label, uint8_t *out)
{
    const char *hex = strrchr(line, ' ');
    size_t len = strlen(label);
    long n = 0;
    uint8_t *bytes;

    if (strncmp(line, label, len) != 0 || line[len] != ' ' || !hex)
        return false;
    bytes = OPENSSL_hexstr2buf(hex + 1, &n);
    if (bytes && n == MS_RECORD_SECRET)
        memcpy(out, bytes, MS_RECORD_SECRET);
    OPENSSL_clear_free(bytes, n > 0 ? (size_t)n : 0);
    return n == MS_RECORD_SECRET;
}

void ms_tls_on_secret(const SSL *ssl, const char *line)
{
    struct transport_tls *t = SSL_get_app_data(ssl);
    struct ms_tls_secrets *s = t ? t->secrets : NULL;

    if (!s)
        return;
    s->has_client |= take_secret(line, "CLIENT_TRAFFIC_SECRET_0", s->client);
    s->has_server |= take_secret(line, "SERVER_TRAFFIC_SECRET_0", s->server);
}

void ms_tls_drop_library(struct transport_tls *t)
{
    SSL_free(t->ssl);
    t->ssl = NULL;
    OPENSSL_clear_free(t->secrets, sizeof *t->secrets);
    t->secrets = NULL;
}

/* The handshake is over: records are ours from now on. */
static int open_up(struct transport_tls *t)
{
    const struct ms_tls_secrets *s = t->secrets;
    const uint8_t *ours = t->is_server ? s->server : s->client;
    const uint8_t *theirs = t->is_server ? s->client : s->server;

    if (!s->has_client || !s->has_server || SSL_has_pending(t->ssl) ||
        ms_record_key_init(&t->seal, ours, true) < 0 ||
        ms_record_key_init(&t->open, theirs, false) < 0)
        return fail(t);
    ms_tls_drop_library(t);
    atomic_store(&t->is_open, true);
    return 0;
}

int ms_tls_shake(struct transport_tls *t)
{
    int rc;

    if (atomic_load(&t->failed))
        return atomic_load(&t->failed);
    ERR_clear_error();
    rc = SSL_do_handshake(t->ssl);
    if (rc == 1 && SSL_session_reused(t->ssl))
        return open_up(t);
    if (rc == 1) /* without our key: it must not be */
        return fail(t);
    if (SSL_get_error(t->ssl, rc) == SSL_ERROR_WANT_READ)
        return -EAGAIN;
    return fail(t);
}
