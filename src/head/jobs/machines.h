/* machines.h - what is reserved for a job: asked for, kept whole, more of it */
#ifndef MS_HEAD_JOBS_MACHINES_H
#define MS_HEAD_JOBS_MACHINES_H

#include "base/clock.h"
#include "head/jobs/hosted.h"

#define MS_JOB_MEND_NS     (2 * MS_NS_PER_S)  /* a node that was lost */
#define MS_JOB_MEND_MAX_NS (60 * MS_NS_PER_S) /* after it could not be had */
#define MS_JOB_BACK_NS                                                                 \
    (60 * MS_NS_PER_S) /* for its machines to come back to a new head */
#define MS_JOB_MORE_NS       (20 * MS_NS_PER_S) /* for a node that the job can do without */
#define MS_JOB_MORE_AGAIN_NS (5 * MS_NS_PER_S) /* when it was not lent */
#define MS_JOB_MORE_ASKS_MAX ((size_t)64)      /* such questions at a time */

struct ms_job_doing;

/* ---- machines.c ----------------------------------------------------------------- */

bool ms_hosted_is_on_ray(const struct ms_hosted *job);
/* It would run on nodes that have joined the head by themselves: none has to be lent. */
bool ms_machines_are_there(const struct ms_hosted *job);

void ms_act_reserve(struct ms_job_doing *d);
void ms_act_release(struct ms_job_doing *d);
void ms_act_avoid(struct ms_job_doing *d, const char *node, const char *reason);
int ms_machines_init(struct ms_hosted *job, struct ms_error *err);
void ms_machines_finish(struct ms_hosted *job);
/* A request for machines of the job; `reserve` borrows from `pieces`. */
struct ms_job_reserve {
    Muster__PlaceGroup pieces;
    Muster__Reserve reserve;
};
void ms_reserve_fill(const struct ms_hosted *job, struct ms_job_reserve *r);
/* Of the nodes that it needs. */
void ms_reserve_fill_least(const struct ms_hosted *job, struct ms_job_reserve *r);
/* Reserve again what the head before had; it is the same. */
void ms_machines_recover(struct ms_hosted *job);
/* The names of its nodes that are there, NULL-terminated, malloc'd, borrowed texts. */
const char **ms_machines_nodes(const struct ms_hosted *job);
/* The same without those that the core avoids; all of them, if it avoids all. */
const char **ms_machines_trusted(const struct ms_hosted *job);
bool ms_machines_are_back(const struct ms_hosted *job);

/* ---- mend.c --------------------------------------------------------------------- */

int ms_mend_init(struct ms_hosted *job); /* its timer */
/* All that it needs: it is the same if it is held, and else asked for anew. */
void ms_mend_begin_again(struct ms_hosted *job);

/* ---- grow.c --------------------------------------------------------------------- */

/* Nothing is held. */
void ms_grow_forget(struct ms_hosted *job);
/* The job has what it needs: answer the RESERVE when all others were asked for. */
void ms_grow_reserved(struct ms_job_doing *d);
/* See what there is. False: that is not known now. */
bool ms_grow_look(struct ms_hosted *job);
/* A node to be asked for again, and its piece that is to be given back (or none). */
bool ms_grow_find_lost(const struct ms_hosted *job, uint32_t *node, uint32_t *number);
/* Ask for nodes that it can do without, if it is time to. */
void ms_grow_try(struct ms_hosted *job);

#endif
