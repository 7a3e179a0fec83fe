/* job_file.h - the description of a job, from a file */
#ifndef MS_SESSION_JOB_FILE_H
#define MS_SESSION_JOB_FILE_H

#include "job/file.h"

/* As ms_job_read, of a regular file of at most MS_YAML_FILE_MAX bytes; also why the file cannot
 * be read. */
int ms_job_file_read(struct ms_job *job, const char *path, struct ms_error *err);

#endif
