/* file_impl.h - the parts of file.h: file_driver.c, file_nodes.c, file_roles.c; private to
 * job/ */
#ifndef MS_JOB_FILE_IMPL_H
#define MS_JOB_FILE_IMPL_H

#include "job/file.h"
#include "job/yaml.h"

/* The values of `nodes` and `roles`. */
int ms_job_read_nodes(struct ms_job *job, struct ms_yaml_at at, struct ms_error *err);
int ms_job_read_roles(struct ms_job *job, struct ms_yaml_at at, struct ms_error *err);
void ms_job_role_finish(struct ms_job_role *r);

/* The values of `name`, `driver` and `env`. */
int ms_job_read_name(struct ms_job *job, struct ms_yaml_at at, struct ms_error *err);
int ms_job_read_driver(struct ms_job *job, struct ms_yaml_at at, struct ms_error *err);
int ms_job_read_env(struct ms_job *job, struct ms_yaml_at at, struct ms_error *err);
void ms_job_words_free(char **words); /* NULL is nothing */

#endif
