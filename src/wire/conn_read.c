/* conn_read.c - the reading half of a connection: handshake, frames, whole messages */
#include "base/limits.h"
#include "wire/conn_impl.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

enum {
    IN_SIZE = (64 << 10) + MS_FRAME_SIZE,
    IN_SMALL = 2 << 10,    /* of a lazy one, until more comes */
    READS_IN_ROW = 16,     /* then the loop gets its turn */
    READ_IN_ROW = 2 << 20, /* bytes, likewise */
    PARTIAL_MAX = 1024     /* big messages under way at once */
};

/* ---- the handshake --------------------------------------------------------------- */

static int shake(struct ms_conn *c, struct ms_error *err)
{
    uint8_t out[MS_HELLO_SERVER_SIZE];
    size_t need, out_len;
    int rc = 0;

    while (rc == 0 && (need = ms_handshake_need(&c->handshake)) != 0 &&
           c->in_len - c->in_at >= need) {
        rc = ms_handshake_step(&c->handshake, c->in + c->in_at, out, &out_len, err);
        c->in_at += need;
        if (out_len && ms_buf_append(&c->raw, out, out_len) < 0)
            return -ENOMEM;
    }
    if (rc == 0 && c->handshake.done) {
        c->ready = true;
        c->held = c->handshake.is_server && c->handshake.lane == MS_LANE_LINK;
        ms_handshake_finish(&c->handshake);
    }
    if (c->raw.len || c->ready) {
        int sent = ms_conn_flush(c);

        if (rc == 0 && sent < 0)
            rc = ms_error_sys(err, sent, "cannot send the handshake");
    }
    return rc;
}

/* ---- big messages ---------------------------------------------------------------- */

static int no_memory(const struct ms_frame *f, struct ms_error *err)
{
    return ms_error_set(err,
                        -ENOMEM,
                        "no memory for a message of %llu bytes",
                        (unsigned long long)f->total);
}

static int partial_begin(struct ms_conn *c,
                         const struct ms_frame *f,
                         const struct ms_conn_sink *sink,
                         void *arg,
                         struct ms_error *err)
{
    if (ms_partial_find(c, f))
        return ms_error_set(err, -EPROTO, "a message began twice");
    if (c->partial_count == PARTIAL_MAX)
        return ms_error_set(
            err, -EPROTO, "more than %d messages under way", PARTIAL_MAX);
    c->filling = ms_partial_create(c, f);
    if (!c->filling)
        return no_memory(f, err);
    if (f->kind == MS_KIND_CALL && sink->on_begin)
        return sink->on_begin(arg, f);
    return 0;
}

static int
partial_go_on(struct ms_conn *c, const struct ms_frame *f, struct ms_error *err)
{
    struct partial *p = ms_partial_find(c, f);

    if (!p || p->have != f->total || f->length > p->head.total - p->have)
        return ms_error_set(err, -EPROTO, "a piece of no message");
    c->filling = p;
    return 0;
}

/* The piece is whole; if the message is too, hand it out. */
static int partial_filled(struct ms_conn *c, const struct ms_conn_sink *sink, void *arg)
{
    struct partial *p = c->filling;
    struct ms_message m;
    int rc;

    c->filling = NULL;
    if (p->have < p->head.total)
        return 0;
    m = (struct ms_message){
        .head = p->head, .body = p->data, .len = p->have, .owned = p->data};
    m.head.flags &= (uint16_t)~MS_FRAME_MORE_OF;
    p->data = NULL;
    ms_partial_destroy(c, p);
    rc = sink->on_message(arg, &m);
    free(m.owned);
    return rc;
}

/* Move buffered bytes into the message that is being filled. */
static int fill_from_buffer(struct ms_conn *c,
                            const struct ms_conn_sink *sink,
                            void *arg,
                            struct ms_error *err)
{
    size_t n = c->in_len - c->in_at;

    if (n > c->filling_rest)
        n = c->filling_rest;
    if (ms_partial_reserve(c->filling, n) < 0)
        return no_memory(&c->filling->head, err);
    memcpy(c->filling->data + c->filling->have, c->in + c->in_at, n);
    c->filling->have += n;
    c->filling_rest -= n;
    c->in_at += n;
    return c->filling_rest == 0 ? partial_filled(c, sink, arg) : 0;
}

