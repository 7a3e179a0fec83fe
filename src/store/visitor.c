#include "store/far.h"
#include "store/spill.h"

#include "base/clock.h"
#include "base/limits.h"
#include "wire/server/server.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { GIVEN_MAX = 256, HEARD_EVERY = 32 };

/* A store of another node that has dialled us. */
struct ms_visitor {
    struct ms_store *store;
    struct ms_list link_in; /* store->visitors */
    struct ms_link *link;   /* NULL: it broke, and may come again */
    uint64_t node;          /* 0: it has not said who it is */
    char *address;
    uint64_t heard; /* the last confirmation or grant of this node */
    struct ms_timer grace;
};

/* The nodes that asked for the bytes of one of our objects, in order; ms_object.user. */
struct given {
    size_t count;
    uint64_t nodes[GIVEN_MAX];
};

/* ---- life ------------------------------------------------------------------------ */

static void visitor_destroy(struct ms_visitor *v)
{
    ms_timer_finish(&v->grace);
    ms_link_destroy(v->link);
    ms_list_remove(&v->link_in);
    free(v->address);
    free(v);
}

/* It is gone, and so are its counts. */
static void visitor_gone(struct ms_visitor *v)
{
    struct ms_store *s = v->store;
    struct ms_holder *h = v->node ? ms_table_find_holder(&s->table, v->node) : NULL;

    visitor_destroy(v);
    if (h)
        ms_table_remove_holder(&s->table, h);
}

static void on_grace(void *arg)
{
    visitor_gone(arg);
}

static struct ms_visitor *visitor_of(struct ms_store *s, uint64_t node)
{
    ms_list_each (v, &s->visitors, struct ms_visitor, link_in)
        if (v->node == node)
            return v;
    return NULL;
}

struct ms_holder *ms_visitor_holder(struct ms_store *s, uint64_t node, const char *name)
{
    struct ms_holder *h = ms_table_find_holder(&s->table, node);
    char text[MS_HOLDER_NAME_MAX];

    if (h) /* never that of a process */
        return h->kind == MS_HOLDER_NODE ? h : NULL;
    snprintf(text, sizeof text, "node %s", name);
    return ms_table_add_holder(&s->table, node, MS_HOLDER_NODE, 0, text);
}

/* ---- answers --------------------------------------------------------------------- */

static void send_gone(struct ms_visitor *v, uint64_t node, uint64_t id)
{
    Muster__StorePeer p = MUSTER__STORE_PEER__INIT;
    Muster__PeerGone gone = MUSTER__PEER_GONE__INIT;

    gone.node = node;
    gone.id = id;
    p.body_case = MUSTER__STORE_PEER__BODY_GONE;
    p.gone = &gone;
    if (v->link)
        ms_link_send(v->link, &p.base);
}

void ms_given_tell(struct ms_store *s, const struct ms_object *o)
{
    const struct given *g = o->user;

    for (size_t i = 0; g && i < g->count; i++) {
        struct ms_visitor *v = visitor_of(s, g->nodes[i]);

        if (v)
            send_gone(v, o->node, o->id);
    }
}

/* ---- what it asks ---------------------------------------------------------------- */

/* Whom it should ask for the bytes: the one before it, or us (NULL). */
static struct ms_visitor *relay_for(struct ms_visitor *v, struct ms_object *o)
{
    struct given *g = o->user;
    size_t i = 0;

    if (!g)
        o->user = g = calloc(1, sizeof *g);
    if (!g)
        return NULL;
    while (i < g->count && g->nodes[i] != v->node)
        i++;
    if (i == GIVEN_MAX)
        return NULL;
    if (i == g->count)
        g->nodes[g->count++] = v->node;
    while (i-- > 0) {
        struct ms_visitor *before = visitor_of(v->store, g->nodes[i]);

        if (before && before->link && before->address[0])
            return before;
    }
    return NULL;
}

static void on_hold(struct ms_visitor *v, const Muster__PeerHold *m);

/* Somebody waits for a slice of an object that is brought back. */
struct late {
    uint64_t node;
    Muster__PeerHold hold;
};

