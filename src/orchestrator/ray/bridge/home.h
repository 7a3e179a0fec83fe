/* home.h - where a bridge runs that is reached over a wire (wired.c)
 *
 * In a job on the cluster (job/job.h), or as a process beside its controller, which is in
 * such a job itself (beside.c). Both are told and tell the same; a process has its output
 * for a log, and leaves no record.
 */
#ifndef MS_ORCHESTRATOR_RAY_BRIDGE_HOME_H
#define MS_ORCHESTRATOR_RAY_BRIDGE_HOME_H

#include "orchestrator/ray/job/job.h"

struct ms_bridge_home {
    /* As ms_ray_job_create and so on. */
    void *(*create)(const struct ms_ray_job_spec *spec,
                    const struct ms_ray_job_events *events,
                    void *arg,
                    struct ms_error *err);
    void (*stop)(void *at);
    void (*look)(void *at);
    void (*leave)(void *at);
    void (*destroy)(void *at, int64_t until_ns);
    /* What the next controller finds it by; NULL: its spec's id. */
    const char *(*name)(const void *at);
};

/* Ends with the parent of this process, which is to start the next controller. */
extern const struct ms_bridge_home ms_bridge_beside;

#endif
