/* spec.h - clusters of a job: its roles, its driver, the check of its nodes */
#ifndef MS_HEAD_JOBS_SPEC_H
#define MS_HEAD_JOBS_SPEC_H

#include "head/jobs/hosted.h"

/* To be freed with muster__cluster_spec__free_unpacked; NULL with the reason. */
Muster__ClusterSpec *ms_spec_of_role(const struct ms_hosted *job,
                                     uint32_t role,
                                     uint32_t count,
                                     uint32_t memory,
                                     struct ms_error *err);
/* Bytes that each of its ranks may have, at so many percent of what the file says; 0: as much
 * as there is. */
uint64_t ms_spec_memory(const struct ms_hosted *job, uint32_t role, uint32_t percent);
Muster__ClusterSpec *
ms_spec_of_driver(const struct ms_hosted *job, uint32_t attempt, struct ms_error *err);
/* One rank of the check's command on each of these nodes. */
Muster__ClusterSpec *ms_spec_of_check(const struct ms_hosted *job,
                                      const char *cluster,
                                      const char **nodes,
                                      uint32_t count,
                                      struct ms_error *err);

#endif
