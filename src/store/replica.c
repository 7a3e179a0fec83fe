#include "store/far.h"

#include "base/clock.h"
#include "base/limits.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* One of ours that waits. */
struct waiter {
    struct ms_list link;
    bool bare;
    ms_replica_fn *fn;
    void *arg;
};

/* Another node that waits for a piece. */
struct relay {
    struct ms_list link;
    struct ms_visitor *visitor;
    uint64_t offset, len;
};

static void fetch(struct ms_store *s, struct ms_object *o);

/* ---- life ------------------------------------------------------------------------ */

struct ms_object *ms_replica_get(struct ms_store *s, const Muster__StoredName *name)
{
    struct ms_object *o = ms_table_find(&s->table, name->node, name->id);
    struct ms_replica *m;

    if (o)
        return o;
    m = calloc(1, sizeof *m);
    o = m ? ms_table_mirror(&s->table, name->node, name->id, name->len, ms_now_ns())
          : NULL;
    if (!o) {
        free(m);
        return NULL;
    }
    m->object = o;
    ms_list_init(&m->waiting);
    ms_list_init(&m->relays);
    m->origin = ms_far_get(s, name->node, name->address);
    o->user = m;
    return o;
}

/* They have to ask elsewhere. */
static void drop_relays(struct ms_replica *m)
{
    ms_list_each (r, &m->relays, struct relay, link) {
        ms_visitor_send_gone(r->visitor, m->object);
        ms_list_remove(&r->link);
        free(r);
    }
}

void ms_replica_free(struct ms_store *s, struct ms_object *o)
{
    struct ms_replica *m = o->user;

    if (!ms_list_is_empty(&m->waiting)) {
        ms_list_splice(&s->untold, &m->waiting);
        ms_timer_set(&s->untold_timer, 0); /* they may change the table: not now */
    }
    drop_relays(m);
}

void ms_replicas_tell_untold(struct ms_store *s)
{
    struct ms_error why = {0};

    ms_error_set(&why, -ENOENT, "an object is gone: it was let go of while it came");
    while (!ms_list_is_empty(&s->untold)) {
        struct waiter *w = ms_list_first(&s->untold, struct waiter, link);

        ms_list_remove(&w->link);
        w->fn(w->arg, s, &why);
        free(w);
    }
}

/* ---- telling --------------------------------------------------------------------- */

/* Tell those whose wish is fulfilled, or all of them `why` not. The object is pinned
 * meanwhile: they may let it go. */
static void tell(struct ms_store *s, struct ms_object *o, const struct ms_error *why)
{
    struct ms_replica *m = o->user;
    struct ms_list ready;

    ms_list_init(&ready);
    ms_list_each (w, &m->waiting, struct waiter, link)
        if (why || w->bare || o->is_whole) {
            ms_list_remove(&w->link);
            ms_list_add_tail(&ready, &w->link);
        }
    ms_table_pin(o);
    ms_list_each (w, &ready, struct waiter, link) {
        ms_list_remove(&w->link);
        w->fn(w->arg, s, why);
        free(w);
    }
    ms_table_unpin(&s->table, o);
}

static void fail(struct ms_store *s, struct ms_object *o, int code, const char *text)
{
    struct ms_replica *m = o->user;
    struct ms_error why = {0};

    ms_error_set(&why, code, "%s", text);
    m->is_asked = false;
    m->wants_bytes = false;
    m->source = NULL;
    drop_relays(m);
    tell(s, o, &why);
}

/* ---- holding --------------------------------------------------------------------- */

static void ask_hold(struct ms_replica *m, int64_t again)
{
    Muster__StorePeer p = MUSTER__STORE_PEER__INIT;
    Muster__PeerHold hold = MUSTER__PEER_HOLD__INIT;

    hold.id = m->object->id;
    hold.again = (uint64_t)again;
    hold.wants_bytes = m->wants_bytes && !m->object->is_whole;
    p.body_case = MUSTER__STORE_PEER__BODY_HOLD;
    p.hold = &hold;
    m->is_asked = true;
    ms_far_send(m->origin, &p);
}