/* ---- data ------------------------------------------------------------------------ */

static int data_begin(struct ms_conn *c,
                      const struct ms_frame *f,
                      const struct ms_conn_sink *sink,
                      void *arg,
                      struct ms_error *err)
{
    if (!sink->on_data)
        return ms_error_set(err, -EPROTO, "data that nobody has asked for");
    c->data = *f;
    c->data_at = sink->on_data(arg, f);
    c->data_rest = f->length;
    c->in_at += MS_FRAME_SIZE;
    return 1;
}

static int
data_came(struct ms_conn *c, size_t n, const struct ms_conn_sink *sink, void *arg)
{
    c->data_rest -= n;
    if (c->data_at)
        c->data_at += n;
    return sink->on_part(arg, &c->data, n, c->data_rest);
}

/* Move buffered bytes to their place. */
static int
data_from_buffer(struct ms_conn *c, const struct ms_conn_sink *sink, void *arg)
{
    size_t n = c->in_len - c->in_at;

    if (n > c->data_rest)
        n = c->data_rest;
    if (c->data_at)
        memcpy(c->data_at, c->in + c->in_at, n);
    c->in_at += n;
    return data_came(c, n, sink, arg);
}

/* ---- frames ---------------------------------------------------------------------- */

/* Take one frame from the buffer: 1, 0 if it is not all there, or a negative errno. */
static int take_frame(struct ms_conn *c,
                      const struct ms_conn_sink *sink,
                      void *arg,
                      struct ms_error *err)
{
    size_t have = c->in_len - c->in_at;
    struct ms_message m = {0};
    int rc;

    if (have < MS_FRAME_SIZE)
        return 0;
    rc = ms_frame_decode(c->in + c->in_at, &m.head, err);
    if (rc < 0)
        return rc;
    if (m.head.kind == MS_KIND_DATA)
        return data_begin(c, &m.head, sink, arg, err);
    if ((m.head.flags & MS_FRAME_MORE_OF) || m.head.length < m.head.total) {
        if (m.head.kind >= MS_KIND_IGNORED)
            return ms_error_set(err, -EPROTO, "a passed-over message of many pieces");
        rc = m.head.flags & MS_FRAME_MORE_OF
                 ? partial_go_on(c, &m.head, err)
                 : partial_begin(c, &m.head, sink, arg, err);
        c->in_at += MS_FRAME_SIZE;
        c->filling_rest = m.head.length;
        return rc < 0 ? rc : 1;
    }
    if (have < MS_FRAME_SIZE + m.head.length)
        return 0;
    m.body = c->in + c->in_at + MS_FRAME_SIZE;
    m.len = m.head.length;
    c->in_at += MS_FRAME_SIZE + m.head.length;
    if (m.head.kind >= MS_KIND_IGNORED)
        return 1;
    rc = sink->on_message(arg, &m);
    return rc < 0 ? rc : 1;
}

static int take_frames(struct ms_conn *c,
                       const struct ms_conn_sink *sink,
                       void *arg,
                       struct ms_error *err)
{
    int rc = 1;

    while (rc > 0 && c->in_at < c->in_len) {
        if (c->data_rest) {
            rc = data_from_buffer(c, sink, arg);
            rc = rc < 0 ? rc : 1;
        } else if (c->filling) {
            rc = fill_from_buffer(c, sink, arg, err);
            rc = rc < 0 ? rc : 1;
        } else {
            rc = take_frame(c, sink, arg, err);
        }
    }
    if (c->in_at == c->in_len) {
        c->in_at = c->in_len = 0;
    } else if (c->in_at) {
        memmove(c->in, c->in + c->in_at, c->in_len - c->in_at);
        c->in_len -= c->in_at;
        c->in_at = 0;
    }
    return rc < 0 ? rc : 0;
}

/* ---- reading --------------------------------------------------------------------- */

/* One read from the transport, to the place of data, into the message being filled, or the
 * buffer. *full says whether there may be more, *count grows. */
