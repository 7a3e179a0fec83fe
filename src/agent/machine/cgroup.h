/* cgroup.h - a memory limit for a worker, by a control group of its own
 *
 * A group is made only for a worker that has a limit: entering one costs milliseconds.
 * Version 2 and version 1 are spoken. Groups are folders "muster-<session>-<uid>" below
 * our own group, or (version 2, where a group with processes cannot have children with
 * controllers) beside it.
 *
 * Without a group of its own a worker lives in ours; its kernel's out-of-memory kills
 * can be told apart by our own group's count of them.
 */
#ifndef MS_AGENT_MACHINE_CGROUP_H
#define MS_AGENT_MACHINE_CGROUP_H

#include "base/error.h"
#include "base/limits.h"
#include "io/cgdir.h"

#include <stdbool.h>
#include <stdint.h>

struct ms_cgroups {
    char own[MS_CGROUP_PATH_MAX];  /* our own memory group; empty: none */
    char base[MS_CGROUP_PATH_MAX]; /* where groups can be made; empty: nowhere */
    bool is_v2;
    char session[MS_NAME_MAX + 1];
    long long own_kills; /* as last looked at */
    char why_not[256];   /* why `base` is empty */
};

/* Look around; makes nothing. */
void ms_cgroups_init(struct ms_cgroups *g, const char *session);

/* Whether our own group has had another out-of-memory kill since the last look. */
bool ms_cgroups_killed_here(struct ms_cgroups *g);

/* Remove what dead sessions have left, with the processes in it. `is_alive` says
 * whether a session lives: 1 yes, 0 no, -1 unknown (its group goes only if it is empty
 * and not new). */
void ms_cgroups_sweep(const struct ms_cgroups *g, int (*is_alive)(const char *session));

struct ms_cgroup {
    char dir[MS_CGROUP_PATH_MAX]; /* empty: there is none */
    bool is_v2;
};

/* Make the group of a worker. On failure nothing is left, and `err` says why limits
 * cannot be had here. */
int ms_cgroup_create(struct ms_cgroup *c,
                     const struct ms_cgroups *g,
                     uint64_t uid,
                     uint64_t memory_limit,
                     struct ms_error *err);

/* How many of its processes the kernel has killed at the limit. 0 if there is no group.
 */
long long ms_cgroup_kill_count(const struct ms_cgroup *c);

/* SIGKILL to all in it. */
void ms_cgroup_kill(const struct ms_cgroup *c);

/* 0 (also if there is none; it is then empty), or -EBUSY: processes are still in it. */
int ms_cgroup_remove(struct ms_cgroup *c);

#endif
