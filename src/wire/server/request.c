/* request.c - requests: arriving, queued for the engine, cancelled */
#include "base/clock.h"
#include "wire/server/server_impl.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <string.h>

bool ms_request_is_for_engine(const struct ms_request *r)
{
    return r->server->o.has_engine && r->op >= MS_OP_CONFIGURE;
}

void ms_request_unref_locked(struct ms_request *r)
{
    assert(r->refs > 0);
    if (--r->refs)
        return;
    ms_stream_forget(r);
    free(r->memory);
    free(r->reply);
    free(r);
}

void ms_request_enqueue(struct ms_request *r)
{
    ms_list_add_tail(&r->server->queue, &r->queue_link);
    atomic_fetch_add(&r->server->queued, 1);
}

/* Out of the queue, if it is there. */
static void unqueue(struct ms_request *r)
{
    if (r->state == MS_SERVE_RUNNING || ms_list_is_empty(&r->queue_link))
        return;
    ms_list_remove(&r->queue_link);
    atomic_fetch_sub(&r->server->queued, 1);
    if (r->state == MS_SERVE_RECEIVING)
        r->server->is_ready = true; /* what stood behind it */
}

/* ---- arriving -------------------------------------------------------------------- */

static struct ms_method *method_of(struct ms_ledger *l, uint16_t op)
{
    uint32_t i = (uint32_t)op - MS_OP_METHOD;

    return op >= MS_OP_METHOD && i < l->method_room ? l->methods[i] : NULL;
}

struct ms_request *ms_request_create(struct ms_ledger *l, uint64_t call_id)
{
    struct ms_request *r = calloc(1, sizeof *r);

    if (!r)
        return NULL;
    r->call_id = call_id;
    r->deadline_ns = MS_NEVER;
    r->refs = 1;
    r->ledger = l;
    r->server = l->server;
    ms_list_init(&r->queue_link);
    ms_list_init(&r->ledger_link);
    ms_list_init(&r->tell_link);
    ms_list_init(&r->stream.items);
    if (ms_map_add(&l->requests, call_id, r) < 0) {
        free(r);
        return NULL;
    }
    if (call_id > l->newest)
        l->newest = call_id;
    return r;
}

static struct ms_request *request_arrives(struct ms_ledger *l,
                                          const struct ms_frame *head)
{
    struct ms_request *r = ms_request_create(l, head->call_id);

    if (!r)
        return NULL;
    r->op = head->op;
    r->flags = head->flags;
    r->codec = head->codec;
    r->core = head->core;
    r->method = method_of(l, head->op);
    if (head->budget_ns && head->budget_ns < INT64_MAX)
        r->deadline_ns = ms_deadline_ns(ms_now_ns(), (int64_t)head->budget_ns);
    return r;
}

/* A call that is not known may begin if it never did: ids only grow, and what was sent
 * before this session was (last) made may have run. */
static bool may_begin(const struct ms_ledger *l, const struct ms_frame *head)
{
    if (head->flags & MS_FRAME_RESEND)
        return head->call_id > l->newest && head->call_id > l->forgotten;
    return head->call_id > l->newest;
}

int ms_request_begin(struct ms_ledger *l, const struct ms_frame *head)
{
    struct ms_request *r;

    if (head->call_id == 0)
        return -EPROTO;
    /* an answer is due once it is whole */
    if (ms_map_find(&l->requests, head->call_id) || !may_begin(l, head))
        return head->flags & MS_FRAME_RESEND ? 0 : -EPROTO;
    r = request_arrives(l, head);
    if (!r)
        return -ENOMEM;
    if (ms_request_is_for_engine(r))
        ms_request_enqueue(r);
    return 0;
}

/* The chain of waiting workers stands before the payload: u16 count, u64 each. */
static int take_chain(struct ms_request *r)
{
    uint16_t count;
    size_t size;

    if (!(r->flags & MS_FRAME_CHAIN))
        return 0;
    if (r->len < sizeof count)
        return -EPROTO;
    memcpy(&count, r->body, sizeof count);
    count = le16toh(count);
    size = sizeof count + count * sizeof(uint64_t);
    if (count > MS_CHAIN_MAX || r->len < size)
        return -EPROTO;
    r->chain_count = count;
    for (uint32_t i = 0; i < count; i++)
        r->chain[i] = ms_le64_at(r->body + sizeof count, i);
    r->body += size;
    r->len -= size;
    return 0;
}

static int fill(struct ms_request *r, struct ms_message *m)
{
    r->memory = ms_message_take(m);
    if (!r->memory)
        return -ENOMEM;
    r->body = r->memory;
    r->len = m->len;
    r->flags = m->head.flags;
    return take_chain(r);
}

/* A whole request: to the engine's queue, or to the loop. */
static void route(struct ms_server_conn *sc, struct ms_request *r)
{
    struct ms_server *s = sc->server;

    r->state = MS_SERVE_WAITING;
    if (!ms_request_is_for_engine(r)) {
        ms_server_hand_out(s, r, &s->deliveries);
        if (!ms_server_on_loop(s))
            ms_server_wake_loop(s);
        return;
    }
    if (r->op >= MS_OP_METHOD && !r->method) {
        unqueue(r);
        ms_request_fail_locked(
            r, MUSTER__FAILURE__KIND__NO_METHOD, "a method that was never named");
        return;
    }
    if (ms_list_is_empty(&r->queue_link))
        ms_request_enqueue(r);
    s->is_ready = true;
}

