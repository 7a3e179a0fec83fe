/* ends.h - ends of processes, those that come together told as one event */
#ifndef MS_HEAD_JOBS_ENDS_H
#define MS_HEAD_JOBS_ENDS_H

#include "base/buf.h"
#include "base/error.h"
#include "base/limits.h"
#include "io/loop.h"
#include "job/core/core.h"

struct ms_hosted;

/* Ends that are alike and were not told yet (ends.c). */
struct ms_job_ends {
    struct ms_job_report *all;
    size_t count, room;
    struct ms_buf text;         /* of all of them */
    char node[MS_NAME_MAX + 1]; /* where all of them were */
    struct ms_timer later;
};

int ms_ends_init(struct ms_hosted *job, struct ms_error *err);
void ms_ends_finish(struct ms_hosted *job);
/* A process has ended, on a node that is known: it is told with those like it, before any
 * other event. All is copied. */
void ms_ends_add(struct ms_hosted *job,
                 const struct ms_job_report *report,
                 const char *text);
void ms_ends_tell(struct ms_hosted *job); /* now */

#endif
