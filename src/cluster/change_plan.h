/* change_plan.h - what a change of a cluster does, act after act
 *
 * To create, restart, end or resize a cluster is a plan: a value that says which ranks are
 * part of it and which acts make it, in order. The head carries out one act and asks for the
 * next. If an act fails, or the cluster is to be destroyed meanwhile, the plan goes on with
 * what undoes it.
 *
 *   create        KEEP, HOLD_PORT, START     undone: a cluster that was not made is forgotten
 *   restart       END, PLACE, HOLD_PORT, START    undone: all of these ranks stay dead
 *   end of ranks  END
 *   more ranks    ADD, START, TELL           undone: CUT, to as many as before
 *   fewer         END (the last ones), CUT, TELL
 *
 * A restarted cluster keeps its port: HOLD_PORT is left out unless rank 0 has moved.
 *
 * Pure: no clock, no socket.
 */
#ifndef MS_CLUSTER_CHANGE_PLAN_H
#define MS_CLUSTER_CHANGE_PLAN_H

#include "cluster/registry.h"

enum ms_act {
    MS_ACT_DONE,      /* there is nothing more to do: the change is over */
    MS_ACT_KEEP,      /* the objects that its steps name */
    MS_ACT_HOLD_PORT, /* where its ranks meet */
    MS_ACT_END,       /* the ranks of the plan, in order (end_plan.h) */
    MS_ACT_PLACE,     /* find new places for those that need them (place_plan.h) */
    MS_ACT_ADD,       /* ranks, with places */
    MS_ACT_START,     /* the ranks of the plan: all are there, or none of them lives */
    MS_ACT_CUT,       /* the cluster has the ranks below `size` only */
    MS_ACT_TELL,      /* the drivers that have handles of it */
};

enum { MS_ACTS_MAX = 4 };

struct ms_change_plan {
    enum ms_act acts[MS_ACTS_MAX];
    size_t count, at; /* the acts; the one that comes next */
    enum ms_act last; /* that was begun */
    enum ms_act undo; /* follows a START that has failed */
    bool can_cancel;  /* it is given up if the cluster is to be destroyed */
    bool renews;      /* its ranks had workers before: new incarnations */
    const char
        *why; /* calls to the workers that it ends fail with this; NULL: as they are */
    uint32_t *ranks; /* that are part of it, each once, in order */
    size_t rank_count;
    uint32_t size; /* to which CUT cuts */
    int64_t grace_ns, step_timeout_ns;
};

/* Can this cluster be changed now? -ENOENT (it is being destroyed), -EBUSY, -ENOTSUP: nobody
 * knows how its workers were made. */
int ms_cluster_check_change(const struct ms_cluster *c, struct ms_error *err);
int ms_cluster_check_spec(const struct ms_cluster *c, struct ms_error *err);

/* Each begins a plan, to be finished; on failure there is none. */

/* Of a cluster of so many ranks that is new. -ENOMEM. */
int ms_change_plan_create(struct ms_change_plan *p,
                          const Muster__ClusterSpec *spec,
                          uint32_t count);
/* -EINVAL (it has no such rank), -EAGAIN (nobody has reported one of its workers yet),
 * -ENOTSUP (another amount of memory is not possible), -ENOMEM. */
int ms_change_plan_restart(struct ms_change_plan *p,
                           const struct ms_cluster *c,
                           const Muster__RestartWorkers *w,
                           struct ms_error *err);
/* -EINVAL (that many cannot be), -ENOTSUP (not this cluster), -EAGAIN, -ENOMEM. */
int ms_change_plan_resize(struct ms_change_plan *p,
                          const struct ms_cluster *c,
                          const Muster__ResizeCluster *w,
                          struct ms_error *err);
void ms_change_plan_finish(struct ms_change_plan *p);

/* The act that comes next. `err` says what was wrong with the one before (code 0: nothing),
 * or is set: -ECANCELED (is_unwanted: the cluster is to be destroyed), -ETIMEDOUT (ranks have
 * not ended). After MS_ACT_DONE the plan is over. */
enum ms_act ms_change_plan_next(struct ms_change_plan *p,
                                const struct ms_cluster *c,
                                bool is_unwanted,
                                struct ms_error *err);

/* Its ranks are those that the cluster is busy with from now on. */
void ms_change_plan_mark(const struct ms_change_plan *p, struct ms_cluster *c);

/* So many bytes for each rank that is started from now on; 0: as before. */
void ms_cluster_set_memory(struct ms_cluster *c, uint64_t memory);

#endif
