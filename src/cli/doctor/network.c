/* network.c - doctor: addresses, IPv6, TLS and the host's id */
#include "base/buf.h"
#include "base/cleanup.h"
#include "base/name.h"
#include "cli/doctor/doctor.h"
#include "io/addr.h"
#include "io/tcp.h"
#include "wire/transport/tls.h"

#include <string.h>

enum { SHOWN_MAX = 6 };

/* Can something listen on this host's loopback of that family? */
static int try_listen(const char *host)
{
    uint16_t port = 0;
    int fd = ms_tcp_listen(host, &port, NULL);

    if (fd >= 0)
        close(fd);
    return fd < 0 ? fd : 0;
}

static void check_network(struct ms_finding *f)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf text = {0};
    char hosts[MS_ADDRS_MAX][MS_HOST_MAX + 1];
    int count = ms_host_addresses(hosts, MS_ADDRS_MAX);
    int rc = try_listen("127.0.0.1");

    for (int i = 0; i < count && i < SHOWN_MAX; i++)
        ms_buf_printf(&text, "%s%s", i ? ", " : "", hosts[i]);
    if (rc < 0)
        ms_finding_set(f,
                       MS_FINDING_FAIL,
                       "bring the loopback interface up (`ip link set lo up`)",
                       "nothing can listen on 127.0.0.1: %s",
                       strerror(-rc));
    else if (count <= 0)
        ms_finding_set(f,
                       MS_FINDING_WARN,
                       "one machine works like this; others need an address",
                       "there is no address but loopback and link-local ones");
    else
        ms_finding_ok(f,
                      "other machines reach this one at %s%s",
                      ms_buf_str(&text),
                      count > SHOWN_MAX ? ", ..." : "");
}

static void check_ipv6(struct ms_finding *f)
{
    int rc = try_listen("::1");

    if (rc < 0)
        ms_finding_ok(f, "there is no IPv6 (%s): IPv4 alone is used", strerror(-rc));
    else
        ms_finding_ok(f, "IPv6 is there");
}

static void check_tls(struct ms_finding *f)
{
    uint8_t secret[32];
    struct ms_tls *tls = NULL;

    if (ms_random_bytes(secret, sizeof secret) == 0)
        tls = ms_tls_create(secret);
    if (tls)
        ms_finding_ok(f, "TLS 1.3 with a key of the session's own");
    else
        ms_finding_set(f,
                       MS_FINDING_WARN,
                       "one machine works like this; for others install OpenSSL 3 with "
                       "TLS 1.3 and SHA-256 suites",
                       "the TLS library cannot do TLS 1.3 with pre-shared keys");
    ms_tls_unref(tls);
}

static void check_host_id(struct ms_finding *f)
{
    const char *id = ms_host_id();

    if (id[0])
        ms_finding_ok(f,
                      "this host and network namespace are %s; calls within them use "
                      "unix sockets",
                      id);
    else
        ms_finding_set(f,
                       MS_FINDING_WARN,
                       "mount /proc with sys/kernel/random/boot_id and self/ns/net",
                       "this host cannot be told from others: calls go over TCP");
}

const struct ms_check ms_checks_network[] = {
    {"network", check_network},
    {"ipv6", check_ipv6},
    {"tls", check_tls},
    {"host-id", check_host_id},
    {0},
};
