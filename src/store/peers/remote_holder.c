/* remote_holder.c - a store of another node that holds objects of ours, over the link that it
 * has dialled */
#include "store/peers/peers.h"
#include "store/server/spill.h"
#include "store/slice.h"

#include "base/clock.h"
#include "base/limits.h"
#include "wire/server/server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { RECEIVERS_MAX = 256, ACK_EVERY = 32 };

/* A store of another node that has dialled us. */
struct ms_remote_holder {
    struct ms_store *store;
    struct ms_list link_in; /* store->remote_holders */
    struct ms_link *link;   /* NULL: it broke, and may come again */
    uint64_t node;          /* 0: it has not said who it is */
    char *address;
    uint64_t acked; /* the last confirmation or grant of this node that came */
    struct ms_timer grace;
};

/* The nodes that asked for the bytes of one of our objects, in order; ms_object.user. */
struct receivers {
    size_t count;
    uint64_t nodes[RECEIVERS_MAX];
};

/* ---- life ------------------------------------------------------------------------ */

static void remote_destroy(struct ms_remote_holder *r)
{
    ms_timer_finish(&r->grace);
    ms_link_destroy(r->link);
    ms_list_remove(&r->link_in);
    free(r->address);
    free(r);
}

/* It is gone, and so are its counts. */
static void remote_gone(void *remote)
{
    struct ms_remote_holder *r = remote;
    struct ms_store *s = r->store;
    struct ms_holder *h = r->node ? ms_table_find_holder(&s->table, r->node) : NULL;

    remote_destroy(r);
    if (h)
        ms_holder_remove(h);
}

static struct ms_remote_holder *remote_of(struct ms_store *s, uint64_t node)
{
    ms_list_each (r, &s->remote_holders, struct ms_remote_holder, link_in)
        if (r->node == node)
            return r;
    return NULL;
}

struct ms_holder *
ms_store_node_holder(struct ms_store *s, uint64_t node, const char *name)
{
    struct ms_holder *h = ms_table_find_holder(&s->table, node);
    char text[MS_HOLDER_NAME_MAX];

    if (h) /* never that of a process */
        return h->kind == MS_HOLDER_NODE ? h : NULL;
    snprintf(text, sizeof text, "node %s", name);
    return ms_table_add_holder(&s->table, node, MS_HOLDER_NODE, 0, text);
}

/* ---- what it asks ---------------------------------------------------------------- */

void ms_receivers_tell(struct ms_store *s, const struct ms_object *o)
{
    const struct receivers *g = o->user;

    for (size_t i = 0; g && i < g->count; i++) {
        struct ms_remote_holder *r = remote_of(s, g->nodes[i]);

        if (r)
            ms_store_message_gone(r->link, o->node, o->id);
    }
}

/* Whom it should ask for the bytes: the one before it, or us (NULL). */
static struct ms_remote_holder *relay_for(struct ms_remote_holder *r,
                                          struct ms_object *o)
{
    struct receivers *g = o->user;
    size_t i = 0;

    if (!g)
        o->user = g = calloc(1, sizeof *g);
    if (!g)
        return NULL;
    while (i < g->count && g->nodes[i] != r->node)
        i++;
    if (i == RECEIVERS_MAX)
        return NULL;
    if (i == g->count)
        g->nodes[g->count++] = r->node;
    while (i-- > 0) {
        struct ms_remote_holder *before = remote_of(r->store, g->nodes[i]);

        if (before && before->link && before->address[0])
            return before;
    }
    return NULL;
}

static void on_hold(struct ms_remote_holder *r, const Muster__PeerHold *m);

/* It waits for a slice of an object that is brought back. */
struct delayed {
    uint64_t node;
    Muster__PeerHold hold;
};

static void on_back(void *arg,
                    struct ms_store *s,
                    struct ms_object *whole,
                    const struct ms_error *why)
{
    struct delayed *d = arg;
    struct ms_remote_holder *r = remote_of(s, d->node);

    (void)whole;
    if (r && why)
        ms_store_message_gone(r->link, s->table.node, d->hold.id);
    else if (r && r->link) /* else it says so again */
        on_hold(r, &d->hold);
    free(d);
}

