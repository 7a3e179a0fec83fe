/* cgdir.h - the folder of a control group: where ours is, and the end of all in one */
#ifndef MS_IO_CGDIR_H
#define MS_IO_CGDIR_H

#include <stdbool.h>
#include <stddef.h>

enum { MS_CGROUP_PATH_MAX = 512 };

/* The groups of agents (supervised_group.h), which have no controllers. */
#define MS_AGENT_GROUP_PREFIX "muster-agent-"

/* The folder of our own group for a controller (cgpath.h); where that is an agent's group,
 * of the one around it. 0 or a negative errno. */
int ms_cgdir_find_own(const char *controller,
                      char dir[MS_CGROUP_PATH_MAX],
                      bool *is_v2);

/* The text of a file in a group's folder, cut to what fits. 0 or a negative errno. */
int ms_cgdir_read(const char *dir, const char *name, char *out, size_t room);

/* SIGKILL to all in it. */
void ms_cgdir_kill(const char *dir);

/* A descriptor of its cgroup.procs: a process that writes "0" to it enters. */
int ms_cgdir_open_procs(const char *dir);

#endif
