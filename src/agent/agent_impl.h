/* agent_impl.h - what the parts of the agent share, inside this folder only
 *
 * agent.c     life, messages from the head
 * join*.c     of one that dials: the same over links that come and go
 * configure.c the first of them, and the node's store
 * drivers.c   contexts of drivers, and their zygotes
 * start.c     StartWorkers: all or none
 * fork.c      workers beside workers
 * worker*.c   one worker: its endpoints, its start, its steps, its end
 * reap.c      who has ended, and what of it is left
 * activity.c  what workers do, for those who look
 * log.c       the agent's own log
 * stop.c      StopWorkers, and the agent's own end
 */
#ifndef MS_AGENT_AGENT_IMPL_H
#define MS_AGENT_AGENT_IMPL_H

#include "agent/context.h"
#include "agent/logs/logs.h"
#include "agent/logs/readers.h"
#include "agent/machine/cgroup.h"
#include "agent/machine/device_memory.h"
#include "agent/machine/listen.h"
#include "agent/machine/ports.h"
#include "agent/zygotes/zygote.h"
#include "base/json.h"
#include "base/map.h"
#include "io/loop.h"
#include "proto/muster.pb-c.h"
#include "wire/client/exits.h"
#include "wire/link/link.h"

#include <stdbool.h>
#include <sys/resource.h>

struct ms_join;
struct ms_store;
struct ms_worker;

/* Rounds of questions to all workers: what does each do? */
struct ms_activities {
    struct ms_list askers, next; /* requests of the head: of this round, of the next */
    size_t awaited;              /* workers that have not answered in this one */
    bool awaits_devices;
    struct ms_timer late;
    struct ms_device_memory devices;
};

struct ms_agent {
    struct ms_loop *loop;
    struct ms_link *link; /* NULL: there is none now */
    struct ms_join *join; /* NULL: a head has started us */
    int lock_fd;
    int exit_code;
    const char *node;            /* borrowed; NULL until told */
    Muster__NodeShape *shape;    /* what this node has; NULL until known */
    Muster__AgentConfig *config; /* NULL until told */
    struct rlimit nofile;        /* as it was before us */

    int signal_fd, driver_fd, supervisor_fd;
    int folder_fd; /* locked while we use the session's folder; -1: it is ours alone */
    struct ms_watch signals, driver, supervisor;

    struct ms_logs *logs;
    struct ms_log_readers log_readers;
    struct ms_zygotes zygotes;
    struct ms_contexts contexts;
    struct ms_cgroups cgroups;
    struct ms_ports ports;
    struct ms_listen listen; /* for callers of workers */
    struct ms_exits exits;
    struct ms_exits successor_asks; /* who asks for whose successor; keeps no ends */
    struct ms_store *store;         /* NULL: there is none */

    struct ms_map by_uid; /* workers, until nothing of them is left */
    struct ms_map by_pid; /* of those, the ones that live */
    struct ms_list dead;  /* the others: what is left of them is being removed */
    struct ms_list starts, stops;
    struct ms_activities activities;
    bool sweep_posted, collect_posted;
    struct ms_timer sweep_again;
    bool is_stopping; /* nothing new is begun */
    bool is_over;
};

/* ---- to the head ----------------------------------------------------------------- */

/* One message with this body, which is borrowed; `request` 0: an event. */
void ms_agent_send(struct ms_agent *a,
                   uint64_t request,
                   Muster__AgentToHead__BodyCase body_case,
                   const void *body);
/* Of this process; link_fd -1: none. */
int ms_agent_init(struct ms_agent *a, int link_fd, int lock_fd, int kept_fd);
void ms_agent_finish(struct ms_agent *a);
/* One message from the head, which is taken. */
void ms_agent_read(struct ms_agent *a, Muster__HeadToAgent *m);

/* Nothing is sent for request 0. */
void ms_agent_done(struct ms_agent *a, uint64_t request);
void ms_agent_refuse(struct ms_agent *a,
                     uint64_t request,
                     Muster__Failure__Kind kind,
                     const char *message);

/* ---- configure.c ----------------------------------------------------------------- */

/* AgentConfig, which is taken out of the message; answered with AgentReady. */
void ms_agent_configure(struct ms_agent *a, Muster__HeadToAgent *m);
/* End with this process; 0: with none. */
int ms_agent_watch_process(struct ms_agent *a, pid_t pid);
/* The same with its supervisor, at once; 0: it has none. */
int ms_agent_watch_supervisor(struct ms_agent *a, pid_t pid);
/* What this node is. `hosts` has room for MS_LISTEN_HOSTS_MAX; all is borrowed. */
void ms_agent_describe(struct ms_agent *a, Muster__AgentReady *ready, char **hosts);

/* ---- drivers.c ------------------------------------------------------------------- */

/* DriverContext: the driver's context, and the zygote that its workers will come from. */
void ms_agent_add_driver(struct ms_agent *a, Muster__HeadToAgent *m);
/* ForgetDriver. */
void ms_agent_forget_driver(struct ms_agent *a, Muster__HeadToAgent *m);
/* PrepareZygote: answered when it is ready. */
void ms_agent_prepare(struct ms_agent *a, Muster__HeadToAgent *m);
/* The zygote warms up while the driver goes on; this does not wait for it. */
void ms_agent_warm_up(struct ms_agent *a, const struct ms_context *context);
/* Something of a driver has gone: free what is no longer used, soon. */
void ms_agent_collect_soon(struct ms_agent *a);

