/* cluster.h - the workers of one role: started, called and ended together
 *
 *     struct muster_cluster_options options = MUSTER_CLUSTER_OPTIONS;
 *
 *     options.name = "reward";
 *     options.worker_cls = "libreward.so:reward";
 *     options.world_size = 4;
 *     c = muster_cluster_create(session, &options, &err);
 *     rc = muster_cluster_call_sync(c, 0, "score", args, NULL, &result, &err);
 *
 * A call goes straight to its worker, runs there at most once, and has a deadline. Calls
 * of one thread to one worker run in their order. A worker that dies fails its calls at
 * once, with how it ended (muster/error.h); the other workers go on.
 */
#ifndef MUSTER_CLUSTER_H
#define MUSTER_CLUSTER_H

#include <muster/common.h>
#include <muster/error.h>
#include <muster/future.h>
#include <muster/resource.h>
#include <muster/session.h>
#include <muster/value.h>

struct muster_cluster;

struct muster_cluster_options {
    uint32_t size;    /* MUSTER_CLUSTER_OPTIONS fills it in */
    const char *name; /* letters, digits, "_", "-", "."; no other cluster has it; NULL:
                       * that of `role` */
    /* "library.so:symbol", a class in C (muster/worker.h), found by its path, in the
     * working folder or in LD_LIBRARY_PATH; or "package.module.Class", one in Python. */
    const char *worker_cls;
    const struct muster_value *args;    /* of its constructor: a list or NULL, */
    const struct muster_value *kwargs;  /* and a map or NULL; borrowed */
    struct muster_resources *resources; /* NULL: all nodes of the session; borrowed */
    uint32_t world_size;                /* 0: as many as the devices make, or one */
    const char *device_mapping; /* "0-7,12": global device ids; NULL: none are named */
    /* consecutive devices of the mapping for each worker, 0: one; without a mapping free
     * devices of one node, 0: none */
    uint32_t num_gpus_per_worker;
    double num_cpus;            /* asked for by each worker */
    uint64_t memory;            /* bytes asked for by each, and its limit; 0: neither */
    const char *const *env;     /* "NAME=value", over all others, NULL-terminated */
    const char *const *preload; /* Python: modules to import before the fork */
    const char *working_dir;    /* NULL: this process's */
    bool exec;                  /* Python: a fresh interpreter for each */
    int64_t timeout_ns;         /* of calls that have none of their own; 0: 2 hours */
    int64_t start_timeout_ns;   /* until all are constructed; 0: 2 hours */
    /* it outlives this driver, from when muster_cluster_create has returned; for heads that
     * were joined */
    bool detached;
    struct muster_group *group; /* where it stands, instead of `resources`; borrowed */
    uint32_t first_bundle;      /* rank i is in bundle first_bundle + i */
    uint64_t gpu_memory;        /* bytes asked for by each on each of its devices */
    int64_t wait_ns; /* for room that others hold, in order; 0: now or never */
    const char
        *role; /* of the job's file (driver.h); NULL: that of the cluster's name */
};

#ifdef __cplusplus
#define MUSTER_CLUSTER_OPTIONS muster_options_of<struct muster_cluster_options>()
#else
#define MUSTER_CLUSTER_OPTIONS                                                         \
    {                                                                                  \
        .size = (uint32_t)sizeof(struct muster_cluster_options)                        \
    }
#endif

/* How one call is made; NULL where it is taken means all zeros. */
struct muster_call_options {
    uint32_t size;                     /* MUSTER_CALL_OPTIONS fills it in */
    const struct muster_value *kwargs; /* named arguments, a map; borrowed */
    int64_t timeout_ns;                /* 0: the cluster's */
    const char *engine; /* NULL: the one that the cluster was made with */
};

#ifdef __cplusplus
#define MUSTER_CALL_OPTIONS muster_options_of<struct muster_call_options>()
#else
#define MUSTER_CALL_OPTIONS                                                            \
    {                                                                                  \
        .size = (uint32_t)sizeof(struct muster_call_options)                           \
    }
#endif

MUSTER_BEGIN

/* Start the workers and construct them: all are there when this returns, or none and the
 * reason is in err. */
MUSTER_API struct muster_cluster *
muster_cluster_create(struct muster_session *session,
                      const struct muster_cluster_options *options,
                      struct muster_error *err);

/* A handle of a cluster that another driver (or this one) has made, found by its name; in a
 * submitted job also of one that the controller has created, by its role. NULL with the
 * reason: -ENOENT if there is none. */
MUSTER_API struct muster_cluster *muster_cluster_open(struct muster_session *session,
                                                      const char *name,
                                                      struct muster_error *err);
