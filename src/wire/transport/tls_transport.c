/* tls_transport.c - TLS over a TCP socket
 *
 * The TLS library shakes hands and makes the records, with buffers of our own below
 * it: received bytes are given to it from memory, what it wants to send goes to `out`,
 * and from there to the socket, several records at a time. */
#include "wire/transport/tls_impl.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

enum {
    WRITE_MAX = 4 * MS_TLS_RECORD_MAX
}; /* bytes that are taken and sent at a time */

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
    if (t->is_lazy)
        ms_buf_finish(&t->out); /* thousands of idle ones shall cost little */
    atomic_store(&t->out_len, 0);
    return 0;
}

/* ---- writing ---------------------------------------------------------------------- */

/* The next `len` bytes of a list behind the first `skip`: where they are, or gathered. */
static const uint8_t *
next_bytes(const struct iovec *iov, size_t skip, size_t len, uint8_t *gathered)
{
    size_t have = 0;

    for (; skip >= iov->iov_len; iov++)
        skip -= iov->iov_len;
    if (iov->iov_len - skip >= len)
        return (const uint8_t *)iov->iov_base + skip;
    for (; have < len; iov++, skip = 0) {
        size_t n = iov->iov_len - skip;

        if (n > len - have)
            n = len - have;
        if (n)
            memcpy(gathered + have, (const uint8_t *)iov->iov_base + skip, n);
        have += n;
    }
    return gathered;
}

/* Make records of as much as is sent at a time: the count, or a negative errno. */
static ssize_t encrypt(struct transport_tls *t, const struct iovec *iov, int count)
{
    uint8_t gathered[MS_TLS_RECORD_MAX];
    size_t all = ms_iov_len(iov, count), most = all < WRITE_MAX ? all : WRITE_MAX,
           done = 0;
    int rc = ms_buf_reserve(&t->out,
                            most + (most / MS_TLS_RECORD_MAX + 1) * MS_TLS_RECORD_MORE);

    while (rc == 0 && done < most) {
        size_t len = most - done < MS_TLS_RECORD_MAX ? most - done : MS_TLS_RECORD_MAX;

        rc = ms_tls_seal(t, next_bytes(iov, done, len, gathered), len);
        if (rc == 0)
            done += len;
    }
    return done ? (ssize_t)done : rc;
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
    if (t->out.len)
        rc = ms_tls_send_out(t);
    return n > 0 && rc < 0 ? rc : n;
}

static ssize_t tls_write(struct ms_transport *base, const struct iovec *iov, int count)
{
    struct transport_tls *t = ms_tls_of(base);
    MS_LOCK(&t->lock);

    return write_locked(t, iov, count);
}

static bool tls_wants_write(struct ms_transport *base)
{
    return atomic_load(&ms_tls_of(base)->out_len) != 0;
}

static int tls_flush(struct ms_transport *base)
{
    struct transport_tls *t = ms_tls_of(base);

    if (!atomic_load(&t->out_len))
        return 0;
    MS_LOCK(&t->lock);
    return ms_tls_send_out(t);
}

static void tls_set_lazy(struct ms_transport *base)
{
    struct transport_tls *t = ms_tls_of(base);

    MS_LOCK(&t->lock);

    t->is_lazy = true;
    SSL_set_mode(t->ssl, SSL_MODE_RELEASE_BUFFERS);
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

static void tls_destroy(struct ms_transport *base)
{
    struct transport_tls *t = ms_tls_of(base);

    SSL_free(t->ssl);
    ms_tls_unref(t->tls);
    ms_buf_finish(&t->out);
    ms_buf_finish(&t->in);
    pthread_mutex_destroy(&t->lock);
    ms_fd_close(&base->fd);
    free(t);
}

static const struct ms_transport_ops tls_ops = {
    .name = "tls",
    .is_network = true,
    .read = ms_tls_read,
    .write = tls_write,
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

    if (!t)
        return NULL;
    t->base = (struct ms_transport){.ops = &tls_ops, .fd = fd};
    t->tls = ms_tls_ref(tls);
    pthread_mutex_init(&t->lock, NULL);
    if (ms_tls_start(t, is_server) < 0) {
        t->base.fd = -1; /* the caller's */
        tls_destroy(&t->base);
        return NULL;
    }
    atomic_store(&t->out_len, t->out.len);
    return &t->base;
}
