/* remote_copy.c - what this node has of another node's objects: holding them at their origin,
 * and telling those who wait for them */
#include "store/peers/peers.h"
#include "store/slice.h"

#include "base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- life ------------------------------------------------------------------------ */

struct ms_object *ms_remote_copy_get(struct ms_store *s, const Muster__StoredName *name)
{
    struct ms_object *o = ms_table_find(&s->table, name->node, name->id);
    struct ms_remote_copy *m;

    if (o)
        return o;
    m = calloc(1, sizeof *m);
    o = m ? ms_table_add(&s->table, name->node, name->id, name->len, ms_now_ns())
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
    m->origin = ms_store_peer_get(s, name->node, name->address);
    o->user = m;
    return o;
}

void ms_remote_copy_free(struct ms_store *s, struct ms_object *o)
{
    struct ms_remote_copy *m = o->user;

    if (!ms_list_is_empty(&m->waiting)) {
        ms_list_splice(&s->lost_waiters, &m->waiting);
        ms_timer_set(&s->waiters_timer, 0); /* they may change the table: not now */
    }
    ms_remote_copy_stop(o);
    ms_remote_readers_answer(s, o, true);
}

/* ---- telling --------------------------------------------------------------------- */

void ms_remote_copies_tell_waiters(void *store)
{
    struct ms_store *s = store;
    struct ms_error why = {0};

    ms_error_set(&why, -ENOENT, "an object is gone: it was let go of while it came");
    ms_waiters_tell(&s->lost_waiters, s, NULL, &why);
}

/* The object is pinned meanwhile: they may let it go. */
void ms_remote_copy_tell(struct ms_store *s,
                         struct ms_object *o,
                         const struct ms_error *why)
{
    struct ms_remote_copy *m = o->user;
    struct ms_list ready;

    ms_list_init(&ready);
    ms_list_each (w, &m->waiting, struct ms_waiter, link)
        if (why || w->bare || o->is_whole) {
            ms_list_remove(&w->link);
            ms_list_add_tail(&ready, &w->link);
        }
    ms_object_pin(o);
    ms_waiters_tell(&ready, s, o, why);
    ms_object_unpin(o);
}

void ms_remote_copy_fail(struct ms_store *s,
                         struct ms_object *o,
                         int code,
                         const char *text)
{
    struct ms_remote_copy *m = o->user;
    struct ms_error why = {0};

    ms_error_set(&why, code, "%s", text);
    m->is_asked = false;
    m->wants_bytes = false;
    ms_remote_copy_stop(o);
    ms_remote_readers_answer(s, o, true);
    ms_remote_copy_tell(s, o, &why);
}

void ms_remote_copy_unreached(struct ms_store *s, struct ms_object *o)
{
    const struct ms_store_peer *origin = ((struct ms_remote_copy *)o->user)->origin;
    char text[200];

    snprintf(
        text,
        sizeof text,
        "an object of %llu bytes is lost: its node %.64s has ended, or is not reached",
        (unsigned long long)o->len,
        origin->name ? origin->name : origin->address);
    ms_remote_copy_fail(s, o, -EHOSTUNREACH, text);
}

/* ---- holding --------------------------------------------------------------------- */

static void ask_hold(struct ms_remote_copy *m)
{
    Muster__PeerHold hold = MUSTER__PEER_HOLD__INIT;

    hold.id = m->object->id;
    if (m->of) {
        hold.of = m->of;
        hold.offset = m->offset;
        hold.len = m->object->len;
    }
    hold.wants_bytes = m->wants_bytes && !m->object->is_whole;
    m->is_asked = true;
    ms_store_peer_tell(m->origin, MUSTER__STORE_PEER__BODY_HOLD, &hold);
}

int ms_remote_copy_want(
    struct ms_store *s, struct ms_object *o, bool bare, ms_object_fn *fn, void *arg)
{
    struct ms_remote_copy *m = o->user;

    if (m->counts && (bare || o->is_whole)) {
        fn(arg, s, o, NULL);
        return 0;
    }
    if (!m->origin)
        return -EHOSTUNREACH;
    if (ms_waiters_add(&m->waiting, bare, fn, arg) < 0)
        return -ENOMEM;
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
    Muster__StoreCount count = MUSTER__STORE_COUNT__INIT;

    count.id = id;
    count.by = by;
    ms_store_peer_tell(origin, MUSTER__STORE_PEER__BODY_COUNT, &count);
}