int ms_replica_want(
    struct ms_store *s, struct ms_object *o, bool bare, ms_replica_fn *fn, void *arg)
{
    struct ms_replica *m = o->user;
    struct waiter *w;

    if (m->counts && (bare || o->is_whole)) {
        fn(arg, s, NULL);
        return 0;
    }
    if (!m->origin)
        return -EHOSTUNREACH;
    w = malloc(sizeof *w);
    if (!w)
        return -ENOMEM;
    *w = (struct waiter){.bare = bare, .fn = fn, .arg = arg};
    ms_list_init(&w->link);
    ms_list_add_tail(&m->waiting, &w->link);
    if (!bare && !m->wants_bytes) {
        m->wants_bytes = true;
        ask_hold(m, 0); /* also if it is held: whom to ask for bytes is in the answer */
    } else if (!m->counts && !m->is_asked) {
        ask_hold(m, 0);
    }
    return 0;
}

static void tell_count(struct ms_far *origin, uint64_t id, int64_t by)
{
    Muster__StorePeer p = MUSTER__STORE_PEER__INIT;
    Muster__StoreCount count = MUSTER__STORE_COUNT__INIT;

    count.id = id;
    count.by = by;
    p.body_case = MUSTER__STORE_PEER__BODY_COUNT;
    p.count = &count;
    ms_far_send(origin, &p);
}

void ms_replica_held(struct ms_far *f, const Muster__PeerHeld *held)
{
    struct ms_store *s = f->store;
    struct ms_object *o = ms_table_find(&s->table, f->node, held->id);
    struct ms_replica *m;

    if (!o || !o->is_mirror) { /* nobody wants it any more */
        tell_count(f, held->id, -1);
        return;
    }
    m = o->user;
    m->is_asked = false;
    m->counts++;
    if (held->len != o->len) {
        fail(s, o, -EPROTO, "the object has another size than it was said to have");
        return;
    }
    ms_table_pin(o); /* a fetch that fails tells all, and then nobody holds it */
    if (m->wants_bytes && !o->is_whole) {
        m->source = held->address[0] && held->relay != s->table.node
                        ? ms_far_get(s, held->relay, held->address)
                        : m->origin;
        fetch(s, o);
    }
    tell(s, o, NULL);
    ms_table_unpin(&s->table, o);
}

void ms_replica_unheld(struct ms_store *s, struct ms_object *o)
{
    struct ms_replica *m = o->user;

    (void)s;
    if (m->counts && m->origin)
        tell_count(m->origin, o->id, -m->counts);
    m->counts = 0;
}

void ms_replica_confirm(struct ms_store *s, struct ms_object *o)
{
    struct ms_replica *m = o->user;
    Muster__StorePeer p = MUSTER__STORE_PEER__INIT;
    Muster__StoredName name = MUSTER__STORED_NAME__INIT;

    (void)s;
    if (!m->origin)
        return;
    m->counts++;
    name.id = o->id;
    p.body_case = MUSTER__STORE_PEER__BODY_CONFIRM;
    p.confirm = &name;
    ms_far_send(m->origin, &p);
}

void ms_replica_grant(struct ms_store *s,
                      struct ms_object *o,
                      const Muster__StoreGrant *g)
{
    struct ms_replica *m = o->user;
    Muster__StorePeer p = MUSTER__STORE_PEER__INIT;

    (void)s;
    if (!m->origin)
        return;
    p.body_case = MUSTER__STORE_PEER__BODY_GRANT;
    p.grant = (Muster__StoreGrant *)(uintptr_t)g;
    ms_far_send(m->origin, &p);
}

/* ---- bytes ----------------------------------------------------------------------- */

