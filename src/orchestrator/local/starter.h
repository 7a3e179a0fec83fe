/* starter.h - agents as child processes of ours, on this host
 *
 * All of it runs on the thread of one loop.
 *  - start returns at once and never completes before it has returned;
 *  - it completes exactly once, by on_started on the loop, with 0 or a negative errno;
 *  - after a completion with 0, on_ended comes exactly once, when the agent's process
 *    is gone, and after one with an error it never comes;
 *  - arguments are borrowed until start returns;
 *  - release is legal at any time and means that nothing more is told. An agent that
 *    still runs then is killed.
 */
#ifndef MS_ORCHESTRATOR_LOCAL_STARTER_H
#define MS_ORCHESTRATOR_LOCAL_STARTER_H

#include "base/error.h"
#include "io/loop.h"
#include "io/spawn.h"

struct ms_local_agent; /* one that was started */

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

/* NULL: out of memory, and there will be no completion. */
struct ms_local_agent *ms_local_agent_start(struct ms_loop *loop,
                                            const struct ms_agent_spec *spec,
                                            const struct ms_agent_events *events,
                                            void *arg);
/* End it by force, now: its supervisor is told so by SIGQUIT (agent/supervisor.h), and
 * killed if it does not react; on_ended follows. */
void ms_local_agent_stop(struct ms_local_agent *a);
void ms_local_agent_release(struct ms_local_agent *a); /* NULL is nothing */

#endif
