/* agent.h - the process that starts, watches and ends the workers of one node
 *
 * The body of `muster agent`. One thread, one loop, no timer while nothing
 * happens. It is told everything by its head over the link (proto: "head to agent",
 * doc/worker-start.md) and tells it what it knows.
 *
 * One that a head started (ms_agent_run) ends, with everything below it and the session's
 * folder (but the logs), when the head says so, when the link ends, or when the driver's
 * process ends. One that has joined a head (ms_agent_join) outlives its link for a while:
 *
 *   the head says so, or a signal     its workers end, then it; exit code 0
 *   the head's process ends           workers go on for head_grace
 *   silence, or a broken connection   workers go on for link_grace: then the head takes
 *                                     them for dead, so they must be
 *   the grace is over                 its workers end, then it; exit code 1, so that a
 *                                     service manager starts it again and it waits anew
 *   a wrong secret, another version,  before it has ever joined: exit code 1, the reason
 *   a node name that is taken         on stderr (of a name: only when it stays taken)
 *   nobody answers                    before it has ever joined: tried for ever, or for
 *                                     join_within_ns: then exit code 1
 *   the process end_with_pid ends     its workers end, then it
 *   its supervisor ends               the same, at once; also of one that a head started
 *
 * Meanwhile it dials. When it is back it tells what lives and what has ended, sends the
 * lines that were printed (MS_LOG_BACKLOG_MAX at most), and does nothing twice.
 */
#ifndef MS_AGENT_AGENT_H
#define MS_AGENT_AGENT_H

#include "proto/muster.pb-c.h"
#include "wire/transport/tls.h"

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Run until the end. Both descriptors are taken over: the stream socket to the head,
 * and the session's lock, which is only kept open (-1: none). Every other descriptor
 * above 2 is closed. supervisor_pid: supervisor.h; 0: it has none. The process's exit
 * code: 0, or 1 if it could not even begin. */
int ms_agent_run(int link_fd, int lock_fd, pid_t supervisor_pid);

/* Everything is borrowed until ms_agent_join returns. */
struct ms_join_options {
    const char *head;               /* a list of addresses */
    const uint8_t *secret;          /* 32 bytes */
    const char *node_name;          /* NULL: the host's name */
    const Muster__NodeShape *shape; /* what was told of this node; NULL: nothing */
    const char *const
        *bind; /* listen.h; none: what the head says, else all interfaces */
    size_t bind_count;
    enum ms_tls_mode tls;
    const Muster__StoreConfig *store; /* what is said here wins; NULL: nothing */
    int64_t join_within_ns;           /* 0: for ever */
    pid_t end_with_pid;               /* end with this process; 0: with none */
    pid_t supervisor_pid;             /* supervisor.h; 0: it has none */
    int ready_fd; /* gets a byte when the head was joined, and is closed; 0: none */
    bool json;    /* tell on stdout what happens, as one object a line */
};

/* Join a head and serve it until the end, in the foreground: what happens is told on
 * stderr (with `json` on stdout). Every other descriptor above 2 is closed. The process's exit code. */
int ms_agent_join(const struct ms_join_options *o);

#endif