static void ask_pieces(struct ms_replica *m)
{
    struct ms_object *o = m->object;

    while (m->source && o->is_ready && m->asked < o->len &&
           m->asked - m->received < MS_STORE_PIECES * MS_STORE_PIECE_MAX) {
        Muster__StorePeer p = MUSTER__STORE_PEER__INIT;
        Muster__PeerWant want = MUSTER__PEER_WANT__INIT;

        want.node = o->node;
        want.id = o->id;
        want.offset = m->asked;
        want.len = o->len - m->asked;
        if (want.len > MS_STORE_PIECE_MAX)
            want.len = MS_STORE_PIECE_MAX;
        p.body_case = MUSTER__STORE_PEER__BODY_WANT;
        p.want = &want;
        if (ms_far_send(m->source, &p) < 0)
            return; /* when the link is there */
        m->asked += want.len;
    }
}

static void become_whole(struct ms_store *s, struct ms_object *o)
{
    struct ms_replica *m = o->user;

    o->is_whole = true;
    m->source = NULL;
    tell(s, o, NULL);
}

struct placing {
    uint64_t node, id;
};

static void on_ready(void *arg, struct ms_store *s, int rc)
{
    struct placing *p = arg;
    struct ms_object *o = ms_table_find(&s->table, p->node, p->id);
    struct ms_replica *m = o ? o->user : NULL;

    free(p);
    if (!o)
        return;
    m->is_placing = false;
    if (rc < 0) {
        fail(s, o, -ENOSPC, "this machine has no memory left for the store");
        ms_table_unpin(&s->table, o);
        return;
    }
    o->is_ready = true;
    if (o->len == 0)
        become_whole(s, o);
    else
        ask_pieces(m);
    ms_table_unpin(&s->table, o);
}

/* Room for it, memory behind that, and the first pieces. */
static void fetch(struct ms_store *s, struct ms_object *o)
{
    struct ms_replica *m = o->user;
    struct placing *p;

    ms_store_expect_pieces(s);
    if (o->is_ready) {
        m->asked = m->received;
        ask_pieces(m);
        return;
    }
    if (m->is_placing)
        return;
    p = malloc(sizeof *p);
    if (!p || (!o->has_room && ms_table_room(&s->table, o) < 0)) {
        struct ms_buf text;

        free(p);
        ms_buf_init(&text);
        ms_table_explain_full(&s->table, o->len, &text);
        fail(s, o, -ENOSPC, ms_buf_str(&text) ? ms_buf_str(&text) : "out of memory");
        ms_buf_finish(&text);
        return;
    }
    *p = (struct placing){o->node, o->id};
    m->is_placing = true;
    ms_table_pin(o);
    if (ms_store_ready(s, o, on_ready, p) < 0) {
        m->is_placing = false;
        free(p);
        fail(s, o, -ENOMEM, "out of memory");
        ms_table_unpin(&s->table, o);
    }
}

/* Those that wait for what has come now. */
static void serve_relays(struct ms_replica *m)
{
    ms_list_each (r, &m->relays, struct relay, link)
        if (r->offset + r->len <= m->received) {
            ms_visitor_send_piece(r->visitor, m->object, r->offset, r->len);
            ms_list_remove(&r->link);
            free(r);
        }
}

void ms_replica_piece(struct ms_far *f, const Muster__PeerPiece *piece)
{
    struct ms_store *s = f->store;
    struct ms_object *o = ms_table_find(&s->table, piece->node, piece->id);
    struct ms_replica *m = o && o->is_mirror ? o->user : NULL;

    if (!m || !o->is_ready || o->is_whole || piece->offset != m->received ||
        piece->data.len > o->len - m->received || !piece->data.len)
        return; /* of one that was given up, or asked for twice */
    memcpy(ms_arena_memory(s->arena) + o->at + m->received,
           piece->data.data,
           piece->data.len);
    m->received += piece->data.len;
    s->received += piece->data.len;
    if (m->asked < m->received)
        m->asked = m->received;
    serve_relays(m);
    if (m->received == o->len)
        become_whole(s, o);
    else
        ask_pieces(m);
}

