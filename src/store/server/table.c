/* table.c - the objects of one node's store, and the counts of those who hold them */
#include "store/server/table.h"

#include "base/clock.h"
#include "store/slice.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

struct lease {
    struct ms_hold *hold;
    int64_t deadline_ns;
    struct ms_list link;
};

int ms_table_init(struct ms_table *t,
                  uint64_t node,
                  uint64_t size,
                  uint64_t limit,
                  const struct ms_table_ops *ops,
                  void *arg)
{
    *t = (struct ms_table){.node = node, .next_id = 1, .ops = ops, .arg = arg};
    ms_map_init(&t->objects);
    ms_map_init(&t->holders);
    ms_list_init(&t->all);
    ms_list_init(&t->unheld);
    ms_list_init(&t->holder_list);
    ms_list_init(&t->leases);
    t->space = ms_space_create(size, limit);
    return t->space ? 0 : -ENOMEM;
}

static void lease_free(struct lease *l)
{
    l->hold->leases--;
    ms_list_remove(&l->link);
    free(l);
}

/* The first of a hold's leases; NULL: it has none. */
static struct lease *lease_find(const struct ms_hold *hold)
{
    if (hold->leases)
        /* the analyzer does not follow links. NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
        ms_list_each (l, &hold->holder->table->leases, struct lease, link)
            if (l->hold == hold)
                return l;
    return NULL;
}

static void hold_free(struct ms_hold *hold)
{
    while (hold->leases)
        lease_free(lease_find(hold));
    hold->object->reads -= hold->reads;
    ms_list_remove(&hold->of_object);
    ms_list_remove(&hold->of_holder);
    free(hold);
}

void ms_table_finish(struct ms_table *t)
{
    if (!t->space)
        return;
    ms_list_splice(&t->all, &t->unheld);
    ms_list_each (o, &t->all, struct ms_object, link) {
        ms_list_each (hold, &o->holds, struct ms_hold, of_object)
            hold_free(hold);
        free(o);
    }
    ms_list_each (h, &t->holder_list, struct ms_holder, link)
        free(h);
    ms_map_finish(&t->objects);
    ms_map_finish(&t->holders);
    ms_space_destroy(t->space);
    t->space = NULL;
}

/* ---- objects --------------------------------------------------------------------- */

bool ms_object_is_held(const struct ms_object *o)
{
    ms_list_each (hold, &o->holds, struct ms_hold, of_object)
        if (hold->count)
            return true;
    return false;
}

static void object_free(struct ms_object *o)
{
    struct ms_table *t = o->table;
    struct ms_object *whole = o->whole;

    assert(o->pins == 0 && !ms_object_is_held(o));
    t->ops->on_free(t->arg, o);
    ms_list_each (hold, &o->holds, struct ms_hold, of_object)
        hold_free(hold);
    if (o->has_room && !whole)
        ms_space_free(t->space, o->at);
    ms_map_remove(&t->objects, ms_object_key(o->node, o->id));
    ms_list_remove(&o->link);
    free(o);
    if (whole)
        ms_object_unpin(whole);
}

void ms_object_settle(struct ms_object *o)
{
    struct ms_table *t = o->table;

    if (ms_object_is_held(o))
        return;
    if (o->is_copy)
        t->ops->on_unheld(t->arg, o);
    if (o->pins)
        return;
    if (o->is_copy && o->is_whole && o->has_room && !o->is_slice) {
        ms_list_remove(&o->link);
        ms_list_add_tail(&t->unheld, &o->link);
        return;
    }
    object_free(o);
}

void ms_object_forget(struct ms_object *o)
{
    assert(o->is_copy);
    if (!o->pins && !ms_object_is_held(o))
        object_free(o);
}

struct ms_object *ms_table_add(
    struct ms_table *t, uint64_t node, uint64_t id, uint64_t len, int64_t now_ns)
{
    struct ms_object *o = calloc(1, sizeof *o);

    if (!o)
        return NULL;
    o->table = t;
    o->node = node;
    o->id = id;
    o->len = len;
    o->made_ns = o->used_ns = now_ns;
    o->is_copy = node != t->node;
    ms_list_init(&o->holds);
    ms_list_init(&o->link);
    if (ms_map_add(&t->objects, ms_object_key(node, id), o) < 0) {
        free(o);
        return NULL;
    }
    ms_list_add_tail(&t->all, &o->link);
    return o;
}

int ms_object_room(struct ms_object *o)
{
    struct ms_table *t = o->table;
    int rc = ms_space_alloc(t->space, o->len, &o->at);

    assert(!o->has_room);
    while (rc == -ENOSPC && !ms_list_is_empty(&t->unheld)) {
        object_free(ms_list_first(&t->unheld, struct ms_object, link));
        rc = ms_space_alloc(t->space, o->len, &o->at);
    }
    if (rc < 0)
        return rc;
    o->has_room = true;
    t->allocated += o->len;
    return 0;
}

void ms_object_unroom(struct ms_object *o)
{
    assert(o->has_room && !o->pins);
    ms_space_free(o->table->space, o->at);
    o->has_room = o->is_ready = false;
}

struct ms_object *
ms_holder_make(struct ms_holder *h, uint64_t len, const char *site, int64_t now_ns)
{
    struct ms_table *t = h->table;
    struct ms_object *o = ms_table_add(t, t->node, t->next_id, len, now_ns);

    if (!o)
        return NULL;
    t->next_id++;
    snprintf(o->site, sizeof o->site, "%s", site);
    if (ms_holder_count(h, o, 1, now_ns) < 0) {
        object_free(o);
        return NULL;
    }
    ms_holder_read(h, o, 1, now_ns);
    o->is_whole = true; /* a process that has its name has written it */
    return o;
}

struct ms_object *ms_object_slice(
    struct ms_object *whole, uint64_t id, uint64_t offset, uint64_t len, int64_t now_ns)
{
    struct ms_table *t = whole->table;
    struct ms_object *o;

