/* client.c - a client: its peers, its timer, and the ends of workers that it is told */
#include "wire/client/client.h"
#include "base/clock.h"
#include "wire/client/client_impl.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

enum { EVENTS_MAX = 64 };

static void ask_exit(struct ms_client *c, uint64_t uid);

void ms_client_unref(struct ms_client *c)
{
    if (atomic_fetch_sub(&c->refs, 1) != 1)
        return;
    ms_fd_close(&c->epoll_fd); /* not before: peers may use it from any thread */
    ms_fd_close(&c->timer_fd);
    ms_map_finish(&c->by_id);
    ms_exits_finish(&c->exits);
    pthread_mutex_destroy(&c->lock);
    pthread_mutex_destroy(&c->timer_lock);
    ms_net_finish(&c->net);
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

/* ---- what the loop's thread does ------------------------------------------------- */

/* A connection that nobody waits for has something, or has room again. */
static void on_peer(struct ms_peer *p)
{
    pthread_mutex_lock(&p->lock);
    p->armed = false;
    if (p->conn && ms_conn_wants_write(p->conn))
        ms_conn_flush(p->conn); /* its failure is read as the end of file */
    if (p->conn && !p->reading)
        ms_peer_read(p, NULL, 0);
    ms_peer_hand_over(p);
    ms_peer_unlock(p);
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

static int64_t peer_on_time(struct ms_peer *p, int64_t late_ns, int64_t now_ns)
{
    struct ms_client *c = p->client;
    int64_t next_ns;
    bool ask, tell, is_suspect, seek;

    pthread_mutex_lock(&p->lock);
    if (late_ns > MS_SUSPENDED_NS)
        ms_peer_was_suspended(p, late_ns, now_ns);
    seek = p->state == PEER_SEEKING && !p->successor && p->seek_ns <= now_ns;
    if (seek)
        p->seek_ns = now_ns + MS_SEEK_NS;
    next_ns = ms_peer_on_time(p, now_ns);
    ask = p->wants_exit && !p->asked;
    p->wants_exit = false;
    p->asked |= ask;
    is_suspect = p->is_suspect;
    tell = p->told_suspect != is_suspect;
    p->told_suspect = is_suspect;
    ms_peer_unlock(p);
    if (tell && c->on_suspect)
        c->on_suspect(c->arg, p->uid, is_suspect);
    if (ask)
        ask_exit(c, p->uid);
    if (seek && c->ask_successor)
        c->ask_successor(c->arg, p->uid);
    return next_ns;
}

static void on_time(void *arg, unsigned events)
{
    struct ms_client *c = arg;
    struct ms_peer **peers;
    int64_t now_ns = ms_now_ns(), next_ns = MS_NEVER, late_ns;
    uint64_t count;
    int n;

    (void)events;
    pthread_mutex_lock(&c->timer_lock);
    if (read(c->timer_fd, &count, sizeof count) < 0) {
        pthread_mutex_unlock(&c->timer_lock);
        return; /* it was moved meanwhile */
    }
    late_ns = now_ns - c->due_ns;
    atomic_store(&c->wake_ns, MS_NEVER);
    pthread_mutex_unlock(&c->timer_lock);
    n = peers_snapshot(c, &peers);
    for (int i = 0; i < n; i++) {
        int64_t at_ns = peer_on_time(peers[i], late_ns, now_ns);

        ms_peer_unref(peers[i]);
        next_ns = at_ns < next_ns ? at_ns : next_ns;
    }
    free(peers);
    ms_client_wake_at(c, n < 0 ? now_ns + MS_NS_PER_S : next_ns);
}

void ms_client_wake_at(struct ms_client *c, int64_t at_ns)
{
    if (at_ns >= atomic_load(&c->wake_ns))
        return;
    pthread_mutex_lock(&c->timer_lock);
    if (at_ns < atomic_load(&c->wake_ns) && c->timer_fd >= 0) {
        struct itimerspec when = {.it_value = {1, 0}}; /* long past: at once */
        int64_t now_ns = ms_now_ns();

        if (at_ns > MS_NS_PER_S) {
            when.it_value.tv_sec = at_ns / MS_NS_PER_S;
            when.it_value.tv_nsec = at_ns % MS_NS_PER_S;
        }
        atomic_store(&c->wake_ns, at_ns);
        c->due_ns = at_ns > now_ns ? at_ns : now_ns;
        timerfd_settime(c->timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
    }
    pthread_mutex_unlock(&c->timer_lock);
}

/* ---- life ------------------------------------------------------------------------ */

static int loop_init(struct ms_client *c)
{
    int rc;

    c->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    c->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (c->epoll_fd < 0 || c->timer_fd < 0)
        return -errno;
    rc = ms_watch_init(&c->epoll_watch, c->loop, c->epoll_fd, MS_READ, on_epoll, c);
    if (rc == 0)
        rc = ms_watch_init(&c->timer_watch, c->loop, c->timer_fd, MS_READ, on_time, c);
    return rc;
}

struct ms_client *ms_client_create(const struct ms_client_options *o)
{
    struct ms_client *c = calloc(1, sizeof *c);

    if (!c)
        return NULL;
    c->loop = o->loop;
    ms_net_init(&c->net, o->secret, o->tls);
    c->spin = o->spin;
    c->ask_exit = o->ask_exit;
    c->ask_successor = o->ask_successor;
    c->on_suspect = o->on_suspect;
    c->on_stored = o->on_stored;
    c->on_stored_drop = o->on_stored_drop;
    c->arg = o->arg;
    c->exit_wait_ns = o->exit_wait_ns ? o->exit_wait_ns : MS_EXIT_WAIT_NS;
    c->grace_ns = o->grace_ns ? o->grace_ns : MS_LINK_GRACE_NS;
    c->refs = 1;
    c->epoll_fd = c->timer_fd = -1;
    c->wake_ns = MS_NEVER;
    pthread_mutex_init(&c->lock, NULL);
    pthread_mutex_init(&c->timer_lock, NULL);
    ms_list_init(&c->peers);
    ms_map_init(&c->by_id);
    ms_exits_init(&c->exits);
    if (loop_init(c) < 0) {
        ms_client_destroy(c, "it could not be made");
        return NULL;
    }
    return c;
}

/* A copy of the failure for this peer, and its end. */
static void peer_end(struct ms_peer *p,
                     Muster__Failure__Kind kind,
                     const char *why,
                     const Muster__Exit *exit)
{
    size_t len = 0;
    uint8_t *f = ms_failure_pack(kind, p->label, why, exit, &len);

    pthread_mutex_lock(&p->lock);
    if (kind == MUSTER__FAILURE__KIND__SHUTTING_DOWN)
        ms_peer_leave(p);
    p->may_have_successor =
        kind == MUSTER__FAILURE__KIND__WORKER_DIED && p->client->ask_successor;
    ms_peer_die(p, f, len);
    ms_peer_unlock(p);
}

void ms_client_destroy(struct ms_client *c, const char *why)
{
    uint64_t last;

    if (!c)
        return;
    pthread_mutex_lock(&c->lock);
    c->closed = true; /* no peer is added from here on */
    last = c->next_id;
    pthread_mutex_unlock(&c->lock);
    for (uint64_t id = 1; id <= last; id++) {
        struct ms_peer *p = peer_by_id(c, id);

        if (p)
            peer_end(p, MUSTER__FAILURE__KIND__SHUTTING_DOWN, why, NULL);
        ms_peer_unref(p);
    }
    ms_watch_finish(&c->epoll_watch);
    ms_watch_finish(&c->timer_watch);
    ms_client_unref(c);
}

static void end_peers(struct ms_client *c, uint64_t uid, const Muster__Exit *exit)
{
    struct ms_peer **peers;
    int n = peers_snapshot(c, &peers);

    for (int i = 0; i < n; i++) {
        if (peers[i]->uid == uid && exit->unreachable)
            peer_end(peers[i], MUSTER__FAILURE__KIND__UNREACHABLE, exit->detail, NULL);
        else if (peers[i]->uid == uid)
            peer_end(peers[i], MUSTER__FAILURE__KIND__WORKER_DIED, "", exit);
        ms_peer_unref(peers[i]);
    }
    free(peers);
}

void ms_client_worker_exited(struct ms_client *c,
                             uint64_t uid,
                             const Muster__Exit *exit)
{
    Muster__WorkerExited exited = MUSTER__WORKER_EXITED__INIT;
    bool is_known;

    exited.uid = uid;
    exited.exit = (Muster__Exit *)(uintptr_t)exit;
    pthread_mutex_lock(&c->lock);
    is_known = ms_exits_find(&c->exits, uid);
    if (!is_known)
        (void)ms_exits_add(&c->exits,
                           &exited); /* without memory it is asked for again */
    pthread_mutex_unlock(&c->lock);
    if (!is_known)
        end_peers(c, uid, exit);
}

static void ask_exit(struct ms_client *c, uint64_t uid)
{
    const Muster__WorkerExited *known;

    pthread_mutex_lock(&c->lock);
    known = ms_exits_find(&c->exits, uid);
    pthread_mutex_unlock(&c->lock);
    if (known && known->exit)
        end_peers(c, uid, known->exit);
    else if (c->ask_exit)
        c->ask_exit(c->arg, uid);
}

void ms_client_successor(struct ms_client *c,
                         uint64_t uid,
                         const Muster__WorkerStatus *worker)
{
    struct ms_peer **peers;
    int n = peers_snapshot(c, &peers);

    for (int i = 0; i < n; i++) {
        pthread_mutex_lock(&peers[i]->lock);
        if (peers[i]->uid == uid)
            ms_peer_set_successor(peers[i], worker);
        ms_peer_unlock(peers[i]);
        ms_peer_unref(peers[i]);
    }
    free(peers);
}

/* Other threads are gone, and with them whatever they held or were about to change:
 * locks are made anew, and nothing is walked that one of them may have left half done.
 * */
void ms_client_forget(struct ms_client *c)
{
    pthread_mutex_init(&c->lock, NULL);
    pthread_mutex_init(&c->timer_lock, NULL);
    ms_list_each (p, &c->peers, struct ms_peer, link) {
        pthread_mutex_init(&p->lock, NULL);
        if (p->conn)
            close(ms_conn_fd(p->conn));
        ms_fd_close(&p->probe_fd);
        p->conn = NULL; /* leaked on purpose: the parent owns what it stood for */
        p->state = PEER_DEAD;
        p->may_have_successor = false; /* nobody here asks for a successor */
        p->reading = p->armed = false;
        ms_list_init(&p->waiters);
        ms_list_init(&p->garbage);
        p->failure = ms_failure_pack(MUSTER__FAILURE__KIND__REFUSED,
                                     p->label,
                                     "this process was forked from the one that holds "
                                     "the connection",
                                     NULL,
                                     &p->failure_len);
    }
    ms_fd_close(&c->epoll_fd);
    ms_fd_close(&c->timer_fd);
    c->closed = true;
}
