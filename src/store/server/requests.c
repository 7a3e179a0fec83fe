/* requests.c - what a process asks of the store of its node */
#include "store/peers/peers.h"
#include "store/server/spill.h"

#include "base/clock.h"
#include "base/limits.h"

#include <errno.h>
#include <stdlib.h>

enum { OBJECTS_SHOWN = 64 }; /* that fit one packet */

/* An object as others know it; `out` borrows the store's address. */
static void
name_of(const struct ms_store *s, const struct ms_object *o, Muster__StoredName *out)
{
    muster__stored_name__init(out);
    out->node = o->node;
    out->id = o->id;
    out->len = o->len;
    out->at = o->at;
    out->is_here = o->is_whole && o->is_ready;
    if (!o->is_copy)
        out->address = s->address;
}

/* ---- make ------------------------------------------------------------------------ */

/* A process waits until its new object has memory. */
struct making {
    uint64_t holder, request;
};

static void
on_made(void *arg, struct ms_store *s, struct ms_object *o, const struct ms_error *why)
{
    struct making *k = arg;
    struct ms_store_conn *c = ms_store_conn_find(s, k->holder);
    Muster__StoredName name;

    if (c && o && !why) {
        o->is_ready = true;
        name_of(s, o, &name);
        ms_store_conn_answer(c, k->request, MUSTER__STORE_ANSWER__BODY_MADE, &name);
    } else if (c && o) {
        ms_store_conn_refuse(c, k->request, why->code, why->text);
        ms_holder_count(c->holder, o, -1, ms_now_ns());
    }
    free(k);
}

static void
ask_make(struct ms_store_conn *c, uint64_t request, const Muster__StoreMake *m)
{
    struct ms_store *s = c->store;
    struct ms_object *o = NULL;
    struct making *k = malloc(sizeof *k);

    if (!k || !(o = ms_holder_make(c->holder, m->len, m->site, ms_now_ns()))) {
        free(k);
        ms_store_conn_refuse(c, request, -ENOMEM, "out of memory");
        return;
    }
    *k = (struct making){c->holder->id, request};
    ms_store_place(s, o, on_made, k);
}

/* ---- attach ---------------------------------------------------------------------- */

/* Several objects that one process waits for. */
struct attaching {
    uint64_t holder, request;
    size_t count, waiting;
    struct ms_error why;
    bool bare;
    struct {
        Muster__StoredName name;
        bool is_held;
    } at[];
};

static void attached(struct ms_store_conn *c, struct attaching *a)
{
    struct ms_store *s = c->store;
    Muster__StoreAttached all = MUSTER__STORE_ATTACHED__INIT;
    Muster__StoredName *names[MS_STORE_NAMES_MAX];

    for (size_t i = 0; i < a->count; i++) {
        Muster__StoredName *n = names[i] = &a->at[i].name;
        struct ms_object *o = ms_table_find(&s->table, n->node, n->id);

        if (o)
            name_of(s, o, n);
        else /* let go of while it was waited for */
            muster__stored_name__init(n);
        if (a->bare && n->is_here)
            ms_holder_read(c->holder, o, 1, ms_now_ns());
    }
    all.names = names;
    all.n_names = a->count;
    ms_store_conn_answer(c, a->request, MUSTER__STORE_ANSWER__BODY_ATTACHED, &all);
}

static void let_go(struct ms_store_conn *c, const struct attaching *a)
{
    struct ms_store *s = c->store;

    for (size_t i = 0; i < a->count; i++) {
        struct ms_object *o =
            ms_table_find(&s->table, a->at[i].name.node, a->at[i].name.id);

        if (!o || !a->at[i].is_held)
            continue;
        if (!a->bare)
            ms_holder_read(c->holder, o, -1, ms_now_ns());
        ms_holder_count(c->holder, o, -1, ms_now_ns());
    }
}

