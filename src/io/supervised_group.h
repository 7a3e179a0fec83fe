/* supervised_group.h - a control group for an agent and all that comes from it
 *
 * Where one may be made. Nothing leaves it by setsid, by a second fork or by clearing its
 * environment, so it names what is left when agent and supervisor were killed. A group of
 * version 2 is entered by being born in it, which costs nothing (moving there takes 8 to
 * 16 ms); on a machine that has only version 1 the agent moves.
 *
 * Its folder is "muster-agent-<supervisor's name>" (supervised.h) below our own group.
 */
#ifndef MS_IO_SUPERVISED_GROUP_H
#define MS_IO_SUPERVISED_GROUP_H

#include "io/cgdir.h"

#include <sys/types.h>

struct ms_supervised_group {
    char dir[MS_CGROUP_PATH_MAX]; /* empty: there is none */
    bool is_v2;
};

/* Make one for that supervisor; dir is empty where that is not possible. */
void ms_supervised_group_create(struct ms_supervised_group *g, const char *supervisor);

/* fork(2); the child is in the group. For a process with one thread. */
pid_t ms_supervised_group_fork(const struct ms_supervised_group *g);

/* SIGKILL to all in it, and remove it. Bounded. */
void ms_supervised_group_end(struct ms_supervised_group *g);

/* The same with the groups of supervisors that are dead, also with our own. */
void ms_supervised_groups_sweep(void);

#endif
