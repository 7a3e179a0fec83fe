/* tcp.h - TCP sockets, and names of hosts
 *
 * Every socket made here is non-blocking, close-on-exec and without Nagle's delay.
 */
#ifndef MS_IO_TCP_H
#define MS_IO_TCP_H

#include "base/error.h"
#include "io/addr.h"

#include <netinet/in.h>
#include <sys/socket.h>

/* A numeric host as a socket address: 0, or -EINVAL (a name: look it up). */
int ms_tcp_numeric(const char *host,
                   uint16_t port,
                   struct sockaddr_storage *sa,
                   socklen_t *len);

/* Bind and listen. `host` is numeric, "localhost", or empty or "*" for all interfaces (both
 * families, where the host has IPv6); names are looked up, which may block. *port is the
 * port wanted (0: any) and then the one bound. The descriptor, or a negative errno. */
int ms_tcp_listen(const char *host, uint16_t *port, struct ms_error *err);

/* Begin to connect; the descriptor, or a negative errno. Reading and writing say -EAGAIN
 * until it is connected, and then its error. */
int ms_tcp_connect(const struct sockaddr *sa, socklen_t len, struct ms_error *err);

/* Is the connection made? 0; -EINPROGRESS; otherwise why not. */
int ms_tcp_connected(int fd);

/* As ms_unix_accept. */
int ms_tcp_accept(int listen_fd);

/* The kernel looks whether an idle peer is still there, and breaks the connection after
 * twice MS_LINK_GRACE_NS at the latest if it is not. */
void ms_tcp_keep_alive(int fd);

/* How long the other host has not acknowledged anything; MS_NEVER: unknown. */
int64_t ms_tcp_unheard_ns(int fd);

bool ms_sockaddr_is_loopback(const struct sockaddr_storage *sa);
/* The address as text; one of IPv4 within IPv6 as IPv4; "": it has none. */
void ms_sockaddr_host(const struct sockaddr_storage *sa, char out[INET6_ADDRSTRLEN]);
/* "10.0.0.1:80", "[::1]:80", or "unix". */
void ms_sockaddr_format(const struct sockaddr_storage *sa, char *out, size_t room);
/* Do both ends of this connection have the same address, so the same host? */
bool ms_tcp_is_same_host(int fd);

/* ---- names ------------------------------------------------------------------------ */

enum { MS_RESOLVED_MAX = 8 };

struct ms_resolved {
    size_t count;
    struct sockaddr_storage at[MS_RESOLVED_MAX];
    socklen_t len[MS_RESOLVED_MAX];
};

/* Blocking. 0, or -ENXIO (no such host), -EAGAIN (cannot be asked now), ... */
int ms_resolve(const char *host,
               uint16_t port,
               struct ms_resolved *out,
               struct ms_error *err);

/* On a thread of its own. The object belongs to one owner at a time; dropping it before the
 * answer is fine. NULL: no memory, no thread, or too many names at once. */
struct ms_lookup;
struct ms_lookup *ms_lookup_start(const char *host, uint16_t port);
/* The answer, borrowed until the drop: as ms_resolve; -EINPROGRESS: not yet, look again after
 * MS_LOOKUP_NS. */
int ms_lookup_result(struct ms_lookup *l,
                     const struct ms_resolved **out,
                     struct ms_error *err);
void ms_lookup_drop(struct ms_lookup *l);

#endif
