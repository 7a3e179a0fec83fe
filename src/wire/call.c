#include "base/clock.h"
#include "wire/client_internal.h"

#include <assert.h>
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>

/* ---- failures made here ----------------------------------------------------------- */

uint8_t *ms_failure_pack(Muster__Failure__Kind kind,
                         const char *where,
                         const char *text,
                         const Muster__Exit *exit,
                         size_t *len)
{
    Muster__Failure f;
    uint8_t *body;

    muster__failure__init(&f);
    f.kind = kind;
    f.where = (char *)(uintptr_t)where;
    f.message = (char *)(uintptr_t)text;
    f.exit = (Muster__Exit *)(uintptr_t)exit;
    *len = muster__failure__get_packed_size(&f);
    body = malloc(*len ? *len : 1);
    if (body)
        muster__failure__pack(&f, body);
    return body;
}

void ms_call_fail(struct ms_call *c, Muster__Failure__Kind kind, const char *text)
{
    size_t len;
    uint8_t *body = ms_failure_pack(kind, c->peer->label, text, NULL, &len);

    /* without memory the failure is an empty one: still a failure */
    ms_call_complete(c, MS_KIND_ERROR, MS_CODEC_PROTO, body, body ? len : 0);
}

/* ---- life ------------------------------------------------------------------------- */

struct ms_call *ms_call_ref(struct ms_call *c)
{
    atomic_fetch_add(&c->refs, 1);
    return c;
}

static void items_free(struct ms_list *items)
{
    ms_list_each (i, items, struct item, link) {
        free(i->body);
        free(i);
    }
    ms_list_init(items);
}

static void notices_free(struct ms_call *c)
{
    ms_list_each (n, &c->notices, struct notice, link) {
        ms_inbox_unref(n->inbox);
        free(n);
    }
    ms_list_init(&c->notices);
}

void ms_call_unref(struct ms_call *c)
{
    struct ms_peer *p;

    if (!c || atomic_fetch_sub(&c->refs, 1) != 1)
        return;
    p = c->peer;
    items_free(&c->items);
    notices_free(c);
    free(c->request);
    free(c->body);
    free(c);
    ms_peer_unref(p);
}

struct ms_peer *ms_call_peer(struct ms_call *c)
{
    return c->peer;
}

bool ms_call_is_done(struct ms_call *c)
{
    bool done;

    pthread_mutex_lock(&c->peer->lock);
    done = c->done;
    pthread_mutex_unlock(&c->peer->lock);
    return done;
}

/* ---- completing ------------------------------------------------------------------- */

static void inbox_put(struct ms_inbox *i, uint64_t tag);

static void tell(struct ms_call *c)
{
    ms_list_each (n, &c->notices, struct notice, link)
        inbox_put(n->inbox, n->tag);
    pthread_cond_broadcast(&c->peer->changed);
}

void ms_call_complete(
    struct ms_call *c, uint8_t kind, uint8_t codec, uint8_t *body, size_t len)
{
    assert(!c->done);
    c->done = true;
    c->kind = kind;
    c->reply_codec = codec;
    c->body = body;
    c->len = len;
    free(c->request);
    c->request = NULL;
    atomic_fetch_sub(&c->peer->client->outstanding, 1);
    tell(c);
}

int ms_call_add_item(struct ms_call *c, struct ms_message *m)
{
    struct item *i = calloc(1, sizeof *i);

    if (!i)
        return -ENOMEM;
    i->codec = m->head.codec;
    i->len = m->len;
    i->body = ms_message_take(m);
    if (!i->body) {
        free(i);
        return -ENOMEM;
    }
    ms_list_add_tail(&c->items, &i->link);
    tell(c);
    return 0;
}

/* Take it out of the open ones and tell the worker. Lock held. */
static void give_up(struct ms_call *c, Muster__Failure__Kind kind, const char *text)
{
    struct ms_frame head = {.kind = MS_KIND_CANCEL, .call_id = c->id};
    struct ms_peer *p = c->peer;

    ms_map_remove(&p->pending, c->id);
    if (p->conn)
        ms_peer_send(p, &head, NULL, 0);
    ms_call_fail(c, kind, text);
}

