/* plan.h - where every rank of a job's roles would go
 *
 * A plan is the books (resource/books.h) of some nodes, in which the roles of a job stand
 * one after the other, as if each had been created. Nothing is started, and no head is
 * asked: nodes and what is held of them already come in as they are.
 */
#ifndef MS_JOB_PLAN_H
#define MS_JOB_PLAN_H

#include "job/file.h"
#include "resource/books.h"

#include <jansson.h>

struct ms_job_plan {
    struct ms_books books;
    struct ms_scope scope; /* all nodes, for the global ids of devices */
    uint32_t *first_ids;   /* by the index in the stock: that of its first device */
    const struct ms_job *job;
    const struct ms_claim **claims; /* [job->role_count], in the books */
};

/* Empty books; ms_books_node_came adds a node to p->books. */
void ms_job_plan_init(struct ms_job_plan *p);
void ms_job_plan_finish(struct ms_job_plan *p);

/* A worker that runs there already. */
int ms_job_plan_add_worker(struct ms_job_plan *p,
                           const char *cluster,
                           const Muster__WorkerStatus *w);

/* Place all roles; `job` is borrowed until the plan is finished. As ms_books_claim: -ENOSPC
 * with the reason, and a table of it. */
int ms_job_plan_make(struct ms_job_plan *p,
                     const struct ms_job *job,
                     struct ms_buf *table,
                     struct ms_error *err);

/* After it was made: the map, a line for each rank on each of its nodes. 0 or -ENOMEM. */
int ms_job_plan_print(const struct ms_job_plan *p, struct ms_buf *out);
/* NULL: out of memory. */
json_t *ms_job_plan_json(const struct ms_job_plan *p);

#endif