void ms_remote_copy_held(struct ms_store_peer *p, const Muster__PeerHeld *held)
{
    struct ms_store *s = p->store;
    struct ms_object *o = ms_table_find(&s->table, p->node, held->id);
    struct ms_remote_copy *m;

    if (!o || !o->is_copy) { /* it is not wanted any more */
        tell_count(p, held->id, -1);
        return;
    }
    m = o->user;
    m->is_asked = false;
    m->counts++;
    if (!p->name && held->name[0])
        p->name = strdup(held->name);
    if (held->len != o->len) {
        ms_remote_copy_fail(
            s, o, -EPROTO, "the object has another size than it was said to have");
        return;
    }
    ms_object_pin(o); /* a fetch that fails tells all, and then it may not be held */
    if (m->wants_bytes && !o->is_whole && !m->source) {
        struct ms_store_peer *relay =
            held->address[0] && held->relay != s->table.node
                ? ms_store_peer_get(s, held->relay, held->address)
                : NULL;

        ms_remote_copy_fetch(o, relay ? relay : m->origin);
    }
    ms_remote_copy_tell(s, o, NULL);
    ms_object_unpin(o);
}

void ms_remote_copy_unheld(void *store, struct ms_object *o)
{
    struct ms_remote_copy *m = o->user;

    (void)store;
    if (m->counts && m->origin)
        tell_count(m->origin, o->id, -m->counts);
    m->counts = 0;
}

void ms_remote_copy_confirm(struct ms_object *o)
{
    struct ms_remote_copy *m = o->user;
    Muster__StoredName name = MUSTER__STORED_NAME__INIT;

    if (!m->origin)
        return;
    m->counts++;
    name.id = o->id;
    ms_store_peer_tell(m->origin, MUSTER__STORE_PEER__BODY_CONFIRM, &name);
}

void ms_remote_copy_grant(struct ms_object *o, const Muster__StoreGrant *g)
{
    struct ms_remote_copy *m = o->user;

    if (m->origin)
        ms_store_peer_tell(
            m->origin, MUSTER__STORE_PEER__BODY_GRANT, (void *)(uintptr_t)g);
}

/* ---- trouble --------------------------------------------------------------------- */

void ms_remote_copy_gone(struct ms_store_peer *p, const Muster__PeerGone *gone)
{
    struct ms_store *s = p->store;
    struct ms_object *o = ms_table_find(&s->table, gone->node, gone->id);
    struct ms_remote_copy *m = o && o->is_copy ? o->user : NULL;

    if (!m)
        return;
    if (p == m->origin)
        m->counts = 0;
    if (p == m->origin && !ms_object_is_held(o)) {
        ms_object_forget(o); /* it was only kept in case */
    } else if (p == m->origin) {
        ms_remote_copy_fail(
            s, o, -ENOENT, "an object is gone: nobody held it any more");
    } else if (p == m->source) { /* a relay has lost it */
        ms_remote_copy_fetch(o, m->origin);
    }
}

void ms_remote_copies_walk(struct ms_store *s,
                           void (*fn)(struct ms_object *o, struct ms_store_peer *p),
                           struct ms_store_peer *p)
{
    struct {
        uint64_t node, id;
    } *names =
        s->table.space ? calloc(s->table.objects.count + 1, sizeof *names) : NULL;
    size_t count = 0;

    if (!names)
        return;
    ms_list_each (o, &s->table.all, struct ms_object, link)
        if (o->is_copy) {
            names[count].node = o->node;
            names[count++].id = o->id;
        }
    for (size_t i = 0; i < count; i++) {
        struct ms_object *o = ms_table_find(&s->table, names[i].node, names[i].id);

        if (o)
            fn(o, p);
    }
    free(names);
}

static void resume(struct ms_object *o, struct ms_store_peer *p)
{
    struct ms_remote_copy *m = o->user;

    if (m->origin == p && m->is_asked)
        ask_hold(m);
}

void ms_remote_copies_resume(struct ms_store_peer *p)
{
    if (ms_holdings_send(p) < 0)
        return; /* the next link may do */
    ms_remote_copies_walk(p->store, resume, p);
}

static void lost(struct ms_object *o, struct ms_store_peer *p)
{
    struct ms_remote_copy *m = o->user;

    if (m->origin != p || !p->is_lost)
        return;
    m->counts = 0; /* the other side has dropped them */
    ms_remote_copy_unreached(p->store, o);
}

void ms_remote_copies_lost(struct ms_store_peer *p, bool for_good)
{
    p->is_lost = for_good;
    ms_remote_copies_walk(p->store, lost, p);
}
