/* conn.c - a connection: life, and sending */
#include "base/limits.h"
#include "base/name.h"
#include "wire/conn_impl.h"

#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>

uint8_t *ms_message_take(struct ms_message *m)
{
    return m->owned ? MS_TAKE(m->owned) : ms_bytes_copy(m->body, m->len);
}

struct ms_conn *ms_conn_create(struct ms_transport *t, const struct ms_handshake *h)
{
    struct ms_conn *c = calloc(1, sizeof *c);

    if (!c) {
        ms_transport_destroy(t);
        return NULL;
    }
    c->transport = t;
    c->is_network = t->ops->is_network;
    ms_sender_init(&c->sender);
    ms_list_init(&c->partials);
    if (h)
        c->handshake = *h;
    else
        c->ready = c->handshake.done = true;
    if (h && !h->is_server &&
        ms_buf_append(&c->raw, h->hello_client, sizeof h->hello_client) < 0) {
        ms_conn_destroy(c);
        return NULL;
    }
    return c;
}

struct ms_conn *ms_conn_dial(struct ms_transport *t,
                             const uint8_t *secret,
                             const uint8_t *session,
                             enum ms_lane lane,
                             uint64_t identity)
{
    uint8_t nonce[32], fresh[MS_SESSION_SIZE];
    struct ms_handshake h;
    struct ms_conn *c;

    if (ms_random_bytes(nonce, sizeof nonce) < 0 ||
        ms_random_bytes(fresh, sizeof fresh) < 0) {
        ms_transport_destroy(t);
        return NULL;
    }
    ms_handshake_init_client(
        &h, secret, nonce, session ? session : fresh, (uint8_t)lane, identity);
    c = ms_conn_create(t, &h);
    ms_handshake_finish(&h);
    return c;
}

void ms_conn_destroy(struct ms_conn *c)
{
    if (!c)
        return;
    ms_conn_drop_partials(c);
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

/* ---- sending --------------------------------------------------------------------- */

enum { DIRECT_IOV_MAX = 16 };

/* Nothing waits and it fits into one frame: write it from where it is. */
static int send_direct(struct ms_conn *c,
                       struct ms_frame *head,
                       const struct iovec *iov,
                       int count)
{
    uint8_t encoded[MS_FRAME_SIZE];
    struct iovec out[DIRECT_IOV_MAX + 1];
    ssize_t n;

    head->length = (uint32_t)head->total;
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
    ms_conn_note_time(c, &c->sent_ns);
    if ((size_t)n == MS_FRAME_SIZE + head->total)
        return 0;
    c->is_full = true;
    if (ms_sender_add(&c->sender, head, iov, count, (size_t)n) < 0)
        return n ? -ECONNABORTED : -ENOMEM; /* half a frame went out */
    return 0;
}

int ms_conn_send(struct ms_conn *c,
                 const struct ms_frame *head,
                 const struct iovec *iov,
                 int count)
{
    struct ms_frame first = *head;
    int rc;

    first.total = ms_iov_len(iov, count);
    if (first.total > ms_frame_total_max(head->kind))
        return -EMSGSIZE;
    if (c->ready && first.total <= MS_CHUNK_MAX && count <= DIRECT_IOV_MAX &&
        c->raw.len == 0 && ms_sender_is_empty(&c->sender))
        return send_direct(c, &first, iov, count);
    rc = ms_sender_add(&c->sender, &first, iov, count, 0);
    return rc < 0 || c->is_full ? rc : ms_conn_flush(c);
}

int ms_conn_send_loan(struct ms_conn *c,
                      const struct ms_frame *head,
                      const struct ms_loan *loan)
{
    struct ms_frame first = *head;
    int rc;

    first.total = loan->len;
    rc = ms_sender_add_loan(&c->sender, &first, loan);
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

    c->is_full = false;
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
    ms_conn_note_time(c, &c->sent_ns);
    rc = ms_sender_pump(&c->sender, t);
    c->is_full = rc == 0 && !ms_sender_is_empty(&c->sender);
    return rc;
}
