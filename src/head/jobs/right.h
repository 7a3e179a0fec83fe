/* right.h - is a job's file right, and do its roles fit on its nodes? */
#ifndef MS_HEAD_JOBS_RIGHT_H
#define MS_HEAD_JOBS_RIGHT_H

#include "base/buf.h"
#include "job/file.h"
#include "proto/muster.pb-c.h"

/* All that a submission is refused for, whichever head it is: 0; -EINVAL with where it stands;
 * -ENOSPC (and what ms_job_plan_make has else) with a table, when its roles, with the least
 * ranks that they may have, do not fit on the nodes that it needs. `name` goes before the one
 * in the file; NULL or empty: none. */
int ms_job_is_right(const struct ms_job *job,
                    const char *name,
                    struct ms_buf *table,
                    struct ms_error *err);
/* What there is to say of one that is; it borrows from all of them. */
void ms_job_checked_fill(const struct ms_job *job,
                         const char *name,
                         const char *file,
                         Muster__JobChecked *out);

#endif
