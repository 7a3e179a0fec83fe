/* inbox.c - completions of calls, for event loops */
#include "wire/client/client_impl.h"

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>

struct ms_inbox {
    _Atomic unsigned refs; /* the owner, and each notice of a call */
    int fd;
    pthread_mutex_t lock;
    struct ms_list queue; /* notices whose tags wait */
};

/* Belongs to its call, and when that is gone, while it waits, to the inbox. */
struct notice {
    struct ms_list link;       /* call->notices */
    struct ms_list queue_link; /* inbox->queue */
    struct ms_inbox *inbox;
    uint64_t tag;
    bool orphan;
};

struct ms_inbox *ms_inbox_create(void)
{
    struct ms_inbox *i = calloc(1, sizeof *i);

    if (!i)
        return NULL;
    i->refs = 1;
    i->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (i->fd < 0) {
        free(i);
        return NULL;
    }
    pthread_mutex_init(&i->lock, NULL);
    ms_list_init(&i->queue);
    return i;
}

void ms_inbox_unref(struct ms_inbox *i)
{
    if (!i || atomic_fetch_sub(&i->refs, 1) != 1)
        return;
    ms_list_each (n, &i->queue, struct notice, queue_link)
        free(n); /* orphans: every other notice holds a reference */
    close(i->fd);
    pthread_mutex_destroy(&i->lock);
    free(i);
}

int ms_inbox_fd(const struct ms_inbox *i)
{
    return i->fd;
}

static void put(struct notice *n)
{
    struct ms_inbox *i = n->inbox;
    uint64_t one = 1;
    bool was_empty;
    MS_LOCK(&i->lock);

    if (!ms_list_is_empty(&n->queue_link))
        return;
    was_empty = ms_list_is_empty(&i->queue);
    ms_list_add_tail(&i->queue, &n->queue_link);
    if (was_empty && write(i->fd, &one, sizeof one) < 0)
        return; /* a full counter is readable already */
}

size_t ms_inbox_take(struct ms_inbox *i, uint64_t *tags, size_t room)
{
    uint64_t count;
    size_t taken = 0;
    struct notice *n;
    MS_LOCK(&i->lock);

    while (taken < room && (n = ms_list_take(&i->queue, struct notice, queue_link))) {
        tags[taken++] = n->tag;
        if (n->orphan)
            free(n);
    }
    if (ms_list_is_empty(&i->queue) && read(i->fd, &count, sizeof count) < 0)
        count = 0; /* nothing was signalled: fine */
    return taken;
}

void ms_notices_put(struct ms_call *c)
{
    ms_list_each (n, &c->notices, struct notice, link)
        put(n);
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
        ms_inbox_unref(i);
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
        put(n);
    return 0;
}
