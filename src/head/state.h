/* state.h - what the files of the head share
 *
 * head.c      start, stop, the thread, forget
 * op.c        operations
 * request.c   from a call of head.h to an operation, and what carries it out
 * node.c      the machines, and questions to them
 * lent.c      a node whose agent this head has started; described.c: which ones
 * dialled.c   a node whose agent has dialled
 * driver.c    drivers that have joined; driver_link.c: their links; driver_ask.c: what
 *             they ask; driver_tell.c: what they are told
 * fleet.h     nodes that an orchestrator lends; it has its files
 * recovery.c  which agents a head that was started again waits for
 * kept.c      what it keeps in its folder for the next one; durable.h: the file
 * waiting.c   operations that wait for something to be known
 * hello.c     who dials, and what it is told
 * create.c    creating clusters
 * describe.c  what drivers say of them
 * replace.c   new incarnations; successor.c: who asks for them
 * cluster.c   destroying them, and what happens to workers
 * place.h     the resource manager; it has its files
 * ports.c     ports that are held for clusters
 * kv*.c       the key-value store
 * barrier.c   ranks that wait for each other
 * helpers.c   helpers of workers that are wider than a node
 * stop.c      the orderly end, on the head's thread
 * orphan.c    workers whose lent agent has died
 * status.c    the Status message
 * tail.c      the last lines of a log
 * control.c   head.sock, and where others dial; control_stop.c: `muster stop`;
 *             control_log.c: logs; control_status.c: `muster status`, and who waits for
 *             changes; control_objects.c: what is in the stores
 * rest.c      HTTP; rest_impl.h has its files
 * serve.c     a head without an agent of its own; where it listens
 * uplink.c    a head that has joined another one: all requests travel there
 *
 * Everything below belongs to the head's thread, but `ops` (guarded by `lock`) and what
 * is constant after the start.
 */
#ifndef MS_HEAD_STATE_H
#define MS_HEAD_STATE_H

#include "base/list.h"
#include "base/map.h"
#include "cluster/registry.h"
#include "head/clusters/place.h"
#include "head/drivers/driver.h"
#include "head/fleet/fleet.h"
#include "head/head.h"
#include "head/kv/kv.h"
#include "head/nodes/node.h"
#include "head/nodes/orphan.h"
#include "head/op.h"
#include "head/rest/rest.h"
#include "io/loop.h"
#include "wire/server.h"

#include <pthread.h>

struct ms_durable;
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
    int marker_fd; /* watched by the loop for nothing: names it to ms_head_forget */
    struct ms_watch marker;

    pthread_mutex_t lock;
    struct ms_list ops; /* not completed; under `lock` */

    struct ms_registry registry;
    struct ms_place_desk place;
    struct ms_list destroying; /* operations that destroy */
    struct ms_list waiting;    /* operations that need a node which may come */
    struct ms_list asking;     /* operations that ask how a worker ended */
    struct ms_list seeking;    /* operations that ask who has a worker's place */
    struct ms_list watching;   /* operations that wait for another status */
    uint64_t change;           /* of the status, counted */
    struct ms_list kv_waiting; /* operations that wait for a change of the store */
    struct ms_list barriers;
    struct ms_kv kv;
    struct ms_list nodes;
    struct ms_list ports;
    struct ms_map drivers;   /* id -> ms_driver */
    struct ms_list guests;   /* have not yet said who they are */
    struct ms_list expected; /* nodes of the head before that have not come back */
    struct ms_timer note_timer;
    struct ms_durable *durable; /* NULL: nothing is kept */
    struct ms_list kept_groups; /* detached ones, as they stand there */
    uint64_t kept_revision; /* of the key-value store, up to which it stands there */
    struct ms_timer kept_timer;
    struct ms_fleet *fleet;   /* NULL: nobody lends us nodes */
    struct ms_uplink *uplink; /* NULL: we are a head ourselves */
    struct ms_orphans orphans;
    struct ms_server *control;
    struct ms_rest *rest; /* NULL: no HTTP */

    struct ms_head_op *stop_op; /* NULL: not stopping */
    int64_t stop_deadline_ns;
    bool stop_sent; /* the agents were told to end */
    bool stop_done;
    struct ms_timer stop_timer;
};

