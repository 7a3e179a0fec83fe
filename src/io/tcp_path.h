/* tcp_path.h - what the kernel knows of the path to the other side of a connection */
#ifndef MS_IO_TCP_PATH_H
#define MS_IO_TCP_PATH_H

#include <stdint.h>

struct ms_tcp_path {
    uint32_t rtt_us;      /* now, smoothed */
    uint32_t min_rtt_us;  /* of an empty way */
    uint64_t bytes_per_s; /* that arrive; 0: unknown */
};

/* 0 or a negative errno. */
int ms_tcp_path(int fd, struct ms_tcp_path *out);

/* Send no faster than that; UINT64_MAX: as fast as it goes. 0 or a negative errno. */
int ms_tcp_set_rate(int fd, uint64_t bytes_per_s);

#endif
