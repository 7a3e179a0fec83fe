/* The bulk link to a store that has bytes for us: dialled when something is wanted, and
 * again while something is. */
#include "store/peers/peers.h"

#include "base/clock.h"
#include "base/limits.h"

#include <errno.h>
#include <stdlib.h>

/* Bytes that were asked for. */
struct want {
    struct ms_list link;
    uint64_t request;
    uint64_t node, id, offset;
};

static void dial(struct ms_store_peer *f);

/* ---- what comes ------------------------------------------------------------------ */

static struct want *find(struct ms_store_peer *f, uint64_t request)
{
    ms_list_each (w, &f->bulk.wants, struct want, link)
        if (w->request == request)
            return w;
    return NULL;
}

static void want_free(struct want *w)
{
    ms_list_remove(&w->link);
    free(w);
}

static uint8_t *on_data(void *arg, uint64_t request, size_t len)
{
    struct ms_store_peer *f = arg;
    struct want *w = find(f, request);
    struct ms_object *o = w ? ms_table_find(&f->store->table, w->node, w->id) : NULL;

    if (!o || !ms_replica_expects(f, o, w->offset, len))
        return NULL; /* of one that was given up, or asked for twice */
    ms_table_pin(o);
    f->bulk.filling = o;
    f->bulk.filled = w->offset;
    return ms_arena_memory(f->store->arena) + o->at + w->offset;
}

static void stop_filling(struct ms_store_peer *f)
{
    struct ms_object *o = f->bulk.filling;

    f->bulk.filling = NULL;
    if (o)
        ms_table_unpin(&f->store->table, o);
}

static void on_part(void *arg, uint64_t request, size_t len, size_t rest)
{
    struct ms_store_peer *f = arg;
    struct ms_object *o = f->bulk.filling;
    struct want *w = rest ? NULL : find(f, request);
    uint64_t at = f->bulk.filled;

    if (w)
        want_free(w);
    if (!o)
        return;
    f->bulk.filled += len;
    ms_replica_part(f, o, at, len, rest == 0);
    if (rest == 0)
        stop_filling(f);
}

static void on_body(void *arg, const uint8_t *body, size_t len)
{
    Muster__StorePeer *m = muster__store_peer__unpack(NULL, len, body);

    if (m && m->body_case == MUSTER__STORE_PEER__BODY_GONE)
        ms_replica_gone(arg, m->gone);
    if (m)
        muster__store_peer__free_unpacked(m, NULL);
}

/* ---- the link -------------------------------------------------------------------- */

static void on_open(void *arg)
{
    struct ms_store_peer *f = arg;
    Muster__StorePeer m = MUSTER__STORE_PEER__INIT;
    Muster__PeerHello hello = MUSTER__PEER_HELLO__INIT;

    f->bulk.is_open = true;
    f->bulk.lost_ns = 0;
    hello.node = f->store->table.node;
    hello.name = f->store->node_name;
    hello.is_bulk = true;
    m.body_case = MUSTER__STORE_PEER__BODY_HELLO;
    m.hello = &hello;
    ms_link_send(f->bulk.link, &m.base);
    ms_replicas_refetch(f->store, f);
}

void ms_bulk_close(struct ms_store_peer *f)
{
    ms_timer_cancel(&f->bulk.retry);
    ms_link_destroy(f->bulk.link);
    f->bulk.link = NULL;
    f->bulk.is_open = false;
    ms_list_each (w, &f->bulk.wants, struct want, link)
        want_free(w);
    stop_filling(f);
}

/* Dialled again while somebody wants something of it. */
static void lose(struct ms_store_peer *f)
{
    bool for_good;

    ms_bulk_close(f);
    if (!f->bulk.lost_ns)
        f->bulk.lost_ns = ms_now_ns();
    for_good = ms_now_ns() - f->bulk.lost_ns > MS_LINK_GRACE_NS;
    if (ms_replicas_cut(f->store, f, for_good))
        ms_timer_set(&f->bulk.retry, MS_REDIAL_MIN_NS);
    else
        f->bulk.lost_ns = 0;
}

static void on_closed(void *arg, const struct ms_error *why)
{
    (void)why;
    lose(arg);
}

static void on_suspect(void *arg, bool is_suspect)
{
    if (is_suspect)
        lose(arg);
}

static const struct ms_link_ops link_ops = {.on_body = on_body,
                                            .on_closed = on_closed,
                                            .on_open = on_open,
                                            .on_suspect = on_suspect,
                                            .on_data = on_data,
                                            .on_part = on_part};

static void dial(struct ms_store_peer *f)
{
    struct ms_link_dial d = {.addresses = f->address,
                             .secret = f->store->secret,
                             .tls = f->store->tls,
                             .deadline_ns = ms_now_ns() + MS_LINK_GRACE_NS};

    f->bulk.link = ms_link_dial(f->store->loop, &d, &link_ops, f, NULL);
    if (!f->bulk.link)
        lose(f);
}

static void on_retry(void *arg)
{
    struct ms_store_peer *f = arg;

    if (!f->bulk.link)
        dial(f);
}

int ms_bulk_init(struct ms_store_peer *f)
{
    ms_list_init(&f->bulk.wants);
    return ms_timer_init(&f->bulk.retry, f->store->loop, on_retry, f);
}

void ms_bulk_finish(struct ms_store_peer *f)
{
    ms_bulk_close(f);
    ms_timer_finish(&f->bulk.retry);
}

/* ---- what is asked --------------------------------------------------------------- */

int ms_bulk_want(struct ms_store_peer *f,
                 const struct ms_object *o,
                 uint64_t at,
                 uint64_t len)
{
    Muster__StorePeer m = MUSTER__STORE_PEER__INIT;
    Muster__PeerWant ask = MUSTER__PEER_WANT__INIT;
    struct want *w;
    int rc;

    if (!f->bulk.is_open) {
        if (!f->bulk.link && !f->bulk.lost_ns)
            ms_timer_set(&f->bulk.retry, 0); /* never from inside of whoever asks */
        return -ENOTCONN;
    }
    w = malloc(sizeof *w);
    if (!w)
        return -ENOMEM;
    *w = (struct want){.request = ++f->bulk.last_request, o->node, o->id, at};
    ms_list_init(&w->link);
    ms_list_add_tail(&f->bulk.wants, &w->link);
    ask.node = o->node;
    ask.id = o->id;
    ask.offset = at;
    ask.len = len;
    ask.request = w->request;
    m.body_case = MUSTER__STORE_PEER__BODY_WANT;
    m.want = &ask;
    rc = ms_link_send(f->bulk.link, &m.base);
    if (rc < 0)
        want_free(w);
    return rc;
}

void ms_bulk_done(struct ms_store_peer *f, const struct ms_object *o)
{
    Muster__StorePeer m = MUSTER__STORE_PEER__INIT;
    Muster__PeerDone done = MUSTER__PEER_DONE__INIT;

    done.node = o->node;
    done.id = o->id;
    m.body_case = MUSTER__STORE_PEER__BODY_DONE;
    m.done = &done;
    if (f->bulk.is_open)
        ms_link_send(f->bulk.link, &m.base);
}
