/* file_impl.h - readers of the keys of a job: file_nodes.c, file_roles.c; private to job/ */
#ifndef MS_JOB_FILE_IMPL_H
#define MS_JOB_FILE_IMPL_H

#include "job/file.h"
#include "job/yaml.h"

/* *out is the job. */
ms_yaml_reader ms_job_read_nodes;
ms_yaml_reader ms_job_read_roles;
void ms_job_role_finish(struct ms_job_role *r);

#endif
