/* capi.h - what the files of the driver's C interface share
 *
 * session.c   the driver's session (src/session) from its options; the logs
 * program.c   where the muster program is
 * place.c     resources: nodes, and where ranks go
 * group.c     placement groups
 * role.c      what a job's file says of a cluster's role
 * role_keys.c the keys of a role and the options that they are
 * spec.c      what a cluster is to be, as a message
 * cluster.c   clusters: create, destroy
 * call.c      calls
 * future.c    what was begun
 * generate.c  schedulers of generation (src/rollout)
 * generation.c what a job's file says of them
 * replicas.c  on the workers of a cluster, also when it is resized
 * samples.c   and what they hand out
 * failure.c   failures as errors
 */
#ifndef MS_CAPI_CAPI_H
#define MS_CAPI_CAPI_H

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "head/head.h"
#include "muster/driver.h"
#include "session/session.h"
#include "wire/client/client.h"

#include <jansson.h>

struct muster_session {
    struct ms_driver_session *driver;
    struct ms_head *head;     /* its, until the shutdown */
    struct ms_client *client; /* likewise */
    void (*on_log)(void *arg, const struct muster_log_line *line);
    void *arg;
    json_t *_Atomic job;   /* what its file says (role.c); NULL: nobody has asked yet */
    _Atomic unsigned refs; /* the user's, and clusters that were not destroyed */
};

struct muster_resources {
    struct muster_session *session;
    int32_t limit; /* devices of each node; -1: all */
    struct ms_head_op *op;
    const Muster__Resources *found; /* its answer */
    char **names;                   /* of `found` */
};

struct ms_capi_worker {
    const Muster__WorkerStatus *status; /* in that of its cluster */
    struct ms_peer *peer;
};

struct muster_cluster {
    struct muster_session *session;
    char *name;
    Muster__ClusterStatus *status; /* the last that the head has said */
    uint32_t world_size;
    uint64_t changes;               /* of clusters, that were known then */
    struct ms_capi_worker *workers; /* by rank */
    int64_t timeout_ns;
    bool is_handle;             /* another driver made it */
    struct muster_group *group; /* of its role's bundles; NULL: it has none */
};

struct muster_future {
    struct ms_call *call;
    bool taken;
};

/* cluster.c */
/* As muster_cluster_open. uid: only if rank 0 is or was this one; 0: any. */
struct muster_cluster *ms_capi_cluster_open(struct muster_session *session,
                                            const char *name,
                                            uint64_t uid,
                                            struct muster_error *err);

/* session.c */
struct muster_session *ms_capi_session_ref(struct muster_session *s);
void ms_capi_session_unref(struct muster_session *s);
/* -ESHUTDOWN: it is NULL, was shut down, or is that of a forked child's parent. */
int ms_capi_check_open(const struct muster_session *s, struct muster_error *err);
/* Wait for an operation of the head, which is taken: it has succeeded and is the caller's
 * again, or NULL with the reason. */
struct ms_head_op *
ms_capi_done(struct ms_head_op *op, int64_t timeout_ns, struct muster_error *err);

/* program.c: malloc'd; NULL with the reason. A driver in Python looks elsewhere
 * (python/muster/_session/programs.py): a wheel puts the program beside the interpreter, a C library
 * has it below its own prefix. MUSTER_BIN and PATH mean the same to both. */
char *ms_capi_find_program(const char *told, struct muster_error *err);

/* Texts of options: "" for NULL, and the length of a NULL-terminated list or of NULL. */
static inline char *ms_capi_text(const char *text)
{
    return (char *)(uintptr_t)(text ? text : "");
}

static inline size_t ms_capi_count(const char *const *texts)
{
    size_t n = 0;

    while (texts && texts[n])
        n++;
    return n;
}

/* place.c */
/* As a message that borrows from `r`. */
void ms_capi_scope(const struct muster_resources *r, Muster__Scope *out);
/* group.c */
/* `ends_with_cluster`: with the cluster that is made in it, also if another driver ends that. */
struct muster_group *ms_capi_group_create(struct muster_session *session,
                                          const struct muster_group_options *options,
                                          bool ends_with_cluster,
                                          struct muster_error *err);
uint64_t ms_capi_group_id(const struct muster_group *g);