static void expire(struct ms_call *c)
{
    give_up(c,
            MUSTER__FAILURE__KIND__DEADLINE,
            "no answer before the call's deadline; the method may still be running");
}

void ms_call_cancel(struct ms_call *c)
{
    bool open;

    pthread_mutex_lock(&c->peer->lock);
    open = !c->done;
    if (open)
        give_up(c, MUSTER__FAILURE__KIND__CANCELLED, "cancelled by the caller");
    pthread_mutex_unlock(&c->peer->lock);
    if (open)
        ms_call_unref(c);
}

/* ---- waiting ---------------------------------------------------------------------- */

static int wait_changed(struct ms_peer *p, int64_t until_ns)
{
    struct timespec at = {.tv_sec = until_ns / MS_NS_PER_S,
                          .tv_nsec = until_ns % MS_NS_PER_S};
    int rc;

    if (until_ns == MS_NEVER)
        return -pthread_cond_wait(&p->changed, &p->lock);
    rc = pthread_cond_timedwait(&p->changed, &p->lock, &at);
    return rc == ETIMEDOUT ? -ETIMEDOUT : 0;
}

static bool has_news(const struct ms_call *c)
{
    return c->done || !ms_list_is_empty(&c->items);
}

/* One step of waiting: read in person, or wait for whoever reads. */
static int wait_step(struct ms_call *c, int64_t until_ns)
{
    struct ms_peer *p = c->peer;
    bool spin = c->spin;
    int rc;

    if (p->reading || !p->conn)
        return wait_changed(p, until_ns);
    c->spin = false;
    rc = ms_peer_read(p, spin, until_ns);
    if (p->waiters > 1)
        pthread_cond_broadcast(&p->changed);
    return rc;
}

int ms_call_wait(struct ms_call *c, int64_t until_ns)
{
    struct ms_peer *p = c->peer;
    bool expired = false;
    int rc = 0;

    pthread_mutex_lock(&p->lock);
    p->waiters++;
    while (rc == 0 && !has_news(c)) {
        bool own = c->deadline_ns <= until_ns;

        rc = wait_step(c, own ? c->deadline_ns : until_ns);
        if (rc == -ETIMEDOUT && own && !has_news(c)) {
            expire(c);
            expired = true;
        }
    }
    if (has_news(c))
        rc = 0;
    p->waiters--;
    if (p->waiters == 0 && p->pending.count)
        ms_peer_arm(p);
    pthread_mutex_unlock(&p->lock);
    if (expired)
        ms_call_unref(c);
    return rc;
}

int64_t ms_calls_expire(struct ms_peer *p, int64_t now_ns)
{
    int64_t next_ns = MS_NEVER;

    for (bool again = true; again;) {
        struct ms_call *c;
        size_t at = 0;

        again = false;
        next_ns = MS_NEVER;
        while (!again && (c = ms_map_next(&p->pending, &at))) {
            if (c->deadline_ns <= now_ns) {
                expire(c);
                ms_call_unref(c);
                again = true; /* the map has changed under us */
            } else if (c->deadline_ns < next_ns) {
                next_ns = c->deadline_ns;
            }
        }
    }
    return next_ns;
}

/* ---- results ---------------------------------------------------------------------- */

void ms_call_outcome(struct ms_call *c, struct ms_outcome *o)
{
    pthread_mutex_lock(&c->peer->lock);
    *o = (struct ms_outcome){.kind = c->kind,
                             .codec = c->reply_codec,
                             .ends_stream = c->ends_stream,
                             .body = c->body,
                             .len = c->len};
    pthread_mutex_unlock(&c->peer->lock);
}

uint8_t *ms_call_take_body(struct ms_call *c)
{
    uint8_t *body;

    pthread_mutex_lock(&c->peer->lock);
    body = MS_TAKE(c->body);
    c->len = 0;
    pthread_mutex_unlock(&c->peer->lock);
    return body;
}

