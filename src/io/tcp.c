/* tcp.c - TCP sockets */
#include "io/tcp.h"
#include "base/buf.h"
#include "base/cleanup.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>

enum { LISTEN_BACKLOG = 1024 };

/* ---- socket addresses ------------------------------------------------------------- */

static int numeric_v6(const char *host, uint16_t port, struct sockaddr_in6 *sa)
{
    char text[INET6_ADDRSTRLEN];
    size_t len = strcspn(host, "%");

    *sa = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons(port)};
    if (ms_text_copy(text, sizeof text, host, len) < 0 ||
        inet_pton(AF_INET6, text, &sa->sin6_addr) != 1)
        return -EINVAL;
    if (host[len] == '%') {
        sa->sin6_scope_id = if_nametoindex(host + len + 1);
        if (!sa->sin6_scope_id)
            return -EINVAL;
    }
    return 0;
}

int ms_tcp_numeric(const char *host,
                   uint16_t port,
                   struct sockaddr_storage *sa,
                   socklen_t *len)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(port)};
    struct sockaddr_in6 v6;

    if (inet_pton(AF_INET, host, &v4.sin_addr) == 1) {
        memset(sa, 0, sizeof *sa);
        memcpy(sa, &v4, sizeof v4);
        *len = sizeof v4;
        return 0;
    }
    if (numeric_v6(host, port, &v6) < 0)
        return -EINVAL;
    memset(sa, 0, sizeof *sa);
    memcpy(sa, &v6, sizeof v6);
    *len = sizeof v6;
    return 0;
}

bool ms_sockaddr_is_loopback(const struct sockaddr_storage *sa)
{
    const struct sockaddr_in *v4 = (const void *)sa;
    const struct sockaddr_in6 *v6 = (const void *)sa;

    if (sa->ss_family == AF_INET)
        return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
    if (sa->ss_family != AF_INET6)
        return false;
    if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr))
        return v6->sin6_addr.s6_addr[12] == 127;
    return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

void ms_sockaddr_host(const struct sockaddr_storage *sa, char out[INET6_ADDRSTRLEN])
{
    const struct sockaddr_in *v4 = (const void *)sa;
    const struct sockaddr_in6 *v6 = (const void *)sa;

    out[0] = 0;
    if (sa->ss_family == AF_INET)
        inet_ntop(AF_INET, &v4->sin_addr, out, INET6_ADDRSTRLEN);
    else if (sa->ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr))
        inet_ntop(AF_INET, v6->sin6_addr.s6_addr + 12, out, INET6_ADDRSTRLEN);
    else if (sa->ss_family == AF_INET6)
        inet_ntop(AF_INET6, &v6->sin6_addr, out, INET6_ADDRSTRLEN);
}

void ms_sockaddr_format(const struct sockaddr_storage *sa, char *out, size_t room)
{
    const struct sockaddr_in *at = (const void *)sa; /* the port is there in both */
    char host[INET6_ADDRSTRLEN];

    ms_sockaddr_host(sa, host);
    if (!*host)
        snprintf(out, room, "unix");
    else
        snprintf(out,
                 room,
                 strchr(host, ':') ? "[%s]:%u" : "%s:%u",
                 host,
                 ntohs(at->sin_port));
}

bool ms_tcp_is_same_host(int fd)
{
    struct sockaddr_storage us = {0}, them = {0};
    socklen_t us_len = sizeof us, them_len = sizeof them;
    const struct sockaddr_in *a4 = (const void *)&us, *b4 = (const void *)&them;
    const struct sockaddr_in6 *a6 = (const void *)&us, *b6 = (const void *)&them;

    if (getsockname(fd, (struct sockaddr *)&us, &us_len) < 0 ||
        getpeername(fd, (struct sockaddr *)&them, &them_len) < 0 ||
        us.ss_family != them.ss_family)
        return false;
    if (us.ss_family == AF_INET)
        return a4->sin_addr.s_addr == b4->sin_addr.s_addr;
    return us.ss_family == AF_INET6 &&
           memcmp(&a6->sin6_addr, &b6->sin6_addr, sizeof a6->sin6_addr) == 0;
}

/* ---- sockets ---------------------------------------------------------------------- */

/* Send at once. A congestion control that paces what it sends (BBR) holds back the answers
 * of a loopback connection, on which there is no congestion: 36 us for a call of 20. */
static void no_delay(int fd, const struct sockaddr_storage *other)
{
    static const char plain[] = "reno"; /* always there, and allowed */
    int one = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (ms_sockaddr_is_loopback(other))
        setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, plain, sizeof plain - 1);
}

