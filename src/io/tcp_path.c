/* tcp_path.c - what the kernel knows of the path to the other side of a connection */
#include "io/tcp_path.h"

#include <errno.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

int ms_tcp_path(int fd, struct ms_tcp_path *out)
{
    struct tcp_info info;
    socklen_t len = sizeof info;

    memset(&info, 0, sizeof info); /* an older kernel fills less of it */
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0)
        return -errno;
    *out = (struct ms_tcp_path){.rtt_us = info.tcpi_rtt,
                                .min_rtt_us = info.tcpi_min_rtt,
                                .bytes_per_s = info.tcpi_delivery_rate};
    return 0;
}

int ms_tcp_set_rate(int fd, uint64_t bytes_per_s)
{
    unsigned rate = bytes_per_s > UINT32_MAX - 1 ? ~0u : (unsigned)bytes_per_s;

    return setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof rate) < 0
               ? -errno
               : 0;
}
