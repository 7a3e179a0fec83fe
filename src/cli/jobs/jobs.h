/* jobs.h - commands about jobs
 *
 *   check.c    `muster check`
 */
#ifndef MS_CLI_JOBS_JOBS_H
#define MS_CLI_JOBS_JOBS_H

#include "cli/cli.h"
#include "job/file.h"

/* Read the command's FILE, and see whether it makes sense and its roles fit on its nodes.
 * MS_EXIT_OK, and the job is the caller's; else it was said what is wrong. */
enum ms_exit ms_jobs_check(const struct ms_cli *cli, struct ms_job *job);

#endif
