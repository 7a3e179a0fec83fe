/* capi.h - what the files of the driver's C interface share
 *
 * session.c   a head, a client, what is known of dead workers, the logs
 * join.c      a head that runs already
 * program.c   where the muster program is
 * place.c     resources: nodes, and where ranks go
 * group.c     placement groups
 * rankenv.c   the environment of each rank
 * cluster.c   clusters: create, destroy
 * call.c      calls
 * future.c    what was begun
 * failure.c   failures as errors
 */
#ifndef MS_CAPI_CAPI_H
#define MS_CAPI_CAPI_H

#include "base/error.h"
#include "base/list.h"
#include "base/map.h"
#include "head/head.h"
#include "muster/driver.h"
#include "wire/client.h"

#include <pthread.h>

#define MS_CAPI_ANSWER_NS (10 * MS_NS_PER_S)  /* of what the agent answers at once */
#define MS_CAPI_START_NS  (120 * MS_NS_PER_S) /* processes, without their constructors */

struct muster_session {
    struct ms_head *head;
    struct ms_client *client; /* the loop's, after the start */
    struct ms_spin *spin;
    bool joined; /* the head runs elsewhere */
    char **env;  /* what workers start from */
    void (*on_log)(void *arg, const struct muster_log_line *line);
    void *arg;
    pthread_mutex_t lock; /* guards exits */
    struct ms_map exits;  /* uid -> packed exit */
    struct ms_list link;  /* of all sessions of this process */
    unsigned refs;        /* clusters that were not destroyed; under `lock` */
    bool stopped;         /* likewise */
};

struct muster_resources {
    struct muster_session *session;
    uint32_t count;
    int32_t limit; /* devices of each node; -1: all */
    struct ms_capi_node {
        const char *name;
        uint32_t devices;
    } * nodes;
    char **names;
    struct ms_head_op *status; /* what the nodes have, when this was made */
};

struct ms_capi_worker {
    uint64_t uid;
    int32_t pid;
    char *node, *log_path;
    struct ms_peer *peer;
};

struct muster_cluster {
    struct muster_session *session;
    char *name, *ports; /* owner of what is held for it */
    uint32_t world_size;
    struct ms_capi_worker *workers;
    int64_t timeout_ns;
    bool is_handle; /* somebody else made it */
};

struct muster_future {
    struct ms_call *call;
    bool taken;
};

/* session.c */
struct muster_session *ms_capi_session_ref(struct muster_session *s);
void ms_capi_session_unref(struct muster_session *s);
bool ms_capi_is_stopped(struct muster_session *s);
/* Wait for an operation of the head: its message, borrowed, or NULL with the reason. */
const ProtobufCMessage *
ms_capi_wait(struct ms_head_op *op, int64_t timeout_ns, struct muster_error *err);

/* join.c: NULL with the reason. */
struct ms_head *ms_capi_join(const struct ms_head_options *ho,
                             const struct muster_session_options *o,
                             const char *address,
                             struct ms_error *err);

/* program.c: malloc'd; NULL with the reason. */
char *ms_capi_find_program(const char *told, struct muster_error *err);

/* place.c */
/* Ask the head for a place; the operation has succeeded, or NULL with the reason. */
struct ms_head_op *ms_capi_place(struct muster_session *s,
                                 const Muster__DriverToHead *m,
                                 int64_t timeout_ns,
                                 struct muster_error *err);
/* Places for a cluster, which are held for it: an operation with a ClusterPlaced. */
struct ms_head_op *ms_capi_place_cluster(struct muster_resources *r,
                                         const struct muster_cluster_options *o,
                                         struct muster_error *err);
/* It will not be created. */
void ms_capi_drop_claim(struct muster_session *s, const char *cluster);
/* As a message that borrows from `r`. */
void ms_capi_scope(const struct muster_resources *r, Muster__Scope *out);
struct ms_capi_seats {
    Muster__Seat *at, **list;
};

/* group.c */
uint64_t ms_capi_group_id(const struct muster_group *g);

/* rankenv.c: "NAME=value" of one rank, NULL-terminated; NULL: out of memory. */
struct ms_capi_rank_env {
    const char *cluster;
    const Muster__ClusterPlaced *placed;
    const struct muster_resources *resources;
    const char *master_host;
    uint32_t master_port;
    const char *const *user; /* may be NULL */
};
char **ms_capi_rank_env(const struct ms_capi_rank_env *e, uint32_t rank);
/* This process's environment, as workers start from it. */
char **ms_capi_session_env(void);
void ms_capi_strings_free(char **strings);

/* call.c: an operation of the engine on every worker; the value is borrowed. */
int ms_capi_operate_all(struct muster_cluster *c,
                        uint16_t op,
                        const struct muster_value *argument,
                        int64_t timeout_ns,
                        struct muster_error *err);

/* future.c: the value of a call that is done (may be wanted by nobody), or its error. */
int ms_capi_outcome(struct ms_call *call,
                    struct muster_value **value,
                    struct muster_error *err);

/* The next tag: 0, -ETIMEDOUT, -EINTR. */
int ms_capi_inbox_wait(struct ms_inbox *inbox, int64_t until_ns, uint64_t *tag);

/* failure.c: fill err; a negative errno that fits. */
int ms_capi_failure(const uint8_t *body,
                    size_t len,
                    const char *where,
                    struct muster_error *err);
int ms_capi_error(const struct ms_error *from, struct muster_error *err);
/* -EINVAL: `what` ("a method") is NULL. */
int ms_capi_missing(const char *what, struct muster_error *err);

#endif
