/* agent_process.h - one agent that dials a head, as a child process of ours
 *
 * Started as `muster agent --head ... --node-name ...`, in a session of its own, with a
 * prefix before it if it is to run somewhere else (`ip netns exec NAME`). It says by a
 * pipe when the head has welcomed it. It ends with `end_with`: by itself, when that
 * process ends, however. Without one it goes on, and can be adopted.
 *
 * All of it runs on the thread of one loop. on_ready comes at most once and never after
 * on_ended; on_ended comes exactly once; neither comes from inside of a call.
 */
#ifndef MS_ORCHESTRATOR_LOCAL_AGENT_PROCESS_H
#define MS_ORCHESTRATOR_LOCAL_AGENT_PROCESS_H

#include "base/error.h"
#include "io/loop.h"
#include "io/spawn.h"

#include <stddef.h>
#include <stdint.h>

/* Borrowed while it is started. */
struct ms_agent_process_spec {
    const char *const *prefix;      /* NULL-terminated; NULL: none */
    const char *path;               /* the muster executable */
    const char *head, *secret_file; /* NULL: not said */
    const char *name;               /* of the node */
    const uint8_t *shape;           /* a packed NodeShape */
    size_t shape_len;
    const char *const *env; /* beside our own; NULL: none */
    const char *log_path;   /* its output is appended there; NULL: it is dropped */
    pid_t end_with;         /* 0: it goes on without us */
};

struct ms_agent_process_events {
    void (*on_ready)(void *arg);
    void (*on_ended)(void *arg, const struct ms_process_end *end);
};

struct ms_agent_process {
    struct ms_loop *loop;
    struct ms_process process;
    bool is_adopted; /* perhaps no child of ours */
    int ready_fd;
    struct ms_watch ready, ended;
    struct ms_timer force;
    const struct ms_agent_process_events *events;
    void *arg;
};

/* 0, or why not: then nothing was started, and there is nothing to finish. */
int ms_agent_process_start(struct ms_agent_process *l,
                           struct ms_loop *loop,
                           const struct ms_agent_process_spec *spec,
                           const struct ms_agent_process_events *events,
                           void *arg,
                           struct ms_error *err);
/* One that an earlier process has started and that was ready: its end is told, but not how it
 * ended. 0, or -ESRCH: it has ended; -ENOMEM. */
int ms_agent_process_adopt(struct ms_agent_process *l,
                           struct ms_loop *loop,
                           pid_t pid,
                           const struct ms_agent_process_events *events,
                           void *arg);
/* SIGTERM now, and SIGKILL to all of its session after grace_ns; on_ended follows. */
void ms_agent_process_stop(struct ms_agent_process *l, int64_t grace_ns);
/* Nothing more is told. What still runs is given until then, and then killed. */
void ms_agent_process_finish(struct ms_agent_process *l, int64_t until_ns);
/* The same, and it goes on. */
void ms_agent_process_leave(struct ms_agent_process *l);

#endif