    assert(!whole->is_copy && whole->is_ready && offset <= whole->len &&
           len <= whole->len - offset);
    if (ms_map_find(&t->objects, ms_object_key(t->node, id)))
        return NULL;
    o = ms_table_add(t, t->node, id, len, now_ns);
    if (!o)
        return NULL;
    o->at = whole->at + offset;
    o->has_room = o->is_ready = o->is_whole = o->is_slice = true;
    o->whole = whole;
    memcpy(o->site, whole->site, sizeof o->site);
    ms_object_pin(whole);
    return o;
}

struct ms_object *ms_table_find(const struct ms_table *t, uint64_t node, uint64_t id)
{
    struct ms_object *o = ms_map_find(&t->objects, ms_object_key(node, id));

    return o && o->node == node && o->id == id ? o : NULL;
}

void ms_object_pin(struct ms_object *o)
{
    o->pins++;
}

void ms_object_unpin(struct ms_object *o)
{
    assert(o->pins > 0);
    if (--o->pins == 0)
        ms_object_settle(o);
}

/* ---- holders --------------------------------------------------------------------- */

struct ms_holder *ms_table_add_holder(struct ms_table *t,
                                      uint64_t id,
                                      enum ms_holder_kind kind,
                                      pid_t pid,
                                      const char *name)
{
    struct ms_holder *h = calloc(1, sizeof *h);

    if (!h)
        return NULL;
    h->table = t;
    h->id = id;
    h->kind = kind;
    h->pid = pid;
    snprintf(h->name, sizeof h->name, "%s", name);
    ms_list_init(&h->holds);
    if (ms_map_add(&t->holders, id, h) < 0) {
        free(h);
        return NULL;
    }
    ms_list_add_tail(&t->holder_list, &h->link);
    return h;
}

struct ms_holder *ms_table_find_holder(const struct ms_table *t, uint64_t id)
{
    return ms_map_find(&t->holders, id);
}

void ms_holder_remove(struct ms_holder *h)
{
    while (!ms_list_is_empty(&h->holds)) {
        struct ms_hold *hold = ms_list_first(&h->holds, struct ms_hold, of_holder);
        /* the analyzer does not follow links. NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
        struct ms_object *o = hold->object;

        hold_free(hold);
        ms_object_settle(o);
    }
    ms_map_remove(&h->table->holders, h->id);
    ms_list_remove(&h->link);
    free(h);
}

uint64_t ms_holder_bytes(const struct ms_holder *h, size_t *objects)
{
    uint64_t bytes = 0;

    *objects = 0;
    ms_list_each (hold, &h->holds, struct ms_hold, of_holder)
        if (hold->count > 0 && hold->object->has_room) {
            bytes += hold->object->len;
            ++*objects;
        }
    return bytes;
}

/* ---- counts ---------------------------------------------------------------------- */

static struct ms_hold *hold_find(struct ms_object *o, const struct ms_holder *h)
{
    ms_list_each (hold, &o->holds, struct ms_hold, of_object)
        if (hold->holder == h)
            return hold;
    return NULL;
}

static struct ms_hold *
hold_get(struct ms_holder *h, struct ms_object *o, int64_t now_ns)
{
    struct ms_hold *hold = hold_find(o, h);

    if (o->is_copy) { /* it may have been among the unheld, also with holds of nothing */
        ms_list_remove(&o->link);
        ms_list_add_tail(&o->table->all, &o->link);
    }
    if (hold)
        return hold;
    hold = calloc(1, sizeof *hold);
    if (!hold)
        return NULL;
    hold->object = o;
    hold->holder = h;
    hold->since_ns = now_ns;
    ms_list_add_tail(&o->holds, &hold->of_object);
    ms_list_add_tail(&h->holds, &hold->of_holder);
    return hold;
}

/* After a change: a hold that means nothing goes, and perhaps the object with it. */
static void hold_settle(struct ms_hold *hold)
{
    struct ms_object *o = hold->object;

    if (hold->count)
        return;
    if (!ms_object_is_held(o)) {
        ms_object_settle(o); /* its holds go with it */
    } else if (!hold->early && !hold->late) {
        hold_free(hold);
    }
}

int ms_holder_count(struct ms_holder *h,
                    struct ms_object *o,
                    int64_t by,
                    int64_t now_ns)
{
    struct ms_hold *hold = hold_get(h, o, now_ns);

    if (!hold)
        return -ENOMEM;
    hold->count += by;
    hold_settle(hold);
    return 0;
}

void ms_holder_state_begin(struct ms_holder *h)
{
    h->statement++;
    h->differences = 0;
}

/* What its holder has, and what it was granted. */
static void hold_set(struct ms_hold *hold, int64_t count)
{
    count += hold->leases;
    hold->statement = hold->holder->statement;
    hold->holder->differences += hold->count != count;
    hold->count = count;
    hold_settle(hold);
}

int ms_holder_state(struct ms_holder *h,
                    struct ms_object *o,
                    int64_t count,
                    int64_t now_ns)
{
    struct ms_hold *hold = hold_get(h, o, now_ns);

    if (!hold)
        return -ENOMEM;
    hold_set(hold, count);
    return 0;
}

/* Objects that go take others with them: always the first of those that were not seen. */
uint64_t ms_holder_state_end(struct ms_holder *h)
{
    struct ms_list rest;

    ms_list_init(&rest);
    ms_list_splice(&rest, &h->holds);
    while (!ms_list_is_empty(&rest)) {
        struct ms_hold *hold = ms_list_first(&rest, struct ms_hold, of_holder);

        ms_list_remove(&hold->of_holder);
        ms_list_add_tail(&h->holds, &hold->of_holder);
        if (hold->statement != h->statement)
            hold_set(hold, 0);
    }
    return h->differences;
}

int ms_holder_grant(struct ms_holder *h,
                    struct ms_object *o,
                    int64_t now_ns,
                    int64_t deadline_ns)
{
    struct ms_hold *hold = hold_get(h, o, now_ns);
    struct lease *l;

    if (!hold)
        return -ENOMEM;
    if (hold->early > 0) { /* it was counted when it was confirmed */
        hold->early--;
        hold_settle(hold);
        return 0;
    }
    l = calloc(1, sizeof *l);
    if (!l) {
        hold_settle(hold);
        return -ENOMEM;
    }
    l->hold = hold;
    hold->leases++;
    l->deadline_ns = deadline_ns;
    ms_list_add_tail(&h->table->leases, &l->link);
    hold->count++;
    hold_settle(hold); /* it may have been at -1 */
    return 0;
}

int ms_holder_confirm(struct ms_holder *h, struct ms_object *o, int64_t now_ns)
{
    struct ms_hold *hold = hold_get(h, o, now_ns);

    if (!hold)
        return -ENOMEM;
    if (hold->leases) {
        lease_free(lease_find(hold));
        return 0;
    }
    if (hold->late)
        hold->late--;
    else
        hold->early++;
    hold->count++;
    hold_settle(hold);
    return 0;
}

void ms_holder_take_back(struct ms_holder *h, struct ms_object *o)
{
    struct ms_hold *hold = hold_find(o, h);

    if (!hold)
        return;
    if (hold->leases) {
        lease_free(lease_find(hold));
        hold->count--;
    } else if (hold->late) {
        hold->late--;
    }
    hold_settle(hold);
}

void ms_holder_read(struct ms_holder *h,
                    struct ms_object *o,
                    int64_t by,
                    int64_t now_ns)
{
    struct ms_hold *hold = hold_find(o, h);

    if (!hold || !by)
        return;
    hold->reads += by;
    o->reads += by;
    o->used_ns = now_ns;
}

static bool is_promised(const struct ms_object *o)
{
    ms_list_each (hold, &o->holds, struct ms_hold, of_object)
        if (hold->leases)
            return true;
    return false;
}

static bool is_unread(const struct ms_object *o)
{
    return o->is_whole && o->is_ready && !o->whole && !o->pins && o->reads == 0 &&
           ms_object_is_held(o);
}

bool ms_object_is_idle(const struct ms_object *o)
{
    return is_unread(o) && !is_promised(o);
}

struct ms_object *ms_table_find_idle(const struct ms_table *t,
                                     uint64_t least,
                                     uint64_t *bytes,
                                     uint64_t *promised)
{
    struct ms_object *oldest = NULL;

    *bytes = *promised = 0;
    ms_list_each (o, &t->all, struct ms_object, link) {
        if (o->len < least || !is_unread(o))
            continue;
        *(is_promised(o) ? promised : bytes) += o->len;
        if (!is_promised(o) && (!oldest || o->used_ns < oldest->used_ns))
            oldest = o;
    }
    return oldest;
}

int64_t ms_table_expire(struct ms_table *t, int64_t now_ns)
{
    while (!ms_list_is_empty(&t->leases)) {
        struct lease *l = ms_list_first(&t->leases, struct lease, link);
        /* the analyzer does not follow links. NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
        struct ms_hold *hold = l->hold;

        if (l->deadline_ns > now_ns)
            return l->deadline_ns;
        lease_free(l);
        hold->count--;
        hold->late++;
        hold_settle(hold);
    }
    return MS_NEVER;
}
