/* listen.c - where the TCP sockets of a node's workers are bound, and told of */
#include "agent/machine/listen.h"
#include "base/buf.h"
#include "base/cleanup.h"
#include "io/tcp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <stdbool.h>
#include <string.h>

enum { BACKLOG = 4096 };

/* ---- addresses ------------------------------------------------------------------- */

static bool parse(const char *text, struct sockaddr_storage *out)
{
    socklen_t len;

    return !strchr(text, '%') && ms_tcp_numeric(text, 0, out, &len) == 0;
}

static bool is_link_local(const struct sockaddr *at)
{
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)(const void *)at;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)(const void *)at;

    if (at->sa_family == AF_INET)
        return ntohl(v4->sin_addr.s_addr) >> 16 == 0xa9fe;
    return at->sa_family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr);
}

static bool is_any(const char *text)
{
    return !strcmp(text, "*") || !strcmp(text, "0.0.0.0") || !strcmp(text, "::");
}

static void add_host(struct ms_listen *l, const void *at)
{
    char text[INET6_ADDRSTRLEN];

    ms_sockaddr_host(at, text);
    if (!*text || l->host_count == MS_LISTEN_HOSTS_MAX)
        return;
    for (size_t i = 0; i < l->host_count; i++)
        if (!strcmp(l->hosts[i], text))
            return;
    memcpy(l->hosts[l->host_count++], text, sizeof text);
}

/* ---- interfaces ------------------------------------------------------------------ */

/* The interface of the IPv4 default route, or "". */
static void find_default(char out[IF_NAMESIZE])
{
    MS_CLEANUP(ms_cleanup_file) FILE *f = fopen("/proc/net/route", "re");
    char line[256], name[IF_NAMESIZE];
    unsigned destination;

    out[0] = 0;
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "%15s %x", name, &destination) == 2 && destination == 0) {
            memcpy(out, name, sizeof name);
            return;
        }
}

/* Those of one interface (NULL: of all but `not`), IPv4 before IPv6. */
static void add_interface(struct ms_listen *l,
                          const struct ifaddrs *all,
                          const char *name,
                          const char * not )
{
    static const int families[] = {AF_INET, AF_INET6};

    for (size_t f = 0; f < MS_COUNT(families); f++)
        for (const struct ifaddrs *i = all; i; i = i->ifa_next) {
            if (!i->ifa_addr || i->ifa_addr->sa_family != families[f] ||
                !(i->ifa_flags & IFF_UP) || is_link_local(i->ifa_addr))
                continue;
            if (name ? strcmp(i->ifa_name, name) == 0
                     : !ms_sockaddr_is_loopback((const void *)i->ifa_addr) &&
                           strcmp(i->ifa_name, not ) != 0)
                add_host(l, i->ifa_addr);
        }
}

/* Those of the default route first: bridges of containers are the same everywhere. */
static void add_all(struct ms_listen *l, const struct ifaddrs *all)
{
    char first[IF_NAMESIZE];

    find_default(first);
    if (*first)
        add_interface(l, all, first, "");
    add_interface(l, all, NULL, first);
}

static int add_named(struct ms_listen *l,
                     const struct ifaddrs *all,
                     const char *name,
                     struct ms_error *err)
{
    size_t before = l->host_count;

    if (!if_nametoindex(name))
        return ms_error_set(
            err,
            -EINVAL,
            "cannot bind to '%s': it is no address and no interface of this machine",
            name);
    add_interface(l, all, name, "");
    if (l->host_count == before)
        return ms_error_set(err, -EADDRNOTAVAIL, "interface '%s' has no address", name);
    return 0;
}

/* The interface of the first host. */
static void find_interface(struct ms_listen *l)
{
    struct ifaddrs *all = NULL;
    char text[INET6_ADDRSTRLEN];

    l->interface[0] = 0;
    if (getifaddrs(&all) < 0)
        return;
    for (const struct ifaddrs *i = all; i && !l->interface[0]; i = i->ifa_next) {
        if (!i->ifa_addr)
            continue;
        ms_sockaddr_host((const void *)i->ifa_addr, text);
        if (!strcmp(text, l->hosts[0]))
            snprintf(l->interface, sizeof l->interface, "%s", i->ifa_name);
    }
    freeifaddrs(all);
}

