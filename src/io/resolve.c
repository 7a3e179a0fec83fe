/* resolve.c - look up names of hosts
 *
 * getaddrinfo blocks for as long as the network likes, so a lookup has a
 * thread of its own, which is left alone when nobody wants its answer any more. */
#include "base/cleanup.h"
#include "io/tcp.h"

#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>

struct ms_lookup {
    _Atomic unsigned refs; /* the owner, and the thread */
    _Atomic bool done;
    uint16_t port;
    char host[MS_HOST_MAX + 1];
    int rc;
    struct ms_resolved result;
    struct ms_error err;
};

static _Atomic unsigned lookups; /* threads that run */

static int code_of(int gai)
{
    switch (gai) {
    case EAI_AGAIN:
        return -EAGAIN;
    case EAI_MEMORY:
        return -ENOMEM;
    case EAI_SYSTEM:
        return errno ? -errno : -EIO;
    default:
        return -ENXIO;
    }
}

int ms_resolve(const char *host,
               uint16_t port,
               struct ms_resolved *out,
               struct ms_error *err)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *all = NULL;
    char service[8];
    int gai;

    snprintf(service, sizeof service, "%u", port);
    gai = getaddrinfo(host, service, &hints, &all);
    if (gai != 0)
        return ms_error_set(
            err, code_of(gai), "cannot find host '%s': %s", host, gai_strerror(gai));
    out->count = 0;
    for (struct addrinfo *i = all; i && out->count < MS_RESOLVED_MAX; i = i->ai_next) {
        if (i->ai_addrlen > sizeof out->at[0])
            continue;
        memset(&out->at[out->count], 0, sizeof out->at[0]);
        memcpy(&out->at[out->count], i->ai_addr, i->ai_addrlen);
        out->len[out->count++] = i->ai_addrlen;
    }
    freeaddrinfo(all);
    return out->count ? 0 : ms_error_set(err, -ENXIO, "host '%s' has no address", host);
}

void ms_lookup_drop(struct ms_lookup *l)
{
    if (l && atomic_fetch_sub(&l->refs, 1) == 1)
        free(l);
}

static void *run(void *arg)
{
    struct ms_lookup *l = arg;

    l->rc = ms_resolve(l->host, l->port, &l->result, &l->err);
    atomic_store(&l->done, true);
    ms_lookup_drop(l);
    atomic_fetch_sub(&lookups, 1);
    return NULL;
}

/* A detached thread that no signal of the process goes to. */
static int start_thread(struct ms_lookup *l)
{
    sigset_t all, before;
    pthread_attr_t attr;
    pthread_t thread;
    int rc;

    if (pthread_attr_init(&attr) != 0)
        return -ENOMEM;
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    rc = pthread_create(&thread, &attr, run, l);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return -rc;
}

struct ms_lookup *ms_lookup_start(const char *host, uint16_t port)
{
    struct ms_lookup *l;

    if (strlen(host) > MS_HOST_MAX)
        return NULL;
    l = calloc(1, sizeof *l);
    if (!l)
        return NULL;
    l->refs = 2;
    l->port = port;
    strcpy(l->host, host);
    if (atomic_fetch_add(&lookups, 1) < MS_RESOLVERS_MAX && start_thread(l) == 0)
        return l;
    atomic_fetch_sub(&lookups, 1);
    free(l);
    return NULL;
}

int ms_lookup_result(struct ms_lookup *l,
                     const struct ms_resolved **out,
                     struct ms_error *err)
{
    if (!atomic_load(&l->done))
        return -EINPROGRESS;
    if (l->rc < 0) {
        if (err)
            *err = l->err;
        return l->rc;
    }
    *out = &l->result;
    return 0;
}
