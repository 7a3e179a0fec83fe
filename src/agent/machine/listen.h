/* listen.h - where workers can be reached from other machines
 *
 * Each worker has, beside its unix socket, one TCP socket that the agent makes before
 * anything runs. Where it is bound is decided once for the node:
 *
 *   nothing said       loopback: not reached from other machines
 *   one address        that address alone
 *   "*", "0.0.0.0", "::"  every interface, told with every address of the node
 *   several addresses  every interface too, but only these are told to others
 *
 * The name of an interface stands for its addresses. Every interface is one socket for
 * both families where there is IPv6. Addresses that only mean something on one cable
 * (link-local) are never told.
 */
#ifndef MS_AGENT_MACHINE_LISTEN_H
#define MS_AGENT_MACHINE_LISTEN_H

#include "base/error.h"

#include <net/if.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

enum { MS_LISTEN_HOSTS_MAX = 16 };

struct ms_listen {
    struct sockaddr_storage at; /* where sockets are bound; its port is 0 */
    char hosts[MS_LISTEN_HOSTS_MAX][INET6_ADDRSTRLEN]; /* that are told, best first */
    size_t host_count;
    char interface[IF_NAMESIZE]; /* of the first of them; "": not known */
};

/* -EINVAL: no address and no interface; -EADDRNOTAVAIL: an interface without one. */
int ms_listen_init(struct ms_listen *l,
                   const char *const *bind,
                   size_t count,
                   struct ms_error *err);

/* Tell this one of the hosts before the others; unknown ones change nothing. */
void ms_listen_prefer(struct ms_listen *l, const char *host);

/* A listening socket on *port, or, if that is 0, on a free one, whose number it gets:
 * close-on-exec, non-blocking. */
int ms_listen_open(const struct ms_listen *l, uint16_t *port, struct ms_error *err);

/* "unix:HOSTID:/path,10.0.0.1:4711,[fd00::1]:4711", malloc'd; NULL: out of memory.
 * Port 0: the unix socket alone. */
char *ms_listen_print(const struct ms_listen *l,
                      const char *host_id,
                      const char *path,
                      uint16_t port);

#endif
