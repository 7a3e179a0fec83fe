/* end_plan.h - in which order ranks of a cluster end
 *
 * Others meet at rank 0 (a TCP store, a rendezvous), so it ends last: while the others end it
 * runs its own clean-up, and is asked to end when they are gone, with at least a quarter of
 * the grace to itself. Without a grace all are killed at once.
 *
 * A plan is a sequence of waves: the caller asks the ranks of a wave to end, waits
 * until they have, and asks for the next one.
 *
 * Pure: the time is an argument.
 */
#ifndef MS_CLUSTER_END_PLAN_H
#define MS_CLUSTER_END_PLAN_H

#include "cluster/registry.h"

enum ms_end_who { MS_END_ALL, MS_END_OTHERS, MS_END_FIRST };

struct ms_end_wave {
    enum ms_end_who who;
    int64_t grace_ns; /* SIGTERM until SIGKILL; 0: by force */
};

struct ms_end_plan {
    bool is_all;       /* of the cluster; else its changing slots */
    bool cleans_first; /* rank 0 runs its clean-up during the first wave */
    int64_t grace_ns, until_ns;
    enum ms_end_who waves[2];
    size_t count, at;
};

/* End the changing ranks of the cluster, or all of them. */
void ms_end_plan_init(struct ms_end_plan *p,
                      const struct ms_cluster *c,
                      bool is_all,
                      int64_t grace_ns,
                      int64_t now_ns);

/* The next wave; false: there is none. */
bool ms_end_plan_next(struct ms_end_plan *p, int64_t now_ns, struct ms_end_wave *out);

/* How long all waves may take, with what even SIGKILL needs. */
int64_t ms_end_plan_time_ns(const struct ms_end_plan *p);

/* Is this slot's worker asked to end in this wave? Not one whose process nobody knows. */
bool ms_end_plan_asks(const struct ms_end_plan *p,
                      const struct ms_end_wave *wave,
                      const struct ms_slot *slot);

/* How many of them live. */
size_t ms_end_plan_left(const struct ms_end_plan *p, const struct ms_cluster *c);
/* -ETIMEDOUT, with who of them does not end; some live. */
int ms_end_plan_late(const struct ms_end_plan *p,
                     const struct ms_cluster *c,
                     struct ms_error *err);

#endif
