/* place_plan.h - where a rank runs when it is started again, and the places that follow
 *
 * A worker that is started again has the place of the one before it, unless the node of that
 * is gone, it was asked to go elsewhere, or it may have more memory now than there is. A plan
 * is what to try, in order, until one works.
 *
 * Pure: no clock, no socket. What there is room for is in the books (resource/books.h).
 */
#ifndef MS_CLUSTER_PLACE_PLAN_H
#define MS_CLUSTER_PLACE_PLAN_H

#include "cluster/registry.h"

enum ms_place_try {
    MS_PLACE_STAY,     /* where it is, with what it has */
    MS_PLACE_MEMORY,   /* where it is, with the memory that the spec says now */
    MS_PLACE_AMONG,    /* on one of ms_place_plan_nodes */
    MS_PLACE_ANYWHERE, /* as was asked when the cluster was created */
};

enum { MS_PLACE_TRIES_MAX = 3 };

struct ms_place_plan {
    enum ms_place_try tries[MS_PLACE_TRIES_MAX];
    size_t count, at;
};

/* What only the head knows. */
struct ms_place_facts {
    bool is_lost;   /* the node of the rank is gone */
    bool is_shared; /* other clusters are in the bundles of its own */
};

/* Where the rank of this slot goes. 0, or -ENODEV: it ran beside a worker on a node that is
 * gone. */
int ms_place_plan_init(struct ms_place_plan *p,
                       const struct ms_slot *slot,
                       const Muster__RestartWorkers *w,
                       const struct ms_place_facts *facts,
                       struct ms_error *err);
/* It stays as it is: there is nothing to try. */
bool ms_place_plan_is_empty(const struct ms_place_plan *p);
/* The first thing to try is p->tries[p->at]; it has failed with this code: is there another
 * one? Then it is the next. */
bool ms_place_plan_goes_on(struct ms_place_plan *p, int rc);

/* The nodes for MS_PLACE_AMONG, into the scope; the array is malloc'd, its names are borrowed.
 * NULL: out of memory. */
char **ms_place_plan_nodes(const Muster__RestartWorkers *w,
                           const struct ms_slot *slot,
                           Muster__Scope *scope);

/* ---- the places that a cluster has ------------------------------------------------- */

/* The slot's rank has this place from now on, which is exchanged for the one before. The port
 * of a rank 0 that has left its node is no longer held. 0 or -ENOMEM. */
int ms_cluster_move(struct ms_slot *slot, Muster__RankPlace **place);
/* More places, behind those that there are; the message is left empty. 0 or -ENOMEM. */
int ms_cluster_add_places(struct ms_cluster *c, Muster__ClusterPlaced *more);
/* The cluster has its first `count` ranks and their places only. The others have ended, those
 * that never were started too. */
void ms_cluster_cut(struct ms_registry *r, struct ms_cluster *c, uint32_t count);

#endif
