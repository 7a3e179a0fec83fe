/* spawn.h - start a process from a program with many threads, and know truly how it
 * ended
 *
 * The child is executed without a copy of our memory and without running a line of our
 * code in between, so other threads may hold any lock. It has exactly the descriptors
 * that were asked for, all signals at their defaults and none blocked.
 *
 * A process is known by its pidfd: readable when it has ended, and never another process.
 * No SIGCHLD handler is needed and no other child of this program is touched. Other code
 * in it may wait for any child and take our status away; that is -ECHILD below.
 */
#ifndef MS_IO_SPAWN_H
#define MS_IO_SPAWN_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* The caller's `from` becomes the child's `to`. */
struct ms_spawn_fd {
    int from, to;
};

enum { MS_SPAWN_FDS_MAX = 16 };

struct ms_spawn {
    const char *path;                     /* executed as it is, not looked up in PATH */
    const char *const *argv, *const *env; /* NULL-terminated */
    const char *working_dir;              /* NULL: ours */
    const struct ms_spawn_fd *fds; /* 0, 1 and 2 are /dev/null unless they are here */
    size_t fd_count;
    bool new_session; /* setsid: no terminal, its own process group */
};

struct ms_process {
    pid_t pid;
    int pidfd; /* the owner closes it */
};

/* Start it. On failure (also when the file cannot be executed) nothing was started and
 * `err` names the path. -EINVAL: more than MS_SPAWN_FDS_MAX descriptors, or a `to` that
 * is not below it. */
int ms_spawn(const struct ms_spawn *s, struct ms_process *out, struct ms_error *err);

struct ms_process_end {
    bool known;    /* false: other code has taken the status */
    bool signaled; /* code is a signal's number, else an exit code */
    int code;
};

/* Collect the status of a child. 0; -EAGAIN: it still runs; -ECHILD: it is not our
 * child, or other code has collected it (*end is then set and not known). */
int ms_process_reap(int pidfd, struct ms_process_end *end);

/* Wait until it has ended, then reap. -ETIMEDOUT when deadline_ns (monotonic) is first.
 */
int ms_process_wait(int pidfd, int64_t deadline_ns, struct ms_process_end *end);

/* 0, or -ESRCH: it has ended. */
int ms_process_signal(int pidfd, int sig);

/* pidfd_open(2): a descriptor, or a negative errno. */
int ms_process_open(pid_t pid);

/* "exited with code 3", "was killed by signal 9 (Killed)", "ended"; returns `out`. */
const char *
ms_process_end_print(const struct ms_process_end *end, char *out, size_t room);

#endif
