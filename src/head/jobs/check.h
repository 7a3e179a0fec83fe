/* check.h - the check of the nodes of a job, in pairs */
#ifndef MS_HEAD_JOBS_CHECK_H
#define MS_HEAD_JOBS_CHECK_H

#include "head/jobs/hosted.h"

struct ms_job_doing;

void ms_act_check(struct ms_job_doing *d);
/* A worker of the job has ended: true, if it was one of the check. */
bool ms_check_exited(struct ms_hosted *job,
                     const struct ms_slot *slot,
                     const Muster__Exit *exit);
/* End what is under way: nobody wants the answer any more. */
void ms_check_cancel(struct ms_hosted *job);
void ms_check_drop(struct ms_hosted *job); /* its memory alone */

#endif
