/* TLS over a TCP socket.
 *
 * The TLS library shakes hands, with buffers of our own below it: received bytes are given
 * to it from memory, what it wants to send goes to `out`, and from there to the socket. When
 * the handshake is over the library has told the secrets of both directions and is dropped;
 * records are made and opened by record.h, in place.
 *
 * `lock` guards the library, the sealing key and `out`; it is held for one pass and one send,
 * which never block. The opening key and what was received are the reader's. */
#include "base/cleanup.h"
#include "wire/transport_tls_impl.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <string.h>
#include <sys/socket.h>

enum {
    RECEIVE_SIZE = 32 << 10, /* one read of the socket */
    RECEIVE_BIG = 256 << 10, /* for a reader that has as much room */
    OUT_MAX = 64 << 10,      /* unsent bytes until nothing more is taken */
    KEY_UPDATE = 24,         /* messages after the handshake */
    NEW_TICKET = 4,
    CLOSE_NOTIFY = 0 /* of an alert */
};

static struct transport_tls *of(struct ms_transport *t)
{
    return MS_CONTAINER(t, struct transport_tls, base);
}

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

/* Say that what follows is under the next key. */
static int renew_seal(struct transport_tls *t)
{
    static const uint8_t update[] = {KEY_UPDATE, 0, 0, 1, 0};
    uint8_t *at = record_room(t, sizeof update);
    int rc = at ? 0 : -ENOMEM;

    if (rc == 0) {
        memcpy(at + MS_RECORD_HEAD, update, sizeof update);
        rc = seal(t, MS_RECORD_HANDSHAKE, at, sizeof update);
    }
    return rc < 0 ? rc : ms_record_key_renew(&t->seal);
}

/* ---- reading ---------------------------------------------------------------------- */

static int break_off(struct transport_tls *t, const char *reason)
{
    snprintf(t->reason, sizeof t->reason, "%s", reason);
    atomic_store(&t->failed, -EPROTO);
    return -EPROTO;
}

/* One read of the socket: the count, 0 at its end, or a negative errno. */
static ssize_t receive(struct transport_tls *t, uint8_t *at, size_t room)
{
    ssize_t n;

    do
        n = recv(t->base.fd, at, room, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN)
        return -EAGAIN;
    if (n <= 0) {
        n = n < 0 ? -errno : 0;
        return atomic_load(&t->broken) ? atomic_load(&t->broken) : n;
    }
    return n;
}

/* The other side goes on with its next key, and may want the same of us. */
static int key_update(struct transport_tls *t, bool is_asked)
{
    int rc = ms_record_key_renew(&t->open);

    if (rc == 0 && is_asked) {
        pthread_mutex_lock(&t->lock);
        rc = renew_seal(t);
        atomic_store(&t->out_len, t->out.len);
        pthread_mutex_unlock(&t->lock);
    }
    return rc < 0 ? break_off(t, "a key could not be renewed") : 0;
}

/* A record that is no data. 0: go on; 1: the end; or a negative errno. */
static int
other_record(struct transport_tls *t, int type, const uint8_t *data, size_t len)
{
    if (type == MS_RECORD_ALERT && len == 2 && data[1] == CLOSE_NOTIFY)
        return 1;
    if (type == MS_RECORD_ALERT)
        return break_off(t, "the other side sent an alert");
    if (type == MS_RECORD_HANDSHAKE && len == 5 && data[0] == KEY_UPDATE)
        return key_update(t, data[4] == 1);
    if (type == MS_RECORD_HANDSHAKE && len > 4 && data[0] == NEW_TICKET)
        return 0;
    return break_off(t, "an unexpected message after the handshake");
}

/* What is open to at[0..room), the rest aside. The count, or -ENOMEM. */
static ssize_t hand_out(
    struct transport_tls *t, const uint8_t *data, size_t len, void *at, size_t room)
{
    size_t n = len < room ? len : room;

    memcpy(at, data, n);
    if (n < len && ms_buf_append(&t->opened, data + n, len - n) < 0)
        return -ENOMEM;
    return (ssize_t)n;
}

/* Open one record: straight to at[0..room) if it may fit there. What it holds is at *data
 * then; the length, or -EBADMSG. */
static ssize_t open_record(struct transport_tls *t,
                           uint8_t *record,
                           size_t len,
                           uint8_t *at,
                           size_t room,
                           enum ms_record_type *type,
                           uint8_t **data)
{
    *data = ms_record_inner(len) <= room ? at : record + MS_RECORD_HEAD;
    return ms_record_open_to(&t->open, record, len, *data, type);
}

/* Open the whole records of data[0..len) while there is room, and say how many bytes they
 * were. The count of what was handed out, or 0 at the end, -EAGAIN, a negative errno. */
