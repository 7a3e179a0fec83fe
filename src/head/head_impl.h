/* head_impl.h - the head's own state, for the files of src/head and of its folders
 *
 * head.c makes it and ends it. Every folder has its headers, which say what it does for
 * the others; a file includes those and this one, to reach the state that they share:
 *
 *   ops/       operations: what can be asked (verbs.h), asking, answers, waiting
 *   nodes/     machines and their agents
 *   drivers/   programs that have joined this head, or this head another one
 *   clusters/  clusters from creation to end, ports
 *   place/     the resource manager: placement groups, places of clusters
 *   kv/        the key-value store, barriers
 *   rendezvous/ processes that meet and get ranks
 *   shards/    queues of ranges of data sets
 *   fleet/     nodes that an orchestrator lends
 *   jobs/      jobs that are hosted here
 *   state/     what a daemon keeps on disk, and what it learns again after a crash
 *   daemon/    a head that others dial: its socket, and who says hello there
 *   rest/      HTTP
 *
 * and beside this file status.h (what there is), stop.h (the orderly end) and forked.h (in a
 * forked child).
 *
 * All of the state belongs to the head's thread, but `ops` (guarded by `lock`), what
 * place.h guards itself, and what is constant after the start.
 */
#ifndef MS_HEAD_HEAD_IMPL_H
#define MS_HEAD_HEAD_IMPL_H

#include "base/list.h"
#include "base/map.h"
#include "cluster/registry.h"
#include "head/drivers/driver.h"
#include "head/head.h"
#include "head/kv/kv_ask.h"
#include "head/nodes/orphan.h"
#include "head/ops/waiting.h"
#include "head/place/place.h"
#include "head/shards/shards.h"
#include "head/state/persist.h"
#include "head/status.h"
#include "head/stop.h"
#include "io/loop.h"

#include <pthread.h>
#include <stdatomic.h>

struct ms_fleet;
struct ms_head_op;
struct ms_jobs;
struct ms_rest;
struct ms_server;
struct ms_uplink;

struct ms_head {
    /* constant after the start */
    struct ms_session session;
    int lock_fd;
    char node[MS_NAME_MAX + 1];             /* that is lent here */
    char log_path[MS_SESSION_DIR_MAX + 16]; /* the lent agents' */
    int64_t start_ns; /* how long the lent agents have to be ready */
    void (*on_log)(void *arg, const Muster__LogLines *lines);
    void (*on_exit)(void *arg, uint64_t uid, const Muster__Exit *exit);
    void (*on_agent_lost)(void *arg, const char *why);
    void (*on_node)(void *arg, const Muster__NodeStatus *node);
    void (*on_successor)(void *arg, uint64_t uid, const Muster__WorkerStatus *worker);
    void (*on_stop_asked)(void *arg);
    void (*on_driver)(void *arg,
                      const Muster__DriverStatus *driver,
                      const char *peer,
                      const char *gone);
    void *arg;
    int64_t started_ns;
    bool is_daemon; /* others dial; there is no agent of our own */
    bool is_of_job; /* a daemon whose session nobody will open again */
    uint64_t id;    /* of this process of a head */
    int64_t link_grace_ns, head_grace_ns;
    enum ms_tls_mode tls;
    char **addresses;            /* where others dial; NULL-terminated */
    Muster__HeadToAgent *config; /* of an embedded head: what its agents need to know */
    struct ms_loop *loop;
    pthread_t thread;
    bool has_thread;
    bool forgotten;
    atomic_bool has_failed; /* the driver, whose end this is */
    int marker_fd; /* watched by the loop for nothing: names it to ms_head_forget */
    struct ms_watch marker;

    pthread_mutex_t lock;
    struct ms_list ops; /* not completed; under `lock` */

    /* nodes/ */
    struct ms_list nodes;
    uint64_t last_ask; /* the highest number that a node which was freed was asked */
    struct ms_orphans orphans;

    /* drivers/ */
    struct ms_map drivers;                                   /* id -> ms_driver */
    struct ms_driver_given_up given_up[MS_DRIVERS_GIVEN_UP]; /* a ring */
    unsigned given_up_next;
    struct ms_uplink *uplink; /* NULL: we are a head ourselves */

    /* clusters/ */
    struct ms_registry registry;
    struct ms_place place;
    struct ms_list ports;
    struct ms_list destroying;      /* operations that destroy */
    struct ms_list bringups;        /* of operations that start workers */
    struct ms_list creating;        /* operations that wait for room, in order */
    struct ms_list successor_waits; /* operations that ask who has a worker's place */
    _Atomic uint64_t changes;       /* of any cluster; any thread */

    struct ms_head_kv kv;
    struct ms_list barriers;
    struct ms_list rendezvous; /* rendezvous/ */
    struct ms_list shards;     /* shards/ */
    struct ms_shards_unkept shards_unkept;
    struct ms_fleet *fleet; /* NULL: nobody lends us nodes */
    struct ms_jobs *jobs;   /* NULL: it hosts none */
    struct ms_rest *rest;   /* NULL: no HTTP */

    struct ms_list handshakes; /* daemon/hello.c: who has not yet said who it is */
    struct ms_head_waiting waiting;
    struct ms_head_status status;
    struct ms_persist persist;
    struct ms_server *control;

    struct ms_head_op *stop_op; /* NULL: not stopping */
    struct ms_head_stopping stopping;
};

/* The parts of a start: the state, without a loop (NULL: out of memory); the loop and what
 * lives on it; the thread. A step that fails after the first one calls ms_head_stop. */
struct ms_head *ms_head_create(const struct ms_head_options *o, struct ms_error *err);
int ms_head_build(struct ms_head *h, struct ms_error *err);
int ms_head_start_thread(struct ms_head *h, struct ms_error *err);

/* True in a process that was forked from the driver. Any thread. */
bool ms_head_is_forgotten(const struct ms_head *h);

/* For tests: gone without a word, as with a process that dies. */
void ms_head_crash(struct ms_head *h);

#endif
