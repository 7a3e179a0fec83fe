/* jobs_elsewhere.h - jobs of this user whose head is on other machines
 *
 * The head of a job on Ray lives in a job of the Ray cluster. `muster submit` notes where: a
 * file for each name in the folder of sessions, which nobody else can read, with the head's
 * addresses, its secret, and words for people. It stays until the job is deleted.
 */
#ifndef MS_SESSION_JOBS_ELSEWHERE_H
#define MS_SESSION_JOBS_ELSEWHERE_H

#include "base/limits.h"
#include "session/jobs_head.h"

enum { MS_ELSEWHERE_TEXT_MAX = 256 };

struct ms_job_elsewhere {
    char job[MS_NAME_MAX + 1];
    struct ms_jobs_head head;
    char where
        [MS_ELSEWHERE_TEXT_MAX]; /* "job muster-grpo-1a2b3c4d of Ray at http://..." */
};

/* 0; -EEXIST: there is one of that name; else why it cannot be noted. */
int ms_jobs_elsewhere_add(const struct ms_job_elsewhere *e, struct ms_error *err);
/* 0; -ENOENT: there is none of that name. */
int ms_jobs_elsewhere_find(const char *job, struct ms_job_elsewhere *out);
void ms_jobs_elsewhere_remove(const char *job);
/* All of them, by name. How many, or a negative errno; malloc'd. They have secrets: wipe them. */
int ms_jobs_elsewhere_list(struct ms_job_elsewhere **out, struct ms_error *err);

#endif
