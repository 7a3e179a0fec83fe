/* state.h - what the files of the head share
 *
 * head.c      start, stop, the thread, forget
 * op.c        operations
 * agent.c     the link to the agent, its life and its death
 * create.c    creating clusters
 * cluster.c   destroying them, and what happens to workers
 * request.c   the other requests
 * stop.c      the orderly end, on the head's thread
 * orphan.c    workers whose agent has died
 * status.c    the Status message
 * tail.c      the last lines of a log
 * control.c   head.sock; control_stop.c: `muster stop`
 *
 * Everything below belongs to the head's thread, but `ops` (guarded by `lock`) and what
 * is constant after the start.
 */
#ifndef MS_HEAD_STATE_H
#define MS_HEAD_STATE_H

#include "base/list.h"
#include "base/map.h"
#include "cluster/registry.h"
#include "head/head.h"
#include "head/op.h"
#include "head/orphan.h"
#include "io/loop.h"
#include "orchestrator/orchestrator.h"
#include "wire/link.h"
#include "wire/server.h"

#include <pthread.h>

enum ms_head_agent_state {
    MS_AGENT_NONE,     /* not begun */
    MS_AGENT_STARTING, /* begun; has not said that it is ready */
    MS_AGENT_READY,
    MS_AGENT_GONE
};

struct ms_head_agent {
    enum ms_head_agent_state state;
    struct ms_orchestrator *orchestrator;
    struct ms_lent_agent *lent;
    struct ms_link *link;
    struct ms_agent_spec spec;
    struct ms_head_op *start_op; /* while STARTING */
    struct ms_map pending;       /* request -> op */
    uint64_t last_request;

    pid_t pid;
    uint32_t cpus, gpus;
    uint64_t memory;

    /* How it went: the process and the link, whichever is first. */
    bool ended, closed, killed;
    struct ms_process_end end;
    struct ms_error closed_why;
    struct ms_timer verdict; /* the other one must follow soon */
    struct ms_error gone;    /* once GONE: for people */
};

struct ms_head {
    /* constant after the start */
    struct ms_session session;
    int lock_fd;
    char node[MS_NAME_MAX + 1];
    char log_path[MS_SESSION_DIR_MAX + 16]; /* the agent's */
    int num_cpus;                           /* as told; -1: what the agent found */
    void (*on_log)(void *arg, const Muster__LogLines *lines);
    void (*on_exit)(void *arg, uint64_t uid, const Muster__Exit *exit);
    void (*on_agent_lost)(void *arg, const char *why);
    void *arg;
    int64_t started_ns;
    struct ms_loop *loop;
    pthread_t thread;
    bool has_thread;
    bool forgotten;
    int marker_fd; /* watched by the loop for nothing: names it to ms_head_forget */
    struct ms_watch marker;

    pthread_mutex_t lock;
    struct ms_list ops; /* not completed; under `lock` */

    struct ms_registry registry;
    struct ms_list destroying; /* operations */
    struct ms_head_agent agent;
    struct ms_orphans orphans;
    struct ms_server *control;

    struct ms_head_op *stop_op; /* NULL: not stopping */
    int64_t stop_deadline_ns;
    bool stop_sent; /* the agent was told to end */
    bool stop_done;
    struct ms_timer stop_timer;
};

/* True in a process that was forked from the driver. */
bool ms_head_is_forgotten(const struct ms_head *h);

/* agent.c */
int ms_head_agent_init(struct ms_head *h, const struct ms_head_options *o);
void ms_head_agent_finish(struct ms_head *h);
/* `run` of the start, whose to_agent is the agent's configuration. The options are used
 * until it has run. */
void ms_head_agent_run(struct ms_head_op *op);
/* Ask op->to_agent; the answer comes to op->on_answer. On failure nothing was sent and
 * the operation is still open. */
int ms_head_agent_ask(struct ms_head *h, struct ms_head_op *op, struct ms_error *err);
/* Send without an answer. */
int ms_head_agent_tell(struct ms_head *h, Muster__HeadToAgent *m);
/* Close the link to it. */
void ms_head_agent_hang_up(struct ms_head *h);
/* End it by force; it will be found gone. */
void ms_head_agent_kill(struct ms_head *h);
/* 0, or -EPIPE with the reason why there is none to ask. */
int ms_head_agent_check(const struct ms_head *h, struct ms_error *err);

/* cluster.c: what the agent tells, and that it is gone */
void ms_head_worker_exited(struct ms_head *h, uint64_t uid, const Muster__Exit *exit);
void ms_head_workers_lost(struct ms_head *h, const char *why);
void ms_head_tell_exit(struct ms_head *h, const struct ms_slot *slot);
/* The cluster is no more: whoever waits for that is told, then it is forgotten. */
void ms_head_cluster_forget(struct ms_head *h, struct ms_cluster *c);
/* Ask the agent to stop what lives of it. */
int ms_head_cluster_stop(struct ms_head *h, struct ms_cluster *c, int64_t grace_ns);
/* It is created now: end it if somebody asked for that meanwhile. */
void ms_head_begin_destroys(struct ms_head *h, struct ms_cluster *c);
int ms_head_stop_all_workers(struct ms_head *h, int64_t grace_ns);

/* stop.c */
void ms_head_stop_run(struct ms_head_op *op); /* `run` of the end */
void ms_head_stop_step(struct ms_head *h);    /* something has changed: go on */

/* status.c: NULL: out of memory */
Muster__Status *ms_head_status_message(const struct ms_head *h);

/* control.c */
int ms_head_control_open(struct ms_head *h, struct ms_error *err);
void ms_head_control_close(struct ms_head *h);
void ms_head_control_reply(struct ms_request *r, const ProtobufCMessage *m);

/* control_stop.c: `muster stop` */
void ms_head_control_stop(struct ms_head *h, struct ms_request *r);

#endif
