#include "wire/link.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "wire/conn.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>

struct ms_link {
    struct ms_conn *conn;
    struct ms_watch watch;
    struct ms_timer closing; /* tells on_closed from the loop */
    const struct ms_link_ops *ops;
    void *arg;
    struct ms_error why;
    uint64_t sent; /* names messages, so that big ones can be told apart */
    bool closed;
    bool broken;  /* nothing can be sent any more; what was sent to us is still read */
    bool reading; /* a callback may destroy us now */
    bool doomed;  /* it did: freed when the read is over */
};

static void on_closing(void *arg)
{
    struct ms_link *l = arg;

    l->ops->on_closed(l->arg, &l->why);
}

static void close_soon(struct ms_link *l, const struct ms_error *why)
{
    if (l->closed)
        return;
    l->closed = true;
    l->why = *why;
    ms_watch_set(&l->watch, 0);
    ms_timer_set(&l->closing, 0);
}

static int on_message(void *arg, struct ms_message *m)
{
    struct ms_link *l = arg;

    if (m->head.kind != MS_KIND_CONTROL)
        return -EPROTO;
    l->ops->on_body(l->arg, m->body, m->len);
    return l->doomed ? -ECANCELED : 0;
}

static void update(struct ms_link *l)
{
    bool writes = !l->broken && ms_conn_wants_write(l->conn);

    if (!l->closed)
        ms_watch_set(&l->watch, MS_READ | (writes ? MS_WRITE : 0u));
}

static void on_ready(void *arg, unsigned events)
{
    static const struct ms_conn_sink sink = {.on_message = on_message};
    struct ms_link *l = arg;
    struct ms_error why = {0};
    int rc = 0;

    if ((events & MS_WRITE) && ms_conn_flush(l->conn) < 0)
        l->broken = true;
    if (events & MS_READ) {
        l->reading = true;
        rc = ms_conn_read(l->conn, &sink, l, &why);
        l->reading = false;
        if (l->doomed) {
            ms_link_destroy(l);
            return;
        }
    }
    if (rc < 0 && rc != -EAGAIN) {
        if (!why.code)
            ms_error_sys(&why, rc, "control link");
        close_soon(l, &why);
        return;
    }
    update(l);
}

struct ms_link *
ms_link_create(struct ms_loop *loop, int fd, const struct ms_link_ops *ops, void *arg)
{
    struct ms_link *l = calloc(1, sizeof *l);
    struct ms_transport *t = l ? ms_transport_unix(fd) : NULL;

    if (!t) {
        close(fd);
        free(l);
        return NULL;
    }
    l->ops = ops;
    l->arg = arg;
    l->conn = ms_conn_create_trusted(t);
    if (!l->conn || ms_timer_init(&l->closing, loop, on_closing, l) < 0 ||
        ms_watch_init(&l->watch, loop, fd, MS_READ, on_ready, l) < 0) {
        ms_link_destroy(l);
        return NULL;
    }
    return l;
}

void ms_link_destroy(struct ms_link *l)
{
    if (!l)
        return;
    ms_watch_finish(&l->watch);
    ms_timer_finish(&l->closing);
    if (l->reading) {
        l->doomed = true;
        return;
    }
    ms_conn_destroy(l->conn);
    free(l);
}

int ms_link_send(struct ms_link *l, const ProtobufCMessage *m)
{
    size_t len = protobuf_c_message_get_packed_size(m);
    MS_CLEANUP(ms_cleanup_free) uint8_t *body = malloc(len ? len : 1);
    struct ms_frame head = {.kind = MS_KIND_CONTROL, .codec = MS_CODEC_PROTO};
    struct iovec iov = {body, len};
    int rc;

    if (!body)
        return -ENOMEM;
    if (l->closed || l->broken)
        return -EPIPE;
    protobuf_c_message_pack(m, body);
    head.call_id = ++l->sent;
    rc = ms_conn_send(l->conn, &head, &iov, 1);
    if (rc < 0 && rc != -ENOMEM && rc != -ENOBUFS && rc != -EMSGSIZE)
        l->broken = true; /* its last words may still be on their way to us */
    update(l);
    return rc;
}

size_t ms_link_queued(const struct ms_link *l)
{
    return ms_conn_queued(l->conn);
}

void ms_link_drain(struct ms_link *l, int64_t deadline_ns)
{
    while (!l->closed && !l->broken && ms_conn_wants_write(l->conn)) {
        struct pollfd p = {.fd = ms_conn_fd(l->conn), .events = POLLOUT};
        int64_t left_ms = (deadline_ns - ms_now_ns()) / MS_NS_PER_MS;

        if (left_ms <= 0)
            return;
        if (poll(&p, 1, left_ms < INT_MAX ? (int)left_ms : INT_MAX) < 0 &&
            errno != EINTR)
            return;
        if (ms_conn_flush(l->conn) < 0)
            return;
    }
}
