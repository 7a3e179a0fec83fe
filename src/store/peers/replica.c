#include "store/peers/peers.h"
#include "store/slice.h"

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

/* ---- life ------------------------------------------------------------------------ */

struct ms_object *ms_replica_get(struct ms_store *s, const Muster__StoredName *name)
{
    struct ms_object *o = ms_table_find(&s->table, name->node, name->id);
    struct ms_replica *m;

    if (o)
        return o;
    m = calloc(1, sizeof *m);
    o = m ? ms_table_add_replica(
                &s->table, name->node, name->id, name->len, ms_now_ns())
          : NULL;
    if (!o) {
        free(m);
        return NULL;
    }
    m->object = o;
    m->of = name->of;
    m->offset = name->offset;
    o->is_slice = ms_slice_is(name->id);
    ms_list_init(&m->waiting);
    ms_list_init(&m->relays);
    m->origin = ms_store_peer_get(s, name->node, name->address);
    o->user = m;
    return o;
}

void ms_replica_free(struct ms_store *s, struct ms_object *o)
{
    struct ms_replica *m = o->user;

    if (!ms_list_is_empty(&m->waiting)) {
        ms_list_splice(&s->bereft, &m->waiting);
        ms_timer_set(&s->bereft_timer, 0); /* they may change the table: not now */
    }
    ms_replica_stop(o);
    ms_replica_drop_relays(o);
}

void ms_replicas_tell_bereft(struct ms_store *s)
{
    struct ms_error why = {0};

    ms_error_set(&why, -ENOENT, "an object is gone: it was let go of while it came");
    while (!ms_list_is_empty(&s->bereft)) {
        struct waiter *w = ms_list_first(&s->bereft, struct waiter, link);

        ms_list_remove(&w->link);
        w->fn(w->arg, s, &why);
        free(w);
    }
}

/* ---- telling --------------------------------------------------------------------- */

/* The object is pinned meanwhile: they may let it go. */
void ms_replica_tell(struct ms_store *s,
                     struct ms_object *o,
                     const struct ms_error *why)
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

void ms_replica_fail(struct ms_store *s,
                     struct ms_object *o,
                     int code,
                     const char *text)
{
    struct ms_replica *m = o->user;
    struct ms_error why = {0};

    ms_error_set(&why, code, "%s", text);
    m->is_asked = false;
    m->wants_bytes = false;
    ms_replica_stop(o);
    ms_replica_drop_relays(o);
    ms_replica_tell(s, o, &why);
}

void ms_replica_unreached(struct ms_store *s, struct ms_object *o)
{
    const struct ms_store_peer *origin = ((struct ms_replica *)o->user)->origin;
    char text[200];

    snprintf(
        text,
        sizeof text,
        "an object of %llu bytes is lost: its node %.64s has ended, or is not reached",
        (unsigned long long)o->len,
        origin->name ? origin->name : origin->address);
    ms_replica_fail(s, o, -EHOSTUNREACH, text);
}

/* ---- holding --------------------------------------------------------------------- */

static void ask_hold(struct ms_replica *m)
{
    Muster__StorePeer p = MUSTER__STORE_PEER__INIT;
    Muster__PeerHold hold = MUSTER__PEER_HOLD__INIT;

    hold.id = m->object->id;
    if (m->of) {
        hold.of = m->of;
        hold.offset = m->offset;
        hold.len = m->object->len;
    }
    hold.wants_bytes = m->wants_bytes && !m->object->is_whole;
    p.body_case = MUSTER__STORE_PEER__BODY_HOLD;
    p.hold = &hold;
    m->is_asked = true;
    ms_store_peer_send(m->origin, &p);
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
        ask_hold(m); /* also if it is held: whom to ask for bytes is in the answer */
    } else if (!m->counts && !m->is_asked) {
        ask_hold(m);
    }
    return 0;
}

