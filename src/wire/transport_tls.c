/* TLS over a TCP socket, with buffers of our own below the library.
 *
 * Received bytes are read into memory first, by the one reader, and the library takes them
 * from there; what it wants to send it puts into `out`, from where it goes to the socket. So
 * the library never waits for the socket, a poll that finds nothing costs no lock, and a
 * write that was taken is done, whatever the socket says.
 *
 * The library's object is for one thread at a time: `lock` guards it and `out`, and is held
 * for one pass of the library and one send, which never block. */
#include "base/buf.h"
#include "base/cleanup.h"
#include "wire/tls_internal.h"
#include "wire/transport.h"

#include <errno.h>
#include <openssl/err.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>

enum {
    RECEIVE_SIZE = 32 << 10, /* one read of the socket */
    OUT_MAX = 64 << 10       /* unsent bytes until nothing more is taken */
};

struct transport_tls {
    struct ms_transport base;
    struct ms_tls *tls;
    pthread_mutex_t lock;
    SSL *ssl;
    _Atomic bool is_open;
    bool is_lazy;
    _Atomic size_t out_len; /* of out */
    struct ms_buf out;
    _Atomic int broken; /* the kernel tells a failure once, and perhaps to the writer */
    int failed;         /* why the library cannot go on */
    char reason[160];

    /* the reader's */
    const uint8_t *feed; /* received, not yet taken by the library */
    size_t feed_len;
    uint8_t *rest; /* memory behind feed between two reads, or NULL */
    bool may_have; /* the library may hold more that is decrypted */
};

static struct transport_tls *of(struct ms_transport *t)
{
    return MS_CONTAINER(t, struct transport_tls, base);
}

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

/* ---- with the lock held ----------------------------------------------------------- */

/* The library has failed for good. Where it was still shaking hands the other side does not
 * know the secret: nothing else is left that could go wrong there. */
static int fail(struct transport_tls *t)
{
    unsigned long code = ERR_peek_last_error();
    const char *text = code ? ERR_reason_error_string(code) : NULL;

    t->failed = atomic_load(&t->is_open) ? -EPROTO : -EACCES;
    snprintf(t->reason, sizeof t->reason, "%s", text ? text : "no reason is known");
    ERR_clear_error();
    return t->failed;
}

/* Send what is in `out`. 0 (perhaps not all), or a negative errno. */
static int send_out(struct transport_tls *t)
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

/* One step of the handshake. 0: open; -EAGAIN; or it failed. */
static int shake(struct transport_tls *t)
{
    int rc;

    if (t->failed)
        return t->failed;
    ERR_clear_error();
    rc = SSL_do_handshake(t->ssl);
    if (rc == 1 && SSL_session_reused(t->ssl)) {
        atomic_store(&t->is_open, true);
        return 0;
    }
    if (rc == 1) /* without our key: it must not be */
        return fail(t);
    if (SSL_get_error(t->ssl, rc) == SSL_ERROR_WANT_READ)
        return -EAGAIN;
    return fail(t);
}

/* Decrypt into at[0..room): the count, -EAGAIN, 0 at the end, or a negative errno. */
static ssize_t decrypt(struct transport_tls *t, uint8_t *at, size_t room)
{
    size_t have = 0;
    int rc = 1;

    if (!atomic_load(&t->is_open)) {
        rc = shake(t);
        if (rc < 0)
            return rc;
    }
    ERR_clear_error();
    while (have < room) {
        size_t n = 0;

        rc = SSL_read_ex(t->ssl, at + have, room - have, &n);
        if (rc <= 0)
            break;
        have += n;
    }
    t->may_have = have == room;
    if (have)
        return (ssize_t)have;
    switch (SSL_get_error(t->ssl, rc)) {
    case SSL_ERROR_WANT_READ:
        return -EAGAIN;
    case SSL_ERROR_ZERO_RETURN:
        return 0;
    default:
        return fail(t);
    }
}

/* ---- reading ---------------------------------------------------------------------- */

/* Keep what the library did not take: `feed` points into memory that goes away. */
static int keep_rest(struct transport_tls *t, const uint8_t *buffer)
{
    uint8_t *rest;

    if (t->feed_len == 0) {
        free(t->rest);
        t->rest = NULL;
        t->feed = NULL;
        return 0;
    }
    if (t->feed < buffer || t->feed >= buffer + RECEIVE_SIZE)
        return 0; /* it is in `rest` already */
    rest = malloc(t->feed_len);
    if (!rest)
        return -ENOMEM;
    memcpy(rest, t->feed, t->feed_len);
    free(t->rest);
    t->feed = t->rest = rest;
    return 0;
}

/* One read of the socket: the count, 0 at its end, or a negative errno. */
static ssize_t receive(struct transport_tls *t, uint8_t *buffer, size_t room)
{
    size_t want = room + 512; /* records are a little longer than what they hold */
    ssize_t n;

    if (want > RECEIVE_SIZE)
        want = RECEIVE_SIZE;
    do
        n = recv(t->base.fd, buffer, want, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN)
        return -EAGAIN;
    if (n <= 0) {
        n = n < 0 ? -errno : 0;
        return atomic_load(&t->broken) ? atomic_load(&t->broken) : n;
    }
    t->feed = buffer;
    t->feed_len = (size_t)n;
    return n;
}

static bool tls_has_more(struct ms_transport *base)
{
    struct transport_tls *t = of(base);

    return t->feed_len || t->may_have;
}

