/* tls_read.c - receiving over TLS */
#include "wire/transport/tls_impl.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

enum { RECEIVE_SIZE = 64 << 10 }; /* one read of the socket */

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
        rc = ms_tls_send_out(t);
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

bool ms_tls_has_more(struct ms_transport *base)
{
    struct transport_tls *t = ms_tls_of(base);

    return t->in.len || t->has_opened;
}

ssize_t ms_tls_read(struct ms_transport *base, void *at, size_t room)
{
    struct transport_tls *t = ms_tls_of(base);
    ssize_t n = -EAGAIN;

    if (atomic_load(&t->failed))
        return atomic_load(&t->failed);
    if (ms_tls_has_more(base))
        n = read_rest(t, at, room);
    if (n == -EAGAIN)
        n = t->has_ended ? 0 : receive_all(t, at, room);
    return n;
}
