/* inbox.c - completions of calls, for event loops, and the connections that they come over */
#include "base/clock.h"
#include "wire/client/client_impl.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

enum { READY_MAX = 64, EVENT_KEY = 0 };

/* Its lock is taken inside of a peer's. */
struct ms_inbox {
    _Atomic unsigned refs; /* the owner, each notice of a call, and each of `peers` */
    pid_t pid;             /* that made it */
    int fd;                /* an epoll with these: */
    int event_fd;          /* that others have put a tag there */
    struct ms_map peers;   /* pair -> peer whose connection it may read */
    pthread_mutex_t lock;
    struct ms_list queue; /* notices whose tags wait */
    unsigned taking;      /* threads that take from it now */
    bool is_signalled;    /* event_fd */
};

/* Belongs to its call, and when that is gone, while it waits, to the inbox. */
struct notice {
    struct ms_list link;       /* call->notices */
    struct ms_list queue_link; /* inbox->queue */
    struct ms_inbox *inbox;
    uint64_t tag;
    bool orphan;
};

static void inbox_unref(struct ms_inbox *i)
{
    if (atomic_fetch_sub(&i->refs, 1) != 1)
        return;
    ms_list_each (n, &i->queue, struct notice, queue_link)
        free(n); /* orphans: every other notice holds a reference */
    ms_fd_close(&i->fd);
    ms_fd_close(&i->event_fd);
    ms_map_finish(&i->peers);
    pthread_mutex_destroy(&i->lock);
    free(i);
}

struct ms_inbox *ms_inbox_create(void)
{
    struct epoll_event event = {.events = EPOLLIN, .data.u64 = EVENT_KEY};
    struct ms_inbox *i = calloc(1, sizeof *i);

    if (!i)
        return NULL;
    i->refs = 1;
    i->pid = getpid();
    pthread_mutex_init(&i->lock, NULL);
    ms_list_init(&i->queue);
    ms_map_init(&i->peers);
    i->fd = epoll_create1(EPOLL_CLOEXEC);
    i->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (i->fd >= 0 && i->event_fd >= 0 &&
        epoll_ctl(i->fd, EPOLL_CTL_ADD, i->event_fd, &event) == 0)
        return i;
    inbox_unref(i);
    return NULL;
}

int ms_inbox_fd(const struct ms_inbox *i)
{
    return i->fd;
}

/* Signalled while tags wait and nobody takes them. */
static void signal_rest(struct ms_inbox *i)
{
    bool wanted = !i->taking && !ms_list_is_empty(&i->queue);
    uint64_t count = 1;
    ssize_t n;

    if (wanted == i->is_signalled || i->taking)
        return;
    n = wanted ? write(i->event_fd, &count, sizeof count)
               : read(i->event_fd, &count, sizeof count);
    i->is_signalled = wanted;
    (void)n; /* the counter is 0 or 1: neither can fail */
}

/* False: who takes from it will find the tag. */
static bool enqueue(struct notice *n)
{
    struct ms_inbox *i = n->inbox;
    MS_LOCK(&i->lock);

    if (!ms_list_is_empty(&n->queue_link))
        return false;
    ms_list_add_tail(&i->queue, &n->queue_link);
    return !i->taking && !i->is_signalled;
}

static void put(struct ms_peer *p, struct notice *n)
{
    struct ms_inbox *other;

    if (!enqueue(n) || p->told == n->inbox)
        return;
    other = MS_TAKE(p->told);
    atomic_fetch_add(&n->inbox->refs, 1);
    p->told = n->inbox;
    if (other)
        ms_inbox_tell(other);
}

void ms_inbox_tell(struct ms_inbox *i)
{
    pthread_mutex_lock(&i->lock);
    signal_rest(i);
    pthread_mutex_unlock(&i->lock);
    inbox_unref(i);
}

/* ---- connections ----------------------------------------------------------------- */

/* It may be on its way out, and then nobody may hold it any more. */
static struct ms_peer *ref_if_alive(struct ms_peer *p)
{
    unsigned refs = p ? atomic_load(&p->refs) : 0;

    while (refs)
        if (atomic_compare_exchange_weak(&p->refs, &refs, refs + 1))
            return p;
    return NULL;
}

static struct ms_peer *find_peer(struct ms_inbox *i, uint64_t pair)
{
    MS_LOCK(&i->lock);

    return ref_if_alive(ms_map_find(&i->peers, pair));
}

/* A forked child has no part in the connections. */
static bool is_ours(const struct ms_inbox *i)
{
    return i->pid == getpid();
}

static void read_ready(struct ms_inbox *i)
{
    struct epoll_event ready[READY_MAX];
    int n = is_ours(i) ? epoll_wait(i->fd, ready, READY_MAX, 0) : 0;

    for (int at = 0; at < n; at++) {
        uint64_t pair = ready[at].data.u64;
        struct ms_peer *p = pair == EVENT_KEY ? NULL : find_peer(i, pair);

        if (p)
            ms_peer_ready(p, ARMED_INBOX);
        ms_peer_unref(p);
    }
}

void ms_inbox_watch(struct ms_peer *p, bool is_armed)
{
    unsigned events = is_armed ? EPOLLIN | EPOLLRDHUP : 0;
    struct epoll_event ev = {.events = events | EPOLLONESHOT, .data.u64 = p->pair};

    epoll_ctl(p->inbox->fd, EPOLL_CTL_MOD, ms_conn_fd(p->conn), &ev);
    if (is_armed)
        ms_client_wake_at(p->client, p->inbox_until_ns);
}

