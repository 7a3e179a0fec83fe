/* unix.c - the transport over unix sockets */
#include "io/sock.h"
#include "wire/transport/transport.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

ssize_t ms_socket_read(struct ms_transport *t, void *at, size_t room)
{
    ssize_t n;

    do
        n = recv(t->fd, at, room, MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
}

ssize_t ms_socket_write(struct ms_transport *t, const struct iovec *iov, int count)
{
    struct msghdr msg = {.msg_iov = (struct iovec *)(uintptr_t)iov,
                         .msg_iovlen = (size_t)count};
    ssize_t n;

    do
        n = sendmsg(t->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
}

static int unix_check_peer(struct ms_transport *t, struct ms_error *err)
{
    uid_t uid;
    pid_t pid;
    int rc = ms_unix_peer(t->fd, &uid, &pid);

    if (rc < 0)
        return ms_error_sys(err, rc, "cannot learn who is at the other end");
    if (uid != geteuid())
        return ms_error_set(
            err, -EPERM, "the other end belongs to user %u", (unsigned)uid);
    return 0;
}

static void unix_destroy(struct ms_transport *t)
{
    close(t->fd);
    free(t);
}

static const struct ms_transport_ops unix_ops = {
    .read = ms_socket_read,
    .write = ms_socket_write,
    .check_peer = unix_check_peer,
    .destroy = unix_destroy,
};

struct ms_transport *ms_transport_unix(int fd)
{
    struct ms_transport *t = malloc(sizeof *t);

    if (t)
        *t = (struct ms_transport){.ops = &unix_ops, .fd = fd};
    return t;
}
