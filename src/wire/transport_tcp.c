#include "base/cleanup.h"
#include "wire/transport.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

struct transport_tcp {
    struct ms_transport base;
    _Atomic int failed; /* the kernel tells a failure once, and perhaps to the writer */
};

static struct transport_tcp *of(struct ms_transport *t)
{
    return MS_CONTAINER(t, struct transport_tcp, base);
}

static ssize_t tcp_read(struct ms_transport *t, void *at, size_t room)
{
    ssize_t n;

    do
        n = recv(t->fd, at, room, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n > 0)
        return n;
    if (n < 0 && errno == EAGAIN)
        return -EAGAIN;
    n = n < 0 ? -errno : 0;
    return atomic_load(&of(t)->failed) ? atomic_load(&of(t)->failed) : n;
}

static ssize_t tcp_write(struct ms_transport *t, const struct iovec *iov, int count)
{
    struct msghdr msg = {.msg_iov = (struct iovec *)(uintptr_t)iov,
                         .msg_iovlen = (size_t)count};
    ssize_t n;

    do
        n = sendmsg(t->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    if (n >= 0)
        return n;
    n = -errno;
    if (n == -EPIPE && atomic_load(&of(t)->failed))
        return atomic_load(&of(t)->failed);
    if (n != -EAGAIN && n != -EPIPE)
        atomic_store(&of(t)->failed, (int)n);
    return n;
}

static int tcp_check_peer(struct ms_transport *t, struct ms_error *err)
{
    (void)t;
    (void)err;
    return 0; /* the handshake decides */
}

static void tcp_destroy(struct ms_transport *t)
{
    close(t->fd);
    free(of(t));
}

static const struct ms_transport_ops tcp_ops = {
    .name = "tcp",
    .is_network = true,
    .read = tcp_read,
    .write = tcp_write,
    .check_peer = tcp_check_peer,
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
