/* worker.h - one worker, from its endpoints to what is left of it
 *
 * Life: create (endpoints, nothing runs) -> begin -> started, by ms_start_result ->
 * ended -> dead until its orphans are gone -> destroy. A worker that never started is
 * destroyed at once.
 */
#ifndef MS_AGENT_WORKER_H
#define MS_AGENT_WORKER_H

#include "agent/agent_impl.h"
#include "agent/zygotes/process.h"

struct ms_worker {
    struct ms_list link; /* in the agent's `dead` */
    struct ms_agent *agent;
    struct ms_start *start;   /* until that is answered */
    Muster__WorkerSpec *spec; /* owned */
    struct ms_context *context;
    uint64_t uid;
    bool is_command;
    uint64_t beside; /* the worker that it was forked beside; 0: none */
    bool is_private; /* a worker asked for it: the head does not know it */

    char *path;                   /* of its unix socket */
    char *address;                /* where others find it, as io/addr.h has it */
    struct ms_listen *own_listen; /* NULL: it listens where its node does */
    struct ms_log *log;
    struct ms_link *control;  /* NULL: it closed its end */
    struct ms_timer detached; /* since then, while it lives */
    struct ms_cgroup cgroup;
    int child_fds[MS_SPAWN_FDS]; /* its ends, until they are handed over */
    struct ms_zygote_item item;  /* of a fork under way */
    int problem_fd;              /* of an exec under way */
    struct ms_watch problem;

    pid_t pid;              /* 0: not started */
    pid_t zygote_pid;       /* its parent; 0: we are */
    uint64_t steps_request; /* whose answer its steps are */
    int64_t started_ns;
    int64_t asked_ns;  /* what it does, and it has not answered; 0: it is not */
    bool is_awaited;   /* by the round of questions (activity.c) */
    bool has_answered; /* one of them, once */
    Muster__Activity *activity; /* its answer, until the round is over */
    Muster__StepsDone
        *start_steps;  /* how those of its spec went, until the head asks */
    bool is_pending;   /* begun, and the result is not known */
    bool is_requested; /* we have asked it to end */
    bool is_detached;  /* ended because it had closed its link */
    bool has_ended;
    bool has_orphans;             /* as the last sweep found */
    Muster__WorkerExited *exited; /* not yet told; the start will */
};

/* Where its TCP socket is bound. */
const struct ms_listen *ms_worker_listen(const struct ms_worker *w);

/* Make its sockets, pipes, control link, log and control group. Takes the spec, also on
 * failure. NULL with `err`. */
struct ms_worker *ms_worker_create(struct ms_agent *a,
                                   struct ms_start *start,
                                   struct ms_context *context,
                                   Muster__WorkerSpec *spec,
                                   struct ms_error *err);
void ms_worker_destroy(struct ms_worker *w);

/* One message with this body, which is borrowed, to its control link. 0, or a negative
 * errno: -EPIPE, `w` is NULL or has closed its end. */
int ms_worker_send(struct ms_worker *w,
                   Muster__AgentToWorker__BodyCase body_case,
                   const void *body);

/* Start it the way its spec says. On failure nothing is under way. */
int ms_worker_begin(struct ms_worker *w, struct ms_error *err);
/* The callbacks of the zygotes. */
extern const struct ms_zygote_ops ms_worker_zygote_ops;

/* The names of its descriptors are the child's now. */
void ms_worker_close_child_fds(struct ms_worker *w);
/* How others find it. Borrowed from `w`. */
void ms_worker_describe(const struct ms_worker *w, Muster__WorkerStarted *out);
/* It runs: find it by its pid from now on. */
int ms_worker_set_pid(struct ms_worker *w, pid_t pid, pid_t zygote);
/* An exec under way: look how it went. */
void ms_worker_check_problem(struct ms_worker *w);

/* SIGKILL goes to its whole group, anything else to a host alone and to the group of a
 * plain command (a shell would not pass it on). */
void ms_worker_signal(struct ms_worker *w, int sig);

/* Its parent has its status. Drains its pipes, tells the head, and leaves the rest to
 * the sweep. `detail` may be NULL. */
void ms_worker_ended(struct ms_worker *w, int status, const char *detail);
/* Tell the head and the workers that asked. Takes w->exited. */
void ms_worker_tell_end(struct ms_worker *w);

/* Its control link: it asks how another worker ended. */
void ms_worker_ask(struct ms_worker *w, uint64_t about);
/* Who has the place of a dead one: asked by a worker, answered by the head. */
void ms_worker_ask_successor(struct ms_worker *w, Muster__AskSuccessor *ask);
void ms_worker_tell_successor(struct ms_agent *a, Muster__Successor *successor);

#endif