static int read_some(struct ms_conn *c,
                     const struct ms_conn_sink *sink,
                     void *arg,
                     bool *full,
                     size_t *count,
                     struct ms_error *err)
{
    struct ms_transport *t = c->transport;
    bool to_data = c->data_rest && c->data_at && c->in_len == 0;
    bool direct = c->filling && !c->data_rest && c->in_len == 0;
    uint8_t *at = c->in + c->in_len;
    size_t room = c->in_size - c->in_len;
    ssize_t n;

    if (to_data) {
        at = c->data_at;
        room = c->data_rest;
    } else if (direct) {
        if (ms_partial_reserve(c->filling, 1) < 0)
            return no_memory(&c->filling->head, err);
        at = c->filling->data + c->filling->have;
        room = c->filling->room - c->filling->have;
        room = room < c->filling_rest ? room : c->filling_rest;
    }
    n = t->ops->read(t, at, room);
    if (n == 0)
        return ms_error_set(err, -EPIPE, "the connection was closed");
    if (n < 0)
        return (int)n;
    ms_conn_note_time(c, &c->heard_ns);
    *count += (size_t)n;
    *full = (size_t)n == room || direct;
    if (to_data)
        return data_came(c, (size_t)n, sink, arg);
    if (direct) {
        c->filling->have += (size_t)n;
        c->filling_rest -= (size_t)n;
        return c->filling_rest == 0 ? partial_filled(c, sink, arg) : 0;
    }
    c->in_len += (size_t)n;
    if (!c->ready) {
        int rc = shake(c, err);

        if (rc < 0)
            return rc;
        if (!c->ready || c->held)
            return 0;
    }
    return take_frames(c, sink, arg, err);
}

/* Memory to read into: of a lazy one little, until it is too little, and none while nothing
 * is in it. */
static bool reserve_in(struct ms_conn *c)
{
    size_t size = c->in || !c->is_lazy ? IN_SIZE : IN_SMALL;
    uint8_t *in;

    if (c->in && c->in_len < c->in_size)
        return true;
    in = realloc(c->in, size);
    if (!in)
        return false;
    c->in = in;
    c->in_size = size;
    return true;
}

static void release_in(struct ms_conn *c)
{
    if (!c->is_lazy || c->in_len)
        return;
    free(c->in);
    c->in = NULL;
    c->in_size = 0;
}

/* What only the transport knows. */
static int explain(struct ms_conn *c, int rc, struct ms_error *err)
{
    struct ms_transport *t = c->transport;

    if (err && err->code == 0 && t->ops->explain && t->ops->explain(t, err))
        return rc;
    if (rc == -ECONNRESET && !c->is_network)
        return ms_error_set(err, -EPIPE, "the connection was reset");
    return rc;
}

int ms_conn_read(struct ms_conn *c,
                 const struct ms_conn_sink *sink,
                 void *arg,
                 struct ms_error *err)
{
    struct ms_transport *t = c->transport;
    bool full = true;
    size_t count = 0;
    int rc = 0, i;

    for (i = 0; full && !c->held; i++) {
        if ((i >= READS_IN_ROW || count >= READ_IN_ROW) &&
            !(t->ops->has_more && t->ops->has_more(t)))
            break;
        if (!reserve_in(c)) {
            rc = ms_error_set(err, -ENOMEM, "no memory to read into");
            break;
        }
        rc = read_some(c, sink, arg, &full, &count, err);
        if (rc < 0)
            break;
        full = full || (t->ops->has_more && t->ops->has_more(t)); /* no poll tells it */
    }
    if (!c->ready)
        ms_conn_flush(c); /* the transport may have become open; failures are read */
    if (rc == 0 || (rc == -EAGAIN && i))
        rc = 1;
    release_in(c);
    return rc < 0 && rc != -EAGAIN ? explain(c, rc, err) : rc;
}

int ms_conn_release(struct ms_conn *c,
                    const struct ms_conn_sink *sink,
                    void *arg,
                    struct ms_error *err)
{
    struct ms_transport *t = c->transport;
    int rc;

    assert(c->held);
    c->held = false;
    rc = take_frames(c, sink, arg, err);
    if (rc == 0)
        release_in(c);
    if (rc == 0 && t->ops->has_more && t->ops->has_more(t))
        rc = ms_conn_read(c, sink, arg, err); /* no poll tells it */
    return rc < 0 && rc != -EAGAIN ? rc : 0;
}
