/* job_impl.h - what the files of a job on Ray share
 *
 * job.c       its life, and what is told between the loop and its thread
 * job_run.c   the thread: from the first question until its record is deleted
 */
#ifndef MS_ORCHESTRATOR_RAY_JOB_JOB_IMPL_H
#define MS_ORCHESTRATOR_RAY_JOB_JOB_IMPL_H

#include "base/buf.h"
#include "base/clock.h"
#include "orchestrator/ray/job/job.h"
#include "orchestrator/ray/job/local_ray.h"
#include "orchestrator/ray/job/rest.h"
#include "orchestrator/ray/package/package.h"

#include <pthread.h>

enum { MS_RAY_LAST_LOG = 4096 };

/* What the loop has not told yet. */
struct ms_ray_news {
    bool is_submitted, has_silence, is_silent, is_over;
    struct ms_buf log;
    struct ms_error silence, why;
    int exit_code;
};

struct ms_ray_job {
    struct ms_ray_job_spec spec;
    const struct ms_ray_job_events *events;
    void *arg;
    pthread_t thread;
    bool has_thread;
    int loop_fd, thread_fd; /* wake the other one */
    struct ms_watch woken;
    struct ms_fetcher *fetcher;

    pthread_mutex_t lock; /* of what follows */
    struct ms_ray_news news;
    bool is_stopping;
    bool is_on_cluster; /* submitted, or that was tried, and not deleted yet */
    int64_t stop_until_ns, polite_until_ns;
    int64_t end_by_ns; /* when the thread is to end, whatever it has got done */

    /* the thread's own */
    char *base, *token;
    struct ms_local_ray *local_ray;
    struct ms_package package;
    bool is_unsure; /* it was asked for, and there is no answer: it may be there */
    int64_t unsure_until_ns;
    bool is_stop_asked, is_silent;
    size_t log_len;                 /* that was told */
    char last_log[MS_RAY_LAST_LOG]; /* its end */
    size_t last_log_len;
};

/* ---- job_run.c --------------------------------------------------------------------- */

void *ms_ray_job_run(void *job);

/* ---- job.c: for the thread --------------------------------------------------------- */

bool ms_ray_job_is_stopping(struct ms_ray_job *j);
/* It is to be left as it is, now. */
bool ms_ray_job_is_left(struct ms_ray_job *j);
/* From here on it may be on the cluster; false: it is left before. */
bool ms_ray_job_may_submit(struct ms_ray_job *j);
void ms_ray_job_set_gone(struct ms_ray_job *j); /* it is not there any more */
/* Until that time has passed, or something has happened. */
void ms_ray_job_wait(struct ms_ray_job *j, int64_t for_ns);

/* What is written into the news between these two is told on the loop. */
struct ms_ray_news *ms_ray_job_lock_news(struct ms_ray_job *j);
void ms_ray_job_tell_news(struct ms_ray_job *j);

#endif
