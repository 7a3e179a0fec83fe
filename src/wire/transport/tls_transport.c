/* tls_transport.c - TLS over a TCP socket: sending and receiving
 *
 * The TLS library shakes hands and makes the records, with buffers of our own below
 * it: received bytes are given to it from memory, what it wants to send goes to `out`,
 * and from there to the socket, several records at a time. */
#include "wire/transport/tls_impl.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

enum {
    WRITE_MAX = 4 * MS_TLS_RECORD_MAX, /* bytes that are taken and sent at a time */
    RECEIVE_SIZE = 64 << 10            /* one read of the socket */
};

/* ---- sending, with the lock held ---------------------------------------------------- */

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
        rc = send_out(t);
    if (rc < 0)
        return rc;
    if (!atomic_load(&t->is_open) || t->out.len)
        return -EAGAIN;
    n = encrypt(t, iov, count);
    if (t->out.len)
        rc = send_out(t);
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
    return send_out(t);
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

/* ---- reading ---------------------------------------------------------------------- */

/* One read of the socket: the count, 0 at its end, or a negative errno. */
static ssize_t receive(struct transport_tls *t, uint8_t *at, size_t room)
{
    ssize_t n = ms_socket_read(&t->base, at, room);

    if (n > 0 || n == -EAGAIN)
        return n;
    if (n < 0)
        atomic_store(&t->broken, (int)n);
    return atomic_load(&t->broken);
}

/* With the lock held: the handshake, and behind it a record. As ms_tls_open. */
static ssize_t take_record(struct transport_tls *t, uint8_t *at, size_t room)
{
    int rc = atomic_load(&t->is_open) ? 0 : ms_tls_shake(t);

    return rc < 0 ? rc : ms_tls_open(t, at, room);
}

/* Let the library read of the feed, once, and send what it has to say to that. */
static ssize_t
read_feed(struct transport_tls *t, struct ms_tls_feed *feed, uint8_t *at, size_t room)
{
    size_t said;
    ssize_t n;
    int rc = 0;
    MS_LOCK(&t->lock);

    if (atomic_load(&t->failed))
        return atomic_load(&t->failed);
    said = t->out.len;
    t->feed = feed;
    n = take_record(t, at, room);
    t->feed = NULL;
    if (t->out.len > said)
        rc = send_out(t);
    return rc < 0 && n == -EAGAIN ? rc : n;
}

/* Record by record, so that a writer has its turn, while there is room. The count, 0 at the
 * end, -EAGAIN, or a negative errno. */
static ssize_t read_records(struct transport_tls *t,
                            struct ms_tls_feed *feed,
                            uint8_t *at,
                            size_t room)
{
    size_t have = 0;
    ssize_t n = -EAGAIN;

    while (have < room && (feed->len || t->has_opened)) {
        n = read_feed(t, feed, at + have, room - have);
        if (n <= 0)
            break;
        have += (size_t)n;
    }
    return have ? (ssize_t)have : n;
}

/* What was received before, for a reader who had no room. */
static ssize_t read_rest(struct transport_tls *t, uint8_t *at, size_t room)
{
    struct ms_tls_feed feed = {t->in.data, t->in.len};
    ssize_t n = read_records(t, &feed, at, room);

    ms_buf_consume(&t->in, t->in.len - feed.len);
    if (t->in.len == 0)
        ms_buf_finish(&t->in);
    return n;
}

/* What a reader had no room for. 0, or it cannot go on. */
static int keep_rest(struct transport_tls *t, const struct ms_tls_feed *feed)
{
    int rc = feed->len ? ms_buf_append(&t->in, feed->data, feed->len) : 0;

    if (rc < 0) {
        pthread_mutex_lock(&t->lock);
        ms_tls_break_off(t, rc, "no memory for what was received");
        pthread_mutex_unlock(&t->lock);
    }
    return rc;
}

/* One read of the socket, and of the library; *is_full: there may be more in the socket. */
static ssize_t
receive_once(struct transport_tls *t, uint8_t *at, size_t room, bool *is_full)
{
    uint8_t buffer[RECEIVE_SIZE];
    struct ms_tls_feed feed = {.data = buffer};
    ssize_t n = receive(t, buffer, sizeof buffer);

    *is_full = n == sizeof buffer;
    if (n <= 0)
        return n;
    feed.len = (size_t)n;
    n = read_records(t, &feed, at, room);
    return keep_rest(t, &feed) < 0 ? -ENOMEM : n;
}

/* What the socket has, while there is room. What ends it is told at the next read, if
 * something came before. */
static ssize_t receive_all(struct transport_tls *t, uint8_t *at, size_t room)
{
    size_t have = 0;
    bool is_full = true;
    ssize_t n = 0;

    while (is_full && have < room) {
        n = receive_once(t, at + have, room - have, &is_full);
        if (n <= 0)
            break;
        have += (size_t)n;
    }
    return have ? (ssize_t)have : n;
}

static bool tls_has_more(struct ms_transport *base)
{
    struct transport_tls *t = ms_tls_of(base);

    return t->in.len || t->has_opened;
}

static ssize_t tls_read(struct ms_transport *base, void *at, size_t room)
{
    struct transport_tls *t = ms_tls_of(base);
    ssize_t n = -EAGAIN;

    if (atomic_load(&t->failed))
        return atomic_load(&t->failed);
    if (tls_has_more(base))
        n = read_rest(t, at, room);
    if (n == -EAGAIN)
        n = t->has_ended ? 0 : receive_all(t, at, room);
    return n;
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
    .is_network = true,
    .read = tls_read,
    .write = tls_write,
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