bool ms_call_has_items(struct ms_call *c)
{
    bool has;

    pthread_mutex_lock(&c->peer->lock);
    has = !ms_list_is_empty(&c->items);
    pthread_mutex_unlock(&c->peer->lock);
    return has;
}

static void send_credit(struct ms_call *c)
{
    struct ms_frame head = {.kind = MS_KIND_CREDIT,
                            .op = (uint16_t)c->consumed,
                            .call_id = c->id};

    if (c->done || c->consumed < MS_STREAM_WINDOW / 4)
        return;
    c->consumed = 0;
    if (c->peer->conn)
        ms_peer_send(c->peer, &head, NULL, 0);
}

int ms_call_take_item(struct ms_call *c, uint8_t *codec, uint8_t **body, size_t *len)
{
    struct item *i = NULL;

    pthread_mutex_lock(&c->peer->lock);
    if (!ms_list_is_empty(&c->items)) {
        i = ms_list_first(&c->items, struct item, link);
        ms_list_remove(&i->link);
        c->consumed++;
        send_credit(c);
    }
    pthread_mutex_unlock(&c->peer->lock);
    if (!i)
        return 0;
    *codec = i->codec;
    *body = i->body;
    *len = i->len;
    free(i);
    return 1;
}

/* ---- inboxes ---------------------------------------------------------------------- */

struct ms_inbox {
    _Atomic unsigned refs;
    int fd;
    pthread_mutex_t lock;
    uint64_t *tags;
    size_t count, room;
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
    return i;
}

void ms_inbox_unref(struct ms_inbox *i)
{
    if (!i || atomic_fetch_sub(&i->refs, 1) != 1)
        return;
    close(i->fd);
    pthread_mutex_destroy(&i->lock);
    free(i->tags);
    free(i);
}

int ms_inbox_fd(const struct ms_inbox *i)
{
    return i->fd;
}

static int inbox_reserve(struct ms_inbox *i)
{
    size_t room = i->room ? i->room * 2 : 64;
    uint64_t *more;

    if (i->count < i->room)
        return 0;
    more = realloc(i->tags, room * sizeof *more);
    if (!more)
        return -ENOMEM;
    i->tags = more;
    i->room = room;
    return 0;
}

static void inbox_put(struct ms_inbox *i, uint64_t tag)
{
    uint64_t one = 1;

    pthread_mutex_lock(&i->lock);
    if (inbox_reserve(i) == 0) {
        i->tags[i->count++] = tag;
        if (i->count == 1 && write(i->fd, &one, sizeof one) < 0)
            i->count = 1; /* a full counter is readable already */
    }
    pthread_mutex_unlock(&i->lock);
}

size_t ms_inbox_take(struct ms_inbox *i, uint64_t *tags, size_t room)
{
    uint64_t count;
    size_t n;

    pthread_mutex_lock(&i->lock);
    n = i->count < room ? i->count : room;
    if (n) {
        memcpy(tags, i->tags, n * sizeof *tags);
        memmove(i->tags, i->tags + n, (i->count - n) * sizeof *tags);
    }
    i->count -= n;
    if (i->count == 0 && read(i->fd, &count, sizeof count) < 0)
        count = 0; /* nothing was signalled: fine */
    pthread_mutex_unlock(&i->lock);
    return n;
}

int ms_call_notify(struct ms_call *c, struct ms_inbox *i, uint64_t tag)
{
    struct notice *n = calloc(1, sizeof *n);

    if (!n)
        return -ENOMEM;
    atomic_fetch_add(&i->refs, 1);
    n->inbox = i;
    n->tag = tag;
    pthread_mutex_lock(&c->peer->lock);
    ms_list_add_tail(&c->notices, &n->link);
    if (has_news(c))
        inbox_put(i, tag);
    else
        ms_client_wake_at(c->peer->client, c->deadline_ns);
    if (!c->done && c->peer->waiters == 0)
        ms_peer_arm(c->peer);
    pthread_mutex_unlock(&c->peer->lock);
    return 0;
}
