/* TLS over a TCP socket.
 *
 * The TLS library shakes hands, with buffers of our own below it: received bytes are given
 * to it from memory, what it wants to send goes to `out`, and from there to the socket. When
 * the handshake is over the library has told the secrets of both directions and is dropped;
 * records are made and opened by record.h, in place.
 *
 * `lock` guards the library, the sealing key and `out`; it is held for one pass and one send,
 * which never block. The opening key and what was received are the reader's. */
#include "wire/transport_tls_impl.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <string.h>
#include <sys/socket.h>

enum { OUT_MAX = 64 << 10 }; /* unsent bytes until nothing more is taken */

/* ---- sending, with the lock held ---------------------------------------------------- */

int ms_tls_send_out(struct transport_tls *t)
{
    while (t->out.len) {
        ssize_t n =
            send(t->base.fd, t->out.data, t->out.len, MSG_DONTWAIT | MSG_NOSIGNAL);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            int rc = -errno;

            atomic_store(&t->out_len, t->out.len);
            if (rc == -EPIPE && atomic_load(&t->broken))
                rc = atomic_load(&t->broken);
            if (rc != -EAGAIN && rc != -EPIPE)
                atomic_store(&t->broken, rc);
            return rc == -EAGAIN ? 0 : rc;
        }
        if ((size_t)n == t->out.len)
            t->out.len = 0;
        else
            ms_buf_consume(&t->out, (size_t)n);
    }
    if (t->is_lazy) {
        ms_buf_finish(&t->out); /* thousands of idle ones shall cost little */
        ms_buf_init(&t->out);
    }
    atomic_store(&t->out_len, 0);
    return 0;
}

/* ---- sealing, with the lock held --------------------------------------------------- */

/* Room for one more record in `out`: where it begins, or NULL. */
static uint8_t *record_room(struct transport_tls *t, size_t len)
{
    size_t whole = MS_RECORD_HEAD + len + MS_RECORD_TAIL;

    return ms_buf_reserve(&t->out, whole) < 0 ? NULL : t->out.data + t->out.len;
}

static int
seal(struct transport_tls *t, enum ms_record_type type, uint8_t *at, size_t len)
{
    int rc = ms_record_seal(&t->seal, type, at, len);

    if (rc == 0)
        t->out.len += MS_RECORD_HEAD + len + MS_RECORD_TAIL;
    return rc;
}

int ms_tls_renew_seal(struct transport_tls *t)
{
    static const uint8_t update[] = {MS_TLS_KEY_UPDATE, 0, 0, 1, 0};
    uint8_t *at = record_room(t, sizeof update);
    int rc = at ? 0 : -ENOMEM;

    if (rc == 0) {
        memcpy(at + MS_RECORD_HEAD, update, sizeof update);
        rc = seal(t, MS_RECORD_HANDSHAKE, at, sizeof update);
    }
    return rc < 0 ? rc : ms_record_key_renew(&t->seal);
}

int ms_tls_break_off(struct transport_tls *t, const char *reason)
{
    snprintf(t->reason, sizeof t->reason, "%s", reason);
    atomic_store(&t->failed, -EPROTO);
    return -EPROTO;
}

/* ---- writing ---------------------------------------------------------------------- */

static size_t total(const struct iovec *iov, int count)
{
    size_t sum = 0;

    for (int i = 0; i < count; i++)
        sum += iov[i].iov_len;
    return sum;
}

/* Seal as much as `out` may hold: the count, or a negative errno. */
static ssize_t encrypt(struct transport_tls *t, const struct iovec *iov, int count)
{
    size_t all = total(iov, count), done = 0;

    while (done < all && t->out.len < OUT_MAX) {
        size_t len =
            all - done < MS_RECORD_PLAIN_MAX ? all - done : MS_RECORD_PLAIN_MAX;
        uint8_t *at = record_room(t, len);
        int rc = at ? 0 : -ENOMEM;

        if (rc == 0)
            rc = ms_record_seal_from(&t->seal, MS_RECORD_DATA, at, iov, done, len);
        if (rc == 0)
            t->out.len += MS_RECORD_HEAD + len + MS_RECORD_TAIL;
        if (rc == 0 && t->seal.count >= MS_RECORD_KEY_MAX)
            rc = ms_tls_renew_seal(t);
        if (rc == -ENOMEM && !at && done == 0)
            return rc; /* nothing has happened */
        if (rc < 0)
            return ms_tls_break_off(t, "a record could not be made");
        done += len;
    }
    return (ssize_t)done;
}

