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

static int shake(struct ms_conn *c)
{
    uint8_t out[MS_HELLO_SERVER_SIZE];
    size_t need, out_len;
    int rc = 0;

    while (rc == 0 && (need = ms_handshake_need(&c->handshake)) != 0 &&
           c->in_len - c->in_at >= need) {
        rc = ms_handshake_step(&c->handshake, c->in + c->in_at, out, &out_len, c->err);
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
            rc = ms_error_sys(c->err, sent, "cannot send the handshake");
    }
    return rc;
}

/* ---- big messages ---------------------------------------------------------------- */

static struct partial *partial_find(struct ms_conn *c, const struct ms_frame *f)
{
    ms_list_each (p, &c->partials, struct partial, link)
        if (p->head.call_id == f->call_id && p->head.kind == f->kind)
            return p;
    return NULL;
}

static void partial_destroy(struct ms_conn *c, struct partial *p)
{
    ms_list_remove(&p->link);
    c->partial_count--;
    free(p->data);
    free(p);
}

void ms_conn_drop_partials(struct ms_conn *c)
{
    ms_list_each (p, &c->partials, struct partial, link)
        partial_destroy(c, p);
}

static int no_memory(struct ms_conn *c, const struct ms_frame *f)
{
    return ms_error_set(c->err,
                        -ENOMEM,
                        "no memory for a message of %llu bytes",
                        (unsigned long long)f->total);
}

/* Room for `more` bytes behind those that have come. At least doubles what is there, up to
 * the length of the message, which `more` must not exceed. */
static int partial_reserve(struct ms_conn *c, struct partial *p, size_t more)
{
    size_t want = p->room ? 2 * p->room : MS_MESSAGE_ROOM_MIN;
    uint8_t *data;

    assert(more <= p->head.total - p->have);
    if (more <= p->room - p->have)
        return 0;
    if (want < p->have + more)
        want = p->have + more;
    if (want > p->head.total)
        want = p->head.total;
    data = realloc(p->data, want);
    if (!data)
        return no_memory(c, &p->head);
    p->data = data;
    p->room = want;
    return 0;
}

static int partial_begin(struct ms_conn *c, const struct ms_frame *f)
{
    struct partial *p;

    if (partial_find(c, f))
        return ms_error_set(c->err, -EPROTO, "a message began twice");
    if (c->partial_count == PARTIAL_MAX)
        return ms_error_set(
            c->err, -EPROTO, "more than %d messages under way", PARTIAL_MAX);
    p = calloc(1, sizeof *p);
    if (!p)
        return no_memory(c, f);
    p->head = *f;
    ms_list_add_tail(&c->partials, &p->link);
    c->partial_count++;
    c->filling = p;
    if (f->kind == MS_KIND_CALL && c->sink->on_begin)
        return c->sink->on_begin(c->sink_arg, f);
    return 0;
}

static int partial_go_on(struct ms_conn *c, const struct ms_frame *f)
{
    struct partial *p = partial_find(c, f);

    if (!p || p->have != f->total || f->length > p->head.total - p->have)
        return ms_error_set(c->err, -EPROTO, "a piece of no message");
    c->filling = p;
    return 0;
}

/* The piece is whole; if the message is too, hand it out. */
static int partial_filled(struct ms_conn *c)
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
    partial_destroy(c, p);
    rc = c->sink->on_message(c->sink_arg, &m);
    free(m.owned);
    return rc;
}

/* ---- bodies that are not taken from the buffer as a whole: data, and pieces -------- */

static int data_begin(struct ms_conn *c, const struct ms_frame *f)
{
    if (!c->sink->on_data)
        return ms_error_set(c->err, -EPROTO, "data that nobody has asked for");
    c->data = *f;
    c->data_at = c->sink->on_data(c->sink_arg, f);
    return 0;
}

/* `n` more bytes of the body are in their place. */
static int body_came(struct ms_conn *c, size_t n)
{
    c->body_rest -= n;
    if (c->filling) {
        c->filling->have += n;
        return c->body_rest ? 0 : partial_filled(c);
    }
    if (c->data_at)
        c->data_at += n;
    return c->sink->on_part(c->sink_arg, &c->data, n, c->body_rest);
}

/* Where the next bytes of the body go, at least `want`, and how many fit there. */
static int body_place(struct ms_conn *c, size_t want, uint8_t **at, size_t *room)
{
    struct partial *p = c->filling;
    int rc = p ? partial_reserve(c, p, want) : 0;

    if (rc < 0)
        return rc;
    *at = p ? p->data + p->have : c->data_at;
    *room = p && p->room - p->have < c->body_rest ? p->room - p->have : c->body_rest;
    return 0;
}

/* Move buffered bytes to their place. */
static int body_from_buffer(struct ms_conn *c)
{
    size_t have = c->in_len - c->in_at, room;
    size_t n = have < c->body_rest ? have : c->body_rest;
    uint8_t *at;
    int rc = body_place(c, n, &at, &room);

    if (rc < 0)
        return rc;
    if (at)
        memcpy(at, c->in + c->in_at, n);
    c->in_at += n;
    return body_came(c, n);
}