static void on_back(void *arg, struct ms_store *s, const struct ms_error *why)
{
    struct late *l = arg;
    struct ms_visitor *v = visitor_of(s, l->node);

    if (v && v->link && why)
        send_gone(v, s->table.node, l->hold.id);
    else if (v && v->link) /* else it says so again */
        on_hold(v, &l->hold);
    free(l);
}

static void
bring_back(struct ms_visitor *v, struct ms_object *whole, const Muster__PeerHold *m)
{
    struct late *l = malloc(sizeof *l);

    if (!l) {
        send_gone(v, v->store->table.node, m->id);
        return;
    }
    *l = (struct late){.node = v->node, .hold = *m};
    ms_spill_want(v->store, whole, on_back, l);
}

/* Its counts. False: it is not there, or not any more. */
static bool hold(struct ms_visitor *v, struct ms_object *o, const Muster__PeerHold *m)
{
    struct ms_table *t = &v->store->table;
    struct ms_holder *h = ms_visitor_holder(v->store, v->node, "");
    int64_t now_ns = ms_now_ns();

    return o && h && ms_table_count(t, o, h, 1, now_ns) == 0 &&
           ms_table_find(t, t->node, m->id) == o; /* at 0 it went */
}

static void on_hold(struct ms_visitor *v, const Muster__PeerHold *m)
{
    struct ms_store *s = v->store;
    struct ms_object *whole;
    bool is_new, is_held;
    struct ms_object *o = ms_slice_find(s, m, &whole, &is_new);
    Muster__StorePeer p = MUSTER__STORE_PEER__INIT;
    Muster__PeerHeld held = MUSTER__PEER_HELD__INIT;
    struct ms_visitor *relay;

    if (whole) {
        bring_back(v, whole, m);
        return;
    }
    is_held = hold(v, o, m);
    if (is_new)
        ms_table_unpin(&s->table, o); /* it goes, if it is not held */
    if (!is_held) {
        send_gone(v, s->table.node, m->id);
        return;
    }
    held.id = o->id;
    held.len = o->len;
    held.name = s->node_name;
    relay = m->wants_bytes ? relay_for(v, o) : NULL;
    if (relay) {
        held.relay = relay->node;
        held.address = relay->address;
    }
    p.body_case = MUSTER__STORE_PEER__BODY_HELD;
    p.held = &held;
    ms_link_send(v->link, &p.base);
}

static void on_count(struct ms_visitor *v, const Muster__StoreCount *m)
{
    struct ms_store *s = v->store;
    struct ms_object *o = ms_table_find(&s->table, s->table.node, m->id);
    struct ms_holder *h = ms_table_find_holder(&s->table, v->node);

    if (o && h)
        ms_table_count(&s->table, o, h, m->by, ms_now_ns());
}

static void on_confirm(struct ms_visitor *v, const Muster__StoredName *m)
{
    struct ms_store *s = v->store;
    struct ms_object *o = ms_table_find(&s->table, s->table.node, m->id);
    struct ms_holder *h = ms_visitor_holder(s, v->node, "");

    if (o && h)
        ms_table_confirm(&s->table, o, h, ms_now_ns());
}

static void on_gone(void *arg, uint64_t id)
{
    struct ms_visitor *v = arg;

    send_gone(v, v->store->table.node, id);
}

static void on_holdings(struct ms_visitor *v, const Muster__PeerHoldings *m)
{
    struct ms_holder *h = ms_visitor_holder(v->store, v->node, "");

    if (h)
        ms_holdings_take(v->store, h, m, on_gone, v);
}

static void send_heard(struct ms_visitor *v)
{
    Muster__StorePeer p = MUSTER__STORE_PEER__INIT;
    Muster__PeerHeard heard = MUSTER__PEER_HEARD__INIT;

    heard.number = v->heard;
    p.body_case = MUSTER__STORE_PEER__BODY_HEARD;
    p.heard = &heard;
    ms_link_send(v->link, &p.base);
}

