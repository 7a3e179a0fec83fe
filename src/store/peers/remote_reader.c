/* Stores of other nodes that read what we have, each on a bulk link of its own. What they
 * read is pinned until they say that they are done: the kernel sends it from the arena's own
 * pages, and may still do so when we have long forgotten it. */
#include "store/peers/pace.h"
#include "store/peers/peers.h"
#include "store/server/spill.h"

#include "base/limits.h"
#include "io/tcp.h"
#include "io/tcp_path.h"

#include <errno.h>
#include <stdlib.h>

struct ms_remote_reader {
    struct ms_store *store;
    struct ms_list link_in; /* store->readers */
    struct ms_link *link;
    uint64_t node;
    struct ms_list lendings;
    struct ms_list delayed;
    bool is_paced; /* calls share its way: not loopback */
    struct ms_pace pace;
    struct ms_timer pace_timer;
    unsigned unpaced; /* looks since something was sent */
};

/* A piece that waits until its object is in memory again. */
struct delayed {
    struct ms_list link;             /* reader->delayed */
    struct ms_remote_reader *reader; /* NULL: it has gone */
    Muster__PeerWant want;
};

/* An object that is read. */
struct lending {
    struct ms_list link;
    struct ms_store *store;
    struct ms_object *object; /* pinned */
    bool is_over;
    unsigned unsent; /* pieces that the link still has */
};

/* ---- lendings -------------------------------------------------------------------- */

static void settle(struct lending *l)
{
    if (!l->is_over || l->unsent)
        return;
    ms_table_unpin(&l->store->table, l->object);
    free(l);
}

static void on_sent(void *arg)
{
    struct lending *l = arg;

    l->unsent--;
    settle(l);
}

static void end(struct lending *l)
{
    ms_list_remove(&l->link);
    l->is_over = true;
    settle(l);
}

static struct lending *find(struct ms_remote_reader *r, uint64_t node, uint64_t id)
{
    ms_list_each (l, &r->lendings, struct lending, link)
        if (l->object->node == node && l->object->id == id)
            return l;
    return NULL;
}

static struct lending *get(struct ms_remote_reader *r, struct ms_object *o)
{
    struct lending *l = find(r, o->node, o->id);

    if (l)
        return l;
    l = malloc(sizeof *l);
    if (!l)
        return NULL;
    *l = (struct lending){.store = r->store, .object = o};
    ms_list_init(&l->link);
    ms_list_add_tail(&r->lendings, &l->link);
    ms_table_pin(o);
    return l;
}

/* ---- pace ------------------------------------------------------------------------ */

static bool is_loopback(int fd)
{
    struct sockaddr_storage sa = {0};
    socklen_t len = sizeof sa;

    return getpeername(fd, (struct sockaddr *)&sa, &len) == 0 &&
           ms_sockaddr_is_loopback(&sa);
}

static void on_pace(void *arg)
{
    struct ms_remote_reader *r = arg;
    uint64_t before = r->pace.rate, now;
    struct ms_tcp_path path;

    if (ms_tcp_path(ms_link_fd(r->link), &path) < 0)
        return;
    now = ms_pace_step(&r->pace, path.rtt_us, path.min_rtt_us, path.bytes_per_s);
    if (now != before)
        ms_tcp_set_rate(ms_link_fd(r->link), now);
    if (++r->unpaced < MS_PACE_IDLE_LOOKS)
        ms_timer_set(&r->pace_timer, MS_PACE_LOOK_NS);
}

/* Something is sent. */
static void keep_pace(struct ms_remote_reader *r)
{
    if (!r->is_paced)
        return;
    if (r->unpaced >= MS_PACE_IDLE_LOOKS)
        ms_timer_set(&r->pace_timer, MS_PACE_LOOK_NS);
    r->unpaced = 0;
}

/* ---- life ------------------------------------------------------------------------ */

static void reader_destroy(struct ms_remote_reader *r)
{
    ms_replicas_forget_reader(r->store, r);
    ms_list_each (l, &r->lendings, struct lending, link)
        end(l);
    ms_list_each (l, &r->delayed, struct delayed, link) {
        ms_list_remove(&l->link);
        l->reader = NULL;
    }
    ms_timer_finish(&r->pace_timer);
    ms_link_destroy(r->link);
    ms_list_remove(&r->link_in);
    free(r);
}

void ms_remote_readers_finish(struct ms_store *s)
{
    ms_list_each (r, &s->readers, struct ms_remote_reader, link_in)
        reader_destroy(r);
}

/* ---- answers --------------------------------------------------------------------- */

static void send_gone(struct ms_remote_reader *r, uint64_t node, uint64_t id)
{
    Muster__StorePeer p = MUSTER__STORE_PEER__INIT;
    Muster__PeerGone gone = MUSTER__PEER_GONE__INIT;

    gone.node = node;
    gone.id = id;
    p.body_case = MUSTER__STORE_PEER__BODY_GONE;
    p.gone = &gone;
    ms_link_send(r->link, &p.base);
}

