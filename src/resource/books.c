/* books.c - nodes that come and go, and the groups on them */
#include "resource/books.h"
#include "base/cleanup.h"
#include "base/name.h"
#include "resource/books_impl.h"
#include "resource/why.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

void ms_books_init(struct ms_books *b)
{
    *b = (struct ms_books){0};
    ms_groups_init(&b->groups, &b->stock);
    ms_list_init(&b->claims);
}

void ms_books_finish(struct ms_books *b)
{
    ms_list_each (c, &b->claims, struct ms_claim, link)
        ms_claim_destroy(c);
    ms_groups_finish(&b->groups);
    ms_stock_finish(&b->stock);
}

/* ---- nodes ----------------------------------------------------------------------- */

/* All that names nodes by index: those from `at` on have moved up. */
static void shift(struct ms_books *b, uint32_t at)
{
    ms_list_each (g, &b->groups.all, struct ms_group, link)
        for (size_t i = 0; i < g->placement.count; i++)
            g->placement.nodes[i] += g->placement.nodes[i] >= at;
    ms_list_each (c, &b->claims, struct ms_claim, link)
        for (uint32_t i = 0; i < c->layout.first[c->layout.world_size]; i++)
            c->layout.pieces[i].node += c->layout.pieces[i].node >= at;
}

/* A new node in its place by name. Its index or a negative errno. */
static int64_t
insert_node(struct ms_books *b, const Muster__NodeShape *shape, struct ms_error *err)
{
    struct ms_stock *s = &b->stock;
    int64_t last = ms_stock_append(s, shape->name, 0, 0, err);
    struct ms_stock_node n;
    size_t at;

    if (last < 0)
        return last;
    n = s->nodes[last];
    for (at = (size_t)last; at && ms_name_order(n.name, s->nodes[at - 1].name) < 0;
         at--)
        s->nodes[at] = s->nodes[at - 1];
    s->nodes[at] = n;
    if ((int64_t)at < last)
        shift(b, (uint32_t)at);
    return (int64_t)at;
}

static bool is_held(const struct ms_stock_node *n)
{
    for (size_t i = 0; i < n->extra_count; i++)
        if (n->extras[i].held)
            return true;
    return n->whole < n->device_count;
}

int ms_books_node_came(struct ms_books *b,
                       const Muster__NodeShape *s,
                       struct ms_error *err)
{
    struct ms_stock_node *n = ms_stock_find(&b->stock, s->name);
    int64_t at = n ? n - b->stock.nodes : insert_node(b, s, err);
    int rc = 0;

    if (at < 0)
        return (int)at;
    n = &b->stock.nodes[at];
    n->is_gone = false;
    n->cpu_milli = ms_shape_cpu_milli(s);
    n->memory = s->memory;
    if (!is_held(n)) {
        ms_stock_strip(n);
        rc = ms_stock_describe(&b->stock, (size_t)at, s, true, err);
    }
    ms_groups_retry(&b->groups);
    return rc;
}

void ms_books_node_gone(struct ms_books *b, const char *name)
{
    struct ms_stock_node *n = ms_stock_find(&b->stock, name);

    if (!n || n->is_gone)
        return;
    n->is_gone = true;
    ms_groups_node_gone(&b->groups, (uint32_t)(n - b->stock.nodes));
}

/* ---- groups ---------------------------------------------------------------------- */

int ms_books_ask(struct ms_books *b,
                 const struct ms_place_request *r,
                 uint64_t owner,
                 int64_t now_ns,
                 int64_t deadline_ns,
                 struct ms_group **out,
                 struct ms_buf *table,
                 struct ms_error *err)
{
    struct ms_holders holders = ms_books_holders(b);
    struct ms_place_request named = *r;
    uint64_t id = b->last_id + 1;
    char name[32];
    int rc;

    snprintf(name, sizeof name, "group-%llu", (unsigned long long)id);
    if (!r->name || !r->name[0])
        named.name = name;
    rc = ms_groups_ask(&b->groups, &named, now_ns, deadline_ns, out, err);
    if (rc == 0) {
        (*out)->id = b->last_id = id;
        (*out)->owner = owner;
    } else if (table && (rc == -ENOSPC || rc == -EAGAIN || rc == -EBUSY) &&
               ms_place_explain(&b->stock, &named, &holders, table) < 0) {
        rc = ms_error_set(err, -ENOMEM, "group '%s': out of memory", named.name);
    }
    return rc;
}

struct ms_group *ms_books_find_group(const struct ms_books *b, const char *name)
{
    struct ms_group *g = ms_groups_find(&b->groups, name);

    return g && !g->is_ending ? g : NULL;
}

static const char *user_of(const struct ms_books *b, const struct ms_group *g)
{
    ms_list_each (c, &b->claims, struct ms_claim, link)
        for (uint32_t i = 0; c->seats && i < c->layout.world_size; i++)
            if (c->seats[i].group == g)
                return c->cluster;
    return "";
}

int ms_books_remove(struct ms_books *b, struct ms_group *group, struct ms_error *err)
{
    if (group->users)
        return ms_error_set(err,
                            -EBUSY,
                            "group '%s': cluster '%s' stands in it; destroy that first",
                            group->name,
                            user_of(b, group));
    ms_groups_remove(&b->groups, group);
    return 0;
}

void ms_books_drop_owner(struct ms_books *b, uint64_t owner)
{
    ms_list_each (g, &b->groups.all, struct ms_group, link)
        if (g->owner == owner && !g->detached)
            g->is_ending = true;
    ms_books_settle(b);
}

void ms_books_settle(struct ms_books *b)
{
    bool again = true;

    while (again) { /* the list may change in more than one place */
        again = false;
        ms_list_each (g, &b->groups.all, struct ms_group, link)
            if (g->is_ending && g->users == 0) {
                ms_groups_remove(&b->groups, g);
                again = true;
                break;
            }
    }
    ms_groups_retry(&b->groups);
}
