/* process.h - in the process of a zygote: its half of the talk with the agent
 *
 * A zygote is an interpreter of one thread that has imported what workers need. It
 * reads requests from a seqpacket socket, forks, reports, and reaps; it has no event
 * loop. The Python half is python/muster/_worker/zygote.py; the extension wraps the functions
 * below one to one, with one `static struct ms_zygote_request` that lives as long as
 * the process (zero at first):
 *
 *   _core.zygote_next(fd) -> tuple | None   None: the agent is gone, exit
 *     ("setup", sys_path: list[str], preload: list[str])
 *     ("spawn", uid: int, env: list[bytes], (control_fd, listen_fd, listen_tcp_fd))
 *     ("derive", uid: int, preload: list[str])
 *     ("spare", 0)                          nothing is asked: fork a spare (spares.h)
 *   _core.zygote_spare(fd) -> tuple | None  in the spare, the request that it is to carry out
 *   _core.zygote_loaded(fd, path: str, size: int, mtime_ns: int) -> None
 *   _core.zygote_changed(fd, entry: str) -> None
 *   _core.zygote_ready(fd, problem: str, forkable: bool) -> None
 *   _core.zygote_started(fd, uid, pid, errno) -> None     in the parent; pid 0: failed
 *   _core.zygote_child(fd) -> int                         in the child, see below
 *   _core.zygote_threads() -> int                         ms_proc_threads()
 *
 * Negative results become OSError. Strings are decoded with the file system's encoding
 * (surrogateescape). Only zygote_next and zygote_spare block.
 */
#ifndef MS_AGENT_ZYGOTES_PROCESS_H
#define MS_AGENT_ZYGOTES_PROCESS_H

#include "proto/muster.pb-c.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    MS_SPAWN_STDOUT,
    MS_SPAWN_STDERR,
    MS_SPAWN_CONTROL,
    MS_SPAWN_LISTEN,     /* its unix socket */
    MS_SPAWN_LISTEN_TCP, /* its TCP socket */
    MS_SPAWN_CGROUP,     /* only where memory is limited */
    MS_SPAWN_FDS
};

/* A request and the descriptors that came with it (a Derive has one: its socket). */
struct ms_zygote_request {
    Muster__ZygoteRequest *message; /* owned; body_case says which */
    int fds[MS_SPAWN_FDS];          /* owned */
    size_t fd_count;
};

enum { MS_ZYGOTE_FORK_SPARE = 2 };

/* Wait for the next request; what is in `r` from before is freed and closed. Children
 * that end meanwhile are reaped, the rest of their process groups killed, and their
 * statuses reported. 1; MS_ZYGOTE_FORK_SPARE; 0: the agent is gone; or a negative errno. */
int ms_zygote_next(int fd, struct ms_zygote_request *r);
/* Of a Spawn or a Derive; else 0. */
uint64_t ms_zygote_request_uid(const Muster__ZygoteRequest *m);

/* Before ms_zygote_ready, for each file of the user's that a module was loaded from: as it
 * was then. */
int ms_zygote_loaded(int fd, const char *path, uint64_t size, int64_t mtime_ns);

/* The same for each variable that the imports have set ("NAME=value") or taken out
 * ("NAME"). */
int ms_zygote_changed(int fd, const char *entry);

/* All is imported. `problem`: what could not be, or ""; `forkable`: false if a fork
 * would break something, the agent then executes workers instead. */
int ms_zygote_ready(int fd, const char *problem, bool forkable);

/* In the spare that was forked, before anything else: wait for a request, as ms_zygote_next. */
int ms_zygote_spare(int fd, struct ms_zygote_request *r);

/* In the parent, after the fork for `uid` (a Spawn's or a Derive's; 0: a spare). */
int ms_zygote_started(int fd, uint64_t uid, pid_t pid, int error);

/* In the child that carries `r` out, before anything else; one that was a spare reports itself
 * as started. The zygote's descriptors are closed, signals are
 * as they were before the first ms_zygote_next.
 *  - Spawn: own process group, control group, stdout and stderr, working folder, the
 *    names that ps shows, MUSTER_WORKER_UID in /proc/self/environ (which its own
 * children inherit, whether they exec or not). Returns 0; on failure the reason is on
 * stderr. The control and the listening descriptors in `r` are the caller's from now on.
 * Left to Python: os.environ, random generators.
 *  - Derive: returns the new zygote's socket, to be used in place of `fd`. */
int ms_zygote_child(int fd, struct ms_zygote_request *r);

#endif