/* Sent again, and known already. */
static int attach_again(struct ms_request *r, const struct ms_message *m)
{
    if (!(m->head.flags & MS_FRAME_RESEND))
        return r->cancelled ? 0 : -EPROTO; /* cancelled while its pieces came */
    ms_stream_attach(r);
    if (r->state == MS_SERVE_DONE)
        ms_reply_send(r);
    return 0;
}

/* Sent again without its body: to be attached, and else lost. */
static int
attach_bare(struct ms_server_conn *sc, struct ms_request *r, const struct ms_message *m)
{
    if (r && r->state != MS_SERVE_RECEIVING)
        return attach_again(r, m);
    if (r) {
        ms_map_remove(&sc->ledger->requests, r->call_id);
        ms_request_drop(r);
    }
    ms_reply_failure(sc,
                     m->head.call_id,
                     MUSTER__FAILURE__KIND__LOST,
                     "the connection broke before the call had arrived, and it was too "
                     "big to be kept and sent again");
    return 0;
}

static int unknown(struct ms_server_conn *sc, const struct ms_message *m)
{
    if (m->head.flags & MS_FRAME_RESEND) {
        ms_reply_failure(sc,
                         m->head.call_id,
                         MUSTER__FAILURE__KIND__LOST,
                         "the connection broke, and the worker no longer knows whether "
                         "the call ran");
        return 0;
    }
    return m->owned ? 0 : -EPROTO; /* cancelled and forgotten while its pieces came */
}

int ms_request_whole(struct ms_server_conn *sc, struct ms_message *m)
{
    struct ms_ledger *l = sc->ledger;
    struct ms_request *r = ms_map_find(&l->requests, m->head.call_id);
    int rc;

    if (m->head.call_id == 0)
        return -EPROTO;
    if (m->head.flags & MS_FRAME_BARE)
        return attach_bare(sc, r, m);
    if (r && r->state != MS_SERVE_RECEIVING)
        return attach_again(r, m);
    if (!r) {
        if (!may_begin(l, &m->head))
            return unknown(sc, m);
        r = request_arrives(l, &m->head);
        if (!r)
            return -ENOMEM;
    }
    rc = fill(r, m);
    if (rc == 0) {
        route(sc, r);
    } else if (rc == -EPROTO) {
        ms_map_remove(&l->requests, r->call_id);
        ms_request_drop(r);
    }
    return rc; /* without memory it still waits to be sent again */
}

/* ---- what becomes of them -------------------------------------------------------- */

void ms_request_drop(struct ms_request *r)
{
    unqueue(r);
    ms_list_remove(&r->ledger_link);
    r->ledger = NULL;
    if (r->state == MS_SERVE_RUNNING && !r->cancelled) {
        r->cancelled = true;
        ms_server_tell(r->server, r);
    }
    if (r->state != MS_SERVE_RUNNING)
        r->state = MS_SERVE_DONE;
    ms_request_unref_locked(r);
}

void ms_request_acked(struct ms_ledger *l, uint64_t call_id)
{
    struct ms_request *r = ms_map_find(&l->requests, call_id);

    if (!r || r->state != MS_SERVE_DONE)
        return;
    ms_map_remove(&l->requests, call_id);
    ms_list_remove(&r->ledger_link);
    l->kept_bytes -= r->reply_len;
    r->ledger = NULL;
    ms_request_unref_locked(r);
}

void ms_request_cancel(struct ms_request *r)
{
    if (r->state == MS_SERVE_DONE || r->cancelled)
        return;
    r->cancelled = true;
    ms_stream_forget(r);
    if (r->state == MS_SERVE_RUNNING) {
        ms_server_tell(r->server, r);
        return;
    }
    unqueue(r);
    ms_request_fail_locked(
        r, MUSTER__FAILURE__KIND__CANCELLED, "cancelled before it began");
}

/* The first one that is whole and has nothing of its own session before it. */
struct ms_request *ms_request_next(struct ms_server *s)
{
    uint64_t walk = ++s->walks;

    ms_list_each (r, &s->queue, struct ms_request, queue_link) {
        if (r->state == MS_SERVE_RECEIVING)
            r->ledger->blocked_walk = walk;
        else if (r->ledger->blocked_walk != walk)
            return r;
    }
    return NULL;
}

struct ms_request *ms_request_pop(struct ms_request *r, int64_t now_ns)
{
    unqueue(r);
    if (r->deadline_ns > now_ns) {
        r->begun_ns = now_ns;
        ms_server_hand_out(r->server, r, &r->server->handed);
        return r;
    }
    ms_request_fail_locked(
        r, MUSTER__FAILURE__KIND__DEADLINE, "its deadline came before its turn");
    return NULL;
}
