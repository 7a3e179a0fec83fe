/* transport.h - bytes between two processes
 *
 * The one interface under a connection: unix sockets, TCP, TLS over TCP. All operations are
 * non-blocking; -EAGAIN means "not now", 0 from read means end of file. A transport is
 * used by one thread at a time for reading and by one for writing, which may be two at once.
 *
 * A network transport may be made over a socket that is still connecting: reading and
 * writing say -EAGAIN until it is, and then its error.
 */
#ifndef MS_WIRE_TRANSPORT_TRANSPORT_H
#define MS_WIRE_TRANSPORT_TRANSPORT_H

#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>

struct ms_transport;
struct ms_tls;

struct ms_transport_ops {
    bool is_network; /* silence means something */
    ssize_t (*read)(struct ms_transport *t, void *at, size_t room);
    ssize_t (*write)(struct ms_transport *t, const struct iovec *iov, int count);
    /* 0, or a negative errno if the peer may not talk to us at all. NULL: the handshake
     * decides. */
    int (*check_peer)(struct ms_transport *t, struct ms_error *err);
    void (*destroy)(struct ms_transport *t);

    /* These only where a transport has a buffer or a handshake of its own. */
    /* `head`, and behind it bytes of a file, which are not copied: they must not change
     * until the other side has them, or the transport is destroyed. The count of both.
     * Only where SIGPIPE is ignored. */
    ssize_t (*send_file)(struct ms_transport *t,
                         const struct iovec *head,
                         int fd,
                         uint64_t at,
                         size_t len);
    /* It is idle most of the time: keep no memory meanwhile. */
    void (*set_lazy)(struct ms_transport *t);
    /* Bytes of its own wait for room in the socket. */
    bool (*wants_write)(struct ms_transport *t);
    /* Write them. 0 (also if not all went out) or a negative errno. */
    int (*flush)(struct ms_transport *t);
    /* Its own handshake is over: before, write always says -EAGAIN. */
    bool (*is_open)(struct ms_transport *t);
    /* Bytes were received that read has not yet given out: poll does not know of them. The
     * reader's. */
    bool (*has_more)(struct ms_transport *t);
    /* Why it cannot go on, for a person, after read or write failed. False: nothing more
     * is known than the errno. */
    bool (*explain)(struct ms_transport *t, struct ms_error *err);
};

struct ms_transport {
    const struct ms_transport_ops *ops;
    int fd; /* for poll; owned by the transport */
};

/* Each takes over a non-blocking stream socket; NULL: out of memory (the descriptor is then
 * still the caller's). */
struct ms_transport *ms_transport_unix(int fd);
struct ms_transport *ms_transport_tcp(int fd);
struct ms_transport *ms_transport_tls(int fd, struct ms_tls *tls, bool is_server);

/* The operations of unix sockets, for transports over another kind of socket. */
ssize_t ms_socket_read(struct ms_transport *t, void *at, size_t room);
ssize_t ms_socket_write(struct ms_transport *t, const struct iovec *iov, int count);

static inline size_t ms_iov_len(const struct iovec *iov, int count)
{
    size_t len = 0;

    for (int i = 0; i < count; i++)
        len += iov[i].iov_len;
    return len;
}

static inline void ms_iov_copy(uint8_t *to, const struct iovec *iov, int count)
{
    for (int i = 0; i < count; i++) {
        if (iov[i].iov_len)
            memcpy(to, iov[i].iov_base, iov[i].iov_len);
        to += iov[i].iov_len;
    }
}

static inline void ms_transport_destroy(struct ms_transport *t)
{
    if (t)
        t->ops->destroy(t);
}

#endif