/* Free it, and end nothing: for handles, and for clusters that are detached. */
MUSTER_API void muster_cluster_close(struct muster_cluster *c);

/* End its workers (SIGTERM, after grace_ns SIGKILL), wait until they are gone, free it.
 * Its futures stay valid, and fail if they were open. NULL does nothing. */
MUSTER_API void muster_cluster_destroy(struct muster_cluster *c, int64_t grace_ns);

/* New incarnations of these ranks (NULL: all) together, in the places of the old ones, which
 * end first (SIGTERM, after grace_ns SIGKILL): their constructors run at the same time. Calls
 * that are open at the old ones fail. If one cannot be made all of these ranks have ended,
 * and the reason is in err. 0 or a negative errno. */
MUSTER_API int muster_cluster_restart(struct muster_cluster *c,
                                      const uint32_t *ranks,
                                      uint32_t count,
                                      int64_t grace_ns,
                                      struct muster_error *err);
/* Another number of workers: the last ranks go, or more come behind them. Those that stay go
 * on. If the new ones cannot be made the cluster is as it was. 0 or a negative errno. */
MUSTER_API int muster_cluster_resize(struct muster_cluster *c,
                                     uint32_t world_size,
                                     int64_t grace_ns,
                                     struct muster_error *err);

/* Look whether another driver, a worker or a job's controller has resized it: 1 if it has
 * another number of workers than before, which are the handle's from now on; 0 if not, or a
 * negative errno. While no cluster has changed nobody is asked, so it can be called before
 * every call to all workers; not while another thread uses this handle. */
MUSTER_API int muster_cluster_refresh(struct muster_cluster *c,
                                      struct muster_error *err);

/* ---- what it is -------------------------------------------------------------------- */

MUSTER_API uint32_t muster_cluster_world_size(const struct muster_cluster *c);
MUSTER_API const char *muster_cluster_name(const struct muster_cluster *c);
/* Of one worker; 0 or NULL if there is no such rank. Borrowed. */
MUSTER_API int32_t muster_cluster_pid(const struct muster_cluster *c, uint32_t rank);
MUSTER_API const char *muster_cluster_node(const struct muster_cluster *c,
                                           uint32_t rank);
MUSTER_API const char *muster_cluster_log_path(const struct muster_cluster *c,
                                               uint32_t rank);

/* ---- calls ------------------------------------------------------------------------- */

/* Call a method of one worker and wait. `args` is a list or NULL, borrowed. On success
 * *result is yours; `result` may be NULL if nobody wants it. 0, or a negative errno with
 * the reason in err. A signal does not end the wait; a future can be left alone. */
MUSTER_API int muster_cluster_call_sync(struct muster_cluster *c,
                                        uint32_t rank,
                                        const char *method,
                                        const struct muster_value *args,
                                        const struct muster_call_options *options,
                                        struct muster_value **result,
                                        struct muster_error *err);

/* Call the same method of all workers and wait for all: results[rank] are yours. At the
 * first failure it returns at once, `results` is untouched, and the others are
 * cancelled. */
MUSTER_API int muster_cluster_call_all_sync(struct muster_cluster *c,
                                            const char *method,
                                            const struct muster_value *args,
                                            const struct muster_call_options *options,
                                            struct muster_value **results,
                                            struct muster_error *err);

/* Begin a call. The future is yours; NULL, with the reason, only if the call could not be
 * made at all (no such rank, arguments that cannot be sent). */
MUSTER_API struct muster_future *
muster_cluster_call(struct muster_cluster *c,
                    uint32_t rank,
                    const char *method,
                    const struct muster_value *args,
                    const struct muster_call_options *options,
                    struct muster_error *err);

/* Begin it on `count` workers, whose ranks are in `ranks` (NULL: ranks 0 to count - 1);
 * the arguments are encoded once. Fills futures[0 .. count); on failure none. */
MUSTER_API int muster_cluster_call_some(struct muster_cluster *c,
                                        const uint32_t *ranks,
                                        size_t count,
                                        const char *method,
                                        const struct muster_value *args,
                                        const struct muster_call_options *options,
                                        struct muster_future **futures,
                                        struct muster_error *err);

/* A call with a block of bytes as its one argument, and whose result is bytes. The block
 * is borrowed until this returns. */
MUSTER_API struct muster_future *
muster_cluster_call_bytes(struct muster_cluster *c,
                          uint32_t rank,
                          const char *method,
                          const void *data,
                          size_t len,
                          const struct muster_call_options *options,
                          struct muster_error *err);

MUSTER_END

#endif
