/* groups.c - placement groups that are held, and those that wait for room */
#include "resource/groups.h"
#include "base/clock.h"
#include "base/name.h"
#include "resource/amount.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void ms_groups_init(struct ms_groups *g, struct ms_stock *stock)
{
    *g = (struct ms_groups){.stock = stock};
    ms_list_init(&g->all);
    ms_list_init(&g->waiting);
    ms_list_init(&g->news);
}

static void group_destroy(struct ms_groups *g, struct ms_group *group)
{
    ms_list_remove(&group->link);
    ms_list_remove(&group->waiting);
    ms_list_remove(&group->news);
    ms_placement_finish(&group->placement);
    ms_request_finish(&group->request);
    free(group->uses);
    free(group->name);
    free(group);
    g->count--;
}

void ms_groups_finish(struct ms_groups *g)
{
    ms_list_each (group, &g->all, struct ms_group, link)
        group_destroy(g, group);
}

struct ms_group *ms_groups_find(const struct ms_groups *g, const char *name)
{
    ms_list_each (group, &g->all, struct ms_group, link)
        if (strcmp(group->name, name) == 0)
            return group;
    return NULL;
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

static int no_room(const struct ms_groups *g,
                   const struct ms_place_request *r,
                   bool may_wait,
                   struct ms_error *err)
{
    int rc = check_possible(g->stock, r, err);

    if (rc < 0 || may_wait)
        return rc;
    return ms_error_set(err,
                        -EBUSY,
                        "group '%s': what its %s need%s is held by others",
                        r->name,
                        ms_amount_count(r->count, "bundle").text,
                        r->count == 1 ? "s" : "");
}

static struct ms_group *
group_create(struct ms_groups *g, const struct ms_place_request *r, int64_t deadline_ns)
{
    struct ms_group *group = calloc(1, sizeof *group);

    if (!group)
        return NULL;
    ms_list_init(&group->waiting);
    ms_list_init(&group->news);
    group->deadline_ns = deadline_ns;
    group->name = strdup(r->name);
    if (!group->name || ms_request_copy(&group->request, r) < 0) {
        free(group->name);
        free(group);
        return NULL;
    }
    ms_list_add_tail(&g->all, &group->link);
    g->count++;
    return group;
}

static int check_new(const struct ms_groups *g, const char *name, struct ms_error *err)
{
    int rc = ms_name_check(name, "group", err);

    if (rc < 0)
        return rc;
    if (ms_groups_find(g, name))
        return ms_error_set(err, -EEXIST, "there is a group '%s' already", name);
    if (g->count == MS_GROUPS_MAX)
        return ms_error_set(err, -E2BIG, "more than %zu groups", MS_GROUPS_MAX);
    return 0;
}

int ms_groups_ask(struct ms_groups *g,
                  const struct ms_place_request *r,
                  int64_t now_ns,
                  int64_t deadline_ns,
                  struct ms_group **out,
                  struct ms_error *err)
{
    struct ms_group *group;
    int rc = check_new(g, r->name, err);

    if (rc < 0)
        return rc;
    group = group_create(g, r, deadline_ns);
    if (!group)
        return ms_error_set(err, -ENOMEM, "group '%s': out of memory", r->name);
    rc = ms_place(g->stock, &group->request, &group->placement, err);
    if (rc == -ENOSPC || rc == -EAGAIN) {
        rc = no_room(g, &group->request, deadline_ns > now_ns, err);
        if (rc == 0)
            ms_list_add_tail(&g->waiting, &group->waiting);
    } else if (rc == 0) {
        group->state = MS_GROUP_PLACED;
    }
    if (rc < 0) {
        group_destroy(g, group);
        return rc;
    }
    *out = group;
    return 0;
}

int ms_groups_restore(struct ms_groups *g,
                      const struct ms_place_request *r,
                      struct ms_placement *p,
                      struct ms_group **out,
                      struct ms_error *err)
{
    int rc = check_new(g, r->name, err);

    if (rc < 0)
        return rc;
    *out = group_create(g, r, 0);
    if (!*out)
        return ms_error_set(err, -ENOMEM, "group '%s': out of memory", r->name);
    (*out)->state = MS_GROUP_PLACED;
    (*out)->placement = *p;
    *p = (struct ms_placement){0};
    ms_place_hold(g->stock, &(*out)->request, &(*out)->placement);
    return 0;
}

/* ---- what happens ---------------------------------------------------------------- */

static void
become(struct ms_groups *g, struct ms_group *group, enum ms_group_state state)
{
    group->state = state;
    ms_list_remove(&group->waiting);
    ms_list_remove(&group->news);
    ms_list_add_tail(&g->news, &group->news);
}

void ms_groups_retry(struct ms_groups *g)
{
    ms_list_each (group, &g->waiting, struct ms_group, waiting)
        if (ms_place(g->stock, &group->request, &group->placement, &group->why) == 0)
            become(g, group, MS_GROUP_PLACED);
}

void ms_groups_remove(struct ms_groups *g, struct ms_group *group)
{
    bool held = group->state == MS_GROUP_PLACED || group->state == MS_GROUP_BROKEN;

    if (held)
        ms_place_release(g->stock, &group->request, &group->placement);
    group_destroy(g, group);
    if (held)
        ms_groups_retry(g);
}

static bool is_on(const struct ms_group *group, uint32_t node)
{
    for (size_t i = 0; i < group->placement.count; i++)
        if (group->placement.nodes[i] == node)
            return true;
    return false;
}

void ms_groups_node_gone(struct ms_groups *g, uint32_t node)
{
    ms_list_each (group, &g->all, struct ms_group, link)
        if (group->state == MS_GROUP_PLACED && is_on(group, node))
            become(g, group, MS_GROUP_BROKEN);
}

void ms_groups_expire(struct ms_groups *g, int64_t now_ns)
{
    ms_list_each (group, &g->waiting, struct ms_group, waiting) {
        if (group->deadline_ns > now_ns)
            continue;
        if (check_possible(g->stock, &group->request, &group->why) == 0)
            ms_error_set(
                &group->why,
                -ETIMEDOUT,
                "group '%s': what it needs was held by others until its deadline",
                group->name);
        become(g, group, MS_GROUP_FAILED);
    }
}

int64_t ms_groups_deadline(const struct ms_groups *g)
{
    int64_t first = MS_NEVER;

    ms_list_each (group, &g->waiting, struct ms_group, waiting)
        if (group->deadline_ns < first)
            first = group->deadline_ns;
    return first;
}

struct ms_group *ms_groups_next(struct ms_groups *g)
{
    struct ms_group *group;

    if (ms_list_is_empty(&g->news))
        return NULL;
    group = ms_list_first(&g->news, struct ms_group, news);
    ms_list_remove(&group->news);
    return group;
}