static void bring_back(struct ms_remote_holder *r,
                       struct ms_object *whole,
                       const Muster__PeerHold *m)
{
    struct delayed *d = malloc(sizeof *d);

    if (!d) {
        ms_store_message_gone(r->link, r->store->table.node, m->id);
        return;
    }
    *d = (struct delayed){.node = r->node, .hold = *m};
    ms_spill_want(r->store, whole, on_back, d);
}

static bool is_slice_of(const struct ms_object *o, const Muster__PeerHold *m)
{
    return o->whole && o->whole->id == m->of && o->len == m->len &&
           o->at - o->whole->at == m->offset;
}

/* The object that a slice is asked of; NULL: there is none, or it has no such range. */
static struct ms_object *whole_of(struct ms_store *s, const Muster__PeerHold *m)
{
    struct ms_object *o = ms_table_find(&s->table, s->table.node, m->of);

    return o && ms_slice_is(m->id) && m->len && m->offset <= o->len &&
                   m->len <= o->len - m->offset
               ? o
               : NULL;
}

/* One more count of it. False: it is not there, or not any more. */
static bool hold(struct ms_remote_holder *r, struct ms_object *o, uint64_t id)
{
    struct ms_table *t = &r->store->table;
    struct ms_holder *h = ms_store_node_holder(r->store, r->node, "");

    return o && h && ms_holder_count(h, o, 1, ms_now_ns()) == 0 &&
           ms_table_find(t, t->node, id) == o; /* at 0 it went */
}

static void
answer_held(struct ms_remote_holder *r, struct ms_object *o, bool wants_bytes)
{
    Muster__PeerHeld held = MUSTER__PEER_HELD__INIT;
    struct ms_remote_holder *relay = wants_bytes ? relay_for(r, o) : NULL;

    held.id = o->id;
    held.len = o->len;
    held.name = r->store->node_name;
    if (relay) {
        held.relay = relay->node;
        held.address = relay->address;
    }
    ms_store_message_send(r->link, MUSTER__STORE_PEER__BODY_HELD, &held);
}

static void on_hold(struct ms_remote_holder *r, const Muster__PeerHold *m)
{
    struct ms_table *t = &r->store->table;
    struct ms_object *o = ms_table_find(t, t->node, m->id), *slice = NULL;

    if (o && m->of && !is_slice_of(o, m)) {
        o = NULL; /* another range has the same id */
    } else if (!o && m->of) {
        struct ms_object *whole = whole_of(r->store, m);

        if (whole && whole->spilled) {
            bring_back(r, whole, m);
            return;
        }
        if (whole && whole->is_ready)
            o = slice = ms_object_slice(whole, m->id, m->offset, m->len, ms_now_ns());
    }
    if (hold(r, o, m->id)) {
        answer_held(r, o, m->wants_bytes);
        return;
    }
    if (slice)
        ms_object_settle(slice);
    ms_store_message_gone(r->link, t->node, m->id);
}

static void send_ack(struct ms_remote_holder *r)
{
    Muster__PeerHeard heard = MUSTER__PEER_HEARD__INIT;

    heard.number = r->acked;
    ms_store_message_send(r->link, MUSTER__STORE_PEER__BODY_HEARD, &heard);
}

/* False: it came before. */
static bool is_new(struct ms_remote_holder *r, uint64_t number)
{
    if (number && number <= r->acked)
        return false;
    if (number)
        r->acked = number;
    if (number && number % ACK_EVERY == 0)
        send_ack(r);
    return true;
}

static int on_hello(struct ms_remote_holder *r, const Muster__PeerHello *m)
{
    struct ms_remote_holder *old = remote_of(r->store, m->node);
    struct ms_holder *h;

    if (!m->node || m->node == r->store->table.node)
        return -EPROTO;
    if (m->is_bulk) {
        int rc = ms_remote_reader_create(r->store, r->link, m->node);

        if (rc == 0)
            r->link = NULL;
        return rc < 0 ? rc : -ECANCELED; /* it holds nothing */
    }
    if (old) { /* its counts stay */
        r->acked = old->acked;
        remote_destroy(old);
        send_ack(r);
    }
    r->address = strdup(m->address);
    h = ms_store_node_holder(r->store, m->node, m->name);
    if (!r->address || !h)
        return -ENOMEM;
    r->node = m->node;
    snprintf(h->name, sizeof h->name, "node %s", m->name);
    return 0;
}

