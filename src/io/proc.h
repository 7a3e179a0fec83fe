/* proc.h - this process and those around it, by the kernel's word
 *
 * What /proc says is true when it is read and may be old a moment later: callers look
 * again when a child ends.
 */
#ifndef MS_IO_PROC_H
#define MS_IO_PROC_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>

/* The direct children of this process, of all its threads, also dead ones that nobody
 * has reaped. The count, or a negative errno; `*out` is malloc'd (NULL if there are
 * none). One that is born or ends meanwhile may be missing. */
int ms_proc_children(pid_t **out);

/* SIGKILL every descendant of this process, wherever it has put itself by setsid, until
 * none is found. */
void ms_proc_kill_descendants(void);

/* The value of an environment variable in the block that a process was started with.
 * 0; -ENOENT: it has none of this name, or it has ended; -ENAMETOOLONG: it does not
 * fit; -EACCES: not ours to look at; -EAGAIN: it is within an exec, look again soon. */
int ms_proc_env(pid_t pid, const char *name, char *out, size_t room);

/* Whether it is on its way out, or dead and not reaped, or gone. */
bool ms_proc_is_ending(pid_t pid);

/* When it began, in ticks since the machine did; 0: it has ended, or is a zombie. */
uint64_t ms_proc_start(pid_t pid);

/* What the kernel says of a process without asking it. */
struct ms_proc_look {
    uint64_t memory; /* resident bytes */
    uint64_t cpu_ns; /* processor time that it has had */
    bool is_stopped; /* by a signal, or by a debugger */
};

/* False: it has ended. */
bool ms_proc_look(pid_t pid, struct ms_proc_look *out);

/* How many threads this process has. */
int ms_proc_threads(void);

/* Signal a whole process group. 0; -ESRCH: nobody is in it. Refuses (-EINVAL) the
 * groups whose names mean something else to kill(2), and our own. */
int ms_proc_group_kill(pid_t group, int sig);

/* SIGKILL to a process, and to its group if it leads one. */
void ms_proc_kill(pid_t pid);

/* SIGKILL to all children, and to what each of them leaves us (a subreaper) when it goes; reap
 * them until there is none, at most until then: what does not end by SIGKILL is not waited
 * for. SIGCHLD is blocked. */
void ms_proc_end_children(int64_t deadline_ns);
/* Block these signals and have them here instead: a descriptor that reads
 * signalfd_siginfo, non-blocking, or a negative errno. `signals` end with 0; *before (may be
 * NULL) is what was blocked before. */
int ms_signals_open(const int *signals, sigset_t *before);
/* The short name that ps shows; cut to 15 bytes. */
void ms_proc_set_name(const char *name);

/* Close every descriptor above 2 but these. */
void ms_proc_close_others(const int *keep, size_t count);

/* 0 or a negative errno. */
int ms_fd_set_cloexec(int fd, bool on);

/* Raise the limit of open descriptors as far as it goes; *original is what it was. */
int ms_nofile_raise(struct rlimit *original);

#endif
