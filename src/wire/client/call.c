/* call.c - a call: waiting, completing, items of its stream */
#include "base/buf.h"
#include "base/clock.h"
#include "base/proto.h"
#include "wire/client/client_impl.h"

#include <assert.h>
#include <errno.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>

/* ---- failures made here ---------------------------------------------------------- */

uint8_t *ms_failure_pack(Muster__Failure__Kind kind,
                         const char *where,
                         const char *text,
                         const Muster__Exit *exit,
                         size_t *len)
{
    Muster__Failure f = MUSTER__FAILURE__INIT;

    f.kind = kind;
    f.where = ms_field_text(where);
    f.message = ms_field_text(text);
    f.exit = (Muster__Exit *)(uintptr_t)exit;
    return ms_proto_packed(&f.base, len);
}

void ms_call_fail(struct ms_call *c, Muster__Failure__Kind kind, const char *text)
{
    size_t len;
    uint8_t *body = ms_failure_pack(kind, c->peer->label, text, NULL, &len);

    /* without memory the failure is an empty one: still a failure */
    ms_call_complete(c, MS_KIND_ERROR, MS_CODEC_PROTO, body, len);
}

/* ---- life ------------------------------------------------------------------------ */

struct ms_call *ms_call_ref(struct ms_call *c)
{
    atomic_fetch_add(&c->refs, 1);
    return c;
}

static void free_items(struct ms_peer *p, struct ms_list *items)
{
    ms_list_each (i, items, struct item, link) {
        if (i->stored)
            p->client->o.on_stored_drop(i->stored);
        free(i->body);
        free(i);
    }
}

void ms_call_unref(struct ms_call *c)
{
    struct ms_peer *p;

    if (!c || atomic_fetch_sub(&c->refs, 1) != 1)
        return;
    p = c->peer;
    free_items(p, &c->items);
    if (c->stored)
        p->client->o.on_stored_drop(c->stored);
    ms_notices_free(c);
    free(c->request);
    free(c->body);
    free(c);
    ms_peer_unref(p);
}

struct ms_peer *ms_call_peer(struct ms_call *c)
{
    return c->peer;
}

/* In a forked child the calls of the parent complete when they are looked at. */
static void settle_forgotten(struct ms_call *c)
{
    struct ms_peer *p = c->peer;

    if (c->done || p->state != PEER_DEAD)
        return;
    c->done = true;
    c->kind = MS_KIND_ERROR;
    c->reply_codec = MS_CODEC_PROTO;
    c->body = ms_bytes_copy(p->failure, p->failure_len);
    c->len = c->body ? p->failure_len : 0;
}

/* Who takes from the inbox that has the connection may be busy for as long as it has it, and
 * the loop may look later. Of a call that was just made there is no answer yet. */
static void look_now(struct ms_call *c)
{
    struct ms_peer *p = c->peer;

    if (c->done || (p->armed != ARMED_INBOX && p->armed != ARMED_LATER) ||
        ms_now_ns() < c->begun_ns + MS_SPIN_NS)
        return;
    ms_peer_read(p, NULL, 0);
    ms_peer_hand_over(p);
}

bool ms_call_is_done(struct ms_call *c)
{
    MS_PEER_LOCK(c->peer);

    settle_forgotten(c);
    look_now(c);
    return c->done;
}

/* ---- completing ------------------------------------------------------------------ */