bool ms_replica_relay(struct ms_object *o,
                      struct ms_visitor *v,
                      uint64_t offset,
                      uint64_t len)
{
    struct ms_replica *m = o->user;
    struct relay *r;

    if (o->is_whole || offset + len <= m->received) {
        ms_visitor_send_piece(v, o, offset, len);
        return true;
    }
    if (!m->wants_bytes)
        return false; /* it does not come here */
    r = malloc(sizeof *r);
    if (!r)
        return false;
    *r = (struct relay){.visitor = v, .offset = offset, .len = len};
    ms_list_init(&r->link);
    ms_list_add_tail(&m->relays, &r->link);
    return true;
}

/* ---- trouble --------------------------------------------------------------------- */

void ms_replica_gone(struct ms_far *f, const Muster__PeerGone *gone)
{
    struct ms_store *s = f->store;
    struct ms_object *o = ms_table_find(&s->table, gone->node, gone->id);
    struct ms_replica *m = o && o->is_mirror ? o->user : NULL;

    if (!m)
        return;
    if (f == m->origin && !ms_object_is_held(o)) {
        ms_table_forget(&s->table, o); /* it was only kept in case */
    } else if (f == m->origin) {
        fail(s, o, -ENOENT, "an object is gone: nobody held it any more");
    } else if (f == m->source) { /* a relay has lost it */
        m->source = m->origin;
        m->asked = m->received;
        ask_pieces(m);
    }
}

/* `fn` may let go of any object: they are found again by name. */
static void walk(struct ms_store *s,
                 void (*fn)(struct ms_store *s, struct ms_object *o, struct ms_far *f),
                 struct ms_far *f)
{
    struct placing *names = calloc(s->table.objects.count + 1, sizeof *names);
    size_t count = 0;

    if (!names)
        return;
    ms_list_each (o, &s->table.all, struct ms_object, link)
        if (o->is_mirror)
            names[count++] = (struct placing){o->node, o->id};
    for (size_t i = 0; i < count; i++) {
        struct ms_object *o = ms_table_find(&s->table, names[i].node, names[i].id);

        if (o)
            fn(s, o, f);
    }
    free(names);
}

static void resume(struct ms_store *s, struct ms_object *o, struct ms_far *f)
{
    struct ms_replica *m = o->user;

    (void)s;
    if (m->origin == f && f->was_open && (m->counts || m->is_asked))
        ask_hold(m, m->counts + 1); /* it knows of us what we know, whatever got lost */
    else if (m->origin == f && m->is_asked)
        ask_hold(m, 0);
    if (m->source == f) {
        m->asked = m->received;
        ask_pieces(m);
    }
}

void ms_replicas_resume(struct ms_store *s, struct ms_far *f)
{
    walk(s, resume, f);
}

static void lost(struct ms_store *s, struct ms_object *o, struct ms_far *f)
{
    struct ms_replica *m = o->user;

    if (m->source == f && m->origin != f) {
        m->source = m->origin;
        m->asked = m->received;
        ask_pieces(m);
    }
    if (m->origin != f || !f->is_lost)
        return;
    m->counts = 0; /* the other side has dropped them */
    fail(s,
         o,
         -EHOSTUNREACH,
         "an object is lost: the node that has it has ended, or is not reached");
}

void ms_replicas_lost(struct ms_store *s, struct ms_far *f, bool for_good)
{
    f->is_lost = for_good;
    walk(s, lost, f);
}

void ms_replicas_forget_visitor(struct ms_store *s, const struct ms_visitor *v)
{
    ms_list_each (o, &s->table.all, struct ms_object, link) {
        struct ms_replica *m = o->is_mirror ? o->user : NULL;

        if (!m)
            continue;
        ms_list_each (r, &m->relays, struct relay, link)
            if (r->visitor == v) {
                ms_list_remove(&r->link);
                free(r);
            }
    }
}
