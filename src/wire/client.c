#include "wire/client.h"
#include "base/clock.h"
#include "wire/client_internal.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

enum { EVENTS_MAX = 64 };

void ms_client_unref(struct ms_client *c)
{
    if (atomic_fetch_sub(&c->refs, 1) != 1)
        return;
    ms_map_finish(&c->by_id);
    pthread_mutex_destroy(&c->lock);
    explicit_bzero(c->secret, sizeof c->secret);
    free(c);
}

static struct ms_peer *peer_by_id(struct ms_client *c, uint64_t id)
{
    struct ms_peer *p;

    pthread_mutex_lock(&c->lock);
    p = ms_map_find(&c->by_id, id);
    if (p)
        ms_peer_ref(p);
    pthread_mutex_unlock(&c->lock);
    return p;
}

/* A connection that nobody waits for has something, or has room again. */
static void on_peer(struct ms_peer *p)
{
    pthread_mutex_lock(&p->lock);
    p->armed = false;
    if (p->conn && ms_conn_wants_write(p->conn))
        ms_conn_flush(p->conn);
    if (p->conn && !p->reading)
        ms_peer_read(p, false, 0);
    if (p->conn && p->pending.count && p->waiters == 0)
        ms_peer_arm(p);
    else if (p->conn && ms_conn_wants_write(p->conn))
        ms_peer_arm(p);
    pthread_mutex_unlock(&p->lock);
}

static void on_epoll(void *arg, unsigned events)
{
    struct ms_client *c = arg;
    struct epoll_event ev[EVENTS_MAX];
    int n = epoll_wait(c->epoll_fd, ev, EVENTS_MAX, 0);

    (void)events;
    for (int i = 0; i < n; i++) {
        struct ms_peer *p = peer_by_id(c, ev[i].data.u64);

        if (p)
            on_peer(p);
        ms_peer_unref(p);
    }
}

/* All peers, each with a reference; the count, or a negative errno. */
static int peers_snapshot(struct ms_client *c, struct ms_peer ***out)
{
    size_t n = 0;

    pthread_mutex_lock(&c->lock);
    *out = calloc(c->by_id.count + 1, sizeof **out);
    if (*out)
        ms_list_each (p, &c->peers, struct ms_peer, link)
            (*out)[n++] = ms_peer_ref(p);
    pthread_mutex_unlock(&c->lock);
    return *out ? (int)n : -ENOMEM;
}

static void on_time(void *arg)
{
    struct ms_client *c = arg;
    struct ms_peer **peers;
    int64_t now_ns = ms_now_ns(), next_ns = MS_NEVER;
    int n;

    atomic_store(&c->wake_ns, MS_NEVER);
    n = peers_snapshot(c, &peers);
    for (int i = 0; i < n; i++) {
        int64_t at_ns;

        pthread_mutex_lock(&peers[i]->lock);
        at_ns = ms_peer_on_time(peers[i], now_ns);
        pthread_mutex_unlock(&peers[i]->lock);
        ms_peer_unref(peers[i]);
        next_ns = at_ns < next_ns ? at_ns : next_ns;
    }
    free(peers);
    if (n < 0)
        next_ns = now_ns + MS_NS_PER_S;
    ms_client_wake_at(c, next_ns);
}

static void set_timer(void *arg)
{
    struct ms_client *c = arg;
    int64_t at_ns = atomic_load(&c->wake_ns);

    if (!c->closed && at_ns != MS_NEVER)
        ms_timer_set(&c->timer, at_ns - ms_now_ns());
    ms_client_unref(c);
}

void ms_client_wake_at(struct ms_client *c, int64_t at_ns)
{
    int64_t set_ns = atomic_load(&c->wake_ns);

    while (at_ns < set_ns) {
        if (!atomic_compare_exchange_weak(&c->wake_ns, &set_ns, at_ns))
            continue;
        atomic_fetch_add(&c->refs, 1);
        if (ms_loop_post(c->loop, set_timer, c) < 0)
            ms_client_unref(c);
        return;
    }
}

struct ms_client *ms_client_create(const struct ms_client_options *o)
{
    struct ms_client *c = calloc(1, sizeof *c);

    if (!c)
        return NULL;
    c->loop = o->loop;
    memcpy(c->secret, o->secret, sizeof c->secret);
    c->spin = o->spin;
    c->ask_verdict = o->ask_verdict;
    c->arg = o->arg;
    c->refs = 1;
    c->wake_ns = MS_NEVER;
    pthread_mutex_init(&c->lock, NULL);
    ms_list_init(&c->peers);
    ms_map_init(&c->by_id);
    c->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (c->epoll_fd < 0 || ms_timer_init(&c->timer, c->loop, on_time, c) < 0 ||
        ms_watch_init(&c->watch, c->loop, c->epoll_fd, MS_READ, on_epoll, c) < 0) {
        ms_client_destroy(c, "it could not be made");
        return NULL;
    }
    return c;
}

void ms_client_destroy(struct ms_client *c, const char *why)
{
    struct ms_peer **peers;
    int n;

    if (!c)
        return;
    pthread_mutex_lock(&c->lock);
    c->closed = true;
    pthread_mutex_unlock(&c->lock);
    n = peers_snapshot(c, &peers);
    for (int i = 0; i < n; i++) {
        size_t len = 0;
        uint8_t *f = ms_failure_pack(MUSTER__FAILURE__KIND__SHUTTING_DOWN,
                                     peers[i]->label,
                                     why,
                                     NULL,
                                     &len);

        pthread_mutex_lock(&peers[i]->lock);
        ms_peer_die(peers[i], f, len);
        pthread_mutex_unlock(&peers[i]->lock);
        ms_peer_unref(peers[i]);
    }
    free(peers);
    ms_watch_finish(&c->watch);
    ms_timer_finish(&c->timer);
    ms_fd_close(&c->epoll_fd);
    ms_client_unref(c);
}

void ms_client_verdict(struct ms_client *c, uint64_t uid, const Muster__Exit *exit)
{
    struct ms_peer **peers;
    int n = peers_snapshot(c, &peers);

    for (int i = 0; i < n; i++) {
        struct ms_peer *p = peers[i];

        if (p->uid == uid) {
            size_t len = 0;
            uint8_t *f = ms_failure_pack(
                MUSTER__FAILURE__KIND__WORKER_DIED, p->label, "", exit, &len);

            pthread_mutex_lock(&p->lock);
            ms_peer_die(p, f, len);
            pthread_mutex_unlock(&p->lock);
        }
        ms_peer_unref(p);
    }
    free(peers);
}

void ms_client_forget(struct ms_client *c)
{
    ms_list_each (p, &c->peers, struct ms_peer, link) {
        if (p->conn)
            close(ms_conn_fd(p->conn));
        p->conn = NULL; /* leaked on purpose: another process owns what it stood for */
        p->state = PEER_DEAD;
        pthread_mutex_init(&p->lock, NULL);
    }
    ms_fd_close(&c->epoll_fd);
    c->closed = true;
}
