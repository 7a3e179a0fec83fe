/* jobs_head.h - the head that hosts this user's jobs; tool.h asks it
 *
 * It is that of MUSTER_ADDRESS; else, of a job whose head is elsewhere (jobs_elsewhere.h),
 * that one; else the session that `muster submit` starts, else the only daemon of this user
 * on this machine. Nothing is started here and no session is needed. A
 * head that is being started again, because it was killed, is waited for.
 */
#ifndef MS_SESSION_JOBS_HEAD_H
#define MS_SESSION_JOBS_HEAD_H

#include "base/error.h"
#include "io/session/session.h"

#include <stdbool.h>

#define MS_JOBS_SESSION "jobs" /* of the head that `submit` starts */

enum { MS_JOBS_ADDRESS_MAX = 512, MS_JOBS_WHO_MAX = 320 };

struct ms_jobs_head {
    char address[MS_JOBS_ADDRESS_MAX];
    char who[MS_JOBS_WHO_MAX]; /* for sentences: "the head of session 'jobs'" */
    uint8_t secret[MS_SESSION_SECRET_SIZE];
};

/* The process above that head, which starts it again, has a file in its folder: its number, and
 * in the second line why the last head has not come up. */
#define MS_JOBS_WATCHDOG      "watchdog"
#define MS_JOBS_WATCHDOG_NAME "muster-keep" /* as ps shows it */

/* What is known of a head that is not there. */
struct ms_jobs_absent {
    int64_t since_ns; /* the caller's: when it began to look */
    bool starts;      /* the caller's: it starts one unless there is such a process */
    bool was_killed;  /* it has not ended in order */
    bool is_watched;  /* there is a process that starts it again: */
    pid_t watchdog;
    char why[384]; /* the last one has not come up; "": it has */
};

/* Whether there is a process that starts it again, and what it says. */
void ms_jobs_look_for_watchdog(struct ms_jobs_absent *absent);

/* The head on this machine; one that may come (back) is waited for, and anyone for `least_ns`.
 * 0; -ENOENT: there is none, and *absent says what is known of it; else why it cannot be
 * known. */
int ms_jobs_head_await(struct ms_jobs_head *out,
                       struct ms_jobs_absent *absent,
                       int64_t least_ns,
                       struct ms_error *err);

/* The head of this job (NULL: of no one in particular). 0; -ENOENT: there is none, also none
 * that comes back; else why it cannot be known. */
int ms_jobs_head_find(const char *job,
                      struct ms_jobs_head *out,
                      struct ms_jobs_absent *absent,
                      struct ms_error *err);

#endif
