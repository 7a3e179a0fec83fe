/* queue.h - which jobs may start, and what the others wait for */
#ifndef MS_HEAD_JOBS_QUEUE_H
#define MS_HEAD_JOBS_QUEUE_H

#include "head/jobs/hosted.h"

/* Those whose turn has come start; the others are told what they wait for. */
void ms_jobs_admit(struct ms_jobs *j);
/* What is left of the machine for a job that runs there, beyond what it has. False: its
 * machines are elsewhere, and nobody here counts them. */
bool ms_jobs_left(struct ms_hosted *job, struct ms_job_demand *left);
/* Take that much of it. False: there is less, and nothing has changed. */
bool ms_jobs_take(struct ms_jobs *j,
                  const struct ms_job_demand *wants,
                  struct ms_job_demand *left);
/* What one of its nodes takes of the machine. */
struct ms_job_demand ms_hosted_node_demand(const struct ms_hosted *job, uint32_t node);

#endif
