#include "store/peers/peers.h"

#include "base/clock.h"
#include "base/limits.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Another node that waits for a piece. */
struct relay {
    struct ms_list link;
    struct ms_remote_reader *reader;
    uint64_t request, offset, len;
};

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
    ms_table_unpin(&s->table, o);
}

static void place(struct ms_store *s, struct ms_object *o)
{
    struct ms_replica *m = o->user;

    m->is_placing = true;
    ms_table_pin(o);
    ms_store_place(s, o, on_placed, NULL);
}

void ms_replica_fetch(struct ms_store *s,
                      struct ms_object *o,
                      struct ms_store_peer *source)
{
    struct ms_replica *m = o->user;

    ms_store_expect_pieces(s);
    if (m->source != source)
        ms_replica_stop(o);
    m->source = source;
    m->asked = m->received;
    m->looked_ns = ms_now_ns();
    m->looked_at = m->received;
    if (source != m->origin)
        ms_timer_set(&s->pace_timer, MS_STORE_STALL_NS);
    if (o->is_ready)
        ask_pieces(m);
    else if (!m->is_placing)
        place(s, o);
}

/* ---- what comes ------------------------------------------------------------------ */

/* Those that wait for what has come now. */
static void serve_relays(struct ms_replica *m)
{
    ms_list_each (r, &m->relays, struct relay, link)
        if (r->offset + r->len <= m->received) {
            struct relay due = *r;

            ms_list_remove(&r->link);
            free(r);
            ms_remote_reader_send(
                due.reader, m->object, due.request, due.offset, due.len);
        }
}

bool ms_replica_expects(struct ms_store_peer *f,
                        const struct ms_object *o,
                        uint64_t offset,
                        uint64_t len)
{
    const struct ms_replica *m = o->is_replica ? o->user : NULL;

    return m && m->source == f && o->is_ready && !o->is_whole &&
           offset == m->received && len <= o->len - offset;
}

void ms_replica_part(struct ms_store_peer *f,
                     struct ms_object *o,
                     uint64_t at,
                     uint64_t len,
                     bool is_last)
{
    struct ms_replica *m = o->user;

    if (m->source != f || at != m->received)
        return; /* it has been had of somebody else meanwhile */
    m->received += len;
    f->store->received += len;
    if (m->asked < m->received)
        m->asked = m->received;
    serve_relays(m);
    if (m->received == o->len)
        become_whole(f->store, o);
    else if (is_last)
        ask_pieces(m);
}

/* ---- other nodes that wait for us ------------------------------------------------ */

bool ms_replica_relay(struct ms_object *o,
                      struct ms_remote_reader *reader,
                      uint64_t request,
                      uint64_t offset,
                      uint64_t len)
{
    struct ms_replica *m = o->user;
    struct relay *r;

    if (o->is_whole || offset + len <= m->received) {
        ms_remote_reader_send(reader, o, request, offset, len);
        return true;
    }
    if (!m->wants_bytes)
        return false; /* it does not come here */
    r = malloc(sizeof *r);
    if (!r)
        return false;
    *r = (struct relay){
        .reader = reader, .request = request, .offset = offset, .len = len};
    ms_list_init(&r->link);
    ms_list_add_tail(&m->relays, &r->link);
    return true;
}

void ms_replica_drop_relays(struct ms_object *o)
{
    struct ms_replica *m = o->user;

    ms_list_each (r, &m->relays, struct relay, link) {
        ms_remote_reader_send_gone(r->reader, o);
        ms_list_remove(&r->link);
        free(r);
    }
}

static void forget(struct ms_object *o, const struct ms_remote_reader *reader)
{
    struct ms_replica *m = o->is_replica ? o->user : NULL;

    if (!m)
        return;
    ms_list_each (r, &m->relays, struct relay, link)
        if (r->reader == reader) {
            ms_list_remove(&r->link);
            free(r);
        }
}

void ms_replica_forget_relays(struct ms_store *s,
                              uint64_t node,
                              uint64_t id,
                              const struct ms_remote_reader *r)
{
    struct ms_object *o = ms_table_find(&s->table, node, id);

    if (o)
        forget(o, r);
}

void ms_replicas_forget_reader(struct ms_store *s, const struct ms_remote_reader *r)
{
    ms_list_each (o, &s->table.all, struct ms_object, link)
        forget(o, r);
}

/* ---- trouble --------------------------------------------------------------------- */

static void refetch(struct ms_store *s, struct ms_object *o, struct ms_store_peer *f)
{
    struct ms_replica *m = o->user;

    if (m->source == f)
        ms_replica_fetch(s, o, f);
}

void ms_replicas_refetch(struct ms_store *s, struct ms_store_peer *f)
{
    ms_replicas_walk(s, refetch, f);
}

/* Whoever only hands it on is not needed. */
static void pass_over(struct ms_store *s, struct ms_object *o, struct ms_store_peer *f)
{
    struct ms_replica *m = o->user;

    if (m->source == f && m->origin != f)
        ms_replica_fetch(s, o, m->origin);
}

static void give_up(struct ms_store *s, struct ms_object *o, struct ms_store_peer *f)
{
    struct ms_replica *m = o->user;

    if (m->source == f)
        ms_replica_unreached(s, o);
}

bool ms_replicas_cut(struct ms_store *s, struct ms_store_peer *f, bool for_good)
{
    ms_replicas_walk(s, pass_over, f);
    if (for_good)
        ms_replicas_walk(s, give_up, f);
    ms_list_each (o, &s->table.all, struct ms_object, link) {
        struct ms_replica *m = o->is_replica ? o->user : NULL;

        if (m && m->source == f)
            return true;
    }
    return false;
}

static void look(struct ms_store *s, struct ms_object *o, struct ms_store_peer *unused)
{
    struct ms_replica *m = o->user;
    int64_t now_ns = ms_now_ns();

    (void)unused;
    if (!m->source || m->source == m->origin)
        return;
    ms_timer_set(&s->pace_timer, MS_STORE_STALL_NS);
    if (now_ns - m->looked_ns < MS_STORE_STALL_NS)
        return;
    if (m->received - m->looked_at < MS_STORE_SLOW_MIN) {
        ms_replica_fetch(s, o, m->origin);
        return;
    }
    m->looked_ns = now_ns;
    m->looked_at = m->received;
}

void ms_replicas_look(struct ms_store *s)
{
    ms_replicas_walk(s, look, NULL);
}
