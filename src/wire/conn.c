#include "wire/conn.h"
#include "base/buf.h"
#include "base/limits.h"
#include "base/list.h"
#include "wire/conn_send.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>

enum {
    IN_SIZE = (64 << 10) + MS_FRAME_SIZE,
    IN_SMALL = 2 << 10, /* of a lazy one, until more comes */
    READS_IN_ROW = 16,  /* then the loop gets its turn */
    PARTIAL_MAX = 1024  /* big messages under way at once */
};

/* A big message that is arriving. */
struct partial {
    struct ms_list link;
    struct ms_frame head;
    size_t have;
    uint8_t *data;
};

struct ms_conn {
    struct ms_transport *transport;
    struct ms_handshake handshake;
    bool ready;
    struct ms_buf raw; /* handshake bytes to send */

    struct ms_sender sender;

    bool is_network;
    bool is_lazy; /* no memory to read into while nothing is there */
    bool held;    /* the handshake is over, and what came behind it waits in `in` */
    _Atomic int64_t heard_ns, sent_ns; /* network: when bytes last came and went */

    size_t in_at, in_len; /* unread bytes are in[in_at..in_len) */
    struct ms_list partials;
    unsigned partial_count;
    struct partial *filling; /* the piece whose body is being read */
    size_t filling_rest;
    uint8_t *in; /* in_size bytes, or NULL */
    size_t in_size;
};

uint8_t *ms_message_take(struct ms_message *m)
{
    uint8_t *data = m->owned;

    if (!data) {
        data = malloc(m->len ? m->len : 1);
        if (data && m->len)
            memcpy(data, m->body, m->len);
    }
    m->owned = NULL;
    return data;
}

static struct ms_conn *conn_create(struct ms_transport *t)
{
    struct ms_conn *c = calloc(1, sizeof *c);

    if (!c) {
        ms_transport_destroy(t);
        return NULL;
    }
    c->transport = t;
    c->is_network = t->ops->is_network;
    ms_buf_init(&c->raw);
    ms_sender_init(&c->sender);
    ms_list_init(&c->partials);
    return c;
}

struct ms_conn *ms_conn_create_client(struct ms_transport *t,
                                      const struct ms_handshake *h)
{
    struct ms_conn *c = conn_create(t);

    if (!c)
        return NULL;
    c->handshake = *h;
    if (ms_buf_append(
            &c->raw, ms_handshake_hello(&c->handshake), MS_HELLO_CLIENT_SIZE) < 0) {
        ms_conn_destroy(c);
        return NULL;
    }
    return c;
}

struct ms_conn *ms_conn_create_server(struct ms_transport *t,
                                      const struct ms_handshake *h)
{
    struct ms_conn *c = conn_create(t);

    if (c)
        c->handshake = *h;
    return c;
}

struct ms_conn *ms_conn_create_trusted(struct ms_transport *t)
{
    struct ms_conn *c = conn_create(t);

    if (c)
        c->ready = c->handshake.done = true;
    return c;
}

static void partial_destroy(struct ms_conn *c, struct partial *p)
{
    ms_list_remove(&p->link);
    c->partial_count--;
    free(p->data);
    free(p);
}

void ms_conn_destroy(struct ms_conn *c)
{
    if (!c)
        return;
    ms_list_each (p, &c->partials, struct partial, link)
        partial_destroy(c, p);
    ms_sender_finish(&c->sender);
    ms_buf_finish(&c->raw);
    ms_handshake_finish(&c->handshake);
    ms_transport_destroy(c->transport);
    free(c->in);
    free(c);
}

void ms_conn_set_lazy(struct ms_conn *c)
{
    struct ms_transport *t = c->transport;

    c->is_lazy = true;
    if (t->ops->set_lazy)
        t->ops->set_lazy(t);
}
bool ms_conn_is_readable(const struct ms_conn *c)
{
    struct pollfd pfd = {.fd = c->transport->fd, .events = POLLIN | POLLRDHUP};

    return !c->transport->ops->is_network || poll(&pfd, 1, 0) != 0;
}

