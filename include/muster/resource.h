/* resource.h - which nodes and devices clusters are placed on
 *
 * The head decides, for all drivers at once: what a cluster or a group has been given is not
 * given to another. By device mapping (struct muster_cluster_options), or by placement group:
 *
 *     struct muster_bundle bundle = {.count = 8, .gpus = 1, .cpus = 4};
 *     struct muster_group_options options = MUSTER_GROUP_OPTIONS;
 *
 *     options.bundles = &bundle;
 *     options.count = 1;
 *     group = muster_group_create(session, &options, &err);
 *     cluster_options.group = group; // rank i in bundle i
 */
#ifndef MUSTER_RESOURCE_H
#define MUSTER_RESOURCE_H

#include <muster/common.h>
#include <muster/error.h>
#include <muster/session.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct muster_resources;
struct muster_group;

/* What one worker needs on one node. All zero but for what is asked. */
struct muster_bundle {
    uint32_t count; /* so many like this side by side; 0: one */
    double cpus;
    double gpus;                  /* whole devices, or a share of one (0.5) */
    uint64_t memory;              /* bytes */
    uint64_t gpu_memory;          /* bytes, of each device */
    const char *kind;             /* of device: "gpu", "npu"; NULL: any */
    bool one_domain;              /* all its devices in one NVLink or PCIe domain */
    const char *const *resources; /* "name=2", NULL-terminated; NULL: none */
    const char *const *labels;    /* "rack=in(a,b)", NULL-terminated; NULL: any node */
};

struct muster_group_options {
    uint32_t size;    /* MUSTER_GROUP_OPTIONS fills it in */
    const char *name; /* NULL: the head makes one */
    const struct muster_bundle *bundles;
    size_t count;
    const char *strategy; /* "PACK" (NULL), "SPREAD", "STRICT_PACK", "STRICT_SPREAD" */
    const char *same;   /* a label of which all nodes have the same value; NULL: none */
    int64_t timeout_ns; /* 0: now or never */
    bool no_wait;       /* return at once, perhaps with one that waits */
    bool detached;      /* it outlives this driver; for heads that were joined */
    struct muster_resources *resources; /* NULL: all nodes; borrowed */
};

#ifdef __cplusplus
#define MUSTER_GROUP_OPTIONS muster_options_of<struct muster_group_options>()
#else
#define MUSTER_GROUP_OPTIONS                                                           \
    {                                                                                  \
        .size = (uint32_t)sizeof(struct muster_group_options)                          \
    }
#endif

enum muster_group_state {
    MUSTER_GROUP_WAITING,
    MUSTER_GROUP_PLACED,
    MUSTER_GROUP_BROKEN, /* one of its nodes is gone */
    MUSTER_GROUP_FAILED, /* its time was up */
    MUSTER_GROUP_REMOVED
};

MUSTER_BEGIN

/* Over the nodes of the session, or those `num_nodes` (0: all) of them that have
 * `num_gpus_per_node` devices (-1: what they have), of which only so many count. Devices have
 * global ids, node after node in the order of their names ("n2" before "n10"). NULL with the
 * reason: kind PLACEMENT if there are not so many. */
MUSTER_API struct muster_resources *
muster_resources_create(struct muster_session *session,
                        int32_t num_gpus_per_node,
                        uint32_t num_nodes,
                        struct muster_error *err);
/* Clusters that were made with it do not need it any more. NULL does nothing. */
MUSTER_API void muster_resources_destroy(struct muster_resources *r);

MUSTER_API uint32_t muster_resources_nodes(const struct muster_resources *r);
MUSTER_API uint32_t muster_resources_gpus_per_node(const struct muster_resources *r);
MUSTER_API const char *muster_resources_node_name(const struct muster_resources *r,
                                                  uint32_t index); /* borrowed */
/* Devices of one node that count; muster_resources_gpus_per_node is that of the first. */
MUSTER_API uint32_t muster_resources_gpus(const struct muster_resources *r,
                                          uint32_t index);

/* ---- placement groups -------------------------------------------------------------- */

/* Place bundles, all or none: now, or within timeout_ns if others give back what they need.
 * NULL with the reason and a table in err->message: kind PLACEMENT if they do not fit. */
MUSTER_API struct muster_group *
muster_group_create(struct muster_session *session,
                    const struct muster_group_options *options,
                    struct muster_error *err);
/* A handle of one that there is; -ENOENT. */
MUSTER_API struct muster_group *muster_group_open(struct muster_session *session,
                                                  const char *name,
                                                  struct muster_error *err);
/* Until it is placed: 0; kind PLACEMENT when its own time is up; -ETIMEDOUT, -ENOENT. */
MUSTER_API int
muster_group_wait(struct muster_group *g, int64_t timeout_ns, struct muster_error *err);
/* Give back what it holds, and free it. -EBUSY: a cluster stands in it, and it stays. */
MUSTER_API int muster_group_remove(struct muster_group *g, struct muster_error *err);
/* Free the handle alone. */
MUSTER_API void muster_group_close(struct muster_group *g);

MUSTER_API const char *muster_group_name(const struct muster_group *g); /* borrowed */
/* Asks the head. */
MUSTER_API enum muster_group_state muster_group_state(struct muster_group *g);
MUSTER_API uint32_t muster_group_bundles(const struct muster_group *g);
/* Of one bundle, once it is placed: where, and which devices there; NULL if there is no such
 * bundle. Borrowed until the group is waited for or asked about. */
MUSTER_API const char *muster_group_node(const struct muster_group *g, uint32_t bundle);
MUSTER_API const uint32_t *
muster_group_devices(const struct muster_group *g, uint32_t bundle, size_t *count);

MUSTER_END

#endif
