/* groups.c - placement groups of the books: those that are held, and those that wait */
#include "base/clock.h"
#include "base/name.h"
#include "resource/amount.h"
#include "resource/books_impl.h"
#include "resource/why.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ms_group_destroy(struct ms_books *b, struct ms_group *g)
{
    ms_list_remove(&g->link);
    ms_list_remove(&g->waiting);
    ms_list_remove(&g->news);
    ms_placement_finish(&g->placement);
    ms_place_request_finish(&g->request);
    free(g->uses);
    free(g->name);
    free(g);
    b->groups.count--;
}

static struct ms_group *find(const struct ms_books *b, const char *name)
{
    ms_list_each (g, &b->groups.all, struct ms_group, link)
        if (strcmp(g->name, name) == 0)
            return g;
    return NULL;
}

struct ms_group *ms_books_find_group(const struct ms_books *b, const char *name)
{
    struct ms_group *g = find(b, name);

    return g && !g->is_ending ? g : NULL;
}

/* ---- asking ---------------------------------------------------------------------- */

/* Could it be placed if nothing were held? 0, or why not. */
static int check_possible(const struct ms_stock *s,
                          const struct ms_place_request *r,
                          struct ms_error *err)
{
    struct ms_placement p;
    struct ms_stock empty;
    int rc = ms_stock_copy_unheld(s, &empty);

    if (rc < 0)
        return ms_error_set(err, rc, "group '%s': out of memory", r->name);
    rc = ms_place(&empty, r, &p, err);
    if (rc == 0)
        ms_placement_finish(&p);
    ms_stock_copy_finish(&empty);
    return rc;
}

int ms_books_check_group(const struct ms_books *b,
                         const struct ms_place_request *r,
                         struct ms_error *err)
{
    return check_possible(&b->stock, r, err);
}

static int group_create(struct ms_books *b,
                        const struct ms_place_request *r,
                        struct ms_group **out,
                        struct ms_error *err)
{
    int rc = ms_name_check(r->name, "group", err);
    struct ms_group *g;

    if (rc < 0)
        return rc;
    if (find(b, r->name))
        return ms_error_set(err, -EEXIST, "there is a group '%s' already", r->name);
    if (b->groups.count == MS_GROUPS_MAX)
        return ms_error_set(err, -E2BIG, "more than %zu groups", MS_GROUPS_MAX);
    g = calloc(1, sizeof *g);
    if (g)
        g->name = strdup(r->name);
    if (!g || !g->name || ms_place_request_copy(&g->request, r) < 0) {
        if (g)
            free(g->name);
        free(g);
        return ms_error_set(err, -ENOMEM, "group '%s': out of memory", r->name);
    }
    ms_list_init(&g->waiting);
    ms_list_init(&g->news);
    ms_list_add_tail(&b->groups.all, &g->link);
    b->groups.count++;
    *out = g;
    return 0;
}

/* It is placed, or waits; or why it can do neither. */
static int
place(struct ms_books *b, struct ms_group *g, bool may_wait, struct ms_error *err)
{
    int rc = ms_place(&b->stock, &g->request, &g->placement, err);

    if (rc == 0)
        g->state = MS_PLACEMENT_PLACED;
    if (rc != -ENOSPC && rc != -EAGAIN)
        return rc;
    rc = check_possible(&b->stock, &g->request, err);
    if (rc == 0 && !may_wait)
        return ms_error_set(err,
                            -EBUSY,
                            "group '%s': what its %s need%s is held by others",
                            g->name,
                            ms_amount_count(g->request.count, "bundle").text,
                            g->request.count == 1 ? "s" : "");
    if (rc == 0)
        ms_list_add_tail(&b->groups.waiting, &g->waiting);
    return rc;
}

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
    struct ms_group *g = NULL;
    char name[32];
    int rc;

    snprintf(name, sizeof name, "group-%llu", (unsigned long long)id);
    if (!r->name || !r->name[0])
        named.name = name;
    rc = group_create(b, &named, &g, err);
    if (rc < 0)
        return rc;
    g->deadline_ns = deadline_ns;
    rc = place(b, g, deadline_ns > now_ns, err);
    if (rc == 0) {
        g->id = b->last_id = id;
        g->owner = owner;
        *out = g;
        return 0;
    }
    ms_group_destroy(b, g);
    if (table && (rc == -ENOSPC || rc == -EAGAIN || rc == -EBUSY) &&
        ms_place_explain(&b->stock, &named, &holders, table) < 0)
        rc = ms_error_set(err, -ENOMEM, "group '%s': out of memory", named.name);
    return rc;
}

