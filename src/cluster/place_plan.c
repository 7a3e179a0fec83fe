/* place_plan.c - where a rank runs when it is started again */
#include "cluster/place_plan.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

static bool is_named(const char *node, char *const *nodes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(nodes[i], node) == 0)
            return true;
    return false;
}

static bool is_elsewhere(const Muster__RestartWorkers *w, uint32_t rank)
{
    for (size_t i = 0; i < w->n_elsewhere; i++)
        if (w->elsewhere[i] == rank)
            return true;
    return false;
}

/* Ranks of certain devices, of several nodes, or with others in their bundles, stay. */
static bool can_move(const struct ms_slot *slot, const struct ms_place_facts *facts)
{
    const struct ms_cluster *c = slot->cluster;

    return !c->spec->beside[0] && !c->spec->place->n_devices &&
           !c->spec->place->n_seats && c->placed->ranks[slot->rank]->n_pieces == 1 &&
           !facts->is_shared;
}

/* It could stay, but is to go. */
static bool is_unwanted_here(const struct ms_slot *slot,
                             const Muster__RestartWorkers *w,
                             const struct ms_place_facts *facts)
{
    return can_move(slot, facts) &&
           (is_elsewhere(w, slot->rank) ||
            (w->n_nodes && !is_named(slot->node, w->nodes, w->n_nodes)));
}

static void add(struct ms_place_plan *p, enum ms_place_try what)
{
    assert(p->count < MS_PLACE_TRIES_MAX);
    p->tries[p->count++] = what;
}

/* Its node is there. It stays if there is no other place, unless it may not. */
static enum ms_place_try elsewhere(const Muster__RestartWorkers *w)
{
    return w->n_nodes ? MS_PLACE_AMONG : MS_PLACE_ANYWHERE;
}

static bool has_own_group(const struct ms_slot *s)
{
    return s->cluster->spec->place && s->cluster->spec->place->own_group;
}

/* It may have another amount of memory than this one was started with. */
static void plan_memory(struct ms_place_plan *p,
                        const struct ms_slot *s,
                        const Muster__RestartWorkers *w,
                        const struct ms_place_facts *facts)
{
    if (has_own_group(s)) { /* its bundle grows where it is, or moves */
        add(p, elsewhere(w));
        return;
    }
    add(p, MS_PLACE_MEMORY);
    if (can_move(s, facts))
        add(p, elsewhere(w));
}

/* Its node is there. It stays if there is no other place, unless it may not. */
static void plan_present(struct ms_place_plan *p,
                         const struct ms_slot *s,
                         const Muster__RestartWorkers *w,
                         const struct ms_place_facts *facts)
{
    bool is_wanted = !is_unwanted_here(s, w, facts);

    if (!is_wanted)
        add(p, MS_PLACE_AMONG);
    if (!is_wanted && !is_elsewhere(w, s->rank))
        return;
    if (s->memory == s->cluster->spec->worker->memory_limit)
        add(p, MS_PLACE_STAY);
    else
        plan_memory(p, s, w, facts);
}

static void plan_lost(struct ms_place_plan *p,
                      const struct ms_slot *s,
                      const Muster__RestartWorkers *w,
                      const struct ms_place_facts *facts)
{
    bool is_unwanted = is_unwanted_here(s, w, facts);

    add(p, is_unwanted || has_own_group(s) ? elsewhere(w) : MS_PLACE_ANYWHERE);
    if (w->n_nodes && is_unwanted && is_elsewhere(w, s->rank))
        add(p, MS_PLACE_STAY);
}

int ms_place_plan_init(struct ms_place_plan *p,
                       const struct ms_slot *slot,
                       const Muster__RestartWorkers *w,
                       const struct ms_place_facts *facts,
                       struct ms_error *err)
{
    *p = (struct ms_place_plan){0};
    if (!facts->is_lost)
        plan_present(p, slot, w, facts);
    else if (!slot->cluster->spec->beside[0])
        plan_lost(p, slot, w, facts);
    else
        return ms_error_set(err,
                            -ENODEV,
                            "%s/%u: node %s is gone, and the worker beside it",
                            slot->cluster->name,
                            slot->rank,
                            slot->node);
    return 0;
}

bool ms_place_plan_is_empty(const struct ms_place_plan *p)
{
    return p->count == 1 && p->tries[0] == MS_PLACE_STAY;
}

bool ms_place_plan_goes_on(struct ms_place_plan *p, int rc)
{
    /* only one that has no room for more moves for it */
    if (p->tries[p->at] == MS_PLACE_MEMORY && rc != -ENOSPC)
        return false;
    return ++p->at < p->count;
}

char **ms_place_plan_nodes(const Muster__RestartWorkers *w,
                           const struct ms_slot *slot,
                           Muster__Scope *scope)
{
    char **all = w->n_nodes ? w->nodes : scope->nodes;
    size_t count = w->n_nodes ? w->n_nodes : scope->n_nodes;
    char **names = calloc(count + 1, sizeof *names);

    scope->n_nodes = 0;
    for (size_t i = 0; names && i < count; i++)
        if (!is_elsewhere(w, slot->rank) || strcmp(all[i], slot->node) != 0)
            names[scope->n_nodes++] = all[i];
    scope->nodes = names;
    return names;
}

/* ---- the places that a cluster has ------------------------------------------------- */

int ms_cluster_move(struct ms_slot *slot, Muster__RankPlace **place)
{
    struct ms_cluster *c = slot->cluster;
    const Muster__Piece *first = (*place)->pieces[0];
    Muster__RankPlace *before = c->placed->ranks[slot->rank];
    bool is_same = strcmp(first->node, slot->node) == 0;
    int rc = ms_slot_move(slot, first->node, first->devices, first->n_devices);

    if (rc < 0)
        return rc;
    c->placed->ranks[slot->rank] = *place;
    *place = before;
    slot->memory = c->spec->worker->memory_limit;
    if (slot->rank == 0 && c->master && !is_same)
        c->master->port = 0; /* of the node before: another one has to be held */
    return 0;
}

int ms_cluster_add_places(struct ms_cluster *c, Muster__ClusterPlaced *more)
{
    size_t count = c->placed->n_ranks + more->n_ranks;
    Muster__RankPlace **all =
        realloc(c->placed->ranks, count * sizeof(Muster__RankPlace *));

    if (!all)
        return -ENOMEM;
    c->placed->ranks = all;
    memcpy(all + c->placed->n_ranks,
           more->ranks,
           more->n_ranks * sizeof(Muster__RankPlace *));
    c->placed->n_ranks = count;
    more->n_ranks = 0;
    return 0;
}

void ms_cluster_cut(struct ms_registry *r, struct ms_cluster *c, uint32_t count)
{
    ms_cluster_end_unstarted(r, c, false, "it was not started");
    (void)ms_cluster_resize(r, c, NULL, count);
    while (c->placed->n_ranks > c->count)
        muster__rank_place__free_unpacked(c->placed->ranks[--c->placed->n_ranks], NULL);
}
