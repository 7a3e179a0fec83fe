/* simulated.h - jobs on sim: nothing is started */
#ifndef MS_HEAD_JOBS_SIMULATED_H
#define MS_HEAD_JOBS_SIMULATED_H

#include "head/jobs/hosted.h"

struct ms_job_doing;

bool ms_hosted_is_simulated(const struct ms_hosted *job);
/* The spec as it is there. 0, or -EINVAL with the reason. */
void ms_simulated_change(struct ms_job_spec *spec);
void ms_act_simulated(struct ms_job_doing *d); /* any action */
void ms_simulated_recover(struct ms_hosted *job);

#endif