void ms_remote_reader_send_gone(struct ms_remote_reader *r, const struct ms_object *o)
{
    send_gone(r, o->node, o->id);
}

void ms_remote_reader_send(struct ms_remote_reader *r,
                           struct ms_object *o,
                           uint64_t request,
                           uint64_t offset,
                           uint64_t len)
{
    struct ms_arena *arena = r->store->arena;
    struct lending *l = get(r, o);
    struct ms_loan loan = {.data = ms_arena_memory(arena) + o->at + offset,
                           .len = len,
                           .fd = ms_arena_fd(arena),
                           .at = o->at + offset,
                           .on_sent = on_sent,
                           .arg = l};

    if (!l) {
        send_gone(r, o->node, o->id);
        return;
    }
    l->unsent++;
    if (ms_link_send_data(r->link, request, &loan) < 0) {
        l->unsent--;
        send_gone(r, o->node, o->id);
        return;
    }
    r->store->sent += len;
    keep_pace(r);
}

/* ---- what it asks ---------------------------------------------------------------- */

static void on_want(struct ms_remote_reader *r, const Muster__PeerWant *m);

static void on_back(void *arg, struct ms_store *s, const struct ms_error *why)
{
    struct delayed *l = arg;

    (void)s;
    ms_list_remove(&l->link);
    if (l->reader && why)
        send_gone(l->reader, l->want.node, l->want.id);
    else if (l->reader)
        on_want(l->reader, &l->want);
    free(l);
}

static void
bring_back(struct ms_remote_reader *r, struct ms_object *o, const Muster__PeerWant *m)
{
    struct delayed *l = malloc(sizeof *l);

    if (!l) {
        send_gone(r, m->node, m->id);
        return;
    }
    *l = (struct delayed){.reader = r, .want = *m};
    ms_list_init(&l->link);
    ms_list_add_tail(&r->delayed, &l->link);
    ms_spill_want(r->store, o, on_back, l);
}

static void on_want(struct ms_remote_reader *r, const Muster__PeerWant *m)
{
    struct ms_object *o = ms_table_find(&r->store->table, m->node, m->id);

    if (o && o->spilled) {
        bring_back(r, o, m);
        return;
    }
    if (!o || !m->len || m->len > MS_STORE_PIECE_MAX || m->offset > o->len ||
        m->len > o->len - m->offset || (!o->is_replica && !o->is_ready)) {
        send_gone(r, m->node, m->id);
        return;
    }
    ms_store_expect_pieces(r->store);
    if (!o->is_replica)
        ms_remote_reader_send(r, o, m->request, m->offset, m->len);
    else if (!ms_replica_relay(o, r, m->request, m->offset, m->len))
        send_gone(r, m->node, m->id);
}

static void on_done(struct ms_remote_reader *r, const Muster__PeerDone *m)
{
    struct lending *l = find(r, m->node, m->id);

    ms_replica_forget_relays(r->store, m->node, m->id, r);
    ms_list_each (d, &r->delayed, struct delayed, link)
        if (d->want.node == m->node && d->want.id == m->id) {
            ms_list_remove(&d->link);
            d->reader = NULL;
        }
    if (l)
        end(l);
}

static void on_body(void *arg, const uint8_t *body, size_t len)
{
    struct ms_remote_reader *r = arg;
    Muster__StorePeer *m = muster__store_peer__unpack(NULL, len, body);

    if (!m) {
        reader_destroy(r);
        return;
    }
    if (m->body_case == MUSTER__STORE_PEER__BODY_WANT)
        on_want(r, m->want);
    else if (m->body_case == MUSTER__STORE_PEER__BODY_DONE)
        on_done(r, m->done);
    muster__store_peer__free_unpacked(m, NULL);
}

static void on_closed(void *arg, const struct ms_error *why)
{
    (void)why;
    reader_destroy(arg); /* it comes again if it wants more */
}

/* What it reads is not kept for it: it comes again. */
static void on_suspect(void *arg, bool is_suspect)
{
    if (is_suspect)
        reader_destroy(arg);
}

static const struct ms_link_ops link_ops = {
    .on_body = on_body, .on_closed = on_closed, .on_suspect = on_suspect};

int ms_remote_reader_create(struct ms_store *s, struct ms_link *link, uint64_t node)
{
    struct ms_remote_reader *r = calloc(1, sizeof *r);

    if (!r || ms_timer_init(&r->pace_timer, s->loop, on_pace, r) < 0) {
        free(r);
        return -ENOMEM;
    }
    ms_list_each (old, &s->readers, struct ms_remote_reader, link_in)
        if (old->node == node)
            reader_destroy(old); /* it has dialled anew */
    r->store = s;
    r->link = link;
    r->node = node;
    ms_pace_init(&r->pace);
    r->is_paced = !is_loopback(ms_link_fd(link));
    r->unpaced = MS_PACE_IDLE_LOOKS;
    ms_list_init(&r->lendings);
    ms_list_init(&r->delayed);
    ms_list_add_tail(&s->readers, &r->link_in);
    ms_link_set_ops(link, &link_ops, r);
    return 0;
}
