/* staleness.h - how many rollouts may begin, by AReaL's rule
 *
 *   capacity = min(max(1, concurrent_max) - running,
 *                  (staleness_max + version + 1) * max(1, batch) - (accepted + running))
 *
 * Staleness is bounded by admission: what begins now is consumed, at the latest, by the
 * update that makes it `staleness_max` versions old. A rollout is enqueued, then runs,
 * then is accepted or rejected; a rejected one gives its place back. The counters take
 * what they are told, as AReaL's do: a caller who submits what was never enqueued has a
 * negative count of those. What does not fit into 64 bits counts as the most that does. Pure.
 */
#ifndef MS_GENERATE_STALENESS_H
#define MS_GENERATE_STALENESS_H

#include <stdint.h>

struct ms_staleness {
    int64_t concurrent_max; /* rollouts that run at once */
    int64_t batch;          /* rollouts that one update consumes */
    int64_t staleness_max;  /* versions */
    int64_t enqueued, running, accepted, rejected;
};

/* Rollouts that may begin at this version of the weights; negative if there are too many
 * already. */
int64_t ms_staleness_capacity(const struct ms_staleness *s, int64_t version);

/* How many may wait to begin. */
int64_t ms_staleness_pending_max(const struct ms_staleness *s);

void ms_staleness_enqueue(struct ms_staleness *s);
void ms_staleness_submit(struct ms_staleness *s);
void ms_staleness_accept(struct ms_staleness *s);
void ms_staleness_reject(struct ms_staleness *s);

/* A job that was restored at `version` has consumed that many batches: nothing runs, and
 * the capacity is that of one which got there without a break. */
void ms_staleness_recover(struct ms_staleness *s, int64_t version);

#endif
