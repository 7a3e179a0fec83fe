/* job.h - one job on a Ray cluster, from the first question to its end
 *
 * Asks the cluster's version, uploads the package if the cluster has it not, submits the
 * job and looks at it until it ends: on_log tells what it prints, on_ended comes exactly
 * once and last, also when it never started. Nothing is told from inside of a call; it may
 * be destroyed in on_ended, not in the others.
 *
 * ms_ray_job_stop ends it; then on_ended. The record that Ray has of it is deleted a little
 * later, unless it was destroyed without the time for that.
 *
 * The job runs in the folder of the package (doc/orchestrators.md says what is in there).
 * A process of its own does all of this (python/muster/ray_job.py); what it says comes on the
 * loop.
 */
#ifndef MS_ORCHESTRATOR_RAY_JOB_JOB_H
#define MS_ORCHESTRATOR_RAY_JOB_JOB_H

#include "base/error.h"
#include "io/loop.h"
#include "orchestrator/ray/site.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ms_ray_job;

/* Borrowed for as long as the job lives. */
struct ms_ray_job_spec {
    struct ms_loop *loop; /* outlives it */
    struct ms_ray_site site;
    const char *id;         /* the submission's; of [A-Za-z0-9_.-] */
    const char *entrypoint; /* a line of a shell */
    const char *const *env; /* "NAME=value", NULL-terminated; all users of the
                                 * dashboard see them; NULL: none */
    /* Up to 8 pairs "path in the package", "path here", NULL-terminated: also in the
     * package, below "job/"; NULL: none. */
    const char *const *files;
    int64_t polite_ns; /* when it is stopped: it may end by itself for so long */
    bool is_there;     /* it is on the cluster already: only look at it */
};

struct ms_ray_job_events {
    /* Everything is there, and it is submitted next: the spec's `env` may still change.
     * `local` is our address, as the connection to the dashboard has it; "": not known. May
     * be NULL. */
    void (*on_submitting)(void *arg, const char *local);
    void (*on_submitted)(void *arg); /* it is on the cluster; may be NULL */
    /* What it has printed since the last time. May be NULL. */
    void (*on_log)(void *arg, const char *text, size_t len);
    /* Ray does not answer any more (`why`), or does again (NULL): what the job does
     * meanwhile is not known. May be NULL. */
    void (*on_silent)(void *arg, const struct ms_error *why);
    /* rc 0: it ended as it should, with exit code 0. Otherwise `why`, with the last lines
     * of its log; -ECHILD: it was there and has failed; -ECANCELED: it was stopped. */
    void (*on_ended)(void *arg, int rc, int exit_code, const struct ms_error *why);
};

/* NULL: with the reason. */
struct ms_ray_job *ms_ray_job_create(const struct ms_ray_job_spec *spec,
                                     const struct ms_ray_job_events *events,
                                     void *arg,
                                     struct ms_error *err);
void ms_ray_job_stop(struct ms_ray_job *j);
/* Look at it soon: something has happened. */
void ms_ray_job_look(struct ms_ray_job *j);
/* Nothing more is told. A job that still runs is stopped first, and its record deleted,
 * waiting until `until_ns` at most. */
void ms_ray_job_destroy(struct ms_ray_job *j, int64_t until_ns);
/* Nothing more is told, and the job goes on. */
void ms_ray_job_leave(struct ms_ray_job *j);

/* "NAME=value" as an object; NULL: out of memory. `env` may be NULL. */
json_t *ms_ray_env_object(const char *const *env);

#endif
