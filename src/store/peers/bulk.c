/* bulk.c - the bulk link to a store that has bytes for us: dialled when something is wanted,
 * and again while something is */
#include "store/peers/peers.h"

#include "base/limits.h"

#include <errno.h>
#include <stdlib.h>

/* Bytes that were asked for. */
struct want {
    struct ms_list link;
    uint64_t request;
    uint64_t node, id, offset;
};

static struct ms_store_peer *peer_of(void *link)
{
    return ((struct ms_peer_link *)link)->peer;
}

static struct want *find(struct ms_store_peer *p, uint64_t request)
{
    ms_list_each (w, &p->wants, struct want, link)
        if (w->request == request)
            return w;
    return NULL;
}

static void want_free(struct want *w)
{
    ms_list_remove(&w->link);
    free(w);
}

/* ---- what comes ------------------------------------------------------------------ */

static uint8_t *on_data(void *link, uint64_t request, size_t len)
{
    struct ms_store_peer *p = peer_of(link);
    struct want *w = find(p, request);
    struct ms_object *o = w ? ms_table_find(&p->store->table, w->node, w->id) : NULL;

    if (!o || !ms_replica_expects(p, o, w->offset, len))
        return NULL; /* of one that was given up, or asked for twice */
    ms_object_pin(o);
    p->filling = o;
    p->filled = w->offset;
    return ms_arena_memory(p->store->arena) + o->at + w->offset;
}

static void stop_filling(struct ms_store_peer *p)
{
    struct ms_object *o = MS_TAKE(p->filling);

    if (o)
        ms_object_unpin(o);
}

static void on_part(void *link, uint64_t request, size_t len, size_t rest)
{
    struct ms_store_peer *p = peer_of(link);
    struct want *w = rest ? NULL : find(p, request);
    uint64_t at = p->filled;

    if (w)
        want_free(w);
    if (!p->filling)
        return;
    p->filled += len;
    ms_replica_part(p, p->filling, at, len, rest == 0);
    if (rest == 0)
        stop_filling(p);
}

static void on_body(void *link, const uint8_t *body, size_t len)
{
    Muster__StorePeer *m = muster__store_peer__unpack(NULL, len, body);

    if (m && m->body_case == MUSTER__STORE_PEER__BODY_GONE)
        ms_replica_gone(peer_of(link), m->gone);
    if (m)
        muster__store_peer__free_unpacked(m, NULL);
}

/* ---- the link -------------------------------------------------------------------- */

static void on_open(void *link)
{
    ms_peer_link_opened(link);
    ms_replicas_refetch(peer_of(link));
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

bool ms_bulk_on_lost(struct ms_store_peer *p, bool for_good)
{
    ms_bulk_close(p);
    if (ms_replicas_cut(p, for_good))
        return true;
    p->bulk.lost_ns = 0;
    return false;
}

/* ---- what is asked --------------------------------------------------------------- */

int ms_bulk_want(struct ms_store_peer *p,
                 const struct ms_object *o,
                 uint64_t at,
                 uint64_t len)
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

void ms_bulk_done(struct ms_store_peer *p, const struct ms_object *o)
{
    Muster__PeerDone done = MUSTER__PEER_DONE__INIT;

    done.node = o->node;
    done.id = o->id;
    if (p->bulk.is_open)
        ms_store_message_send(p->bulk.link, MUSTER__STORE_PEER__BODY_DONE, &done);
}