int ms_tcp_connect(const struct sockaddr *sa, socklen_t len, struct ms_error *err)
{
    MS_CLEANUP(ms_cleanup_fd)
    int fd = socket(sa->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return ms_error_sys(err, -errno, "cannot make a socket");
    no_delay(fd, (const void *)sa);
    if (connect(fd, sa, len) < 0 && errno != EINPROGRESS)
        return ms_error_sys(err, -errno, "cannot connect");
    return MS_TAKE_FD(fd);
}

int ms_tcp_connected(int fd)
{
    struct tcp_info info;
    socklen_t len = sizeof info;
    int error = 0;
    socklen_t error_len = sizeof error;

    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &error_len) < 0)
        return -errno;
    if (error)
        return -error;
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0)
        return -errno;
    if (info.tcpi_state == TCP_SYN_SENT)
        return -EINPROGRESS;
    return info.tcpi_state == TCP_CLOSE ? -ENOTCONN : 0;
}

int64_t ms_tcp_unheard_ns(int fd)
{
    struct tcp_info info;
    socklen_t len = sizeof info;
    uint32_t ms;

    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0)
        return MS_NEVER;
    ms = info.tcpi_last_ack_recv < info.tcpi_last_data_recv ? info.tcpi_last_ack_recv
                                                            : info.tcpi_last_data_recv;
    return ms * MS_NS_PER_MS;
}

int ms_tcp_accept(int listen_fd)
{
    struct sockaddr_storage who = {0};
    socklen_t len;
    int fd;

    do {
        len = sizeof who;
        fd = accept4(
            listen_fd, (struct sockaddr *)&who, &len, SOCK_CLOEXEC | SOCK_NONBLOCK);
    } while (fd < 0 && (errno == EINTR || errno == ECONNABORTED));
    if (fd < 0)
        return -errno;
    no_delay(fd, &who);
    return fd;
}

void ms_tcp_keep_alive(int fd)
{
    int on = 1, count = 4;
    int idle_s = (int)(MS_LINK_GRACE_NS / MS_NS_PER_S);
    int between_s = idle_s / count;
    int most_ms = (int)(2 * MS_LINK_GRACE_NS / MS_NS_PER_MS);

    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &between_s, sizeof between_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &count, sizeof count);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &most_ms, sizeof most_ms);
}

/* ---- listening -------------------------------------------------------------------- */

static int listen_on(const struct sockaddr_storage *sa, socklen_t len, bool dual)
{
    MS_CLEANUP(ms_cleanup_fd)
    int fd = socket(sa->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int one = 1, v6_only = !dual;

    if (fd < 0)
        return -errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (sa->ss_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &v6_only, sizeof v6_only);
    if (bind(fd, (const struct sockaddr *)sa, len) < 0 ||
        listen(fd, LISTEN_BACKLOG) < 0)
        return -errno;
    return MS_TAKE_FD(fd);
}

static int listen_everywhere(uint16_t port)
{
    struct sockaddr_storage sa = {0};
    socklen_t len = 0;
    int fd;

    ms_tcp_numeric("::", port, &sa, &len);
    fd = listen_on(&sa, len, true);
    if (fd != -EAFNOSUPPORT && fd != -EADDRNOTAVAIL)
        return fd;
    ms_tcp_numeric("0.0.0.0", port, &sa, &len); /* a host without IPv6 */
    return listen_on(&sa, len, false);
}

static uint16_t bound_port(int fd)
{
    struct sockaddr_storage sa = {0};
    socklen_t len = sizeof sa;
    struct sockaddr_in at; /* the port is there in both families */

    if (getsockname(fd, (struct sockaddr *)&sa, &len) < 0)
        return 0;
    memcpy(&at, &sa, sizeof at);
    return ntohs(at.sin_port);
}

int ms_tcp_listen(const char *host, uint16_t *port, struct ms_error *err)
{
    struct ms_resolved found = {.count = 1};
    int fd = -EADDRNOTAVAIL, rc = 0;

    if (!*host || strcmp(host, "*") == 0) {
        fd = listen_everywhere(*port);
    } else {
        if (ms_tcp_numeric(host, *port, &found.at[0], &found.len[0]) < 0)
            rc = ms_resolve(host, *port, &found, err);
        if (rc < 0)
            return rc;
        for (size_t i = 0; i < found.count && fd < 0; i++)
            fd = listen_on(&found.at[i], found.len[i], false);
    }
    if (fd < 0)
        return ms_error_sys(
            err, fd, "cannot listen on %s:%u", *host ? host : "*", *port);
    *port = bound_port(fd);
    return fd;
}
