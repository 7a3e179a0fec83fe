#include "wire/transport_tls_impl.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

enum {
    RECEIVE_SIZE = 32 << 10, /* one read of the socket */
    RECEIVE_BIG = 256 << 10, /* for a reader that has as much room */
    NEW_TICKET = 4,          /* a message after the handshake */
    CLOSE_NOTIFY = 0         /* of an alert */
};

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
        rc = ms_tls_renew_seal(t);
        atomic_store(&t->out_len, t->out.len);
        pthread_mutex_unlock(&t->lock);
    }
    return rc < 0 ? ms_tls_break_off(t, "a key could not be renewed") : 0;
}

/* A record that is no data. 0: go on; 1: the end; or a negative errno. */
static int
other_record(struct transport_tls *t, int type, const uint8_t *data, size_t len)
{
    if (type == MS_RECORD_ALERT && len == 2 && data[1] == CLOSE_NOTIFY)
        return 1;
    if (type == MS_RECORD_ALERT)
        return ms_tls_break_off(t, "the other side sent an alert");
    if (type == MS_RECORD_HANDSHAKE && len == 5 && data[0] == MS_TLS_KEY_UPDATE)
        return key_update(t, data[4] == 1);
    if (type == MS_RECORD_HANDSHAKE && len > 4 && data[0] == NEW_TICKET)
        return 0;
    return ms_tls_break_off(t, "an unexpected message after the handshake");
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
            return ms_tls_break_off(t, "what came is no record");
        if (whole == 0 || (size_t)whole > len - *used)
            break;
        n = open_record(
            t, data + *used, (size_t)whole, at + have, room - have, &type, &held);
        if (n < 0)
            return ms_tls_break_off(t, "a record was changed on its way");
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
        sent = ms_tls_send_out(t);
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
bool ms_tls_has_more(struct ms_transport *base)
{
    struct transport_tls *t = ms_tls_of(base);
    ssize_t whole;

    if (t->opened.len)
        return true;
    if (t->in.len == 0)
        return false;
    whole = ms_record_length(t->in.data, t->in.len);
    return whole < 0 || (whole > 0 && (size_t)whole <= t->in.len);
}

ssize_t ms_tls_read(struct ms_transport *base, void *at, size_t room)
{
    struct transport_tls *t = ms_tls_of(base);
    ssize_t n;

    if (atomic_load(&t->failed))
        return atomic_load(&t->failed);
    if (!atomic_load(&t->is_open)) {
        n = read_shaking(t);
        if (n != -EAGAIN || !atomic_load(&t->is_open) || !ms_tls_has_more(base))
            return n;
    }
    return read_open(t, at, room);
}