int ms_conn_fd(const struct ms_conn *c)
{
    return c->transport->fd;
}

bool ms_conn_is_ready(const struct ms_conn *c)
{
    return c->ready;
}

const struct ms_handshake *ms_conn_handshake(const struct ms_conn *c)
{
    return &c->handshake;
}

bool ms_conn_is_network(const struct ms_conn *c)
{
    return c->is_network;
}

int64_t ms_conn_heard_ns(const struct ms_conn *c)
{
    return atomic_load_explicit(&c->heard_ns, memory_order_relaxed);
}

int64_t ms_conn_sent_ns(const struct ms_conn *c)
{
    return atomic_load_explicit(&c->sent_ns, memory_order_relaxed);
}

static void note_time(const struct ms_conn *c, _Atomic int64_t *at)
{
    if (c->is_network)
        atomic_store_explicit(at, ms_now_ns(), memory_order_relaxed);
}

/* ---- sending --------------------------------------------------------------------- */

enum { DIRECT_IOV_MAX = 16 };

/* Nothing waits and it fits into one frame: write it from where it is. */
static int send_direct(struct ms_conn *c,
                       struct ms_frame *head,
                       const struct iovec *iov,
                       int count,
                       size_t total)
{
    uint8_t encoded[MS_FRAME_SIZE];
    struct iovec out[DIRECT_IOV_MAX + 1];
    ssize_t n;

    head->length = (uint32_t)total;
    ms_frame_encode(head, encoded);
    out[0] = (struct iovec){encoded, MS_FRAME_SIZE};
    for (int i = 0; i < count; i++)
        out[i + 1] = iov[i];
    n = c->transport->ops->write(c->transport, out, count + 1);
    if (n == -EAGAIN)
        n = 0;
    if (n < 0)
        return (int)n;
    c->sender.has_sent |= n > 0;
    note_time(c, &c->sent_ns);
    if ((size_t)n == MS_FRAME_SIZE + total)
        return 0;
    if (ms_sender_add_rest(&c->sender, head, iov, count, total, (size_t)n) < 0)
        return n ? -ECONNABORTED : -ENOMEM; /* half a frame went out */
    return 0;
}

int ms_conn_send(struct ms_conn *c,
                 const struct ms_frame *head,
                 const struct iovec *iov,
                 int count)
{
    struct ms_frame first = *head;
    size_t total = 0;
    int rc;

    for (int i = 0; i < count; i++)
        total += iov[i].iov_len;
    if (total > ms_frame_total_max(head->kind))
        return -EMSGSIZE;
    first.total = total;
    if (c->ready && total <= MS_CHUNK_MAX && count <= DIRECT_IOV_MAX &&
        c->raw.len == 0 && ms_sender_is_empty(&c->sender))
        return send_direct(c, &first, iov, count, total);
    rc = ms_sender_add(&c->sender, &first, iov, count, total);
    return rc < 0 ? rc : ms_conn_flush(c);
}

bool ms_conn_has_sent(const struct ms_conn *c)
{
    return c->sender.has_sent;
}

bool ms_conn_wants_write(const struct ms_conn *c)
{
    struct ms_transport *t = c->transport;

    if (t->ops->wants_write && t->ops->wants_write(t))
        return true;
    if (t->ops->is_open && !t->ops->is_open(t))
        return false;
    return c->raw.len || (c->ready && !ms_sender_is_empty(&c->sender));
}

size_t ms_conn_queued(const struct ms_conn *c)
{
    return c->sender.queued;
}

int ms_conn_flush(struct ms_conn *c)
{
    struct ms_transport *t = c->transport;
    int rc = t->ops->flush ? t->ops->flush(t) : 0;

    while (rc == 0 && c->raw.len) {
        struct iovec iov = {c->raw.data, c->raw.len};
        ssize_t n = t->ops->write(t, &iov, 1);

        if (n == -EAGAIN)
            return 0;
        if (n < 0)
            return (int)n;
        ms_buf_consume(&c->raw, (size_t)n);
    }
    if (rc < 0 || !c->ready || ms_sender_is_empty(&c->sender))
        return rc;
    note_time(c, &c->sent_ns);
    return ms_sender_pump(&c->sender, t);
}

