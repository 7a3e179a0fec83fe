/* node_dir.h - the folder of an agent that has joined a head on another machine
 *
 * root/<session>@<node>/ with
 *   lock   flock(2)ed by the agent: held = alive; stays
 *   spin   the page of spin leases
 *   w/     sockets of its workers
 *   logs/  as in a session's folder; stays
 *
 * A name that is too long for the paths of sockets is cut, and ends with a number that
 * belongs to the whole. Of jobs that have ended logs stay as of sessions (log_limits.h). An agent of
 * the same name finds its folder again and goes on in the same logs; those of drivers before
 * that are too big together or too old go when it starts.
 */
#ifndef MS_IO_SESSION_NODE_DIR_H
#define MS_IO_SESSION_NODE_DIR_H

#include "io/session/session.h"

struct ms_node_dir {
    char dir[MS_SESSION_DIR_MAX];
    int lock_fd; /* -1: not open */
};

/* Make it, or take over what a dead agent has left: all of that but the logs goes.
 * -EBUSY: an agent of this name lives here. */
int ms_node_dir_open(struct ms_node_dir *d,
                     const char *session,
                     const char *node,
                     struct ms_error *err);

/* Where the folder of that agent is on this machine, if there is one. 0 or a negative errno. */
int ms_node_dir_path(const char *session,
                     const char *node,
                     char out[MS_SESSION_DIR_MAX],
                     struct ms_error *err);

/* Remove all but the logs and the lock, and let go of it. Idempotent. */
void ms_node_dir_close(struct ms_node_dir *d);

/* The same for those agents of a session on this machine that have died without it. */
void ms_node_dirs_sweep(const char *session);

#endif