/* ---- what was said --------------------------------------------------------------- */

static int add_one(struct ms_listen *l,
                   const struct ifaddrs *all,
                   const char *text,
                   struct ms_error *err)
{
    struct sockaddr_storage at;

    if (is_any(text))
        add_all(l, all);
    else if (parse(text, &at))
        add_host(l, &at);
    else
        return add_named(l, all, text, err);
    return 0;
}

static bool has_ipv6(void)
{
    MS_CLEANUP(ms_cleanup_fd)
    int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);

    return fd >= 0;
}

int ms_listen_init(struct ms_listen *l,
                   const char *const *bind,
                   size_t count,
                   struct ms_error *err)
{
    struct ms_listen made = {0};
    struct ifaddrs *all = NULL;
    bool any = false;
    int rc = 0;

    if (count && getifaddrs(&all) < 0)
        return ms_error_sys(err, -errno, "cannot look at the interfaces");
    for (size_t i = 0; i < count && rc == 0; i++) {
        rc = add_one(&made, all, bind[i], err);
        any |= is_any(bind[i]);
    }
    freeifaddrs(all);
    if (rc < 0)
        return rc;
    if (!made.host_count) /* nothing said, or a machine that is alone */
        memcpy(made.hosts[made.host_count++], "127.0.0.1", sizeof "127.0.0.1");
    parse(made.host_count > 1 || any ? (has_ipv6() ? "::" : "0.0.0.0") : made.hosts[0],
          &made.at);
    find_interface(&made);
    *l = made;
    return 0;
}

void ms_listen_prefer(struct ms_listen *l, const char *host)
{
    char text[INET6_ADDRSTRLEN];

    for (size_t i = 0; i < l->host_count; i++) {
        if (strcmp(l->hosts[i], host) != 0)
            continue;
        memcpy(text, l->hosts[i], sizeof text);
        memmove(l->hosts[1], l->hosts[0], i * sizeof l->hosts[0]);
        memcpy(l->hosts[0], text, sizeof text);
        find_interface(l);
        return;
    }
}

/* ---- sockets --------------------------------------------------------------------- */

static void set_options(int fd, const struct ms_listen *l, bool is_told)
{
    int zero = 0, one = 1;

    if (is_told) /* connections of the last one that had it may still be dying */
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (l->at.ss_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero);
    /* also where the loopback interface is down: no other host has this address */
    if (ms_sockaddr_is_loopback(&l->at))
        setsockopt(fd, IPPROTO_IP, IP_FREEBIND, &one, sizeof one);
}

int ms_listen_open(const struct ms_listen *l, uint16_t *port, struct ms_error *err)
{
    struct sockaddr_storage at = l->at;
    socklen_t len = sizeof at;
    MS_CLEANUP(ms_cleanup_fd)
    int fd = socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return ms_error_sys(err, -errno, "cannot make a TCP socket");
    set_options(fd, l, *port != 0);
    /* the port is at the same place in both families */
    ((struct sockaddr_in *)&at)->sin_port = htons(*port);
    if (bind(fd, (struct sockaddr *)&at, len) < 0 || listen(fd, BACKLOG) < 0 ||
        getsockname(fd, (struct sockaddr *)&at, &len) < 0)
        return ms_error_sys(
            err, -errno, "cannot listen on %s, port %u", l->hosts[0], *port);
    *port = ntohs(((struct sockaddr_in *)&at)->sin_port);
    return MS_TAKE_FD(fd);
}

char *ms_listen_print(const struct ms_listen *l,
                      const char *host_id,
                      const char *path,
                      uint16_t port)
{
    struct ms_buf text = {0};
    int rc = *host_id ? ms_buf_printf(&text, "unix:%s:%s", host_id, path)
                      : ms_buf_printf(&text, "%s", path);
    char *out;

    for (size_t i = 0; i < l->host_count && port && rc == 0; i++)
        rc = ms_buf_printf(
            &text, strchr(l->hosts[i], ':') ? ",[%s]:%u" : ",%s:%u", l->hosts[i], port);
    out = rc == 0 && ms_buf_str(&text) ? strdup(ms_buf_str(&text)) : NULL;
    ms_buf_finish(&text);
    return out;
}
