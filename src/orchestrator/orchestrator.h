/* orchestrator.h - the one interface between Muster and whatever lends it machines
 *
 * An orchestrator starts one agent on each piece of what it lends: on this host, in
 * Kubernetes, in Ray, in Slurm. It holds no policy: what is wanted was decided before
 * it is called, and what an agent says is the head's business.
 *
 * How to implement one. Put `struct ms_orchestrator` first in your own struct and fill
 * a const table of operations. All of it runs on the thread of one loop.
 *  - start returns at once and never completes before it has returned;
 *  - it completes exactly once, by on_started on the loop, with 0 or a negative errno;
 *  - after a completion with 0, on_ended comes exactly once, when the agent's process
 * is gone, and after one with an error it never comes;
 *  - arguments are borrowed until start returns: keep a copy of what you need;
 *  - release is legal at any time and means that nothing more is told. An agent that
 *    still runs then is killed.
 */
#ifndef MS_ORCHESTRATOR_ORCHESTRATOR_H
#define MS_ORCHESTRATOR_ORCHESTRATOR_H

#include "base/error.h"
#include "io/spawn.h"

struct ms_orchestrator;
struct ms_lent_agent; /* one agent that it started */

/* What to start. */
struct ms_agent_spec {
    const char *path;        /* the muster executable, run as `muster agent --fd 3` */
    const char *const *env;  /* of the agent itself, NULL-terminated */
    const char *working_dir; /* NULL: ours */
    const char *log_path;    /* its stdout and stderr are appended to this file */
    int lock_fd;             /* the session's lock, which it holds with us; -1: none */
};

struct ms_agent_events {
    /* rc == 0: the agent's process `pid` exists and link_fd, now the callee's, is the
     * non-blocking stream to it. rc < 0: there is none and `why` says why. */
    void (*on_started)(
        void *arg, int rc, int link_fd, pid_t pid, const struct ms_error *why);
    void (*on_ended)(void *arg, const struct ms_process_end *end);
};

struct ms_orchestrator_ops {
    const char *name; /* as a person writes it: "local", "kubernetes", "ray" */
    /* NULL: out of memory, and there will be no completion. */
    struct ms_lent_agent *(*start)(struct ms_orchestrator *o,
                                   const struct ms_agent_spec *spec,
                                   const struct ms_agent_events *events,
                                   void *arg);
    /* End its process by force, now; on_ended follows. */
    void (*stop)(struct ms_lent_agent *a);
    void (*release)(struct ms_lent_agent *a); /* NULL is nothing */
    void (*destroy)(struct ms_orchestrator *o);
};

struct ms_orchestrator {
    const struct ms_orchestrator_ops *ops;
};

#endif
