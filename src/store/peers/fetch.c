/* fetch.c - getting the bytes of another node's object, piece by piece, from its origin or
 * from a node that gets them too */
#include "store/peers/peers.h"

#include "base/clock.h"
#include "base/limits.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- asking ---------------------------------------------------------------------- */

static void ask_pieces(struct ms_replica *m)
{
    struct ms_object *o = m->object;

    while (m->source && o->is_ready && m->asked < o->len &&
           m->asked - m->received < MS_STORE_PIECES * MS_STORE_PIECE_MAX) {
        uint64_t len = o->len - m->asked;

        if (len > MS_STORE_PIECE_MAX)
            len = MS_STORE_PIECE_MAX;
        if (ms_bulk_want(m->source, o, m->asked, len) < 0)
            return; /* when the link is there */
        m->asked += len;
    }
}

void ms_replica_stop(struct ms_object *o)
{
    struct ms_replica *m = o->user;

    if (m->source)
        ms_bulk_done(m->source, o);
    m->source = NULL;
}

static void become_whole(struct ms_store *s, struct ms_object *o)
{
    o->is_whole = true;
    ms_replica_stop(o);
    ms_replica_tell(s, o, NULL);
}

static void on_placed(void *arg,
                      struct ms_store *s,
                      struct ms_object *o,
                      const struct ms_error *why)
{
    struct ms_replica *m = o->user; /* it is pinned */

    (void)arg;
    m->is_placing = false;
    if (why) {
        ms_replica_fail(s, o, why->code, why->text);
    } else {
        o->is_ready = true;
        if (o->len == 0)
            become_whole(s, o);
        else
            ask_pieces(m);
    }
    ms_object_unpin(o);
}

void ms_replica_fetch(struct ms_object *o, struct ms_store_peer *source)
{
    struct ms_replica *m = o->user;
    struct ms_store *s = source->store;

    ms_store_expect_pieces(s);
    if (m->source != source)
        ms_replica_stop(o);
    m->source = source;
    m->asked = m->received;
    m->looked_ns = ms_now_ns();
    m->looked_at = m->received;
    if (source != m->origin)
        ms_timer_set(&s->pace_timer, MS_STORE_STALL_NS);
    if (o->is_ready) {
        ask_pieces(m);
    } else if (!m->is_placing) {
        m->is_placing = true;
        ms_object_pin(o);
        ms_store_place(s, o, on_placed, NULL);
    }
}

/* ---- what comes ------------------------------------------------------------------ */

bool ms_replica_expects(struct ms_store_peer *p,
                        const struct ms_object *o,
                        uint64_t offset,
                        uint64_t len)
{
    const struct ms_replica *m = o->is_replica ? o->user : NULL;

    return m && m->source == p && o->is_ready && !o->is_whole &&
           offset == m->received && len <= o->len - offset;
}

void ms_replica_part(struct ms_store_peer *p,
                     struct ms_object *o,
                     uint64_t at,
                     uint64_t len,
                     bool is_last)
{
    struct ms_replica *m = o->user;

    if (m->source != p || at != m->received)
        return; /* it has been had of somebody else meanwhile */
    m->received += len;
    p->store->received += len;
    if (m->asked < m->received)
        m->asked = m->received;
    ms_remote_readers_serve(p->store, o);
    if (m->received == o->len)
        become_whole(p->store, o);
    else if (is_last)
        ask_pieces(m);
}

/* ---- trouble --------------------------------------------------------------------- */

static void refetch(struct ms_object *o, struct ms_store_peer *p)
{
    if (((struct ms_replica *)o->user)->source == p)
        ms_replica_fetch(o, p);
}

void ms_replicas_refetch(struct ms_store_peer *p)
{
    ms_replicas_walk(p->store, refetch, p);
}

/* A node that only hands it on is not needed. */
static void pass_over(struct ms_object *o, struct ms_store_peer *p)
{
    struct ms_replica *m = o->user;

    if (m->source == p && m->origin != p)
        ms_replica_fetch(o, m->origin);
}

static void give_up(struct ms_object *o, struct ms_store_peer *p)
{
    if (((struct ms_replica *)o->user)->source == p)
        ms_replica_unreached(p->store, o);
}

bool ms_replicas_cut(struct ms_store_peer *p, bool for_good)
{
    ms_replicas_walk(p->store, pass_over, p);
    if (for_good)
        ms_replicas_walk(p->store, give_up, p);
    ms_list_each (o, &p->store->table.all, struct ms_object, link)
        if (o->is_replica && ((struct ms_replica *)o->user)->source == p)
            return true;
    return false;
}

static void look(struct ms_object *o, struct ms_store_peer *unused)
{
    struct ms_replica *m = o->user;
    int64_t now_ns = ms_now_ns();

    (void)unused;
    if (!m->source || m->source == m->origin)
        return;
    ms_timer_set(&m->source->store->pace_timer, MS_STORE_STALL_NS);
    if (now_ns - m->looked_ns < MS_STORE_STALL_NS)
        return;
    if (m->received - m->looked_at < MS_STORE_SLOW_MIN) {
        ms_replica_fetch(o, m->origin);
        return;
    }
    m->looked_ns = now_ns;
    m->looked_at = m->received;
}

void ms_replicas_look(void *store)
{
    ms_replicas_walk(store, look, NULL);
}