/* False: it came before. */
static bool is_news(struct ms_visitor *v, uint64_t number)
{
    if (number && number <= v->heard)
        return false;
    if (number)
        v->heard = number;
    if (number && number % HEARD_EVERY == 0)
        send_heard(v);
    return true;
}

static int on_hello(struct ms_visitor *v, const Muster__PeerHello *m)
{
    struct ms_visitor *old = visitor_of(v->store, m->node);
    struct ms_holder *h;

    if (!m->node || m->node == v->store->table.node)
        return -EPROTO;
    if (m->is_bulk) {
        int rc = ms_reader_create(v->store, v->link, m->node);

        if (rc == 0)
            v->link = NULL;
        return rc < 0 ? rc : -ECANCELED; /* it is no visitor any more */
    }
    if (old) { /* its counts stay */
        v->heard = old->heard;
        visitor_destroy(old);
        send_heard(v);
    }
    v->address = strdup(m->address);
    h = ms_visitor_holder(v->store, m->node, m->name);
    if (!v->address || !h)
        return -ENOMEM;
    v->node = m->node;
    snprintf(h->name, sizeof h->name, "node %s", m->name);
    return 0;
}

static void take(struct ms_visitor *v, const Muster__StorePeer *m)
{
    if (!is_news(v, m->number))
        return;
    switch (m->body_case) {
    case MUSTER__STORE_PEER__BODY_HOLD:
        on_hold(v, m->hold);
        break;
    case MUSTER__STORE_PEER__BODY_COUNT:
        on_count(v, m->count);
        break;
    case MUSTER__STORE_PEER__BODY_CONFIRM:
        on_confirm(v, m->confirm);
        break;
    case MUSTER__STORE_PEER__BODY_HOLDINGS:
        on_holdings(v, m->holdings);
        break;
    case MUSTER__STORE_PEER__BODY_GRANT:
        ms_store_grant_to(v->store, m->grant);
        break;
    default:
        break;
    }
}

/* ---- the link -------------------------------------------------------------------- */

static void on_body(void *arg, const uint8_t *body, size_t len)
{
    struct ms_visitor *v = arg;
    Muster__StorePeer *m = muster__store_peer__unpack(NULL, len, body);
    int rc = m ? 0 : -EPROTO;

    if (m && !v->node)
        rc = m->body_case == MUSTER__STORE_PEER__BODY_HELLO ? on_hello(v, m->hello)
                                                            : -EPROTO;
    else if (m)
        take(v, m);
    if (m)
        muster__store_peer__free_unpacked(m, NULL);
    if (rc < 0)
        visitor_destroy(v);
}

static void on_closed(void *arg, const struct ms_error *why)
{
    struct ms_visitor *v = arg;

    if (!v->node || ms_link_has_ended(why)) {
        visitor_gone(v);
        return;
    }
    ms_link_destroy(v->link);
    v->link = NULL;
    ms_timer_set(&v->grace, MS_LINK_GRACE_NS);
}

static const struct ms_link_ops link_ops = {.on_body = on_body, .on_closed = on_closed};

static void on_link(void *arg, struct ms_link *l)
{
    struct ms_store *s = arg;
    struct ms_visitor *v = calloc(1, sizeof *v);

    if (!v || ms_timer_init(&v->grace, s->loop, on_grace, v) < 0) {
        free(v);
        ms_link_destroy(l);
        return;
    }
    v->store = s;
    v->link = l;
    ms_list_add_tail(&s->visitors, &v->link_in);
    ms_link_accept(l, &link_ops, v);
}

static void on_request(void *arg, struct ms_request *r)
{
    (void)arg;
    ms_request_fail_text(
        r, MUSTER__FAILURE__KIND__REFUSED, "a store answers other stores alone");
}

static const struct ms_server_ops server_ops = {.on_request = on_request,
                                                .on_link = on_link};

int ms_visitors_listen(struct ms_store *s, int fd, enum ms_tls_mode tls)
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

void ms_visitors_finish(struct ms_store *s)
{
    ms_list_each (v, &s->visitors, struct ms_visitor, link_in)
        visitor_destroy(v);
    ms_server_destroy(s->server);
    s->server = NULL;
}
