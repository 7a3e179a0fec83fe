/* addr.h - where a server listens
 *
 * An address is text. A list of them, comma-separated, best first, is what a worker or a
 * head is known by:
 *
 *   unix:HOSTID:/path   a unix socket on the host HOSTID (16 hex digits); on any other host
 *                       this entry is passed over
 *   /path               a unix socket, without conditions
 *   HOST:PORT           TCP; HOST is a name or an IPv4 address
 *   [V6]:PORT           TCP; an IPv6 address, also with a zone ("fe80::1%eth0")
 *
 * Parsing and formatting are pure. Everything is checked against the limits of limits.h;
 * what ms_addr_format writes, ms_addr_parse reads.
 */
#ifndef MS_IO_ADDR_H
#define MS_IO_ADDR_H

#include "base/error.h"
#include "base/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MS_HOST_ID_LEN = 16, MS_ADDR_TEXT_MAX = 288 };

struct ms_addr {
    bool is_unix;
    uint16_t port;                    /* TCP; never 0 unless the parser allowed it */
    char host_id[MS_HOST_ID_LEN + 1]; /* unix; empty: any host */
    char name[MS_HOST_MAX + 1];       /* the host without brackets, or the path */
};

struct ms_addr_list {
    size_t count;
    struct ms_addr at[MS_ADDRS_MAX];
};

/* One address. 0, or -EINVAL, -ENAMETOOLONG with the reason. */
int ms_addr_parse(const char *text, struct ms_addr *a, struct ms_error *err);
/* The same for something to listen on: the port may be 0 (any free one), and the host may be
 * empty or "*" (all interfaces). */
int ms_addr_parse_listen(const char *text, struct ms_addr *a, struct ms_error *err);

/* A list of at least one. Also -E2BIG beyond MS_ADDRS_MAX. */
int ms_addr_list_parse(const char *text, struct ms_addr_list *l, struct ms_error *err);

/* The text of an address; false if it does not fit (MS_ADDR_TEXT_MAX always does). */
bool ms_addr_format(const struct ms_addr *a, char *out, size_t room);

/* Can it be connected to from here: TCP, or a unix socket of this host. */
bool ms_addr_is_usable(const struct ms_addr *a);

/* This host and its network: 16 hex digits of boot id and network namespace, so that two
 * network namespaces on one machine are two hosts. Empty if it cannot be learnt: then no
 * "unix:" entry is usable. Valid for ever. */
const char *ms_host_id(void);

/* Addresses of this host that others may reach it by, best first: those of interfaces that
 * are up, IPv4 before IPv6, physical-looking interfaces before bridges; no loopback, no
 * link-local ones. The count, or a negative errno. */
int ms_host_addresses(char (*out)[MS_HOST_MAX + 1], size_t room);

#endif
