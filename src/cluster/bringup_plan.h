/* bringup_plan.h - starting ranks of a cluster: what is asked when, and when it has failed
 *
 *   NODES    each node starts its processes
 *   HELPERS  processes on the further nodes of ranks that are wider than one
 *   STEPS    every worker makes its engines and does what else the spec says, all at once
 *   FAILING  one has failed: others that fail for the same reason say so
 *   ENDING   all of these ranks end
 *
 * All or none: if one fails, dies or takes too long, none of the changing ranks of the cluster
 * lives in the end. The caller tells what has happened and does what the answer
 * says: one thing, and perhaps another time at which to ask again.
 *
 * Pure: no clock, no socket.
 */
#ifndef MS_CLUSTER_BRINGUP_PLAN_H
#define MS_CLUSTER_BRINGUP_PLAN_H

#include "cluster/registry.h"

enum ms_bringup_phase {
    MS_BRINGUP_NODES,
    MS_BRINGUP_HELPERS,
    MS_BRINGUP_STEPS,
    MS_BRINGUP_FAILING,
    MS_BRINGUP_ENDING
};

struct ms_bringup_plan {
    enum ms_bringup_phase phase;
    size_t open;             /* ranks whose steps are not done */
    int64_t step_timeout_ns; /* of each step */
    bool is_late;            /* workers were asked where they are */
};

enum ms_bringup_do {
    MS_BRINGUP_DO_NOTHING,
    MS_BRINGUP_DO_HELPERS,   /* ask for them */
    MS_BRINGUP_DO_STEPS,     /* ask all changing ranks for their steps */
    MS_BRINGUP_DO_MORE,      /* ask this rank for the steps that were added meanwhile */
    MS_BRINGUP_DO_ASK_WHERE, /* ask those that have not answered where they are */
    MS_BRINGUP_DO_END,       /* end all of these ranks by force */
    MS_BRINGUP_DO_DONE       /* all are there */
};

struct ms_bringup_answer {
    enum ms_bringup_do what;
    bool sets_timer;
    int64_t timer_ns; /* ms_bringup_plan_late after that time */
};

/* How long each step of these workers may take, and their processes until they run. */
int64_t ms_bringup_step_ns(const Muster__ClusterSpec *spec);
int64_t ms_bringup_process_ns(int64_t step_timeout_ns);

/* For the changing ranks of the cluster; step_timeout_ns 0: as its spec says. Their processes
 * may take ms_bringup_process_ns. */
void ms_bringup_plan_init(struct ms_bringup_plan *p,
                          struct ms_cluster *c,
                          int64_t step_timeout_ns);

/* All nodes have answered that were asked; has_failed: one could not. `err` is set if an agent
 * did not answer for every worker. */
struct ms_bringup_answer ms_bringup_plan_answered(struct ms_bringup_plan *p,
                                                  const struct ms_cluster *c,
                                                  struct ms_error *err);
/* A worker has done the steps that it was asked for. */
struct ms_bringup_answer ms_bringup_plan_rank_done(struct ms_bringup_plan *p,
                                                   struct ms_slot *s);
/* A worker has failed, or died; `counts`: nothing was known of it before. */
struct ms_bringup_answer
ms_bringup_plan_rank_failed(struct ms_bringup_plan *p, struct ms_slot *s, bool *counts);
/* The time is up. */
struct ms_bringup_answer ms_bringup_plan_late(struct ms_bringup_plan *p);
/* Nobody wants them any more; is_asked: answers of nodes are on their way. */
struct ms_bringup_answer ms_bringup_plan_cancel(struct ms_bringup_plan *p,
                                                bool is_asked);

/* What becomes of the steps of a rank is not known of all. */
bool ms_bringup_plan_is_open(const struct ms_bringup_plan *p);

/* Put a new incarnation into each changing slot of the cluster; their numbers are made by
 * next_uid. 0, or as ms_slot_renew: then none of these ranks lives. */
int ms_cluster_renew(struct ms_registry *r,
                     struct ms_cluster *c,
                     uint64_t (*next_uid)(void),
                     struct ms_error *err);

#endif