/* role.c: what the file of `muster run` says of the role of a cluster. To be finished, also
 * after a failure. */
#define MS_CAPI_SECONDS_MAX 1e9

struct ms_capi_role {
    const char *name, *file; /* borrowed from the options and from the job */
    json_t *roles, *told;    /* parts of the job; NULL: nothing is said of it */
    struct ms_buf why;       /* in what they differ */
    size_t differences;
    struct muster_bundle bundle;
    const char **preload, **python, **command; /* texts of the job */
    char **env, **resources, **labels, *mapping;
    struct muster_value *args, *kwargs;
};
/* Fill in what the options leave open; they borrow from `r` and from the session. -ENOENT:
 * `role` is none of the job's; -EINVAL: they differ; others of asking. */
int ms_capi_role_find(struct ms_capi_role *r,
                      struct muster_session *session,
                      struct muster_cluster_options *o,
                      struct muster_error *err);
/* The submitted job that this process is of; NULL: none. */
const char *ms_capi_submitted(void);
/* What the file says, asked for once: borrowed from the session; NULL with the reason. */
json_t *ms_capi_job(struct muster_session *session, struct muster_error *err);
/* In a submitted job: the controller has created it. */
bool ms_capi_role_is_controllers(const struct ms_capi_role *r,
                                 const struct muster_cluster_options *o);
/* Its workers are there: 0, or -EINVAL if `given` adds something to them. */
int ms_capi_role_check_created(struct ms_capi_role *r,
                               const struct muster_cluster_options *given,
                               struct muster_error *err);
/* The same with the job at hand. */
int ms_capi_role_merge(struct ms_capi_role *r,
                       json_t *job,
                       struct muster_cluster_options *o,
                       struct muster_error *err);
/* Place its bundles, if it has any: *group is the caller's, and in the options. */
int ms_capi_role_place(const struct ms_capi_role *r,
                       struct muster_session *session,
                       struct muster_cluster_options *o,
                       struct muster_group **group,
                       struct muster_error *err);
void ms_capi_role_finish(struct ms_capi_role *r);
/* -EINVAL: neither the driver nor the file names a class. */
int ms_capi_role_no_class(struct ms_capi_role *r,
                          const char *name,
                          struct muster_error *err);
/* role_keys.c: what is told, into the options: 0, -EINVAL with the reason in r->why, -ENOMEM. */
int ms_capi_role_take(struct ms_capi_role *r, struct muster_cluster_options *o);

/* spec.c: what is asked for, as a message. To be finished, also after a failure. */
struct ms_capi_spec {
    Muster__ClusterSpec *message; /* owned; what is below is what it was made of */
    Muster__PlaceCluster place;
    Muster__Scope scope;
    uint32_t *devices;
    Muster__Seat *seats, **seat_list;
};
int ms_capi_spec_init(struct ms_capi_spec *s,
                      const struct muster_cluster_options *o,
                      const struct muster_resources *resources,
                      const struct ms_capi_role *role,
                      struct muster_error *err);
void ms_capi_spec_finish(struct ms_capi_spec *s);

/* future.c: the value of a call that is done (may be wanted by nobody), or its error. */
int ms_capi_outcome(struct ms_call *call,
                    struct muster_value **value,
                    struct muster_error *err);

/* One that tells of these futures by their indexes; to be given back, also after a failure. */
int ms_capi_inbox_create(struct muster_future *const *futures,
                         size_t count,
                         struct ms_inbox **inbox,
                         struct muster_error *err);
/* The next tag: 0, -ETIMEDOUT, -EINTR. */
int ms_capi_inbox_wait(struct ms_inbox *inbox, int64_t until_ns, uint64_t *tag);

/* failure.c: fill err; a negative errno that fits. */
int ms_capi_failure(const uint8_t *body,
                    size_t len,
                    const char *where,
                    struct muster_error *err);
int ms_capi_error(const struct ms_error *from, struct muster_error *err);
/* Of an operation of the head: what workers said, or where there is no place, or its own. */
int ms_capi_op_failure(const struct ms_head_op *op,
                       const struct ms_error *why,
                       struct muster_error *err);
/* -EINVAL: `what` ("a method") is NULL. */
int ms_capi_missing(const char *what, struct muster_error *err);
/* -ENOMEM */
int ms_capi_no_memory(struct muster_error *err);

#endif
