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
    MS_LOCK(&c->lock);

    p = ms_map_find(&c->by_id, id);
    return p ? ms_peer_ref(p) : NULL;
}

/* To walk over all peers: the one behind `p`, whose reference is given back, or the first. The
 * one that is returned has a reference, so it stays in the list. */
static struct ms_peer *next_peer(struct ms_client *c, struct ms_peer *p)
{
    struct ms_peer *next = NULL;
    struct ms_list *at;

    pthread_mutex_lock(&c->lock);
    at = p ? p->link.next : c->peers.next;
    if (at != &c->peers)
        next = ms_peer_ref(ms_list_entry(at, struct ms_peer, link));
    pthread_mutex_unlock(&c->lock);
    ms_peer_unref(p);
    return next;
}

/* ---- what the loop's thread does ------------------------------------------------- */

static void on_epoll(void *arg, unsigned events)
{
    struct ms_client *c = arg;
    struct epoll_event ev[EVENTS_MAX];
    int n = epoll_wait(c->epoll_fd, ev, EVENTS_MAX, 0);

    (void)events;
    for (int i = 0; i < n; i++) {
        struct ms_peer *p = peer_by_id(c, ev[i].data.u64);

        if (p)
            ms_peer_ready(p, ARMED_LOOP);
        ms_peer_unref(p);
    }
}

static int64_t peer_on_time(struct ms_peer *p, int64_t late_ns, int64_t now_ns)
{
    const struct ms_client_options *o = &p->client->o;
    int64_t next_ns;
    bool ask, tell, is_suspect, seek;

    pthread_mutex_lock(&p->lock);
    if (late_ns > MS_SUSPENDED_NS)
        ms_peer_was_suspended(p, late_ns, now_ns);
    seek = p->state == PEER_SEEKING && !p->successor_uid && p->seek_ns <= now_ns;
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
    if (tell && o->on_suspect)
        o->on_suspect(o->arg, p->uid, is_suspect);
    if (ask)
        ask_exit(p->client, p->uid);
    if (seek && o->ask_successor)
        o->ask_successor(o->arg, p->uid);
    return next_ns;
}

static void on_time(void *arg, unsigned events)
{
    struct ms_client *c = arg;
    int64_t now_ns = ms_now_ns(), next_ns = MS_NEVER, late_ns;
    uint64_t count;

    (void)events;
    pthread_mutex_lock(&c->timer_lock);
    if (read(c->timer_fd, &count, sizeof count) < 0) {
        pthread_mutex_unlock(&c->timer_lock);
        return; /* it was moved meanwhile */
    }
    late_ns = now_ns - c->due_ns;
    atomic_store(&c->wake_ns, MS_NEVER);
    pthread_mutex_unlock(&c->timer_lock);
    for (struct ms_peer *p = next_peer(c, NULL); p; p = next_peer(c, p)) {
        int64_t at_ns = peer_on_time(p, late_ns, now_ns);

        next_ns = at_ns < next_ns ? at_ns : next_ns;
    }
    ms_client_wake_at(c, next_ns);
}

void ms_client_wake_at(struct ms_client *c, int64_t at_ns)
{
    if (at_ns >= atomic_load(&c->wake_ns))
        return;
    MS_LOCK(&c->timer_lock);
    if (at_ns < atomic_load(&c->wake_ns) && c->timer_fd >= 0) {
        struct itimerspec when = {.it_value = {1, 0}}; /* long past: at once */
        int64_t now_ns = ms_now_ns();

        if (at_ns > MS_NS_PER_S)
            when.it_value = ms_timespec(at_ns);
        atomic_store(&c->wake_ns, at_ns);
        c->due_ns = at_ns > now_ns ? at_ns : now_ns;
        timerfd_settime(c->timer_fd, TFD_TIMER_ABSTIME, &when, NULL);
    }
}

/* ---- life ------------------------------------------------------------------------ */