/* What there is here; `request` 0: more is known than was said in the hello. */
void ms_agent_send_ready(struct ms_agent *a, uint64_t request);

/* ---- start.c --------------------------------------------------------------------- */

struct ms_start;

/* Start one worker for each spec, which are taken out of `specs`. Answered when all have
 * started, or none is left. `parent`: the worker beside which they run, in its context;
 * NULL: none. `asker`: the uid of the worker that is answered instead of the head; 0: the
 * head. */
void ms_start_begin(struct ms_agent *a,
                    uint64_t request,
                    Muster__WorkerSpec **specs,
                    size_t count,
                    struct ms_worker *parent,
                    uint64_t asker);
/* A worker has started (`why` NULL), or will not. Called once for each. */
void ms_start_result(struct ms_start *s, struct ms_worker *w, const char *why);
/* Whether a worker of it that has ended is to be kept until the start is answered:
 * false after a failure. */
bool ms_start_wants(const struct ms_start *s);
/* Nothing is left of this one. */
void ms_start_gone(struct ms_start *s, struct ms_worker *w);
/* Give up all that are under way. */
void ms_starts_cancel(struct ms_agent *a, const char *why);
/* Forget them; their workers are the caller's to destroy. */
void ms_starts_finish(struct ms_agent *a);

/* ---- worker.c: its steps --------------------------------------------------------------------- */

/* RunSteps. */
void ms_worker_run_steps(struct ms_agent *a, Muster__HeadToAgent *m);

/* ---- fork.c ---------------------------------------------------------------------- */

/* ForkWorker, whose spec is taken out of the message. */
void ms_fork_begin(struct ms_agent *a, Muster__HeadToAgent *m);
/* A worker asks for one beside itself, or to end some of those. */
void ms_fork_asked(struct ms_worker *parent, Muster__ForkWorker *fork);
void ms_fork_kill(struct ms_worker *parent, const Muster__StopWorkers *kill);
/* It has the pid (`why` NULL), or does not run. `asker` may be NULL: it has ended. */
void ms_fork_answer(struct ms_worker *asker, uint64_t uid, pid_t pid, const char *why);
/* A worker has ended: so do those beside it. */
void ms_fork_parent_ended(struct ms_worker *parent);
/* The worker that it was to run beside has ended. */
bool ms_fork_is_orphan(const struct ms_worker *w);

/* ---- join.c ---------------------------------------------------------------------- */

/* `request` is the id of a request (wire/link/requests.h); 0: an event. */
void ms_join_send(struct ms_join *j, uint64_t request, Muster__AgentToHead *m);
/* A worker has ended: told now, and told again to a head that may have missed it. */
void ms_join_ended(struct ms_join *j,
                   const struct ms_worker *w,
                   const Muster__WorkerExited *x);

/* ---- activity.c ------------------------------------------------------------------ */

/* -ENOMEM, also without a loop; ms_activities_finish follows in any case. */
int ms_activities_init(struct ms_agent *a);
void ms_activities_finish(struct ms_agent *a);
/* AskActivity: answered with Activities, MS_ACTIVITY_NS later at the latest (twice that if
 * a round is under way; MS_ACTIVITY_STACKS_NS with stacks). */
void ms_activities_ask(struct ms_agent *a, Muster__HeadToAgent *m);
/* A worker's answer, which is taken. */
void ms_activity_answered(struct ms_worker *w, Muster__Activity *activity);
/* It has ended: nothing is awaited of it. */
void ms_activity_forget(struct ms_worker *w);

/* ---- reap.c ---------------------------------------------------------------------- */

/* SIGCHLD: take every status that is there. */
void ms_reap(struct ms_agent *a);
/* This process has ended; its parent (us, or a zygote) has its status. */
void ms_reap_one(struct ms_agent *a, pid_t pid, int status);
int ms_sweep_init(struct ms_agent *a);
/* Look for what dead workers have left, soon. */
void ms_sweep_soon(struct ms_agent *a);

/* ---- stop.c ---------------------------------------------------------------------- */

/* Takes nothing; copies the uids. */
void ms_stop_begin(struct ms_agent *a,
                   uint64_t request,
                   const Muster__StopWorkers *stop);
/* Workers end in order, then the agent. `why` is borrowed for ever. */
void ms_stop_agent(struct ms_agent *a, uint64_t request, const char *why);
/* Something of a worker has gone: is a stop complete? */
void ms_stops_check(struct ms_agent *a);
void ms_stops_finish(struct ms_agent *a);

/* Kill all that is below us and wait until it is gone, at most MS_END_NS; remove the
 * session; stop the loop. `request` is answered with Done (0: not asked by the head). */
void ms_agent_end(struct ms_agent *a, uint64_t request, const char *why);

/* A line in the agent's own log, with the time; in the foreground with who says it. With
 * --json one object a line, to which the text is added as "message". Takes `event`; NULL is
 * one that is only said. */
void ms_agent_log_event(json_t *event, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
#define ms_agent_log(...) ms_agent_log_event(NULL, __VA_ARGS__)
void ms_agent_log_to_terminal(bool json);
/* One of several that share a log: its lines begin with the node's name, which is borrowed. */
void ms_agent_log_as(const char *node);

#endif