/* One of them can be read, or not; or all were begun. */
static void attach_step(struct ms_store *s, struct attaching *a)
{
    struct ms_store_conn *c;

    if (--a->waiting > 0)
        return;
    c = ms_store_conn_find(s, a->holder);
    if (c && a->why.code == 0) {
        attached(c, a);
    } else if (c) {
        ms_store_conn_refuse(c, a->request, a->why.code, a->why.text);
        let_go(c, a);
    }
    free(a);
}

static void
on_here(void *arg, struct ms_store *s, struct ms_object *o, const struct ms_error *why)
{
    struct attaching *a = arg;

    (void)o;
    if (why && !a->why.code)
        a->why = *why;
    attach_step(s, a);
}

static void attach_one(struct ms_store_conn *c,
                       struct attaching *a,
                       size_t i,
                       const Muster__StoredName *n)
{
    struct ms_store *s = c->store;
    struct ms_object *o = n->node == s->table.node
                              ? ms_table_find(&s->table, n->node, n->id)
                              : ms_remote_copy_get(s, n);
    int rc;

    a->at[i].name.node = n->node;
    a->at[i].name.id = n->id;
    if (!o) {
        ms_error_set(&a->why,
                     -ENOENT,
                     "an object of %llu bytes is gone: nobody held it any more",
                     (unsigned long long)n->len);
        return;
    }
    if (ms_holder_count(c->holder, o, 1, ms_now_ns()) < 0) {
        ms_error_set(&a->why, -ENOMEM, "out of memory");
        return;
    }
    if (ms_table_find(&s->table, n->node, n->id) != o) { /* it had let go of more */
        ms_error_set(&a->why, -ENOENT, "an object is gone: it was let go of twice");
        return;
    }
    a->at[i].is_held = true;
    if (!a->bare)
        ms_holder_read(c->holder, o, 1, ms_now_ns());
    if (o->spilled && !a->bare) {
        a->waiting++;
        ms_spill_want(s, o, on_here, a);
    }
    if (!o->is_copy || o->spilled)
        return;
    a->waiting++;
    rc = ms_remote_copy_want(s, o, a->bare, on_here, a);
    if (rc < 0) {
        a->waiting--;
        ms_error_set(
            &a->why,
            rc,
            "an object of another node cannot be had: its node is not reached");
    }
}

static void
ask_attach(struct ms_store_conn *c, uint64_t request, const Muster__StoreAttach *m)
{
    struct attaching *a;

    if (m->n_names > MS_STORE_NAMES_MAX) {
        ms_store_conn_refuse(c, request, -E2BIG, "too many names");
        return;
    }
    a = calloc(1, sizeof *a + m->n_names * sizeof a->at[0]);
    if (!a) {
        ms_store_conn_refuse(c, request, -ENOMEM, "out of memory");
        return;
    }
    a->holder = c->holder->id;
    a->request = request;
    a->count = m->n_names;
    a->bare = m->bare;
    a->waiting = 1; /* ourselves */
    for (size_t i = 0; i < m->n_names && !a->why.code; i++)
        attach_one(c, a, i, m->names[i]);
    attach_step(c->store, a);
}

/* ---- counts ---------------------------------------------------------------------- */

static void ask_count(struct ms_store_conn *c, const Muster__StoreCount *m)
{
    struct ms_object *o = ms_table_find(&c->store->table, m->node, m->id);

    if (!o)
        return;
    ms_holder_read(c->holder, o, m->reads, ms_now_ns());
    if (m->reads < 0)
        ms_store_retry_places(c->store); /* it may be spilled */
    if (m->by)
        ms_holder_count(c->holder, o, m->by, ms_now_ns());
}