/* True in a process that was forked from the driver. */
bool ms_head_is_forgotten(const struct ms_head *h);

/* head.c: the parts of a start */
struct ms_head *ms_head_create(const struct ms_head_options *o);
int ms_head_build(struct ms_head *h, struct ms_error *err);
int ms_head_start_thread(struct ms_head *h, struct ms_error *err);

/* For tests: gone without a word, as with a process that dies. */
void ms_head_crash(struct ms_head *h);

/* request.c: `run` of every request. */
void ms_head_request_run(struct ms_head_op *op);

/* `m` is borrowed; on_done may be NULL. */
struct ms_head_op *ms_head_ask(struct ms_head *h,
                               const Muster__DriverToHead *m,
                               void (*on_done)(struct ms_head_op *op));

/* The living node of that name; an empty one: any, else the one that is gone. NULL: there
 * is none. */
struct ms_node *ms_head_find_node(const struct ms_head *h, const char *name);
/* As it came over a link. */
int64_t ms_head_grace(uint64_t grace_ns);

/* recovery.c */
int ms_recovery_init(struct ms_head *h);
void ms_recovery_finish(struct ms_head *h);
/* The head before had this node. */
void ms_recovery_expect(struct ms_head *h, const char *name);
void ms_recovery_note(struct ms_head *h); /* the nodes have changed */
void ms_recovery_has_come(struct ms_head *h, const char *name);
/* How long to wait for those that are missing; 0: none is, or for too long. */
int64_t ms_recovery_left_ns(const struct ms_head *h);

/* kept.c */
int ms_head_kept_open(struct ms_head *h, struct ms_error *err);
void ms_head_kept_close(struct ms_head *h);
/* The key-value store has changed. */
void ms_head_keep_kv(struct ms_head *h);
/* A group has changed, or is new; `group` NULL: it is not. What is not detached is not kept. */
void ms_head_keep_group(struct ms_head *h,
                        const Muster__PlaceGroup *group,
                        const Muster__GroupStatus *status);
void ms_head_forget_group(struct ms_head *h, uint64_t id);
/* A node has come: groups that wait for it are placed there again. */
void ms_head_restore_groups(struct ms_head *h);

/* waiting.c */
/* A head that was started again waits for the agents of the one before: true if the
 * operation will be run again. */
bool ms_head_wait_for_nodes(struct ms_head_op *op);
/* The same for the report of the worker that asks. */
bool ms_head_wait_for_worker(struct ms_head_op *op);
void ms_head_node_has_come(struct ms_head *h, const char *name);
void ms_head_ask_death_run(struct ms_head_op *op);
void ms_head_answer_deaths(struct ms_head *h, uint64_t uid, const Muster__Exit *exit);
/* A worker was reported that somebody asks about: it is not unknown. */
void ms_head_death_is_open(struct ms_head *h, uint64_t uid);
/* What this driver waits for fails. */
void ms_head_fail_waiting(struct ms_head *h, const struct ms_driver *d);

/* lent.c */
/* Make a node; takes the configuration (NULL: out of memory). */
int ms_lent_init(struct ms_head *h,
                 const struct ms_head_options *o,
                 Muster__HeadToAgent *config);
/* `run` of the start of all of them: it completes when all are ready, or one will not be.
 * The options are used until it has run. */
void ms_lent_run(struct ms_head_op *op);
void ms_lent_destroy(struct ms_lent *l);
void ms_lent_is_ready(struct ms_lent *l, Muster__AgentReady *ready);
/* End it by force; it will be found gone. */
void ms_lent_kill(struct ms_lent *l);
/* Close the link to it. */
void ms_lent_hang_up(struct ms_lent *l);

/* dialled.c */
/* This node has ended, as who lends it says; if it is there, it is lost. */
void ms_dialled_is_over(struct ms_head *h, const char *name, const char *why);
/* An agent has said who it is; takes the link over. 0, or why it is refused. */
int ms_dialled_attach(struct ms_head *h,
                      struct ms_link *wire,
                      Muster__AgentHello *hello,
                      struct ms_error *err);
/* In node->contexts: a driver that it must forget when it comes back. */
void *ms_node_unforgotten(void);

