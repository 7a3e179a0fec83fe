/* peer.c - a store of another node that we dial: its links, and what must arrive there */
#include "store/peers/peers.h"

#include "base/clock.h"
#include "base/limits.h"
#include "base/proto.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int ms_store_message_send(struct ms_link *l,
                          Muster__StorePeer__BodyCase what,
                          void *body)
{
    Muster__StorePeer m = MUSTER__STORE_PEER__INIT;

    m.body_case = what;
    m.hello = body; /* any of the union */
    return ms_link_send(l, &m.base);
}

void ms_store_message_gone(struct ms_link *l, uint64_t node, uint64_t id)
{
    Muster__PeerGone gone = MUSTER__PEER_GONE__INIT;

    gone.node = node;
    gone.id = id;
    if (l)
        ms_store_message_send(l, MUSTER__STORE_PEER__BODY_GONE, &gone);
}

/* ---- a link ---------------------------------------------------------------------- */

void ms_peer_link_close(struct ms_peer_link *l)
{
    ms_timer_cancel(&l->retry);
    ms_link_destroy(l->link);
    l->link = NULL;
    l->is_open = false;
}

/* The end of a bulk link is not that of the peer: it drops slow readers, too. */
static void lose(struct ms_peer_link *l, bool has_ended)
{
    bool for_good = has_ended && l == &l->peer->control;

    ms_peer_link_close(l);
    if (!l->lost_ns)
        l->lost_ns = ms_now_ns();
    if (ms_now_ns() - l->lost_ns > MS_LINK_GRACE_NS)
        for_good = true;
    if (l->on_lost(l->peer, for_good))
        ms_timer_set(&l->retry, MS_REDIAL_MIN_NS);
}

void ms_peer_link_on_closed(void *link, const struct ms_error *why)
{
    lose(link, ms_link_has_ended(why) || why->code == -ECONNREFUSED);
}

/* A healed network is found sooner by a fresh connection. The old one must not say that
 * this store has ended: the peer would drop all that we hold there. */
void ms_peer_link_on_suspect(void *link, bool is_suspect)
{
    struct ms_peer_link *l = link;

    if (!is_suspect)
        return;
    ms_link_abandon(MS_TAKE(l->link));
    lose(l, false);
}

static void on_retry(void *arg)
{
    struct ms_peer_link *l = arg;
    struct ms_store *s = l->peer->store;
    struct ms_link_dial d = {.addresses = l->peer->address,
                             .secret = s->secret,
                             .tls = s->tls,
                             .deadline_ns = ms_now_ns() + MS_LINK_GRACE_NS};

    if (l->link)
        return;
    l->link = ms_link_dial(s->loop, &d, l->ops, l, NULL);
    if (!l->link)
        lose(l, true);
}

void ms_peer_link_wake(struct ms_peer_link *l)
{
    if (!l->link && !l->lost_ns)
        ms_timer_set(&l->retry, 0);
}

void ms_peer_link_opened(struct ms_peer_link *l)
{
    struct ms_store *s = l->peer->store;
    Muster__PeerHello hello = MUSTER__PEER_HELLO__INIT;

    l->is_open = true;
    l->lost_ns = 0;
    hello.node = s->table.node;
    hello.name = s->node_name;
    hello.is_bulk = l == &l->peer->bulk;
    if (!hello.is_bulk)
        hello.address = s->address;
    ms_store_message_send(l->link, MUSTER__STORE_PEER__BODY_HELLO, &hello);
}

static int link_init(struct ms_peer_link *l, struct ms_store_peer *p)
{
    l->peer = p;
    return ms_timer_init(&l->retry, p->store->loop, on_retry, l);
}

/* ---- what must arrive ------------------------------------------------------------
 *
 * Confirmations and grants are numbered 1, 2, 3, ... for as long as this store lives. Each is
 * kept until the peer has acknowledged its number, sent again behind the hello of every new
 * link, and taken once: the peer drops numbers up to the last that it took. They are given up
 * only when the peer is lost for good, and it drops all that we hold there. */

struct unacked {
    struct ms_pending pending;
    Muster__StorePeer *message;
};

/* Those up to this number have arrived. */
static void drop_unacked(struct ms_store_peer *p, uint64_t number)
{
    ms_list_each (u, &p->unacked.open, struct unacked, pending.link)
        if (u->pending.number <= number) {
            ms_requests_remove(&p->unacked, &u->pending);
            muster__store_peer__free_unpacked(u->message, NULL);
            free(u);
        }
}

