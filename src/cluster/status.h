/* status.h - a cluster as a message for people and tools */
#ifndef MS_CLUSTER_STATUS_H
#define MS_CLUSTER_STATUS_H

#include "cluster/registry.h"

/* All workers with what is known of them, what rank 0 answered to its steps (NULL: nothing),
 * and what drivers tell each other of it. Freed with muster__cluster_status__free_unpacked(s, NULL). NULL: out of memory. */
Muster__ClusterStatus *ms_cluster_status(const struct ms_cluster *c,
                                         const Muster__StepsDone *first,
                                         bool with_meta);

/* One worker; the first of these borrows all from the slot. */
void ms_slot_describe(const struct ms_slot *slot, Muster__WorkerStatus *w);
Muster__WorkerStatus *ms_slot_status(const struct ms_slot *slot);

#endif