int ms_books_restore(struct ms_books *b,
                     const struct ms_place_request *r,
                     struct ms_placement *p,
                     struct ms_group **out,
                     struct ms_error *err)
{
    int rc = group_create(b, r, out, err);

    if (rc < 0)
        return rc;
    (*out)->state = MS_PLACEMENT_PLACED;
    (*out)->placement = *p;
    *p = (struct ms_placement){0};
    ms_place_hold(&b->stock, &(*out)->request, &(*out)->placement);
    return 0;
}

/* ---- what happens ---------------------------------------------------------------- */

static void
become(struct ms_books *b, struct ms_group *g, enum ms_placement_state state)
{
    g->state = state;
    ms_list_remove(&g->waiting);
    ms_list_remove(&g->news);
    ms_list_add_tail(&b->groups.news, &g->news);
}

void ms_books_retry(struct ms_books *b)
{
    ms_list_each (g, &b->groups.waiting, struct ms_group, waiting)
        if (ms_place(&b->stock, &g->request, &g->placement, &g->why) == 0)
            become(b, g, MS_PLACEMENT_PLACED);
}

static void give_back(struct ms_books *b, struct ms_group *g)
{
    bool held = g->state == MS_PLACEMENT_PLACED || g->state == MS_PLACEMENT_BROKEN;

    if (held)
        ms_place_release(&b->stock, &g->request, &g->placement);
    ms_group_destroy(b, g);
    if (held)
        ms_books_retry(b);
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
    give_back(b, group);
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
        /* the analyzer does not follow links. NOLINTNEXTLINE(clang-analyzer-unix.Malloc) */
        ms_list_each (g, &b->groups.all, struct ms_group, link)
            if ((g->is_ending || g->is_of_clusters) && g->users == 0) {
                give_back(b, g);
                again = true;
                break;
            }
    }
    ms_list_each (g, &b->groups.all, struct ms_group, link)
        ms_group_cut(b, g);
    ms_books_retry(b);
}

static bool is_on(const struct ms_group *g, uint32_t node)
{
    for (size_t i = 0; i < g->placement.count; i++)
        if (g->placement.nodes[i] == node)
            return true;
    return false;
}

void ms_groups_break(struct ms_books *b, uint32_t node)
{
    ms_list_each (g, &b->groups.all, struct ms_group, link)
        if (g->state == MS_PLACEMENT_PLACED && !g->is_of_clusters && is_on(g, node))
            become(b, g, MS_PLACEMENT_BROKEN);
}

void ms_books_expire(struct ms_books *b, int64_t now_ns)
{
    ms_list_each (g, &b->groups.waiting, struct ms_group, waiting) {
        if (g->deadline_ns > now_ns)
            continue;
        if (check_possible(&b->stock, &g->request, &g->why) == 0)
            ms_error_set(
                &g->why,
                -ETIMEDOUT,
                "group '%s': what it needs was held by others until its deadline",
                g->name);
        become(b, g, MS_PLACEMENT_FAILED);
    }
}

int64_t ms_books_deadline(const struct ms_books *b)
{
    int64_t first = MS_NEVER;

    ms_list_each (g, &b->groups.waiting, struct ms_group, waiting)
        if (g->deadline_ns < first)
            first = g->deadline_ns;
    return first;
}

struct ms_group *ms_books_next(struct ms_books *b)
{
    struct ms_group *g;

    if (ms_list_is_empty(&b->groups.news))
        return NULL;
    g = ms_list_first(&b->groups.news, struct ms_group, news);
    ms_list_remove(&g->news);
    return g;
}