/* hello.c */
void ms_head_on_link(void *arg, struct ms_link *wire); /* of the server */
void ms_hello_welcome_agent(struct ms_head *h, struct ms_node *n);
void ms_guests_finish(struct ms_head *h);

/* uplink.c */
int ms_uplink_init(struct ms_head *h,
                   const struct ms_head_options *o,
                   const struct ms_head_address *a,
                   struct ms_error *err);
void ms_uplink_destroy(struct ms_uplink *u);
void ms_uplink_start_run(struct ms_head_op *op);
void ms_uplink_ask_run(struct ms_head_op *op);
void ms_uplink_stop_run(struct ms_head_op *op);

/* replace.c */
void ms_head_replace_run(struct ms_head_op *op);
/* A rank of it is between two incarnations. */
bool ms_head_is_replacing(const struct ms_cluster *c);

/* describe.c */
void ms_head_describe_run(struct ms_head_op *op);
void ms_head_find_run(struct ms_head_op *op);
/* Nothing that was said of a cluster of this name stays. */
void ms_head_meta_remove(const struct ms_head *h, const char *cluster);

/* successor.c */
void ms_head_ask_successor_run(struct ms_head_op *op);
void ms_head_open_run(struct ms_head_op *op);
/* Something has changed: who waits for a successor may have one. */
void ms_head_seek_step(struct ms_head *h);
/* On behalf of a worker there. */
void ms_head_node_asks_successor(struct ms_node *n, uint64_t uid);
/* The message; NULL: out of memory. */
Muster__DriverToHead *ms_head_wants_successor(uint64_t uid);

/* create.c */
void ms_head_create_run(struct ms_head_op *op);

/* cluster.c: what nodes tell, and that one is gone */
void ms_head_destroy_run(struct ms_head_op *op);
void ms_head_worker_exited(struct ms_head *h, uint64_t uid, const Muster__Exit *exit);
void ms_head_workers_lost(struct ms_head *h, struct ms_node *n, const char *why);
void ms_head_tell_exit(struct ms_head *h, const struct ms_slot *slot);
/* The cluster is no more: whoever waits for that is told, then it is forgotten. */
void ms_head_cluster_forget(struct ms_head *h, struct ms_cluster *c);
/* Ask each of its nodes to stop what it has of the cluster: all that was ever there, or
 * only what lives. The number of questions asked, or a negative errno. */
int ms_head_cluster_ask_stop(struct ms_head_op *op,
                             struct ms_cluster *c,
                             bool also_dead,
                             int64_t grace_ns);
/* It is created now: end it if somebody asked for that meanwhile. */
void ms_head_begin_destroys(struct ms_head *h, struct ms_cluster *c);
/* Tell a node to stop one of its workers by force. */
void ms_head_tell_stop(struct ms_node *n, uint64_t uid);
/* Tell a node to stop all its workers. */
int ms_head_stop_workers_of(struct ms_head *h, struct ms_node *n, int64_t grace_ns);

/* ports.c */
int ms_head_port_add(struct ms_head *h,
                     const char *owner,
                     uint64_t driver,
                     const struct ms_node *n);
/* By what the owner is called: whose cluster it is for; 0: nobody's. */
uint64_t ms_head_port_driver(const struct ms_head *h, const char *owner);
/* What a driver that ended held for no cluster. */
void ms_head_ports_drop_driver(struct ms_head *h, uint64_t driver);
void ms_head_hold_port_run(struct ms_head_op *op);
void ms_head_drop_port_run(struct ms_head_op *op);
void ms_head_ports_finish(struct ms_head *h);
/* What was held for this cluster, if its driver cannot drop it any more. */
void ms_head_ports_drop(struct ms_head *h, const struct ms_cluster *c);
void ms_head_ports_lost(struct ms_head *h, const struct ms_node *n);

