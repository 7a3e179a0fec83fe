/* generate.h - schedulers of include/muster/generate.h, and samples of a rollout as what they
 * hand out */
#ifndef MS_CAPI_GENERATE_H
#define MS_CAPI_GENERATE_H

#include "muster/generate.h"
#include "rollout/rollout.h"

#include <jansson.h>
#include <pthread.h>

struct muster_scheduler {
    struct ms_rollout *rollout;
    struct muster_cluster *cluster; /* borrowed */
    uint32_t width;                 /* ranks of one replica */
    /* replicas.c, under `lock` */
    pthread_mutex_t lock;
    struct ms_peer *first; /* its rank 0, or what has followed it */
    uint64_t changes;      /* of clusters, that were looked at */
};

/* replicas.c: the mesh of its cluster, where options do not say it: as the job's file says. */
void ms_capi_replicas_mesh(const struct muster_cluster *c,
                           const json_t *job,
                           struct muster_scheduler_options *o);
/* The replicas are the workers of the cluster. */
int ms_capi_replicas_init(struct muster_scheduler *s, struct ms_error *err);
/* The same, if clusters have changed since. Where the head cannot be asked nothing changes. */
void ms_capi_replicas_follow(struct muster_scheduler *s);

/* `rc`, with a reason of `what`. */
int ms_capi_generate_failed(int rc, const char *what, struct muster_error *err);

/* generation.c: options that are as MUSTER_SCHEDULER_OPTIONS has them become those of the
 * job's file; they borrow from it. */
void ms_capi_generation_take(const json_t *job, struct muster_scheduler_options *o);

/* Takes the group, also on failure. NULL: out of memory. */
struct muster_samples *ms_capi_samples(struct ms_rollout_group *g);

/* Why a group failed, into err. */
void ms_capi_samples_error(const struct ms_rollout_group *g, struct muster_error *err);

#endif