/* ---- reading --------------------------------------------------------------------- */

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

static struct partial *partial_find(struct ms_conn *c, const struct ms_frame *f)
{
    ms_list_each (p, &c->partials, struct partial, link)
        if (p->head.call_id == f->call_id && p->head.kind == f->kind)
            return p;
    return NULL;
}

static int partial_begin(struct ms_conn *c,
                         const struct ms_frame *f,
                         const struct ms_conn_sink *sink,
                         void *arg,
                         struct ms_error *err)
{
    struct partial *p;

    if (partial_find(c, f))
        return ms_error_set(err, -EPROTO, "a message began twice");
    if (c->partial_count == PARTIAL_MAX)
        return ms_error_set(
            err, -EPROTO, "more than %d messages under way", PARTIAL_MAX);
    p = calloc(1, sizeof *p);
    if (p)
        p->data = malloc(f->total);
    if (!p || !p->data) {
        free(p);
        return ms_error_set(err,
                            -ENOMEM,
                            "no memory for a message of %llu bytes",
                            (unsigned long long)f->total);
    }
    p->head = *f;
    ms_list_add_tail(&c->partials, &p->link);
    c->partial_count++;
    c->filling = p;
    if (f->kind == MS_KIND_CALL && sink->on_begin)
        return sink->on_begin(arg, f);
    return 0;
}

static int
partial_go_on(struct ms_conn *c, const struct ms_frame *f, struct ms_error *err)
{
    struct partial *p = partial_find(c, f);

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
    partial_destroy(c, p);
    rc = sink->on_message(arg, &m);
    free(m.owned);
    return rc;
}

/* Move buffered bytes into the message that is being filled. */
static int
fill_from_buffer(struct ms_conn *c, const struct ms_conn_sink *sink, void *arg)
{
    size_t n = c->in_len - c->in_at;

    if (n > c->filling_rest)
        n = c->filling_rest;
    memcpy(c->filling->data + c->filling->have, c->in + c->in_at, n);
    c->filling->have += n;
    c->filling_rest -= n;
    c->in_at += n;
    return c->filling_rest == 0 ? partial_filled(c, sink, arg) : 0;
}

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
        if (c->filling) {
            rc = fill_from_buffer(c, sink, arg);
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

/* One read from the transport, into the message being filled or the buffer. *full says
 * whether there may be more. */
static int read_some(struct ms_conn *c,
                     const struct ms_conn_sink *sink,
                     void *arg,
                     bool *full,
                     struct ms_error *err)
{
    struct ms_transport *t = c->transport;
    bool direct = c->filling && c->in_len == 0;
    uint8_t *at = direct ? c->filling->data + c->filling->have : c->in + c->in_len;
    size_t room = direct ? c->filling_rest : c->in_size - c->in_len;
    ssize_t n = t->ops->read(t, at, room);

    if (n == 0)
        return ms_error_set(err, -EPIPE, "the connection was closed");
    if (n < 0)
        return (int)n;
    note_time(c, &c->heard_ns);
    *full = (size_t)n == room;
    if (direct) {
        c->filling->have += (size_t)n;
        c->filling_rest -= (size_t)n;
        *full = true;
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
    int rc = 0, i;

    for (i = 0; full && !c->held; i++) {
        if (i >= READS_IN_ROW && !(t->ops->has_more && t->ops->has_more(t)))
            break;
        if (!reserve_in(c)) {
            rc = ms_error_set(err, -ENOMEM, "no memory to read into");
            break;
        }
        rc = read_some(c, sink, arg, &full, err);
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
    int rc;

    assert(c->held);
    c->held = false;
    rc = take_frames(c, sink, arg, err);
    if (rc == 0)
        release_in(c);
    return rc;
}