/* kv_ask.c */
void ms_head_kv_put_run(struct ms_head_op *op);
void ms_head_kv_get_run(struct ms_head_op *op);
void ms_head_kv_delete_run(struct ms_head_op *op);
/* What belongs to it goes. */
void ms_head_kv_driver_gone(struct ms_head *h, uint64_t driver);
void ms_head_kv_worker_gone(struct ms_head *h, uint64_t uid);
/* The store has changed: who waits for that is told. */
void ms_head_kv_changed(struct ms_head *h);
/* Answer a get or a watch now, or when the store changes, or after wait_ns. */
void ms_head_kv_wait(struct ms_head_op *op, uint64_t wait_ns);
/* Borrows from the entry; NULL: that there is none. */
void ms_kv_entry_message(Muster__KvEntry *m, const struct ms_kv_entry *e);
/* The operation succeeds with a copy of this. */
void ms_head_answer(struct ms_head_op *op, const ProtobufCMessage *m);

/* kv_watch.c */
void ms_head_kv_keys_run(struct ms_head_op *op);
void ms_head_kv_watch_run(struct ms_head_op *op);
/* True if it was answered, which it is when this is the last chance. */
bool ms_head_kv_try_watch(struct ms_head_op *op, bool is_last);

/* barrier.c */
void ms_head_barrier_run(struct ms_head_op *op);
/* This worker has died: the waiting of its cluster ends. */
void ms_head_barriers_lose(struct ms_head *h, const struct ms_slot *slot);
/* This one waits nowhere any more. */
void ms_head_barriers_leave(struct ms_head *h, const struct ms_driver *d);
void ms_head_barriers_finish(struct ms_head *h);

/* helpers.c: of workers that are wider than a node */
int ms_helpers_check(struct ms_head *h,
                     const Muster__CreateCluster *create,
                     struct ms_error *err);
void ms_helpers_created(struct ms_head *h, const struct ms_cluster *c);
/* This worker has ended: its helpers end too, and whom it helped. */
void ms_helpers_exited(struct ms_head *h,
                       const struct ms_slot *slot,
                       const Muster__Exit *exit);
/* A cluster of helpers of which none is left: to be forgotten. */
bool ms_helpers_are_over(const struct ms_cluster *c);

/* stop.c */
void ms_head_stop_run(struct ms_head_op *op); /* `run` of the end */
void ms_head_stop_step(struct ms_head *h);    /* something has changed: go on */

/* status.c: NULL: out of memory */
Muster__Status *ms_head_status_message(struct ms_head *h);
Muster__NodeStatus *ms_node_status(const struct ms_node *n);

/* serve.c */
int ms_head_listen(struct ms_head *h,
                   const char *const *addresses,
                   struct ms_error *err);

/* control.c */
int ms_head_control_open(struct ms_head *h, struct ms_error *err);
/* Also there: "HOST:PORT"; it is added to h->addresses. */
int ms_head_control_listen(struct ms_head *h,
                           const char *address,
                           struct ms_error *err);
void ms_head_control_close(struct ms_head *h);
void ms_head_control_reply(struct ms_request *r, const ProtobufCMessage *m);
/* An op's on_done: what it came to answers the request that is its done_arg. */
void ms_head_control_answer(struct ms_head_op *op);

/* control_stop.c: `muster stop` */
void ms_head_control_stop(struct ms_head *h, struct ms_request *r);
/* control_status.c */
void ms_head_status_run(struct ms_head_op *op);
void ms_head_control_status(struct ms_head *h, struct ms_request *r);
/* Nodes or workers have come or gone: who waits for that is answered. */
void ms_head_changed(struct ms_head *h);
/* control_log.c: `muster logs` of other machines */
/* Ask a node for a piece of a log; the result is a LogPiece. NULL: out of memory. */
struct ms_head_op *ms_head_read_log(struct ms_head *h,
                                    const Muster__ReadLog *want,
                                    void (*on_done)(struct ms_head_op *op),
                                    void *arg);
void ms_head_read_log_run(struct ms_head_op *op);
void ms_head_control_read_log(struct ms_head *h, struct ms_request *r);
/* control_objects.c: `muster list objects` */
/* Ask all nodes; the result is Objects, sooner or later: nodes that do not answer say why
 * not. NULL: out of memory. */
struct ms_head_op *ms_head_list_objects(struct ms_head *h,
                                        void (*on_done)(struct ms_head_op *op),
                                        void *arg);
void ms_head_control_objects(struct ms_head *h, struct ms_request *r);

#endif
