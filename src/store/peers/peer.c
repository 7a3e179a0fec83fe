#include "store/peers/peers.h"

#include "base/clock.h"
#include "base/limits.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static void dial(struct ms_store_peer *f);

/* ---- what must arrive ------------------------------------------------------------ */

struct unacked {
    struct ms_list link;
    Muster__StorePeer *message;
};

static void unacked_free(struct unacked *u)
{
    ms_list_remove(&u->link);
    muster__store_peer__free_unpacked(u->message, NULL);
    free(u);
}

static int keep(struct ms_store_peer *f, const Muster__StorePeer *m)
{
    size_t len = muster__store_peer__get_packed_size(m);
    uint8_t *body = malloc(len ? len : 1);
    struct unacked *u = calloc(1, sizeof *u);

    if (u && body) {
        muster__store_peer__pack(m, body);
        u->message = muster__store_peer__unpack(NULL, len, body);
    }
    free(body);
    if (!u || !u->message) {
        free(u);
        return -ENOMEM;
    }
    u->message->number = ++f->last_number;
    ms_list_init(&u->link);
    ms_list_add_tail(&f->unacked, &u->link);
    return f->is_open ? ms_link_send(f->link, &u->message->base) : 0;
}

static bool is_kept(const Muster__StorePeer *m)
{
    return m->body_case == MUSTER__STORE_PEER__BODY_CONFIRM ||
           m->body_case == MUSTER__STORE_PEER__BODY_GRANT;
}

int ms_store_peer_send(struct ms_store_peer *f, const Muster__StorePeer *m)
{
    if (f->is_open)
        return is_kept(m) ? keep(f, m) : ms_link_send(f->link, &m->base);
    if (f->is_lost) { /* somebody asks again */
        f->is_lost = false;
        f->lost_ns = 0;
    }
    if (!f->link && !f->lost_ns)
        ms_timer_set(&f->retry, 0); /* never from inside of whoever asks */
    return is_kept(m) ? keep(f, m) : -ENOTCONN;
}

/* Those up to this number have arrived. */
static void drop_unacked(struct ms_store_peer *f, uint64_t number)
{
    ms_list_each (u, &f->unacked, struct unacked, link)
        if (u->message->number <= number)
            unacked_free(u);
}

/* ---- the link -------------------------------------------------------------------- */

static void on_open(void *arg)
{
    struct ms_store_peer *f = arg;
    Muster__StorePeer m = MUSTER__STORE_PEER__INIT;
    Muster__PeerHello hello = MUSTER__PEER_HELLO__INIT;

    f->is_open = true;
    f->lost_ns = 0;
    hello.node = f->store->table.node;
    hello.name = f->store->node_name;
    hello.address = f->store->address;
    m.body_case = MUSTER__STORE_PEER__BODY_HELLO;
    m.hello = &hello;
    ms_store_peer_send(f, &m);
    ms_list_each (u, &f->unacked, struct unacked, link)
        ms_link_send(f->link, &u->message->base);
    ms_replicas_resume(f->store, f);
}

static void on_body(void *arg, const uint8_t *body, size_t len)
{
    struct ms_store_peer *f = arg;
    Muster__StorePeer *m = muster__store_peer__unpack(NULL, len, body);

    if (!m)
        return;
    if (m->body_case == MUSTER__STORE_PEER__BODY_HELD)
        ms_replica_held(f, m->held);
    else if (m->body_case == MUSTER__STORE_PEER__BODY_GONE)
        ms_replica_gone(f, m->gone);
    else if (m->body_case == MUSTER__STORE_PEER__BODY_HEARD)
        drop_unacked(f, m->heard->number);
    muster__store_peer__free_unpacked(m, NULL);
}

static void lose(struct ms_store_peer *f, bool for_good)
{
    ms_link_destroy(f->link);
    f->link = NULL;
    f->is_open = false;
    if (!f->lost_ns)
        f->lost_ns = ms_now_ns();
    if (ms_now_ns() - f->lost_ns > MS_LINK_GRACE_NS)
        for_good = true;
    ms_replicas_lost(f->store, f, for_good);
    if (for_good) {
        ms_bulk_close(f);
        drop_unacked(f, UINT64_MAX);
    }
    if (!for_good)
        ms_timer_set(&f->retry, MS_REDIAL_MIN_NS);
}

static void on_closed(void *arg, const struct ms_error *why)
{
    lose(arg, ms_link_has_ended(why) || why->code == -ECONNREFUSED);
}

/* A healed network is found sooner by a fresh connection. */
static void on_suspect(void *arg, bool is_suspect)
{
    if (is_suspect)
        lose(arg, false);
}

static const struct ms_link_ops link_ops = {.on_body = on_body,
                                            .on_closed = on_closed,
                                            .on_open = on_open,
                                            .on_suspect = on_suspect};

static void dial(struct ms_store_peer *f)
{
    struct ms_link_dial d = {.addresses = f->address,
                             .secret = f->store->secret,
                             .tls = f->store->tls,
                             .deadline_ns = ms_now_ns() + MS_LINK_GRACE_NS};

    f->link = ms_link_dial(f->store->loop, &d, &link_ops, f, NULL);
    if (!f->link)
        lose(f, true);
}

static void on_retry(void *arg)
{
    struct ms_store_peer *f = arg;

    if (!f->link)
        dial(f);
}

/* ---- life ------------------------------------------------------------------------ */

static void peer_destroy(struct ms_store_peer *f)
{
    drop_unacked(f, UINT64_MAX);
    ms_timer_finish(&f->retry);
    ms_link_destroy(f->link);
    ms_bulk_finish(f);
    ms_list_remove(&f->link_in);
    free(f->address);
    free(f->name);
    free(f);
}

struct ms_store_peer *
ms_store_peer_get(struct ms_store *s, uint64_t node, const char *address)
{
    struct ms_store_peer *f;

    ms_list_each (known, &s->peers, struct ms_store_peer, link_in)
        if (known->node == node)
            return known;
    if (!address[0])
        return NULL;
    f = calloc(1, sizeof *f);
    if (!f)
        return NULL;
    ms_list_init(&f->unacked);
    f->store = s;
    f->node = node;
    f->address = strdup(address);
    ms_list_add_tail(&s->peers, &f->link_in);
    if (ms_bulk_init(f) < 0 || !f->address ||
        ms_timer_init(&f->retry, s->loop, on_retry, f) < 0) {
        peer_destroy(f);
        return NULL;
    }
    return f;
}

static void
forget(struct ms_store *s, struct ms_object *o, struct ms_store_peer *unused)
{
    struct ms_replica *m = o->user;

    (void)s;
    (void)unused;
    m->source = m->origin = NULL;
}

void ms_store_peers_finish(struct ms_store *s)
{
    ms_replicas_walk(s, forget, NULL);
    ms_list_each (f, &s->peers, struct ms_store_peer, link_in)
        peer_destroy(f);
}
