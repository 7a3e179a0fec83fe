/* supervised.h - to which supervisor a process belongs, by its environment
 *
 * Above each agent is a supervisor (agent/supervisor.h). Whatever the agent starts, and
 * what that starts, was started with MUSTER_SUPERVISOR=<name>. A name says which process
 * it is, for ever: the pid namespace, the pid and the time of its start. So any process
 * can tell which processes have lost their supervisor. These are to end: while a supervisor
 * lives it ends them itself, and an agent without one ends with all that it has.
 */
#ifndef MS_IO_SUPERVISED_H
#define MS_IO_SUPERVISED_H

#include <stdbool.h>
#include <sys/types.h>

#define MS_SUPERVISOR_VARIABLE "MUSTER_SUPERVISOR"

enum { MS_SUPERVISOR_NAME_MAX = 64 };

/* The name of a process: "<namespace>-<pid>-<start>". 0 or a negative errno. */
int ms_supervisor_name(pid_t pid, char out[MS_SUPERVISOR_NAME_MAX]);

/* It was a process of this pid namespace and is there no more. False for what is no
 * name. */
bool ms_supervisor_is_dead(const char *name);

/* The process of this name, if it is of this pid namespace and still there; otherwise 0, and
 * for what is no name. */
pid_t ms_supervisor_find(const char *name);

/* SIGKILL to every process of this user whose supervisor is dead, by its environment and
 * by its control group (supervised_group.h), until there is none or it was tried often
 * enough. We may be one of them. */
void ms_supervised_sweep(void);

/* Of a process whose agent is gone: its supervisor goes on if it is stopped, and cleans
 * up, which ends us. If it is dead too, sweep. Returns within a second. */
void ms_supervised_agent_lost(void);

#endif