static ssize_t open_records(struct transport_tls *t,
                            uint8_t *data,
                            size_t len,
                            size_t *used,
                            uint8_t *at,
                            size_t room)
{
    size_t have = 0;

    *used = 0;
    while (have < room) {
        enum ms_record_type type;
        ssize_t whole = ms_record_length(data + *used, len - *used), n;
        uint8_t *held;
        int rc;

        if (whole < 0)
            return break_off(t, "what came is no record");
        if (whole == 0 || (size_t)whole > len - *used)
            break;
        n = open_record(
            t, data + *used, (size_t)whole, at + have, room - have, &type, &held);
        if (n < 0)
            return break_off(t, "a record was changed on its way");
        *used += (size_t)whole;
        if (type == MS_RECORD_DATA) {
            if (held != at + have)
                n = hand_out(t, held, (size_t)n, at + have, room - have);
            if (n < 0)
                return n;
            have += (size_t)n;
            continue;
        }
        rc = other_record(t, type, held, (size_t)n);
        if (rc > 0)
            t->has_ended = true;
        if (rc != 0)
            return have ? (ssize_t)have : rc > 0 ? 0 : rc;
    }
    return have ? (ssize_t)have : -EAGAIN;
}

/* What was opened for a reader before, who had no room. */
static ssize_t take_opened(struct transport_tls *t, void *at, size_t room)
{
    size_t n = t->opened.len < room ? t->opened.len : room;

    memcpy(at, t->opened.data, n);
    ms_buf_consume(&t->opened, n);
    if (t->opened.len == 0) {
        ms_buf_finish(&t->opened);
        ms_buf_init(&t->opened);
    }
    return (ssize_t)n;
}

static void shrink_in(struct transport_tls *t)
{
    if (t->in.len)
        return;
    ms_buf_finish(&t->in);
    ms_buf_init(&t->in);
}

/* More behind the piece of a record that is there. */
static ssize_t read_on(struct transport_tls *t, void *at, size_t room)
{
    size_t used = 0, size = room < RECEIVE_BIG ? RECEIVE_SIZE : RECEIVE_BIG;
    ssize_t n = open_records(t, t->in.data, t->in.len, &used, at, room);

    if (n == -EAGAIN && used == 0) {
        if (ms_buf_reserve(&t->in, size) < 0)
            return -ENOMEM;
        n = receive(t, t->in.data + t->in.len, size);
        if (n <= 0)
            return n;
        t->in.len += (size_t)n;
        n = open_records(t, t->in.data, t->in.len, &used, at, room);
    }
    ms_buf_consume(&t->in, used);
    shrink_in(t);
    return n;
}

static ssize_t read_open(struct transport_tls *t, void *at, size_t room)
{
    uint8_t buffer[RECEIVE_SIZE];
    size_t used = 0;
    ssize_t n, received;

    if (t->opened.len)
        return take_opened(t, at, room);
    if (t->has_ended)
        return 0;
    if (t->in.len || room >= RECEIVE_BIG)
        return read_on(t, at, room);
    received = receive(t, buffer, sizeof buffer);
    if (received <= 0)
        return received;
    n = open_records(t, buffer, (size_t)received, &used, at, room);
    if (used < (size_t)received &&
        ms_buf_append(&t->in, buffer + used, (size_t)received - used) < 0)
        return -ENOMEM;
    return n;
}

/* Give the library what has come; what it does not take is for the time after it. */
static ssize_t read_shaking(struct transport_tls *t)
{
    uint8_t buffer[RECEIVE_SIZE];
    ssize_t n = receive(t, buffer, sizeof buffer);
    int rc, sent = 0;

    if (n <= 0)
        return n;
    pthread_mutex_lock(&t->lock);
    t->feed = buffer;
    t->feed_len = (size_t)n;
    rc = ms_tls_shake(t);
    if (t->out.len)
        sent = send_out(t);
    pthread_mutex_unlock(&t->lock);
    if (t->feed_len && ms_buf_append(&t->in, t->feed, t->feed_len) < 0)
        return -ENOMEM;
    t->feed = NULL;
    t->feed_len = 0;
    if (rc < 0 && rc != -EAGAIN)
        return rc;
    return sent < 0 ? sent : -EAGAIN;
}

/* A whole record waits: poll knows nothing of it. */
static bool tls_has_more(struct ms_transport *base)
{
    struct transport_tls *t = of(base);
    ssize_t whole;

    if (t->opened.len)
        return true;
    if (t->in.len == 0)
        return false;
    whole = ms_record_length(t->in.data, t->in.len);
    return whole < 0 || (whole > 0 && (size_t)whole <= t->in.len);
}

static ssize_t tls_read(struct ms_transport *base, void *at, size_t room)
{
    struct transport_tls *t = of(base);
    ssize_t n;

    if (atomic_load(&t->failed))
        return atomic_load(&t->failed);
    if (!atomic_load(&t->is_open)) {
        n = read_shaking(t);
        if (n != -EAGAIN || !atomic_load(&t->is_open) || !tls_has_more(base))
            return n;
    }
    return read_open(t, at, room);
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
            rc = renew_seal(t);
        if (rc == -ENOMEM && !at && done == 0)
            return rc; /* nothing has happened */
        if (rc < 0)
            return break_off(t, "a record could not be made");
        done += len;
    }
    return (ssize_t)done;
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
    struct transport_tls *t = of(base);

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