static void tell_count(struct ms_store_peer *origin, uint64_t id, int64_t by)
{
    Muster__StorePeer p = MUSTER__STORE_PEER__INIT;
    Muster__StoreCount count = MUSTER__STORE_COUNT__INIT;

    count.id = id;
    count.by = by;
    p.body_case = MUSTER__STORE_PEER__BODY_COUNT;
    p.count = &count;
    ms_store_peer_send(origin, &p);
}

void ms_replica_held(struct ms_store_peer *f, const Muster__PeerHeld *held)
{
    struct ms_store *s = f->store;
    struct ms_object *o = ms_table_find(&s->table, f->node, held->id);
    struct ms_replica *m;

    if (!o || !o->is_replica) { /* nobody wants it any more */
        tell_count(f, held->id, -1);
        return;
    }
    m = o->user;
    m->is_asked = false;
    m->counts++;
    if (!f->name && held->name[0])
        f->name = strdup(held->name);
    if (held->len != o->len) {
        ms_replica_fail(
            s, o, -EPROTO, "the object has another size than it was said to have");
        return;
    }
    ms_table_pin(o); /* a fetch that fails tells all, and then nobody holds it */
    if (m->wants_bytes && !o->is_whole && !m->source) {
        struct ms_store_peer *relay =
            held->address[0] && held->relay != s->table.node
                ? ms_store_peer_get(s, held->relay, held->address)
                : NULL;

        ms_replica_fetch(s, o, relay ? relay : m->origin);
    }
    ms_replica_tell(s, o, NULL);
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
    ms_store_peer_send(m->origin, &p);
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
    ms_store_peer_send(m->origin, &p);
}

/* ---- trouble --------------------------------------------------------------------- */

void ms_replica_gone(struct ms_store_peer *f, const Muster__PeerGone *gone)
{
    struct ms_store *s = f->store;
    struct ms_object *o = ms_table_find(&s->table, gone->node, gone->id);
    struct ms_replica *m = o && o->is_replica ? o->user : NULL;

    if (!m)
        return;
    if (f == m->origin)
        m->counts = 0;
    if (f == m->origin && !ms_object_is_held(o)) {
        ms_table_forget(&s->table, o); /* it was only kept in case */
    } else if (f == m->origin) {
        ms_replica_fail(s, o, -ENOENT, "an object is gone: nobody held it any more");
    } else if (f == m->source) { /* a relay has lost it */
        ms_replica_fetch(s, o, m->origin);
    }
}

struct name {
    uint64_t node, id;
};

void ms_replicas_walk(struct ms_store *s,
                      void (*fn)(struct ms_store *s,
                                 struct ms_object *o,
                                 struct ms_store_peer *f),
                      struct ms_store_peer *f)
{
    struct name *names =
        s->table.space ? calloc(s->table.objects.count + 1, sizeof *names) : NULL;
    size_t count = 0;

    if (!names)
        return;
    ms_list_each (o, &s->table.all, struct ms_object, link)
        if (o->is_replica)
            names[count++] = (struct name){o->node, o->id};
    for (size_t i = 0; i < count; i++) {
        struct ms_object *o = ms_table_find(&s->table, names[i].node, names[i].id);

        if (o)
            fn(s, o, f);
    }
    free(names);
}

static void resume(struct ms_store *s, struct ms_object *o, struct ms_store_peer *f)
{
    struct ms_replica *m = o->user;

    (void)s;
    if (m->origin == f && m->is_asked)
        ask_hold(m);
}

void ms_replicas_resume(struct ms_store *s, struct ms_store_peer *f)
{
    if (ms_holdings_send(s, f) < 0)
        return; /* the next link may do */
    ms_replicas_walk(s, resume, f);
}

static void lost(struct ms_store *s, struct ms_object *o, struct ms_store_peer *f)
{
    struct ms_replica *m = o->user;

    if (m->origin != f || !f->is_lost)
        return;
    m->counts = 0; /* the other side has dropped them */
    ms_replica_unreached(s, o);
}

void ms_replicas_lost(struct ms_store *s, struct ms_store_peer *f, bool for_good)
{
    f->is_lost = for_good;
    ms_replicas_walk(s, lost, f);
}
