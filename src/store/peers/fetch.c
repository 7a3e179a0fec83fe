/* fetch.c - getting the bytes of another node's object, piece by piece over the bulk link to
 * its source: its origin, or a node that gets them too */
#include "store/peers/peers.h"

#include "base/clock.h"
#include "base/limits.h"

#include <errno.h>
#include <stdlib.h>

/* A piece that was asked for. */
struct want {
    struct ms_list link; /* peer->wants */
    uint64_t request;
    uint64_t node, id, offset;
};

static struct ms_store_peer *peer_of(void *link)
{
    return ((struct ms_peer_link *)link)->peer;
}

/* NULL: it is not a copy, or not one that is fetched from this peer. */
static struct ms_remote_copy *copied_from(const struct ms_store_peer *p,
                                          const struct ms_object *o)
{
    struct ms_remote_copy *m = o && o->is_copy ? o->user : NULL;

    return m && m->source == p ? m : NULL;
}

/* ---- asking ---------------------------------------------------------------------- */

static void want_free(struct want *w)
{
    ms_list_remove(&w->link);
    free(w);
}

/* -ENOTCONN: the link is dialled, and on_open asks again. */
static int
ask_piece(struct ms_store_peer *p, const struct ms_object *o, uint64_t at, uint64_t len)
{
    Muster__PeerWant ask = MUSTER__PEER_WANT__INIT;
    struct want *w;
    int rc;

    if (!p->bulk.is_open) {
        ms_peer_link_wake(&p->bulk);
        return -ENOTCONN;
    }
    w = malloc(sizeof *w);
    if (!w)
        return -ENOMEM;
    *w = (struct want){.request = ++p->last_request, o->node, o->id, at};
    ms_list_add_tail(&p->wants, &w->link);
    ask.node = o->node;
    ask.id = o->id;
    ask.offset = at;
    ask.len = len;
    ask.request = w->request;
    rc = ms_store_message_send(p->bulk.link, MUSTER__STORE_PEER__BODY_WANT, &ask);
    if (rc < 0)
        want_free(w);
    return rc;
}

static void ask_pieces(struct ms_remote_copy *m)
{
    struct ms_object *o = m->object;

    while (m->source && o->is_ready && m->asked < o->len &&
           m->asked - m->received < MS_STORE_PIECES * MS_STORE_PIECE_MAX) {
        uint64_t len = o->len - m->asked;

        if (len > MS_STORE_PIECE_MAX)
            len = MS_STORE_PIECE_MAX;
        if (ask_piece(m->source, o, m->asked, len) < 0)
            return; /* when the link is there */
        m->asked += len;
    }
}

void ms_remote_copy_stop(struct ms_object *o)
{
    struct ms_remote_copy *m = o->user;
    struct ms_store_peer *source = MS_TAKE(m->source);
    Muster__PeerDone done = MUSTER__PEER_DONE__INIT;

    done.node = o->node;
    done.id = o->id;
    if (source && source->bulk.is_open)
        ms_store_message_send(source->bulk.link, MUSTER__STORE_PEER__BODY_DONE, &done);
}

static void become_whole(struct ms_store *s, struct ms_object *o)
{
    o->is_whole = true;
    ms_remote_copy_stop(o);
    ms_remote_copy_tell(s, o, NULL);
}

static void on_placed(void *arg,
                      struct ms_store *s,
                      struct ms_object *o,
                      const struct ms_error *why)
{
    struct ms_remote_copy *m = o->user; /* it is pinned */

    (void)arg;
    m->is_placing = false;
    if (why) {
        ms_remote_copy_fail(s, o, why->code, why->text);
    } else {
        o->is_ready = true;
        if (o->len == 0)
            become_whole(s, o);
        else
            ask_pieces(m);
    }
    ms_object_unpin(o);
}

