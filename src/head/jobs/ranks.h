/* ranks.h - which process is which rank of a job, and how it ended */
#ifndef MS_HEAD_JOBS_RANKS_H
#define MS_HEAD_JOBS_RANKS_H

#include "base/buf.h"
#include "cluster/registry.h"
#include "job/core/core.h"
#include "proto/muster.pb-c.h"

struct ms_hosted;

/* Which incarnation of the core each rank of a role has. */
struct ms_job_ranks {
    uint64_t *uids;
    uint32_t *incarnations;
    size_t count;
};

/* Of a rank whose process this is now; 0: not known. */
uint32_t
ms_hosted_incarnation(const struct ms_hosted *job, uint32_t role, uint64_t uid);
/* What the cluster has now; processes that are not known are of this incarnation. */
void ms_hosted_note_ranks(struct ms_hosted *job,
                          uint32_t role,
                          const struct ms_cluster *c,
                          uint32_t incarnation);
/* Those that have ended, again: the core ignores what it knows. */
void ms_hosted_tell_ends(struct ms_hosted *job, uint32_t role);
struct ms_job_ranks *ms_hosted_ranks(struct ms_hosted *job, uint32_t role);
/* What an exit is to the core; the text is for the event. */
enum ms_job_cause ms_job_cause_of(const Muster__Exit *exit);
void ms_job_exit_text(const Muster__Exit *exit, struct ms_buf *out);

#endif