/* Under its lock: among its descriptors, not armed. */
static int add_peer(struct ms_inbox *i, struct ms_peer *p)
{
    struct epoll_event ev = {.events = EPOLLONESHOT, .data.u64 = p->pair};
    int rc = ms_map_add(&i->peers, p->pair, p);

    if (rc == 0 && epoll_ctl(i->fd, EPOLL_CTL_ADD, ms_conn_fd(p->conn), &ev) < 0) {
        rc = -errno;
        ms_map_remove(&i->peers, p->pair);
    }
    return rc;
}

/* Another inbox hears of the call too. */
static bool has_other_notice(const struct ms_call *c, const struct ms_inbox *i)
{
    ms_list_each (n, &c->notices, struct notice, link)
        if (n->inbox != i)
            return true;
    return false;
}

void ms_inbox_adopt(struct ms_inbox *i, struct ms_call *c)
{
    struct ms_peer *p = c->peer;
    bool is_shared = has_other_notice(c, i);

    if (p->inbox && (p->inbox != i || is_shared))
        ms_inbox_release(p);
    if (!p->conn || is_shared || (!p->inbox && p->open_count > 1))
        return; /* other threads hear of the other calls */
    if (!p->inbox) {
        MS_LOCK(&i->lock);

        if (add_peer(i, p) < 0)
            return; /* the loop reads */
        atomic_fetch_add(&i->refs, 1);
        p->inbox = i;
    }
    p->inbox_until_ns = ms_now_ns() + MS_INBOX_READS_NS;
}

void ms_inbox_release(struct ms_peer *p)
{
    struct ms_inbox *i = p->inbox;

    if (!i)
        return;
    epoll_ctl(i->fd, EPOLL_CTL_DEL, ms_conn_fd(p->conn), NULL);
    pthread_mutex_lock(&i->lock);
    ms_map_remove(&i->peers, p->pair);
    pthread_mutex_unlock(&i->lock);
    p->inbox = NULL;
    p->inbox_until_ns = 0;
    if (p->armed == ARMED_INBOX)
        p->armed = NOT_ARMED; /* who calls this lets go of the connection, or arms it */
    inbox_unref(i);
}

/* Those that it has, with a reference each; their count. */
static size_t list_peers(struct ms_inbox *i, struct ms_peer ***out)
{
    size_t at = 0, n = 0;
    struct ms_peer *p;
    MS_LOCK(&i->lock);

    *out = i->peers.count ? calloc(i->peers.count, sizeof(struct ms_peer *)) : NULL;
    while (*out && (p = ms_map_next(&i->peers, &at)))
        if (ref_if_alive(p))
            (*out)[n++] = p;
    return n;
}

static void rest_peer(struct ms_inbox *i, struct ms_peer *p)
{
    MS_PEER_LOCK(p);

    if (p->inbox != i)
        return;
    p->inbox_until_ns = 0;
    if (p->armed == ARMED_INBOX)
        ms_peer_arm(p);
}

void ms_inbox_rest(struct ms_inbox *i)
{
    struct ms_peer **peers;
    size_t n;

    if (!is_ours(i))
        return; /* and its lock may be held for ever */
    n = list_peers(i, &peers);
    for (size_t at = 0; at < n; at++) {
        rest_peer(i, peers[at]);
        ms_peer_unref(peers[at]);
    }
    free(peers);
}

void ms_inbox_unref(struct ms_inbox *i)
{
    if (!i)
        return;
    ms_inbox_rest(i);
    inbox_unref(i);
}

/* ---- taking ---------------------------------------------------------------------- */

size_t ms_inbox_take(struct ms_inbox *i, uint64_t *tags, size_t room)
{
    size_t taken = 0;
    struct notice *n;

    pthread_mutex_lock(&i->lock);
    i->taking++;
    pthread_mutex_unlock(&i->lock);
    read_ready(i);
    MS_LOCK(&i->lock);
    while (taken < room && (n = ms_list_take(&i->queue, struct notice, queue_link))) {
        tags[taken++] = n->tag;
        if (n->orphan)
            free(n);
    }
    i->taking--;
    signal_rest(i);
    return taken;
}

/* ---- notices --------------------------------------------------------------------- */

void ms_notices_put(struct ms_call *c)
{
    ms_list_each (n, &c->notices, struct notice, link)
        put(c->peer, n);
}

void ms_notices_free(struct ms_call *c)
{
    ms_list_each (n, &c->notices, struct notice, link) {
        struct ms_inbox *i = n->inbox;
        bool waits;

        ms_list_remove(&n->link);
        pthread_mutex_lock(&i->lock);
        waits = !ms_list_is_empty(&n->queue_link);
        n->orphan = true;
        pthread_mutex_unlock(&i->lock);
        if (!waits)
            free(n);
        inbox_unref(i);
    }
}

int ms_notice_add(struct ms_call *c, struct ms_inbox *i, uint64_t tag, bool now)
{
    struct notice *n = calloc(1, sizeof *n);

    if (!n)
        return -ENOMEM;
    atomic_fetch_add(&i->refs, 1);
    n->inbox = i;
    n->tag = tag;
    ms_list_init(&n->queue_link);
    ms_list_add_tail(&c->notices, &n->link);
    if (now)
        put(c->peer, n);
    return 0;
}