/* A copy is kept until the other side has acknowledged its number. */
static int send_kept(struct ms_store_peer *p, const Muster__StorePeer *m)
{
    struct unacked *u = calloc(1, sizeof *u);

    if (u)
        u->message = (Muster__StorePeer *)ms_proto_copy(&m->base);
    if (!u || !u->message || ms_requests_add(&p->unacked, &u->pending) < 0) {
        if (u)
            muster__store_peer__free_unpacked(u->message, NULL);
        free(u);
        return -ENOMEM;
    }
    u->message->number = u->pending.number;
    return p->control.is_open ? ms_link_send(p->control.link, &u->message->base) : 0;
}

int ms_store_peer_tell(struct ms_store_peer *p,
                       Muster__StorePeer__BodyCase what,
                       void *body)
{
    Muster__StorePeer m = MUSTER__STORE_PEER__INIT;

    m.body_case = what;
    m.hello = body;
    if (p->is_lost) { /* it is asked again */
        p->is_lost = false;
        p->control.lost_ns = 0;
    }
    ms_peer_link_wake(&p->control);
    if (what == MUSTER__STORE_PEER__BODY_CONFIRM ||
        what == MUSTER__STORE_PEER__BODY_GRANT)
        return send_kept(p, &m);
    return p->control.is_open ? ms_link_send(p->control.link, &m.base) : -ENOTCONN;
}

/* ---- the control link ------------------------------------------------------------ */

static void on_open(void *link)
{
    struct ms_peer_link *l = link;

    ms_peer_link_opened(l);
    ms_list_each (u, &l->peer->unacked.open, struct unacked, pending.link)
        ms_link_send(l->link, &u->message->base);
    ms_remote_copies_resume(l->peer);
}

static void on_body(void *link, const uint8_t *body, size_t len)
{
    struct ms_store_peer *p = ((struct ms_peer_link *)link)->peer;
    Muster__StorePeer *m = muster__store_peer__unpack(NULL, len, body);

    if (!m)
        return;
    if (m->body_case == MUSTER__STORE_PEER__BODY_HELD)
        ms_remote_copy_held(p, m->held);
    else if (m->body_case == MUSTER__STORE_PEER__BODY_GONE)
        ms_remote_copy_gone(p, m->gone);
    else if (m->body_case == MUSTER__STORE_PEER__BODY_HEARD)
        drop_unacked(p, m->heard->number);
    muster__store_peer__free_unpacked(m, NULL);
}

static bool on_lost(struct ms_store_peer *p, bool for_good)
{
    ms_remote_copies_lost(p, for_good);
    if (for_good) {
        ms_bulk_close(p);
        drop_unacked(p, UINT64_MAX);
    }
    return !for_good;
}

static const struct ms_link_ops control_ops = {.on_body = on_body,
                                               .on_closed = ms_peer_link_on_closed,
                                               .on_open = on_open,
                                               .on_suspect = ms_peer_link_on_suspect};

/* ---- life ------------------------------------------------------------------------ */

static void peer_destroy(struct ms_store_peer *p)
{
    drop_unacked(p, UINT64_MAX);
    ms_requests_finish(&p->unacked);
    ms_peer_link_close(&p->control);
    ms_bulk_close(p);
    ms_timer_finish(&p->control.retry);
    ms_timer_finish(&p->bulk.retry);
    ms_list_remove(&p->link_in);
    free(p->address);
    free(p->name);
    free(p);
}

struct ms_store_peer *
ms_store_peer_get(struct ms_store *s, uint64_t node, const char *address)
{
    struct ms_store_peer *p;

    ms_list_each (known, &s->peers, struct ms_store_peer, link_in)
        if (known->node == node)
            return known;
    if (!address[0])
        return NULL;
    p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->store = s;
    p->node = node;
    p->address = strdup(address);
    p->control = (struct ms_peer_link){.ops = &control_ops, .on_lost = on_lost};
    p->bulk = (struct ms_peer_link){.ops = &ms_bulk_ops, .on_lost = ms_bulk_on_lost};
    ms_requests_init(&p->unacked);
    ms_list_init(&p->wants);
    ms_list_add_tail(&s->peers, &p->link_in);
    if (link_init(&p->control, p) < 0 || link_init(&p->bulk, p) < 0 || !p->address) {
        peer_destroy(p);
        return NULL;
    }
    return p;
}

static void forget(struct ms_object *o, struct ms_store_peer *unused)
{
    struct ms_remote_copy *m = o->user;

    (void)unused;
    m->source = m->origin = NULL;
}

void ms_store_peers_finish(struct ms_store *s)
{
    ms_remote_copies_walk(s, forget, NULL);
    ms_list_each (p, &s->peers, struct ms_store_peer, link_in)
        peer_destroy(p);
}
