/* hostid.c - this host, as others know it: its id, and its addresses */
#include "base/cleanup.h"
#include "base/name.h"
#include "io/addr.h"

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

enum { FOUND_MAX = 64 };

struct found {
    unsigned rank; /* smaller is better */
    unsigned order;
    char text[MS_HOST_MAX + 1];
};

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

static bool take_v4(const struct ifaddrs *i, struct found *f)
{
    const struct sockaddr_in *sa = (const void *)i->ifa_addr;
    uint32_t host = ntohl(sa->sin_addr.s_addr);

    if (host >> 24 == 127 || host >> 16 == 0xa9fe || host == 0)
        return false;
    f->rank = 0;
    return inet_ntop(AF_INET, &sa->sin_addr, f->text, sizeof f->text) != NULL;
}

static bool take_v6(const struct ifaddrs *i, struct found *f)
{
    const struct sockaddr_in6 *sa = (const void *)i->ifa_addr;

    if (IN6_IS_ADDR_LOOPBACK(&sa->sin6_addr) || IN6_IS_ADDR_LINKLOCAL(&sa->sin6_addr) ||
        IN6_IS_ADDR_UNSPECIFIED(&sa->sin6_addr))
        return false;
    f->rank = 1;
    return inet_ntop(AF_INET6, &sa->sin6_addr, f->text, sizeof f->text) != NULL;
}

static bool take(const struct ifaddrs *i, struct found *f)
{
    bool ok = false;

    if (!i->ifa_addr || !(i->ifa_flags & IFF_UP) || (i->ifa_flags & IFF_LOOPBACK))
        return false;
    if (i->ifa_addr->sa_family == AF_INET)
        ok = take_v4(i, f);
    else if (i->ifa_addr->sa_family == AF_INET6)
        ok = take_v6(i, f);
    if (is_bridge(i->ifa_name))
        f->rank += 2;
    return ok;
}

static int compare(const void *a, const void *b)
{
    const struct found *x = a, *y = b;

    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

int ms_host_addresses(char (*out)[MS_HOST_MAX + 1], size_t room)
{
    struct ifaddrs *all;
    struct found *found;
    unsigned n = 0;
    size_t taken;

    if (getifaddrs(&all) < 0)
        return -errno;
    found = calloc(FOUND_MAX, sizeof *found);
    if (!found) {
        freeifaddrs(all);
        return -ENOMEM;
    }
    for (struct ifaddrs *i = all; i && n < FOUND_MAX; i = i->ifa_next) {
        found[n].order = n;
        if (take(i, &found[n]))
            n++;
    }
    freeifaddrs(all);
    qsort(found, n, sizeof *found, compare);
    taken = n < room ? n : room;
    for (size_t i = 0; i < taken; i++)
        memcpy(out[i], found[i].text, sizeof found[i].text);
    free(found);
    return (int)taken;
}