static int loop_init(struct ms_client *c)
{
    int rc;

    c->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    c->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (c->epoll_fd < 0 || c->timer_fd < 0)
        return -errno;
    rc = ms_watch_init(&c->epoll_watch, c->o.loop, c->epoll_fd, MS_READ, on_epoll, c);
    if (rc == 0)
        rc =
            ms_watch_init(&c->timer_watch, c->o.loop, c->timer_fd, MS_READ, on_time, c);
    return rc;
}

struct ms_client *ms_client_create(const struct ms_client_options *o)
{
    struct ms_client *c = calloc(1, sizeof *c);

    if (!c)
        return NULL;
    c->o = *o;
    c->o.secret = NULL;
    c->o.exit_wait_ns = o->exit_wait_ns ? o->exit_wait_ns : MS_EXIT_WAIT_NS;
    c->o.grace_ns = o->grace_ns ? o->grace_ns : MS_LINK_GRACE_NS;
    ms_net_init(&c->net, o->secret, o->tls);
    c->refs = 1;
    c->epoll_fd = c->timer_fd = -1;
    c->wake_ns = MS_NEVER;
    pthread_mutex_init(&c->lock, NULL);
    pthread_mutex_init(&c->timer_lock, NULL);
    ms_list_init(&c->peers);
    ms_exits_init(&c->exits);
    if (loop_init(c) < 0) {
        ms_client_destroy(c, "it could not be made");
        return NULL;
    }
    return c;
}

static void peer_end(struct ms_peer *p,
                     Muster__Failure__Kind kind,
                     const char *why,
                     const Muster__Exit *exit)
{
    MS_PEER_LOCK(p);

    if (kind == MUSTER__FAILURE__KIND__SHUTTING_DOWN)
        ms_peer_leave(p);
    if (kind == MUSTER__FAILURE__KIND__WORKER_DIED)
        ms_peer_read_rest(p);
    p->may_have_successor =
        kind == MUSTER__FAILURE__KIND__WORKER_DIED && p->client->o.ask_successor;
    ms_peer_die(p, kind, why, exit);
}

void ms_client_destroy(struct ms_client *c, const char *why)
{
    if (!c)
        return;
    pthread_mutex_lock(&c->lock);
    c->closed = true; /* no peer is added from here on */
    pthread_mutex_unlock(&c->lock);
    for (struct ms_peer *p = next_peer(c, NULL); p; p = next_peer(c, p))
        peer_end(p, MUSTER__FAILURE__KIND__SHUTTING_DOWN, why, NULL);
    c->is_over = true;
    ms_watch_finish(&c->epoll_watch);
    ms_watch_finish(&c->timer_watch);
    ms_client_unref(c);
}

static void end_peers(struct ms_client *c, uint64_t uid, const Muster__Exit *exit)
{
    for (struct ms_peer *p = next_peer(c, NULL); p; p = next_peer(c, p)) {
        if (p->uid == uid && exit->unreachable)
            peer_end(p, MUSTER__FAILURE__KIND__UNREACHABLE, exit->detail, NULL);
        else if (p->uid == uid)
            peer_end(p, MUSTER__FAILURE__KIND__WORKER_DIED, "", exit);
    }
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
    else if (c->o.ask_exit)
        c->o.ask_exit(c->o.arg, uid);
}

void ms_client_successor(struct ms_client *c,
                         uint64_t uid,
                         const Muster__WorkerStatus *worker)
{
    for (struct ms_peer *p = next_peer(c, NULL); p; p = next_peer(c, p)) {
        MS_PEER_LOCK(p);

        if (p->uid == uid)
            ms_peer_set_successor(p, worker);
    }
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
        p->reading = false;
        p->armed = NOT_ARMED;
        p->inbox = NULL; /* leaked likewise */
        ms_list_init(&p->waiters);
        ms_list_init(&p->garbage);
        p->wake = NULL;
        p->is_dying = false;
        p->told = NULL;
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
