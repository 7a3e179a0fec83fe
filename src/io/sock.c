/* sock.c - unix sockets, and descriptors sent over them */
#include "io/sock.h"
#include "base/cleanup.h"
#include "base/limits.h"
#include "io/tcp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

enum { LISTEN_BACKLOG = 1024, FDS_MAX = 16 };

static int address_of(const char *path, struct sockaddr_un *sa, struct ms_error *err)
{
    size_t len = strlen(path);

    if (len == 0 || len > MS_SOCKET_PATH_MAX)
        return ms_error_set(err,
                            -ENAMETOOLONG,
                            "socket path '%s' has %zu bytes, at most %zu are possible",
                            path,
                            len,
                            MS_SOCKET_PATH_MAX);
    *sa = (struct sockaddr_un){.sun_family = AF_UNIX};
    memcpy(sa->sun_path, path, len);
    return 0;
}

int ms_unix_connect(const char *path, int type, struct ms_error *err)
{
    struct sockaddr_un sa;
    MS_CLEANUP(ms_cleanup_fd) int fd = -1;
    int rc = address_of(path, &sa, err);

    if (rc < 0)
        return rc;
    fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return ms_error_sys(err, -errno, "cannot make a socket");
    if (connect(fd, (struct sockaddr *)&sa, sizeof sa) < 0)
        return ms_error_sys(err, -errno, "cannot connect to '%s'", path);
    return MS_TAKE_FD(fd);
}

/* A socket file that nobody listens on any more may be replaced; a live one may not. */
static void unlink_if_dead(const char *path, int type)
{
    struct stat st;
    int fd;

    if (lstat(path, &st) < 0 || !S_ISSOCK(st.st_mode))
        return;
    fd = ms_unix_connect(path, type, NULL);
    if (fd == -ECONNREFUSED)
        unlink(path);
    else if (fd >= 0)
        close(fd);
}

int ms_unix_listen(const char *path, int type, struct ms_error *err)
{
    struct sockaddr_un sa;
    MS_CLEANUP(ms_cleanup_fd) int fd = -1;
    int rc = address_of(path, &sa, err);

    if (rc < 0)
        return rc;
    unlink_if_dead(path, type);
    fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return ms_error_sys(err, -errno, "cannot make a socket");
    fchmod(fd, 0600); /* bind gives the file this mode */
    if (bind(fd, (struct sockaddr *)&sa, sizeof sa) < 0)
        return ms_error_sys(err, -errno, "cannot bind '%s'", path);
    if (listen(fd, LISTEN_BACKLOG) < 0) {
        rc = -errno;
        unlink(path);
        return ms_error_sys(err, rc, "cannot listen on '%s'", path);
    }
    return MS_TAKE_FD(fd);
}

int ms_unix_accept(int listen_fd)
{
    int fd;

    do
        fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    while (fd < 0 && (errno == EINTR || errno == ECONNABORTED));
    return fd < 0 ? -errno : fd;
}

int ms_unix_peer(int fd, uid_t *uid, pid_t *pid)
{
    struct ucred cred;
    socklen_t len = sizeof cred;

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0)
        return -errno;
    *uid = cred.uid;
    *pid = cred.pid;
    return 0;
}

int ms_unix_pair(int type, int fds[2])
{
    return socketpair(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) < 0 ? -errno
                                                                                : 0;
}

ssize_t ms_fds_send(int fd, const void *data, size_t len, const int *fds, size_t count)
{
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(sizeof(int) * FDS_MAX)];
    } control = {0};
    struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = len};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    ssize_t n;

    if (count > FDS_MAX)
        return -EINVAL;
    if (count) {
        struct cmsghdr *c;

        msg.msg_control = control.room;
        msg.msg_controllen = CMSG_SPACE(sizeof(int) * count);
        c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int) * count);
        memcpy(CMSG_DATA(c), fds, sizeof(int) * count);
    }
    do
        n = sendmsg(fd, &msg, MSG_NOSIGNAL);
    while (n < 0 && errno == EINTR);
    return n < 0 ? -errno : n;
}

/* Move what arrived into `fds`; close what does not fit. */
static int take_fds(struct msghdr *msg, int *fds, size_t *count)
{
    size_t room = *count, got = 0;
    int rc = 0;

    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
        size_t n = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);

        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t i = 0; i < n; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof fd);
            if (got < room) {
                fds[got++] = fd;
            } else {
                close(fd);
                rc = -EMSGSIZE;
            }
        }
    }
    *count = got;
    return rc;
}

ssize_t ms_fds_recv(int fd, void *data, size_t len, int *fds, size_t *count)
{
    union {
        struct cmsghdr align;
        char room[CMSG_SPACE(sizeof(int) * FDS_MAX)];
    } control;
    struct iovec iov = {.iov_base = data, .iov_len = len};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.room,
                         .msg_controllen = sizeof control.room};
    ssize_t n;
    int rc;

    do
        n = recvmsg(fd, &msg, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n < 0) {
        *count = 0;
        return -errno;
    }
    rc = take_fds(&msg, fds, count);
    if (rc == 0 && (msg.msg_flags & (MSG_CTRUNC | MSG_TRUNC)))
        rc = -EMSGSIZE;
    if (rc < 0) {
        while (*count)
            close(fds[--*count]);
        return rc;
    }
    return n;
}

int ms_port_hold(const char *host, uint16_t *port, struct ms_error *err)
{
    struct sockaddr_storage sa;
    socklen_t len;
    MS_CLEANUP(ms_cleanup_fd) int fd = -1;
    int one = 1;

    if (ms_tcp_numeric(host, 0, &sa, &len) < 0)
        return ms_error_set(err, -EINVAL, "'%s' is not an address", host);
    fd = socket(sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return ms_error_sys(err, -errno, "cannot make a socket");
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&sa, sizeof sa) < 0 ||
        getsockname(fd, (struct sockaddr *)&sa, &len) < 0)
        return ms_error_sys(err, -errno, "cannot hold a port on %s", host);
    *port = ntohs(((struct sockaddr_in *)&sa)->sin_port); /* the same place in both */
    return MS_TAKE_FD(fd);
}

int ms_poll_until(struct pollfd *fds, nfds_t count, int64_t until_ns)
{
    int64_t left_ns = until_ns == MS_NEVER ? 0 : until_ns - ms_now_ns();
    struct timespec ts = ms_timespec(left_ns > 0 ? left_ns : 0);
    int n = ppoll(fds, count, until_ns == MS_NEVER ? NULL : &ts, NULL);

    return n < 0 ? -errno : n;
}
