/* sock.h - unix sockets, and descriptors sent over them
 *
 * Everything made here is close-on-exec. "nonblock" descriptors are non-blocking.
 */
#ifndef MS_IO_SOCK_H
#define MS_IO_SOCK_H

#include "base/error.h"

#include <poll.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>

/* In all of these `type` is SOCK_STREAM, or SOCK_SEQPACKET: messages stay whole, and may carry
 * descriptors. */

/* Bind and listen on a path (mode 0600, unlinked first if it is a dead socket).
 * A descriptor, or a negative errno. */
int ms_unix_listen(const char *path, int type, struct ms_error *err);

/* Connect, non-blocking. -ECONNREFUSED or -ENOENT: nobody listens there; -EAGAIN: its
 * backlog is full now. */
int ms_unix_connect(const char *path, int type, struct ms_error *err);

/* Accept, non-blocking. -EAGAIN: nobody waits; -EMFILE, -ENFILE: no descriptor left. */
int ms_unix_accept(int listen_fd);

/* Who is at the other end, by the kernel's word. */
int ms_unix_peer(int fd, uid_t *uid, pid_t *pid);

/* A connected pair. */
int ms_unix_pair(int type, int fds[2]);

/* One message with descriptors (which stay the caller's). On SOCK_SEQPACKET the message
 * is whole or absent. Bytes sent, or a negative errno. */
ssize_t ms_fds_send(int fd, const void *data, size_t len, const int *fds, size_t count);

/* Receive one message; received descriptors are close-on-exec and the caller's. *count
 * is the room in `fds` before and the number received after; more than fit are closed
 * and make it -EMSGSIZE. 0: end of file. */
ssize_t ms_fds_recv(int fd, void *data, size_t len, int *fds, size_t *count);

/* Bind a free TCP port on `host` with SO_REUSEADDR and do not listen, so that a process
 * that is given the number can bind and listen while we hold it. The descriptor, or a negative
 * errno; *port is the number. */
int ms_port_hold(const char *host, uint16_t *port, struct ms_error *err);

/* poll(2) until `until_ns` at the latest; MS_NEVER: for ever. The count of those that are
 * ready; 0: it is that late; -EINTR: a signal came. */
int ms_poll_until(struct pollfd *fds, nfds_t count, int64_t until_ns);

#endif