/* ---- frames ---------------------------------------------------------------------- */

/* The head of a frame whose body goes to a place of its own. */
static int body_begin(struct ms_conn *c, const struct ms_frame *f)
{
    int rc;

    if (f->kind >= MS_KIND_IGNORED)
        return ms_error_set(c->err, -EPROTO, "a passed-over message of many pieces");
    if (f->kind == MS_KIND_DATA)
        rc = data_begin(c, f);
    else
        rc = f->flags & MS_FRAME_MORE_OF ? partial_go_on(c, f) : partial_begin(c, f);
    c->in_at += MS_FRAME_SIZE;
    c->body_rest = f->length;
    return rc < 0 ? rc : 1;
}

/* Take one frame from the buffer: 1, 0 if it is not all there, or a negative errno. */
static int take_frame(struct ms_conn *c)
{
    size_t have = c->in_len - c->in_at;
    struct ms_message m = {0};
    int rc;

    if (have < MS_FRAME_SIZE)
        return 0;
    rc = ms_frame_decode(c->in + c->in_at, &m.head, c->err);
    if (rc < 0)
        return rc;
    if (m.head.kind == MS_KIND_DATA || (m.head.flags & MS_FRAME_MORE_OF) ||
        m.head.length < m.head.total)
        return body_begin(c, &m.head);
    if (have < MS_FRAME_SIZE + m.head.length)
        return 0;
    m.body = c->in + c->in_at + MS_FRAME_SIZE;
    m.len = m.head.length;
    c->in_at += MS_FRAME_SIZE + m.head.length;
    if (m.head.kind >= MS_KIND_IGNORED)
        return 1;
    rc = c->sink->on_message(c->sink_arg, &m);
    return rc < 0 ? rc : 1;
}

static int take_frames(struct ms_conn *c)
{
    int rc = 1;

    while (rc > 0 && c->in_at < c->in_len) {
        if (c->body_rest) {
            rc = body_from_buffer(c);
            rc = rc < 0 ? rc : 1;
        } else {
            rc = take_frame(c);
        }
    }
    if (c->in_at) {
        c->in_len -= c->in_at;
        if (c->in_len)
            memmove(c->in, c->in + c->in_at, c->in_len);
        c->in_at = 0;
    }
    return rc < 0 ? rc : 0;
}

/* ---- reading --------------------------------------------------------------------- */

/* One read from the transport, to the place of a body or into the buffer. *full says whether
 * there may be more, *count grows. */
static int read_some(struct ms_conn *c, bool *full, size_t *count)
{
    struct ms_transport *t = c->transport;
    bool direct = c->body_rest && c->in_len == 0 && (c->filling || c->data_at);
    uint8_t *at = c->in + c->in_len;
    size_t room = c->in_size - c->in_len;
    int rc = direct ? body_place(c, 1, &at, &room) : 0;
    ssize_t n;

    if (rc < 0)
        return rc;
    n = t->ops->read(t, at, room);
    if (n == 0)
        return ms_error_set(c->err, -EPIPE, "the connection was closed");
    if (n < 0)
        return (int)n;
    ms_conn_note_time(c, &c->heard_ns);
    *count += (size_t)n;
    *full = (size_t)n == room || (direct && c->filling);
    if (direct)
        return body_came(c, (size_t)n);
    c->in_len += (size_t)n;
    if (!c->ready) {
        rc = shake(c);
        if (rc < 0)
            return rc;
        if (!c->ready || c->held)
            return 0;
    }
    return take_frames(c);
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
static int explain(struct ms_conn *c, int rc)
{
    struct ms_transport *t = c->transport;
    struct ms_error *err = c->err;

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
    int rc, i;

    c->sink = sink;
    c->sink_arg = arg;
    c->err = err;
    rc = c->in_len && c->ready && !c->held ? take_frames(c) : 0;
    for (i = 0; rc == 0 && full && !c->held; i++) {
        if ((i >= READS_IN_ROW || count >= READ_IN_ROW) &&
            !(t->ops->has_more && t->ops->has_more(t)))
            break;
        if (!reserve_in(c)) {
            rc = ms_error_set(err, -ENOMEM, "no memory to read into");
            break;
        }
        rc = read_some(c, &full, &count);
        if (rc < 0)
            break;
        full = full || (t->ops->has_more && t->ops->has_more(t)); /* no poll tells it */
    }
    if (!c->ready)
        ms_conn_flush(c); /* the transport may have become open; failures are read */
    if (rc == 0 || (rc == -EAGAIN && i))
        rc = 1;
    release_in(c);
    return rc < 0 && rc != -EAGAIN ? explain(c, rc) : rc;
}

int ms_conn_release(struct ms_conn *c,
                    const struct ms_conn_sink *sink,
                    void *arg,
                    struct ms_error *err)
{
    int rc;

    assert(c->held);
    c->held = false;
    rc = ms_conn_read(c, sink, arg, err);
    return rc < 0 && rc != -EAGAIN ? rc : 0;
}
