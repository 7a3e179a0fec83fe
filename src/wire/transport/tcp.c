/* tcp.c - the TCP transport */
#include "base/cleanup.h"
#include "wire/transport/transport.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/sendfile.h>
#include <sys/socket.h>

struct transport_tcp {
    struct ms_transport base;
    _Atomic int failed; /* the kernel tells a failure once, and perhaps to the writer */
    bool has_lent;      /* pages of a file were sent */
};

static struct transport_tcp *of(struct ms_transport *t)
{
    return MS_CONTAINER(t, struct transport_tcp, base);
}

static ssize_t tcp_read(struct ms_transport *t, void *at, size_t room)
{
    ssize_t n = ms_socket_read(t, at, room);
    int rc = n > 0 || n == -EAGAIN ? 0 : atomic_load(&of(t)->failed);

    return rc ? rc : n;
}

/* A write failed so. */
static ssize_t failed(struct ms_transport *t, int rc)
{
    if (rc == -EINTR)
        return -EAGAIN;
    if (rc == -EPIPE && atomic_load(&of(t)->failed))
        return atomic_load(&of(t)->failed);
    if (rc != -EAGAIN && rc != -EPIPE)
        atomic_store(&of(t)->failed, rc);
    return rc;
}

static ssize_t tcp_write(struct ms_transport *t, const struct iovec *iov, int count)
{
    ssize_t n = ms_socket_write(t, iov, count);

    return n >= 0 ? n : failed(t, (int)n);
}

/* What is queued points to the file's pages: it goes with the connection. */
static void cut_on_close(int fd)
{
    struct linger now = {.l_onoff = 1, .l_linger = 0};

    setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
}

static ssize_t tcp_send_file(
    struct ms_transport *t, const struct iovec *head, int fd, uint64_t at, size_t len)
{
    off_t from = (off_t)at;
    ssize_t first = 0, n;

    if (head->iov_len) {
        first = send(t->fd,
                     head->iov_base,
                     head->iov_len,
                     MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE);
        if (first < 0)
            return failed(t, -errno);
        if ((size_t)first < head->iov_len)
            return first;
    }
    if (!of(t)->has_lent)
        cut_on_close(t->fd);
    of(t)->has_lent = true;
    n = sendfile(t->fd, fd, &from, len);
    if (n < 0 && first)
        return first; /* it is told at the next attempt */
    return n < 0 ? failed(t, -errno) : first + n;
}

static void tcp_destroy(struct ms_transport *t)
{
    close(t->fd);
    free(of(t));
}

static const struct ms_transport_ops tcp_ops = {
    .is_network = true,
    .read = tcp_read,
    .write = tcp_write,
    .send_file = tcp_send_file,
    .destroy = tcp_destroy,
};

struct ms_transport *ms_transport_tcp(int fd)
{
    struct transport_tcp *t = calloc(1, sizeof *t);

    if (!t)
        return NULL;
    t->base = (struct ms_transport){.ops = &tcp_ops, .fd = fd};
    return &t->base;
}
