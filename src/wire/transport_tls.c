/* TLS over a TCP socket.
 *
 * The TLS library shakes hands, with buffers of our own below it: received bytes are given
 * to it from memory, what it wants to send goes to `out`, and from there to the socket. When
 * the handshake is over the library has told the secrets of both directions and is dropped;
 * records are made and opened by record.h, in place.
 *
 * `lock` guards the library, the sealing key and `out`; it is held for one pass and one send,
 * which never block. The opening key and what was received are the reader's. */
#include "base/buf.h"
#include "base/cleanup.h"
#include "wire/record.h"
#include "wire/tls_internal.h"
#include "wire/transport.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>

enum {
    RECEIVE_SIZE = 32 << 10, /* one read of the socket */
    OUT_MAX = 64 << 10,      /* unsent bytes until nothing more is taken */
    KEY_UPDATE = 24,         /* messages after the handshake */
    NEW_TICKET = 4,
    CLOSE_NOTIFY = 0 /* of an alert */
};

/* What the library tells while it shakes hands. */
struct secrets {
    uint8_t client[MS_RECORD_SECRET], server[MS_RECORD_SECRET];
    bool has_client, has_server;
};

struct transport_tls {
    struct ms_transport base;
    struct ms_tls *tls;
    pthread_mutex_t lock;
    SSL *ssl; /* NULL once it is open */
    bool is_server;
    struct secrets *secrets; /* until it is open */
    _Atomic bool is_open;
    bool is_lazy;
    struct ms_record_key seal;
    _Atomic size_t out_len; /* of out */
    struct ms_buf out;
    _Atomic int broken; /* the kernel tells a failure once, and perhaps to the writer */
    _Atomic int failed; /* why it cannot go on */
    char reason[160];

    /* the reader's */
    struct ms_record_key open;
    const uint8_t *feed; /* handshake: received, not yet taken by the library */
    size_t feed_len;
    struct ms_buf in;     /* received, not opened: a piece of a record, or more */
    struct ms_buf opened; /* of a record that was too long for who read it */
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
    struct secrets *s = t ? t->secrets : NULL;

    if (!s)
        return;
    s->has_client |= take_secret(line, "CLIENT_TRAFFIC_SECRET_0", s->client);
    s->has_server |= take_secret(line, "SERVER_TRAFFIC_SECRET_0", s->server);
}

static void drop_library(struct transport_tls *t)
{
    SSL_free(t->ssl);
    t->ssl = NULL;
    OPENSSL_clear_free(t->secrets, sizeof *t->secrets);
    t->secrets = NULL;
}

/* The handshake is over: records are ours from now on. */
static int open_up(struct transport_tls *t)
{
    const struct secrets *s = t->secrets;
    const uint8_t *ours = t->is_server ? s->server : s->client;
    const uint8_t *theirs = t->is_server ? s->client : s->server;

    if (!s->has_client || !s->has_server || SSL_has_pending(t->ssl) ||
        ms_record_key_init(&t->seal, ours, true) < 0 ||
        ms_record_key_init(&t->open, theirs, false) < 0)
        return fail(t);
    drop_library(t);
    atomic_store(&t->is_open, true);
    return 0;
}

/* One step of the handshake. 0: open; -EAGAIN; or it failed. */
static int shake(struct transport_tls *t)
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

    if (rc < 0 || !is_asked)
        return rc;
    pthread_mutex_lock(&t->lock);
    rc = renew_seal(t);
    atomic_store(&t->out_len, t->out.len);
    pthread_mutex_unlock(&t->lock);
    return rc;
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
        int rc;

        if (whole < 0)
            return break_off(t, "what came is no record");
        if (whole == 0 || (size_t)whole > len - *used)
            break;
        n = ms_record_open(&t->open, data + *used, (size_t)whole, &type);
        if (n < 0)
            return break_off(t, "a record was changed on its way");
        if (type == MS_RECORD_DATA) {
            n = hand_out(
                t, data + *used + MS_RECORD_HEAD, (size_t)n, at + have, room - have);
            if (n < 0)
                return n;
            have += (size_t)n;
        } else {
            rc = other_record(t, type, data + *used + MS_RECORD_HEAD, (size_t)n);
            if (rc != 0)
                return have ? (ssize_t)have : rc > 0 ? 0 : rc;
        }
        *used += (size_t)whole;
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
    size_t used = 0;
    ssize_t n = open_records(t, t->in.data, t->in.len, &used, at, room);

    if (n == -EAGAIN && used == 0) {
        if (ms_buf_reserve(&t->in, RECEIVE_SIZE) < 0)
            return -ENOMEM;
        n = receive(t, t->in.data + t->in.len, RECEIVE_SIZE);
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
    if (t->in.len)
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
    rc = shake(t);
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

/* The next bytes of a list, at most `room`; the count. */
static size_t
gather(const struct iovec *iov, int count, size_t skip, uint8_t *at, size_t room)
{
    size_t have = 0;

    for (int i = 0; i < count && have < room; i++) {
        size_t len = iov[i].iov_len, n;

        if (skip >= len) {
            skip -= len;
            continue;
        }
        n = len - skip < room - have ? len - skip : room - have;
        memcpy(at + have, (const uint8_t *)iov[i].iov_base + skip, n);
        have += n;
        skip = 0;
    }
    return have;
}

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

        if (rc == 0) {
            gather(iov, count, done, at + MS_RECORD_HEAD, len);
            rc = seal(t, MS_RECORD_DATA, at, len);
        }
        if (rc == 0 && t->seal.count >= MS_RECORD_KEY_MAX)
            rc = renew_seal(t);
        if (rc < 0)
            return rc;
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

    drop_library(t);
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
    struct secrets *secrets = t ? OPENSSL_zalloc(sizeof *secrets) : NULL;
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
        shake(t);                                   /* its first words wait in `out` */
        atomic_store(&t->out_len, t->out.len);
    }
    return &t->base;
}