void ms_waiter_wake_at(_Atomic uint32_t *asleep)
{
    syscall(SYS_futex, asleep, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

void ms_waiter_wake(struct waiter *w)
{
    struct ms_peer *p = w->call->peer;

    if (!atomic_exchange(&w->asleep, 0))
        return;
    if (p->wake)
        ms_waiter_wake_at(p->wake);
    p->wake = &w->asleep;
}

static void tell(struct ms_call *c)
{
    ms_notices_put(c);
    ms_list_each (w, &c->peer->waiters, struct waiter, link)
        if (w->call == c)
            ms_waiter_wake(w);
}

void *
ms_peer_take_stored(struct ms_peer *p, uint8_t codec, const uint8_t *body, size_t len)
{
    const struct ms_client_options *o = &p->client->o;

    return codec == MS_CODEC_STORED && o->on_stored ? o->on_stored(o->arg, body, len)
                                                    : NULL;
}

/* Of the method that it calls; NULL: it is another operation. */
static const char *method_of(const struct ms_call *c)
{
    const struct ms_peer *p = c->peer;
    size_t i = (size_t)c->op - MS_OP_METHOD;
    const char *engine;

    if (c->op < MS_OP_METHOD || i >= p->method_count)
        return NULL;
    engine = p->methods[i].iov_base;
    return engine + strlen(engine) + 1;
}

static void tell_called(const struct ms_call *c)
{
    const struct ms_client_options *o = &c->peer->client->o;
    struct ms_called called = {.label = c->peer->label,
                               .method = o->on_called ? method_of(c) : NULL,
                               .begun_ns = c->begun_ns,
                               .flow = c->flow,
                               .failed = c->kind == MS_KIND_ERROR};

    if (called.method && !c->peer->client->is_over)
        o->on_called(o->arg, &called);
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
    if (kind == MS_KIND_REPLY)
        c->stored = ms_peer_take_stored(c->peer, codec, body, len);
    if (c->on_end)
        c->on_end(c->end_arg);
    tell_called(c);
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
    i->stored = ms_peer_take_stored(c->peer, i->codec, i->body, i->len);
    ms_list_add_tail(&c->items, &i->link);
    c->arrived++;
    tell(c);
    return 0;
}

/* Complete it and tell the worker. It stays in `calls` if its answer may still come. */
static void give_up(struct ms_call *c, Muster__Failure__Kind kind, const char *text)
{
    struct ms_frame head = {.kind = MS_KIND_CANCEL, .call_id = c->id};
    struct ms_peer *p = c->peer;

    c->given_up = true;
    p->open_count--;
    if (!(p->conn && !p->is_broken ? ms_peer_send(p, &head, NULL, 0) == 0 : c->sent))
        ms_peer_drop_call(p, ms_peer_take_call(p, c->id));
    ms_call_fail(c, kind, text);
    ms_peer_hand_over(p);
}

static void expire(struct ms_call *c)
{
    const char *method = method_of(c);
    int64_t ms = (c->deadline_ns - c->asked_ns + MS_NS_PER_MS / 2) / MS_NS_PER_MS;
    char text[512];

    snprintf(text,
             sizeof text,
             "%s%.300s gave no answer within %g s (timeout); it may still be running",
             method ? "method " : "the worker",
             method ? method : "",
             (double)ms / 1000);
    give_up(c, MUSTER__FAILURE__KIND__DEADLINE, text);
}

void ms_call_cancel(struct ms_call *c)
{
    MS_PEER_LOCK(c->peer);

    settle_forgotten(c);
    if (!c->done)
        give_up(c, MUSTER__FAILURE__KIND__CANCELLED, "cancelled by the caller");
}

/* Those that are due; false: there was none, and *next_ns is when the next one is. A cancel that
 * cannot be sent may end the others too, so none is kept from one step to the next. */
static bool expire_due(struct ms_peer *p, int64_t now_ns, int64_t *next_ns)
{
    bool is_any = false;
    struct ms_call *c;
    size_t at = 0;

    *next_ns = MS_NEVER;
    while ((c = ms_map_next(&p->calls, &at))) {
        if (c->given_up)
            continue;
        if (c->deadline_ns <= now_ns) {
            expire(c);
            is_any = true;
        } else if (c->deadline_ns < *next_ns) {
            *next_ns = c->deadline_ns;
        }
    }
    return is_any;
}

int64_t ms_calls_expire(struct ms_peer *p, int64_t now_ns)
{
    int64_t next_ns;

    while (expire_due(p, now_ns, &next_ns)) /* a removal moves others: look again */
        ;
    return next_ns;
}

static void let_go(struct ms_call *c, struct ms_list *unread)
{
    MS_PEER_LOCK(c->peer);

    if (!c->done) {
        ms_client_wake_at(c->peer->client, c->deadline_ns);
        ms_peer_hand_over(c->peer);
    }
    if (c->given_up) /* it may stay in `calls` for long */
        ms_list_splice(unread, &c->items);
}

void ms_call_let_go(struct ms_call *c)
{
    struct ms_list unread;

    ms_list_init(&unread);
    let_go(c, &unread);
    free_items(c->peer, &unread);
}

/* ---- waiting --------------------------------------------------------------------- */

static bool has_news(const struct ms_call *c)
{
    return c->done || !ms_list_is_empty(&c->items);
}

/* Sleep until ms_waiter_wake: 0 (also for nothing), -ETIMEDOUT, -EINTR. */
static int sleep_until(struct waiter *w, int64_t until_ns)
{
    struct ms_peer *p = w->call->peer;
    struct timespec at = ms_timespec(until_ns);
    long rc;

    atomic_store(&w->asleep, 1);
    ms_peer_unlock(p);
    /* an absolute time of CLOCK_MONOTONIC; a condition would sleep through signals */
    rc = syscall(SYS_futex,
                 &w->asleep,
                 FUTEX_WAIT_BITSET_PRIVATE,
                 1,
                 until_ns == MS_NEVER ? NULL : &at,
                 NULL,
                 FUTEX_BITSET_MATCH_ANY);
    if (rc < 0)
        rc = errno == EAGAIN ? 0 : -errno;
    pthread_mutex_lock(&p->lock);
    atomic_store(&w->asleep, 0);
    return (int)rc;
}

/* Read the connection, or wait for the thread that does. */
static int wait_step(struct waiter *w, int64_t until_ns)
{
    struct ms_peer *p = w->call->peer;

    if (p->reading || !p->conn)
        return sleep_until(w, until_ns);
    return ms_peer_read(p, w->call, until_ns);
}

int ms_call_wait(struct ms_call *c, int64_t until_ns)
{
    struct ms_peer *p = c->peer;
    struct waiter w = {.call = c};
    int rc = 0;
    MS_PEER_LOCK(p);

    settle_forgotten(c);
    ms_list_add_tail(&p->waiters, &w.link);
    while (rc == 0 && !has_news(c)) {
        bool own = c->deadline_ns <= until_ns;

        rc = wait_step(&w, own ? c->deadline_ns : until_ns);
        if (rc == -ETIMEDOUT && own && !has_news(c))
            expire(c);
    }
    if (has_news(c))
        rc = 0;
    ms_list_remove(&w.link);
    ms_peer_hand_over(p);
    if (!c->done)
        ms_client_wake_at(p->client, c->deadline_ns);
    return rc;
}

/* ---- results --------------------------------------------------------------------- */

void ms_call_outcome(struct ms_call *c, struct ms_outcome *o)
{
    MS_LOCK(&c->peer->lock);

    *o = (struct ms_outcome){.kind = c->kind,
                             .codec = c->reply_codec,
                             .ends_stream = c->ends_stream,
                             .body = c->body,
                             .len = c->len};
}

uint8_t *ms_call_take_body(struct ms_call *c, void **stored)
{
    MS_LOCK(&c->peer->lock);

    if (stored)
        *stored = MS_TAKE(c->stored);
    c->len = 0;
    return MS_TAKE(c->body);
}

bool ms_call_has_items(struct ms_call *c)
{
    MS_LOCK(&c->peer->lock);

    return !ms_list_is_empty(&c->items);
}

static void send_credit(struct ms_call *c)
{
    struct ms_frame head = {
        .kind = MS_KIND_CREDIT, .op = (uint16_t)c->consumed, .call_id = c->id};

    if (c->done || c->consumed < MS_STREAM_WINDOW / 4 || !c->peer->conn)
        return;
    if (ms_peer_send(c->peer, &head, NULL, 0) == 0)
        c->consumed = 0;
}

int ms_call_take_item(
    struct ms_call *c, uint8_t *codec, uint8_t **body, size_t *len, void **stored)
{
    struct item *i;
    MS_PEER_LOCK(c->peer);

    i = ms_list_take(&c->items, struct item, link);
    if (!i)
        return 0;
    c->consumed++;
    c->taken++;
    send_credit(c);
    *codec = i->codec;
    *body = i->body;
    *len = i->len;
    if (stored)
        *stored = i->stored;
    else if (i->stored)
        c->peer->client->o.on_stored_drop(i->stored);
    free(i);
    return 1;
}

int ms_call_notify(struct ms_call *c, struct ms_inbox *i, uint64_t tag)
{
    int rc;
    MS_PEER_LOCK(c->peer);

    settle_forgotten(c);
    rc = ms_notice_add(c, i, tag, has_news(c));
    if (!c->done) {
        ms_client_wake_at(c->peer->client, c->deadline_ns);
        ms_inbox_adopt(i, c);
        if (!c->peer->inbox) {
            c->peer->is_noticed = true;
            ms_peer_look(c->peer);
        }
    }
    ms_peer_hand_over(c->peer);
    return rc;
}
