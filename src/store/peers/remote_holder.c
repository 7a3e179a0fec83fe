#include "store/peers/peers.h"
#include "store/server/spill.h"

#include "base/clock.h"
#include "base/limits.h"
#include "wire/server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { GIVEN_MAX = 256, HEARD_EVERY = 32 };

/* A store of another node that has dialled us. */
struct ms_remote_holder {
    struct ms_store *store;
    struct ms_list link_in; /* store->remote_holders */
    struct ms_link *link;   /* NULL: it broke, and may come again */
    uint64_t node;          /* 0: it has not said who it is */
    char *address;
    uint64_t heard; /* the last confirmation or grant of this node */
    struct ms_timer grace;
};

/* The nodes that asked for the bytes of one of our objects, in order; ms_object.user. */
struct receivers {
    size_t count;
    uint64_t nodes[GIVEN_MAX];
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
static void remote_gone(struct ms_remote_holder *r)
{
    struct ms_store *s = r->store;
    struct ms_holder *h = r->node ? ms_table_find_holder(&s->table, r->node) : NULL;

    remote_destroy(r);
    if (h)
        ms_table_remove_holder(&s->table, h);
}

static void on_grace(void *arg)
{
    remote_gone(arg);
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

/* ---- answers --------------------------------------------------------------------- */

static void send_gone(struct ms_remote_holder *r, uint64_t node, uint64_t id)
{
    Muster__StorePeer p = MUSTER__STORE_PEER__INIT;
    Muster__PeerGone gone = MUSTER__PEER_GONE__INIT;

    gone.node = node;
    gone.id = id;
    p.body_case = MUSTER__STORE_PEER__BODY_GONE;
    p.gone = &gone;
    if (r->link)
        ms_link_send(r->link, &p.base);
}

void ms_receivers_tell(struct ms_store *s, const struct ms_object *o)
{
    const struct receivers *g = o->user;

    for (size_t i = 0; g && i < g->count; i++) {
        struct ms_remote_holder *r = remote_of(s, g->nodes[i]);

        if (r)
            send_gone(r, o->node, o->id);
    }
}

/* ---- what it asks ---------------------------------------------------------------- */

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
    if (i == GIVEN_MAX)
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

/* Somebody waits for a slice of an object that is brought back. */
struct delayed {
    uint64_t node;
    Muster__PeerHold hold;
};

static void on_back(void *arg, struct ms_store *s, const struct ms_error *why)
{
    struct delayed *l = arg;
    struct ms_remote_holder *r = remote_of(s, l->node);

    if (r && r->link && why)
        send_gone(r, s->table.node, l->hold.id);
    else if (r && r->link) /* else it says so again */
        on_hold(r, &l->hold);
    free(l);
}

static void bring_back(struct ms_remote_holder *r,
                       struct ms_object *whole,
                       const Muster__PeerHold *m)
{
    struct delayed *l = malloc(sizeof *l);

    if (!l) {
        send_gone(r, r->store->table.node, m->id);
        return;
    }
    *l = (struct delayed){.node = r->node, .hold = *m};
    ms_spill_want(r->store, whole, on_back, l);
}

/* Its counts. False: it is not there, or not any more. */
static bool
hold(struct ms_remote_holder *r, struct ms_object *o, const Muster__PeerHold *m)
{
    struct ms_table *t = &r->store->table;
    struct ms_holder *h = ms_store_node_holder(r->store, r->node, "");
    int64_t now_ns = ms_now_ns();

    return o && h && ms_table_count(t, o, h, 1, now_ns) == 0 &&
           ms_table_find(t, t->node, m->id) == o; /* at 0 it went */
}

static void on_hold(struct ms_remote_holder *r, const Muster__PeerHold *m)
{
    struct ms_store *s = r->store;
    struct ms_object *whole;
    bool is_new, is_held;
    struct ms_object *o = ms_slice_find(s, m, &whole, &is_new);
    Muster__StorePeer p = MUSTER__STORE_PEER__INIT;
    Muster__PeerHeld held = MUSTER__PEER_HELD__INIT;
    struct ms_remote_holder *relay;

    if (whole) {
        bring_back(r, whole, m);
        return;
    }
    is_held = hold(r, o, m);
    if (is_new)
        ms_table_unpin(&s->table, o); /* it goes, if it is not held */
    if (!is_held) {
        send_gone(r, s->table.node, m->id);
        return;
    }
    held.id = o->id;
    held.len = o->len;
    held.name = s->node_name;
    relay = m->wants_bytes ? relay_for(r, o) : NULL;
    if (relay) {
        held.relay = relay->node;
        held.address = relay->address;
    }
    p.body_case = MUSTER__STORE_PEER__BODY_HELD;
    p.held = &held;
    ms_link_send(r->link, &p.base);
}

static void on_count(struct ms_remote_holder *r, const Muster__StoreCount *m)
{
    struct ms_store *s = r->store;
    struct ms_object *o = ms_table_find(&s->table, s->table.node, m->id);
    struct ms_holder *h = ms_table_find_holder(&s->table, r->node);

    if (o && h)
        ms_table_count(&s->table, o, h, m->by, ms_now_ns());
}

static void on_confirm(struct ms_remote_holder *r, const Muster__StoredName *m)
{
    struct ms_store *s = r->store;
    struct ms_object *o = ms_table_find(&s->table, s->table.node, m->id);
    struct ms_holder *h = ms_store_node_holder(s, r->node, "");

    if (o && h)
        ms_table_confirm(&s->table, o, h, ms_now_ns());
}

static void on_gone(void *arg, uint64_t id)
{
    struct ms_remote_holder *r = arg;

    send_gone(r, r->store->table.node, id);
}

static void on_holdings(struct ms_remote_holder *r, const Muster__PeerHoldings *m)
{
    struct ms_holder *h = ms_store_node_holder(r->store, r->node, "");

    if (h)
        ms_holdings_take(r->store, h, m, on_gone, r);
}

static void send_heard(struct ms_remote_holder *r)
{
    Muster__StorePeer p = MUSTER__STORE_PEER__INIT;
    Muster__PeerHeard heard = MUSTER__PEER_HEARD__INIT;

    heard.number = r->heard;
    p.body_case = MUSTER__STORE_PEER__BODY_HEARD;
    p.heard = &heard;
    ms_link_send(r->link, &p.base);
}

/* False: it came before. */
static bool is_news(struct ms_remote_holder *r, uint64_t number)
{
    if (number && number <= r->heard)
        return false;
    if (number)
        r->heard = number;
    if (number && number % HEARD_EVERY == 0)
        send_heard(r);
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
        return rc < 0 ? rc : -ECANCELED; /* it is no visitor any more */
    }
    if (old) { /* its counts stay */
        r->heard = old->heard;
        remote_destroy(old);
        send_heard(r);
    }
    r->address = strdup(m->address);
    h = ms_store_node_holder(r->store, m->node, m->name);
    if (!r->address || !h)
        return -ENOMEM;
    r->node = m->node;
    snprintf(h->name, sizeof h->name, "node %s", m->name);
    return 0;
}

static void take(struct ms_remote_holder *r, const Muster__StorePeer *m)
{
    if (!is_news(r, m->number))
        return;
    switch (m->body_case) {
    case MUSTER__STORE_PEER__BODY_HOLD:
        on_hold(r, m->hold);
        break;
    case MUSTER__STORE_PEER__BODY_COUNT:
        on_count(r, m->count);
        break;
    case MUSTER__STORE_PEER__BODY_CONFIRM:
        on_confirm(r, m->confirm);
        break;
    case MUSTER__STORE_PEER__BODY_HOLDINGS:
        on_holdings(r, m->holdings);
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
    if (m)
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

    if (!r || ms_timer_init(&r->grace, s->loop, on_grace, r) < 0) {
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
