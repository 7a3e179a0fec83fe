/* jobs.h - jobs that a daemon head hosts
 *
 * A job is kept alive by its core (job/core/core.h), which decides; here it is carried out:
 * machines are reserved (fleet/), roles and the driver are clusters (clusters/), events are in
 * the journal (state/) before anything follows from them. Files:
 *
 *   jobs.c      all jobs: opening, the end; what the rest of the head tells them
 *   queue.c     which of them may start, and what the others wait for
 *   right.c     is a file right? for `check` and `submit` alike
 *   ask.c       the verbs; status.c: what they answer; asked.c: none is carried out twice
 *   feed.c      one job: an event into the journal and the core, actions out
 *   act.c       actions, by the table of what each of them is; act_role.c: those of roles
 *   beats.c     processes that are there and silent
 *   check.c     the check of its nodes, in pairs
 *   ends.c      ends of processes, those that come together as one event
 *   drain.c     ranks that will go work on what they have, and get nothing new
 *   machines.c  what is reserved for a job; mend.c: it is kept whole; grow.c: nodes that come later
 *   signs.c     signs of work, and stacks
 *   spec.c      clusters of a job: its roles, its driver
 *   simulated.c jobs on sim: nothing is started
 *   recover.c   jobs of the head before, from the journal
 *
 * A head that keeps no journal hosts no jobs. All of this is for the head's thread.
 */
#ifndef MS_HEAD_JOBS_JOBS_H
#define MS_HEAD_JOBS_JOBS_H

#include "base/error.h"
#include "cluster/registry.h"
#include "proto/muster.pb-c.h"

#include <stdbool.h>

struct ms_fleet;
struct ms_head;
struct ms_jobs;
struct ms_list;

/* h->jobs, with those of the journal; the head listens already. `agent_path` is the muster
 * executable, `ray` the address of Ray (NULL: there is none). 0, or why not. */
int ms_jobs_open(struct ms_head *h,
                 const char *agent_path,
                 const char *ray,
                 struct ms_error *err);
void ms_jobs_destroy(struct ms_jobs *j); /* NULL is nothing */

/* A worker has ended. NULL has no jobs. */
void ms_jobs_worker_exited(struct ms_jobs *j,
                           const struct ms_slot *slot,
                           const Muster__Exit *exit);
/* A node has joined: jobs that run on such nodes have more room. NULL has no jobs. */
void ms_jobs_node_came(struct ms_jobs *j, const char *node);
/* The orchestrator of the job whose reservation has this key; NULL: there is none. */
struct ms_fleet *ms_jobs_fleet(const struct ms_jobs *j, const char *key);
/* This node is lent to a job. */
bool ms_jobs_lend(const struct ms_jobs *j, const char *node);
/* The job that this process was started for, by what it says of itself; 0: for none. */
uint64_t ms_jobs_find_of(const struct ms_jobs *j, const Muster__DriverContext *context);
/* There is a job with this id, and it is not over. */
bool ms_jobs_has(const struct ms_jobs *j, uint64_t id);
/* A warning among the events of the job with this id; without such a job nothing. */
void ms_jobs_note(struct ms_jobs *j, uint64_t id, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* The head ends: from now on nothing that happens is an event of a job. */
void ms_jobs_quit(struct ms_jobs *j);
/* After that: machines of jobs are given back; the jobs stay in the journal. True when
 * nothing is left. */
bool ms_jobs_end(struct ms_jobs *j);

#endif