void ms_store_grant_to(struct ms_store *s, const Muster__StoreGrant *m)
{
    struct ms_object *o =
        m->name ? ms_table_find(&s->table, m->name->node, m->name->id) : NULL;
    bool is_here = m->node == s->table.node;
    int64_t now_ns = ms_now_ns();
    struct ms_holder *to;

    if (!o)
        return;
    if (o->is_copy && !is_here) { /* its origin counts the nodes */
        ms_remote_copy_grant(o, m);
        return;
    }
    to = is_here ? ms_table_find_holder(&s->table, m->holder)
                 : ms_store_node_holder(s, m->node, "that was answered");
    if (!to)
        return; /* the caller has gone */
    if (m->is_taken_back) {
        ms_holder_take_back(to, o);
        ms_store_retry_places(s);
        return;
    }
    ms_holder_grant(to, o, now_ns, now_ns + MS_STORE_LEASE_NS);
    ms_store_watch_leases(s);
}

static void ask_confirm(struct ms_store_conn *c, const Muster__StoreConfirm *m)
{
    struct ms_store *s = c->store;
    struct ms_object *o;

    if (!m->name)
        return;
    if (m->name->node == s->table.node || m->from == s->table.node) {
        o = ms_table_find(&s->table, m->name->node, m->name->id);
        if (o) {
            ms_holder_confirm(c->holder, o, ms_now_ns());
            ms_holder_read(c->holder, o, m->reads, ms_now_ns());
            ms_store_retry_places(s); /* the same, unless it is read */
        }
        return;
    }
    o = ms_remote_copy_get(s, m->name);
    if (!o)
        return;
    ms_remote_copy_confirm(o);
    ms_holder_count(c->holder, o, 1, ms_now_ns());
}

static void ask_stats(struct ms_store_conn *c, uint64_t request, bool objects)
{
    Muster__StoreStats *stats = ms_store_stats(c->store, objects ? OBJECTS_SHOWN : 0);

    if (!stats) {
        ms_store_conn_refuse(c, request, -ENOMEM, "out of memory");
        return;
    }
    ms_store_conn_answer(c, request, MUSTER__STORE_ANSWER__BODY_STATS, stats);
    muster__store_stats__free_unpacked(stats, NULL);
}

void ms_store_conn_handle(struct ms_store_conn *c, const Muster__StoreAsk *ask)
{
    switch (ask->body_case) {
    case MUSTER__STORE_ASK__BODY_MAKE:
        ask_make(c, ask->request, ask->make);
        break;
    case MUSTER__STORE_ASK__BODY_ATTACH:
        ask_attach(c, ask->request, ask->attach);
        break;
    case MUSTER__STORE_ASK__BODY_COUNT:
        ask_count(c, ask->count);
        break;
    case MUSTER__STORE_ASK__BODY_GRANT:
        ms_store_grant_to(c->store, ask->grant);
        break;
    case MUSTER__STORE_ASK__BODY_CONFIRM:
        ask_confirm(c, ask->confirm);
        break;
    case MUSTER__STORE_ASK__BODY_STATS:
        ask_stats(c, ask->request, ask->stats->objects);
        break;
    default:
        ms_store_conn_refuse(
            c, ask->request, -EPROTO, "the store does not know what is asked");
    }
}

/* ---- what no process asks for ---------------------------------------------------- */

int ms_store_keep(struct ms_store *s,
                  uint64_t holder,
                  const char *name,
                  Muster__StoredName *const *names,
                  size_t count)
{
    struct ms_holder *h = ms_table_find_holder(&s->table, holder);
    int kept = 0;

    if (!h)
        h = ms_table_add_holder(&s->table, holder, MS_HOLDER_PROCESS, 0, name);
    if (!h)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        struct ms_object *o =
            names[i]->node == s->table.node
                ? ms_table_find(&s->table, names[i]->node, names[i]->id)
                : NULL;
        int rc = o ? ms_holder_count(h, o, 1, ms_now_ns()) : 0;

        if (rc < 0)
            return rc;
        kept += o != NULL;
    }
    return kept;
}

void ms_store_unkeep(struct ms_store *s, uint64_t holder)
{
    struct ms_holder *h = ms_table_find_holder(&s->table, holder);

    if (h)
        ms_holder_remove(h);
}