static ssize_t tls_read(struct ms_transport *base, void *at, size_t room)
{
    struct transport_tls *t = of(base);
    uint8_t buffer[RECEIVE_SIZE];
    ssize_t n;
    int sent = 0;

    if (!tls_has_more(base)) {
        n = receive(t, buffer, room);
        if (n <= 0)
            return n;
    }
    pthread_mutex_lock(&t->lock);
    n = decrypt(t, at, room);
    if (t->out.len)
        sent = send_out(t);
    pthread_mutex_unlock(&t->lock);
    if (keep_rest(t, buffer) < 0)
        return -ENOMEM;
    if (n == -EAGAIN && sent < 0)
        return sent;
    return n;
}

/* ---- writing ---------------------------------------------------------------------- */

/* Encrypt as much as `out` may hold: the count, or a negative errno. */
static ssize_t encrypt(struct transport_tls *t, const struct iovec *iov, int count)
{
    uint8_t record[SSL3_RT_MAX_PLAIN_LENGTH];
    size_t done = 0, have = 0;

    for (int i = 0; i < count && t->out.len < OUT_MAX; i++) {
        const uint8_t *from = iov[i].iov_base;
        size_t len = iov[i].iov_len, at = 0;

        while (at < len && t->out.len < OUT_MAX) {
            size_t n =
                len - at < sizeof record - have ? len - at : sizeof record - have;
            size_t written;

            memcpy(record + have, from + at, n);
            have += n;
            at += n;
            if (have < sizeof record)
                continue;
            if (SSL_write_ex(t->ssl, record, have, &written) <= 0)
                return fail(t);
            done += have;
            have = 0;
        }
    }
    if (have) {
        size_t written;

        if (SSL_write_ex(t->ssl, record, have, &written) <= 0)
            return fail(t);
        done += have;
    }
    return (ssize_t)done;
}

static ssize_t write_locked(struct transport_tls *t, const struct iovec *iov, int count)
{
    ssize_t n;
    int rc = t->failed ? t->failed : send_out(t);

    if (rc < 0)
        return rc;
    if (!atomic_load(&t->is_open) || t->out.len)
        return -EAGAIN;
    ERR_clear_error();
    n = encrypt(t, iov, count);
    if (n > 0) {
        rc = send_out(t);
        if (rc < 0)
            return rc;
    }
    return n;
}

static ssize_t tls_write(struct ms_transport *base, const struct iovec *iov, int count)
{
    struct transport_tls *t = of(base);
    ssize_t n;

    pthread_mutex_lock(&t->lock);
    n = write_locked(t, iov, count);
    pthread_mutex_unlock(&t->lock);
    return n;
}

static bool tls_wants_write(struct ms_transport *base)
{
    return atomic_load(&of(base)->out_len) != 0;
}

static int tls_flush(struct ms_transport *base)
{
    struct transport_tls *t = of(base);
    int rc = 0;

    if (!atomic_load(&t->out_len))
        return 0;
    pthread_mutex_lock(&t->lock);
    rc = send_out(t);
    pthread_mutex_unlock(&t->lock);
    return rc;
}

static void tls_set_lazy(struct ms_transport *base)
{
    struct transport_tls *t = of(base);

    pthread_mutex_lock(&t->lock);
    t->is_lazy = true;
    SSL_set_mode(t->ssl, SSL_MODE_RELEASE_BUFFERS);
    pthread_mutex_unlock(&t->lock);
}

static bool tls_is_open(struct ms_transport *base)
{
    return atomic_load(&of(base)->is_open);
}

/* ---- life ------------------------------------------------------------------------- */

static bool tls_explain(struct ms_transport *base, struct ms_error *err)
{
    struct transport_tls *t = of(base);
    int failed;

    pthread_mutex_lock(&t->lock);
    failed = t->failed;
    pthread_mutex_unlock(&t->lock);
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
    struct transport_tls *t = of(base);

    SSL_free(t->ssl);
    ms_tls_unref(t->tls);
    ms_buf_finish(&t->out);
    free(t->rest);
    pthread_mutex_destroy(&t->lock);
    close(base->fd);
    free(t);
}

static const struct ms_transport_ops tls_ops = {
    .name = "tls",
    .is_network = true,
    .read = tls_read,
    .write = tls_write,
    .check_peer = tls_check_peer,
    .destroy = tls_destroy,
    .wants_write = tls_wants_write,
    .flush = tls_flush,
    .set_lazy = tls_set_lazy,
    .is_open = tls_is_open,
    .has_more = tls_has_more,
    .explain = tls_explain,
};

struct ms_transport *ms_transport_tls(int fd, struct ms_tls *tls, bool is_server)
{
    struct transport_tls *t = calloc(1, sizeof *t);
    SSL *ssl = t ? SSL_new(tls->ctx) : NULL;
    BIO *bio = ssl ? BIO_new(tls->method) : NULL;

    if (!bio) {
        SSL_free(ssl);
        free(t);
        return NULL;
    }
    t->base = (struct ms_transport){.ops = &tls_ops, .fd = fd};
    t->tls = ms_tls_ref(tls);
    t->ssl = ssl;
    pthread_mutex_init(&t->lock, NULL);
    ms_buf_init(&t->out);
    BIO_set_data(bio, t);
    BIO_set_init(bio, 1);
    SSL_set_bio(ssl, bio, bio);
    if (is_server) {
        SSL_set_accept_state(ssl);
    } else {
        SSL_set_connect_state(ssl);
        SSL_set_verify(ssl, SSL_VERIFY_PEER, NULL); /* and no certificate is right */
        shake(t);                                   /* its first words wait in `out` */
        atomic_store(&t->out_len, t->out.len);
    }
    return &t->base;
}
