/* plan.h - do a job's roles fit on these nodes? */
#ifndef MS_CLI_RUN_PLAN_H
#define MS_CLI_RUN_PLAN_H

#include "cli/cli.h"
#include "job/file.h"

/* MS_EXIT_OK; else it was said what does not fit, as `muster plan` says it. */
enum ms_exit ms_plan_check(const struct ms_cli *cli,
                           const struct ms_job *job,
                           const Muster__NodeShape *const *nodes,
                           size_t count);

#endif