void ms_remote_copy_fetch(struct ms_object *o, struct ms_store_peer *source)
{
    struct ms_remote_copy *m = o->user;
    struct ms_store *s = source->store;

    ms_store_expect_pieces(s);
    if (m->source != source)
        ms_remote_copy_stop(o);
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

static struct want *find(struct ms_store_peer *p, uint64_t request)
{
    ms_list_each (w, &p->wants, struct want, link)
        if (w->request == request)
            return w;
    return NULL;
}

static uint8_t *on_data(void *link, uint64_t request, size_t len)
{
    struct ms_store_peer *p = peer_of(link);
    struct want *w = find(p, request);
    struct ms_object *o = w ? ms_table_find(&p->store->table, w->node, w->id) : NULL;
    const struct ms_remote_copy *m = copied_from(p, o);

    if (!m || !o->is_ready || o->is_whole || w->offset != m->received ||
        len > o->len - w->offset)
        return NULL; /* of one that was given up, or asked for twice */
    ms_object_pin(o);
    p->filling = o;
    p->filled = w->offset;
    return p->store->arena.memory + o->at + w->offset;
}

static void stop_filling(struct ms_store_peer *p)
{
    struct ms_object *o = MS_TAKE(p->filling);

    if (o)
        ms_object_unpin(o);
}

/* `len` more bytes of what is filled are there; a piece ends here. */
static void take_part(struct ms_store_peer *p, uint64_t len, bool is_last)
{
    struct ms_object *o = p->filling;
    struct ms_remote_copy *m = copied_from(p, o);
    uint64_t at = p->filled;

    p->filled += len;
    if (!m || at != m->received)
        return; /* it came from another node meanwhile */
    m->received += len;
    p->store->received += len;
    if (m->asked < m->received)
        m->asked = m->received;
    ms_remote_readers_answer(p->store, o, false);
    if (m->received == o->len)
        become_whole(p->store, o);
    else if (is_last)
        ask_pieces(m);
}

static void on_part(void *link, uint64_t request, size_t len, size_t rest)
{
    struct ms_store_peer *p = peer_of(link);
    struct want *w = rest ? NULL : find(p, request);

    if (w)
        want_free(w);
    if (p->filling)
        take_part(p, len, rest == 0);
    if (rest == 0)
        stop_filling(p);
}

static void on_body(void *link, const uint8_t *body, size_t len)
{
    Muster__StorePeer *m = muster__store_peer__unpack(NULL, len, body);

    if (m && m->body_case == MUSTER__STORE_PEER__BODY_GONE)
        ms_remote_copy_gone(peer_of(link), m->gone);
    muster__store_peer__free_unpacked(m, NULL);
}

/* ---- the bulk link --------------------------------------------------------------- */

static void refetch(struct ms_object *o, struct ms_store_peer *p)
{
    if (copied_from(p, o))
        ms_remote_copy_fetch(o, p);
}

static void on_open(void *link)
{
    ms_peer_link_opened(link);
    ms_remote_copies_walk(peer_of(link)->store, refetch, peer_of(link));
}

const struct ms_link_ops ms_bulk_ops = {.on_body = on_body,
                                        .on_closed = ms_peer_link_on_closed,
                                        .on_open = on_open,
                                        .on_suspect = ms_peer_link_on_suspect,
                                        .on_data = on_data,
                                        .on_part = on_part};

void ms_bulk_close(struct ms_store_peer *p)
{
    ms_peer_link_close(&p->bulk);
    ms_list_each (w, &p->wants, struct want, link)
        want_free(w);
    stop_filling(p);
}

/* A node that only hands it on is not needed. */
static void pass_over(struct ms_object *o, struct ms_store_peer *p)
{
    const struct ms_remote_copy *m = copied_from(p, o);

    if (m && m->origin != p)
        ms_remote_copy_fetch(o, m->origin);
}

static void give_up(struct ms_object *o, struct ms_store_peer *p)
{
    if (copied_from(p, o))
        ms_remote_copy_unreached(p->store, o);
}

/* Those that can ask elsewhere do. */
bool ms_bulk_on_lost(struct ms_store_peer *p, bool for_good)
{
    ms_bulk_close(p);
    ms_remote_copies_walk(p->store, pass_over, p);
    if (for_good)
        ms_remote_copies_walk(p->store, give_up, p);
    ms_list_each (o, &p->store->table.all, struct ms_object, link)
        if (copied_from(p, o))
            return true;
    p->bulk.lost_ns = 0;
    return false;
}

/* ---- slow nodes ------------------------------------------------------------------ */

static void look(struct ms_object *o, struct ms_store_peer *unused)
{
    struct ms_remote_copy *m = o->user;
    int64_t now_ns = ms_now_ns();

    (void)unused;
    if (!m->source || m->source == m->origin)
        return;
    ms_timer_set(&m->source->store->pace_timer, MS_STORE_STALL_NS);
    if (now_ns - m->looked_ns < MS_STORE_STALL_NS)
        return;
    if (m->received - m->looked_at < MS_STORE_SLOW_MIN) {
        ms_remote_copy_fetch(o, m->origin);
        return;
    }
    m->looked_ns = now_ns;
    m->looked_at = m->received;
}

void ms_remote_copies_look(void *store)
{
    ms_remote_copies_walk(store, look, NULL);
}