static ssize_t write_locked(struct transport_tls *t, const struct iovec *iov, int count)
{
    ssize_t n;
    int rc = atomic_load(&t->failed);

    if (rc == 0 && t->out.len)
        rc = ms_tls_send_out(t);
    if (rc < 0)
        return rc;
    if (!atomic_load(&t->is_open) || t->out.len)
        return -EAGAIN;
    n = encrypt(t, iov, count);
    if (n > 0) {
        rc = ms_tls_send_out(t);
        if (rc < 0)
            return rc;
    }
    return n;
}

static ssize_t tls_write(struct ms_transport *base, const struct iovec *iov, int count)
{
    struct transport_tls *t = ms_tls_of(base);
    ssize_t n;

    pthread_mutex_lock(&t->lock);
    n = write_locked(t, iov, count);
    pthread_mutex_unlock(&t->lock);
    return n;
}

static bool tls_wants_write(struct ms_transport *base)
{
    return atomic_load(&ms_tls_of(base)->out_len) != 0;
}

static int tls_flush(struct ms_transport *base)
{
    struct transport_tls *t = ms_tls_of(base);
    int rc = 0;

    if (!atomic_load(&t->out_len))
        return 0;
    pthread_mutex_lock(&t->lock);
    rc = ms_tls_send_out(t);
    pthread_mutex_unlock(&t->lock);
    return rc;
}

static void tls_set_lazy(struct ms_transport *base)
{
    struct transport_tls *t = ms_tls_of(base);

    pthread_mutex_lock(&t->lock);
    t->is_lazy = true;
    pthread_mutex_unlock(&t->lock);
}

static bool tls_is_open(struct ms_transport *base)
{
    return atomic_load(&ms_tls_of(base)->is_open);
}

/* ---- life ------------------------------------------------------------------------- */

static bool tls_explain(struct ms_transport *base, struct ms_error *err)
{
    struct transport_tls *t = ms_tls_of(base);
    int failed = atomic_load(&t->failed);

    if (!failed)
        return false;
    if (failed == -EACCES)
        ms_error_set(
            err,
            failed,
            "TLS could not be agreed on: the other side has another secret, or "
            "does not speak TLS (%s)",
            t->reason);
    else
        ms_error_set(err, failed, "TLS broke (%s)", t->reason);
    return true;
}

static int tls_check_peer(struct ms_transport *base, struct ms_error *err)
{
    (void)base;
    (void)err;
    return 0; /* whoever has the key may talk */
}

static void tls_destroy(struct ms_transport *base)
{
    struct transport_tls *t = ms_tls_of(base);

    ms_tls_drop_library(t);
    ms_record_key_finish(&t->seal);
    ms_record_key_finish(&t->open);
    ms_tls_unref(t->tls);
    ms_buf_finish(&t->out);
    ms_buf_finish(&t->in);
    ms_buf_finish(&t->opened);
    pthread_mutex_destroy(&t->lock);
    close(base->fd);
    free(t);
}

static const struct ms_transport_ops tls_ops = {
    .name = "tls",
    .is_network = true,
    .read = ms_tls_read,
    .write = tls_write,
    .check_peer = tls_check_peer,
    .destroy = tls_destroy,
    .wants_write = tls_wants_write,
    .flush = tls_flush,
    .set_lazy = tls_set_lazy,
    .is_open = tls_is_open,
    .has_more = ms_tls_has_more,
    .explain = tls_explain,
};

struct ms_transport *ms_transport_tls(int fd, struct ms_tls *tls, bool is_server)
{
    struct transport_tls *t = calloc(1, sizeof *t);
    struct ms_tls_secrets *secrets = t ? OPENSSL_zalloc(sizeof *secrets) : NULL;
    SSL *ssl = secrets ? SSL_new(tls->ctx) : NULL;
    BIO *bio = ssl ? BIO_new(tls->method) : NULL;

    if (!bio) {
        SSL_free(ssl);
        OPENSSL_free(secrets);
        free(t);
        return NULL;
    }
    t->base = (struct ms_transport){.ops = &tls_ops, .fd = fd};
    t->tls = ms_tls_ref(tls);
    t->ssl = ssl;
    t->is_server = is_server;
    t->secrets = secrets;
    pthread_mutex_init(&t->lock, NULL);
    ms_buf_init(&t->out);
    ms_buf_init(&t->in);
    ms_buf_init(&t->opened);
    BIO_set_data(bio, t);
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl, bio, bio);
    SSL_set_app_data(ssl, t);
    if (is_server) {
        SSL_set_accept_state(ssl);
    } else {
        SSL_set_connect_state(ssl);
        SSL_set_verify(ssl, SSL_VERIFY_PEER, NULL); /* and no certificate is right */
        ms_tls_shake(t);                            /* its first words wait in `out` */
        atomic_store(&t->out_len, t->out.len);
    }
    return &t->base;
}
