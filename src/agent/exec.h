/* exec.h - fork and execute a child with exactly what it is to have
 *
 * For a program with one thread (io/spawn.h is for those with many): between fork and
 * exec the child enters its control group, its process group or session, its folder,
 * and gets its signals, limits and descriptors. Why that failed comes back on a pipe
 * that exec closes, so the caller's loop can wait for it.
 */
#ifndef MS_AGENT_EXEC_H
#define MS_AGENT_EXEC_H

#include "base/error.h"

#include <stdbool.h>
#include <sys/resource.h>
#include <sys/types.h>

enum { MS_EXEC_FDS = 6 };

struct ms_exec {
    char *const *argv; /* argv[0] is looked up in the PATH of `env` */
    char *const *env;
    const char *working_dir;     /* NULL or "": ours */
    int fds[MS_EXEC_FDS];        /* [i] becomes descriptor i; -1: /dev/null, above 2
                                    nothing. All others are expected to be close-on-exec */
    bool new_session;            /* else only a process group of its own */
    int death_signal;            /* sent to it when we die; 0: none */
    int cgroup_fd;               /* cgroup.procs to enter; -1: none */
    const struct rlimit *nofile; /* NULL: as ours */
};

/* The child's pid, or a negative errno. *problem_fd (close-on-exec, non-blocking)
 * becomes readable when it is known how it went: give it to ms_exec_result. */
pid_t ms_exec_start(const struct ms_exec *x, int *problem_fd, struct ms_error *err);

/* 0: it runs. -EAGAIN: not known yet, `err` is as it was. Else the errno of what failed, in
 * words in `err`; the child exits with 127. The descriptor stays the caller's. */
int ms_exec_result(int problem_fd, struct ms_error *err);

#endif
