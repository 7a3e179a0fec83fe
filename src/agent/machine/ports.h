/* ports.h - TCP ports that are reserved by holding their sockets (io/sock.h) */
#ifndef MS_AGENT_MACHINE_PORTS_H
#define MS_AGENT_MACHINE_PORTS_H

#include "base/error.h"
#include "base/list.h"

#include <netinet/in.h>
#include <stdint.h>

struct ms_held_port {
    struct ms_list link;
    int fd;
    uint16_t port;
    char host[INET6_ADDRSTRLEN];
    char owner[];
};

struct ms_ports {
    struct ms_list held;
    unsigned count;
};

void ms_ports_init(struct ms_ports *p);
/* Drops all. */
void ms_ports_finish(struct ms_ports *p);

/* Hold one more port on `host` for `owner`. 0 and *port, -ENOSPC at MS_PORTS_MAX, or
 * what the kernel says. */
int ms_ports_hold(struct ms_ports *p,
                  const char *host,
                  const char *owner,
                  uint16_t *port,
                  struct ms_error *err);

/* Let go of all that this owner holds; how many that were. */
unsigned ms_ports_drop(struct ms_ports *p, const char *owner);

#endif
