/* job_impl.h - what the files of a job on Ray share
 *
 * job.c         its life
 * job_start.c   from the first question until it is submitted
 * job_look.c    what it does, its end, and ending it
 */
#ifndef MS_ORCHESTRATOR_RAY_JOB_IMPL_H
#define MS_ORCHESTRATOR_RAY_JOB_IMPL_H

#include "base/clock.h"
#include "orchestrator/ray/fetch.h"
#include "orchestrator/ray/job.h"
#include "orchestrator/ray/local_ray.h"
#include "orchestrator/ray/packing.h"
#include "orchestrator/ray/rest.h"

#define MS_RAY_ANSWER_NS   (30 * MS_NS_PER_S)   /* for a small question */
#define MS_RAY_UPLOAD_NS   (600 * MS_NS_PER_S)  /* for the package */
#define MS_RAY_STALL_NS    (20 * MS_NS_PER_S)   /* of an upload that does not move */
#define MS_RAY_LOOK_NS     (150 * MS_NS_PER_MS) /* between two looks, at first */
#define MS_RAY_LOOK_MAX_NS (1 * MS_NS_PER_S)
#define MS_RAY_STOP_NS     (30 * MS_NS_PER_S) /* then ending it has come to nothing */
#define MS_RAY_UNSURE_NS   (5 * MS_NS_PER_S) /* what was asked for is there, or never */

/* Ray looks after a job a little longer than it runs, and if its record has gone then it
 * makes a new one. */
#define MS_RAY_SETTLE_NS (2500 * MS_NS_PER_MS)

enum { MS_RAY_TRIES = 3, MS_RAY_LAST_LOG = 4096 };

struct ms_ray_job {
    struct ms_loop *loop;
    struct ms_fetcher *fetcher;
    struct ms_fetch *fetch; /* the question that is under way; at most one */
    struct ms_timer timer;  /* until the next step */
    void (*next)(struct ms_ray_job *j);
    struct ms_local_ray *local_ray;
    struct ms_packing *packing;
    struct ms_package package;
    struct ms_ray_site site; /* copies */
    char *base, *token, *id, *entrypoint, **env, **files;
    const struct ms_ray_job_events *events;
    void *arg;
    unsigned tries;
    bool is_on_cluster; /* submitted, and not deleted yet */
    bool is_unsure;     /* it was asked for, and there is no answer: it may be there */
    bool is_there;      /* it was, when this began */
    bool is_stopping, is_stop_asked, is_silent, is_over;
    int64_t stop_until_ns, polite_ns, polite_until_ns, asked_ns, pause_ns,
        unsure_until_ns;
    size_t log_len;                 /* that was told */
    char last_log[MS_RAY_LAST_LOG]; /* its end */
    size_t last_log_len;
    struct ms_ray_details details;
};

/* job.c */
/* Ask, with the token if there is one; out of memory ends the job. `path` begins with a
 * slash. */
void ms_ray_job_ask(struct ms_ray_job *j,
                    const struct ms_fetch_spec *spec,
                    const char *path,
                    ms_fetched *done);
/* Call it soon, or after a while. */
void ms_ray_job_soon(struct ms_ray_job *j,
                     int64_t delay_ns,
                     void (*next)(struct ms_ray_job *j));
/* It is over: on_ended, from the loop. The last thing that its caller does with it. */
void ms_ray_job_over(struct ms_ray_job *j,
                     int rc,
                     int exit_code,
                     const struct ms_error *why);
const char *ms_ray_job_address(const struct ms_ray_job *j);

/* job_start.c */
void ms_ray_job_begin(struct ms_ray_job *j);

/* job_look.c */
void ms_ray_job_begin_looking(struct ms_ray_job *j);

#endif
