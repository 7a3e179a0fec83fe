/* transport.h - bytes between two processes
 *
 * The one interface under a connection: unix sockets now, TLS over TCP beside it. All
 * operations are non-blocking; -EAGAIN means "not now", 0 from read means end of file.
 * A transport is used by one thread at a time for reading and by one for writing.
 */
#ifndef MS_WIRE_TRANSPORT_H
#define MS_WIRE_TRANSPORT_H

#include "base/error.h"

#include <sys/types.h>
#include <sys/uio.h>

struct ms_transport;

struct ms_transport_ops {
    const char *name;
    ssize_t (*read)(struct ms_transport *t, void *at, size_t room);
    ssize_t (*write)(struct ms_transport *t, const struct iovec *iov, int count);
    /* 0, or a negative errno if the peer may not talk to us at all. */
    int (*check_peer)(struct ms_transport *t, struct ms_error *err);
    void (*destroy)(struct ms_transport *t);
};

struct ms_transport {
    const struct ms_transport_ops *ops;
    int fd; /* for poll; owned by the transport */
};

/* Takes over a connected, non-blocking unix stream socket; NULL: out of memory (the
 * descriptor is then still the caller's). */
struct ms_transport *ms_transport_unix(int fd);

static inline void ms_transport_destroy(struct ms_transport *t)
{
    if (t)
        t->ops->destroy(t);
}

#endif
