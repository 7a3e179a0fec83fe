/* hostid.c - this host, as others know it: its id, and its addresses */
#include "base/cleanup.h"
#include "io/tcp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <pthread.h>
#include <string.h>
#include <sys/stat.h>

/* ---- id --------------------------------------------------------------------------- */

static char host_id[MS_HOST_ID_LEN + 1];

/* FNV-1a, and a last stir: a name, not a secret. */
static uint64_t hash(const char *text)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);

    for (; *text; text++)
        h = (h ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
    h ^= h >> 32;
    h *= UINT64_C(0xd6e8feb86659fd93);
    return h ^ h >> 32;
}

static void find_host_id(void)
{
    MS_CLEANUP(ms_cleanup_file)
    FILE *f = fopen("/proc/sys/kernel/random/boot_id", "re");
    char boot[64], text[128];
    struct stat st;

    if (!f || !fgets(boot, sizeof boot, f) || stat("/proc/self/ns/net", &st) < 0)
        return;
    boot[strcspn(boot, "\n")] = 0;
    snprintf(text, sizeof text, "%s %llu", boot, (unsigned long long)st.st_ino);
    snprintf(host_id, sizeof host_id, "%016llx", (unsigned long long)hash(text));
}

const char *ms_host_id(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, find_host_id);
    return host_id;
}

/* ---- addresses -------------------------------------------------------------------- */

/* Made by containers and virtual machines: nobody else reaches us there. */
static bool is_bridge(const char *name)
{
    static const char *const prefixes[] = {
        "docker", "br-", "virbr", "cni", "flannel", "lxc"};

    for (size_t i = 0; i < MS_COUNT(prefixes); i++)
        if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
            return true;
    return false;
}

enum { RANKS = 4 };

/* From 0, the best, to RANKS - 1; -1: nobody reaches us there. */
static int rank_of(const struct ifaddrs *i)
{
    const struct sockaddr_in *v4 = (const void *)i->ifa_addr;
    const struct sockaddr_in6 *v6 = (const void *)i->ifa_addr;
    int rank = is_bridge(i->ifa_name) ? 2 : 0;

    if (!i->ifa_addr || !(i->ifa_flags & IFF_UP) || (i->ifa_flags & IFF_LOOPBACK))
        return -1;
    if (i->ifa_addr->sa_family == AF_INET) {
        uint32_t host = ntohl(v4->sin_addr.s_addr);

        return host >> 24 == 127 || host >> 16 == 0xa9fe || host == 0 ? -1 : rank;
    }
    if (i->ifa_addr->sa_family != AF_INET6 || IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr) ||
        IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr) ||
        IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr))
        return -1;
    return rank + 1;
}

int ms_host_addresses(char (*out)[MS_HOST_MAX + 1], size_t room)
{
    struct ifaddrs *all;
    size_t n = 0;

    if (getifaddrs(&all) < 0)
        return -errno;
    for (int rank = 0; rank < RANKS; rank++)
        for (const struct ifaddrs *i = all; i && n < room; i = i->ifa_next)
            if (rank_of(i) == rank)
                ms_sockaddr_host((const void *)i->ifa_addr, out[n++]);
    freeifaddrs(all);
    return (int)n;
}
