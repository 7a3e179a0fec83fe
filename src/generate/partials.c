/* partials.c - surplus samples that were begun, by the key of their prompt and by age */
#include "generate/partials.h"

#include "base/list.h"
#include "base/map.h"

#include <errno.h>
#include <stdlib.h>

struct entry {
    struct ms_list by_age; /* the oldest first */
    struct entry *next;    /* of its key; younger */
    struct ms_partial of;
};

struct ms_partials {
    struct ms_list all;
    struct ms_map keys; /* the oldest of each */
    uint64_t tokens_max;
    void (*release)(void *what);
    struct ms_partials_stats stats;
};

struct ms_partials *ms_partials_create(uint64_t tokens_max, void (*release)(void *what))
{
    struct ms_partials *p = calloc(1, sizeof *p);

    if (!p)
        return NULL;
    p->tokens_max = tokens_max;
    p->release = release;
    ms_list_init(&p->all);
    ms_map_init(&p->keys);
    return p;
}

static void unchain(struct ms_partials *p, struct entry *e)
{
    struct entry *first = ms_map_find(&p->keys, e->of.key);

    if (first != e) {
        while (first->next != e)
            first = first->next;
        first->next = e->next;
        return;
    }
    ms_map_remove(&p->keys, e->of.key);
    if (e->next) /* there is room: one has just left */
        (void)ms_map_add(&p->keys, e->of.key, e->next);
}

static void *take_out(struct ms_partials *p, struct entry *e)
{
    void *what = e->of.what;

    unchain(p, e);
    ms_list_remove(&e->by_age);
    p->stats.held--;
    p->stats.tokens -= e->of.tokens;
    free(e);
    return what;
}

void ms_partials_destroy(struct ms_partials *p)
{
    if (!p)
        return;
    ms_list_each (e, &p->all, struct entry, by_age)
        p->release(take_out(p, e));
    ms_map_finish(&p->keys);
    free(p);
}

static int chain(struct ms_partials *p, struct entry *e)
{
    struct entry *at = ms_map_find(&p->keys, e->of.key);

    if (!at)
        return ms_map_add(&p->keys, e->of.key, e);
    while (at->next)
        at = at->next;
    at->next = e;
    return 0;
}

int ms_partials_keep(struct ms_partials *p, const struct ms_partial *one)
{
    struct entry *e;
    int rc;

    if (one->key == 0 || one->tokens == 0)
        return -EINVAL;
    e = calloc(1, sizeof *e);
    if (!e)
        return -ENOMEM;
    e->of = *one;
    rc = chain(p, e);
    if (rc < 0) {
        free(e);
        return rc;
    }
    ms_list_add_tail(&p->all, &e->by_age);
    p->stats.held++;
    p->stats.kept++;
    p->stats.tokens += one->tokens;
    while (p->stats.tokens > p->tokens_max)
        p->release(take_out(p, ms_list_first(&p->all, struct entry, by_age)));
    return 0;
}

bool ms_partials_has(const struct ms_partials *p, uint64_t key)
{
    return key != 0 && ms_map_find(&p->keys, key);
}

void *
ms_partials_take(struct ms_partials *p, uint64_t key, uint64_t asked, uint32_t below)
{
    struct entry *e = key ? ms_map_find(&p->keys, key) : NULL;

    while (e && (e->of.asked != asked || e->of.tokens >= below))
        e = e->next;
    if (!e)
        return NULL;
    p->stats.resumed++;
    return take_out(p, e);
}

void ms_partials_expire(struct ms_partials *p, uint32_t version)
{
    ms_list_each (e, &p->all, struct entry, by_age)
        if (e->of.oldest < version)
            p->release(take_out(p, e));
}

struct ms_partials_stats ms_partials_stats(const struct ms_partials *p)
{
    return p->stats;
}
