/* plan.h - from a cluster's spec and its places to what each process is started with
 *
 * A plan borrows a spec, a placement and what is known of the nodes, and tells for each rank
 * which WorkerSpec goes to which node: its environment (RANK, WORLD_SIZE, the visible
 * devices, ..., then the role's own variables), its devices, its number. The head adds what
 * only it knows: uid, incarnation, driver.
 *
 * The environment of a rank, in the order in which later ones win:
 *   RANK WORLD_SIZE LOCAL_RANK MUSTER_LOCAL_RANK LOCAL_WORLD_SIZE NODE_RANK MASTER_ADDR
 *   MASTER_PORT CLUSTER_NAME WORKER_NAME, the variables of the visible devices, the role's
 *   own, MUSTER_DEVICE_VARIABLE.
 * A role cannot say which devices its workers see: that follows from their places.
 *
 * Pure: no clock, no socket.
 */
#ifndef MS_CLUSTER_PLAN_H
#define MS_CLUSTER_PLAN_H

#include "base/error.h"
#include "proto/muster.pb-c.h"

#include <stdbool.h>
#include <stddef.h>

struct ms_plan_place;

struct ms_plan {
    const Muster__ClusterSpec *spec;
    const Muster__ClusterPlaced *placed;
    const char *master_host; /* of the port that is held for the cluster */
    uint32_t master_port;
    /* What a node has; NULL: nobody has told. */
    const Muster__NodeShape *(*shape_of)(void *arg, const char *node);
    void *arg;
    struct ms_plan_place *places; /* of each rank; the plan's own */
};

/* The fields above `places` are set. 0 or -ENOMEM. */
int ms_plan_init(struct ms_plan *p);
void ms_plan_finish(struct ms_plan *p);

/* The process of a rank: without uid, incarnation and driver. Freed with
 * muster__worker_spec__free_unpacked. NULL with the reason: -EINVAL (the role has a variable
 * that follows from the place), -ENOMEM. */
Muster__WorkerSpec *
ms_plan_worker(const struct ms_plan *p, uint32_t rank, struct ms_error *err);

/* The process on a further node of a rank that is wider than one; number 1, 2, ... is that
 * on the second, third, ... of its pieces. `helps`: uid of the rank's worker. */
Muster__WorkerSpec *ms_plan_helper(const struct ms_plan *p,
                                   uint32_t rank,
                                   uint32_t number,
                                   uint64_t helps,
                                   struct ms_error *err);

/* The process of a rank of a cluster that runs beside another one, which has the rest of its
 * environment. `beside`: uid of the worker. */
Muster__WorkerSpec *ms_plan_beside(const struct ms_plan *p,
                                   uint32_t rank,
                                   uint64_t beside,
                                   struct ms_error *err);

#endif