static struct ms_object *object_of(struct ms_remote_holder *r, uint64_t id)
{
    return ms_table_find(&r->store->table, r->store->table.node, id);
}

static void take(struct ms_remote_holder *r, const Muster__StorePeer *m)
{
    struct ms_holder *h = ms_store_node_holder(r->store, r->node, "");
    struct ms_object *o;

    if (!is_new(r, m->number))
        return;
    switch (m->body_case) {
    case MUSTER__STORE_PEER__BODY_HOLD:
        on_hold(r, m->hold);
        break;
    case MUSTER__STORE_PEER__BODY_COUNT:
        if (h && (o = object_of(r, m->count->id)))
            ms_holder_count(h, o, m->count->by, ms_now_ns());
        break;
    case MUSTER__STORE_PEER__BODY_CONFIRM:
        if (h && (o = object_of(r, m->confirm->id)))
            ms_holder_confirm(h, o, ms_now_ns());
        break;
    case MUSTER__STORE_PEER__BODY_HOLDINGS:
        if (h)
            ms_holdings_take(r->store, h, m->holdings, r->link);
        break;
    case MUSTER__STORE_PEER__BODY_GRANT:
        ms_store_grant_to(r->store, m->grant);
        break;
    default:
        break;
    }
}

/* ---- the link -------------------------------------------------------------------- */

static void on_body(void *arg, const uint8_t *body, size_t len)
{
    struct ms_remote_holder *r = arg;
    Muster__StorePeer *m = muster__store_peer__unpack(NULL, len, body);
    int rc = m ? 0 : -EPROTO;

    if (m && !r->node)
        rc = m->body_case == MUSTER__STORE_PEER__BODY_HELLO ? on_hello(r, m->hello)
                                                            : -EPROTO;
    else if (m)
        take(r, m);
    muster__store_peer__free_unpacked(m, NULL);
    if (rc < 0)
        remote_destroy(r);
}

static void on_closed(void *arg, const struct ms_error *why)
{
    struct ms_remote_holder *r = arg;

    if (!r->node || ms_link_has_ended(why)) {
        remote_gone(r);
        return;
    }
    ms_link_destroy(r->link);
    r->link = NULL;
    ms_timer_set(&r->grace, MS_LINK_GRACE_NS);
}

static const struct ms_link_ops link_ops = {.on_body = on_body, .on_closed = on_closed};

static void on_link(void *arg, struct ms_link *l)
{
    struct ms_store *s = arg;
    struct ms_remote_holder *r = calloc(1, sizeof *r);

    if (!r || ms_timer_init(&r->grace, s->loop, remote_gone, r) < 0) {
        free(r);
        ms_link_destroy(l);
        return;
    }
    r->store = s;
    r->link = l;
    ms_list_add_tail(&s->remote_holders, &r->link_in);
    ms_link_accept(l, &link_ops, r);
}

static void on_request(void *arg, struct ms_request *r)
{
    (void)arg;
    ms_request_fail_text(
        r, MUSTER__FAILURE__KIND__REFUSED, "a store answers other stores alone");
}

static const struct ms_server_ops server_ops = {.on_request = on_request,
                                                .on_link = on_link};

int ms_remote_holders_listen(struct ms_store *s, int fd, enum ms_tls_mode tls)
{
    struct ms_server_options o = {.loop = s->loop,
                                  .secret = s->secret,
                                  .identity = s->table.node,
                                  .tls = tls,
                                  .ops = &server_ops,
                                  .arg = s};

    s->server = ms_server_create(&o);
    if (!s->server) {
        close(fd);
        return -ENOMEM;
    }
    return ms_server_listen(s->server, fd);
}

void ms_remote_holders_finish(struct ms_store *s)
{
    ms_list_each (r, &s->remote_holders, struct ms_remote_holder, link_in)
        remote_destroy(r);
    ms_server_destroy(s->server);
    s->server = NULL;
}
