/* asked.h - a change of a job that was asked over a link is carried out once
 *
 * Who asks over a link asks again when it was made anew (wire/link/requests.h). The head that
 * has carried it out knows that; one that was started again meanwhile reads it in the journal.
 * There the event of a change stands together with its asker and its number, until the asker
 * has said that the answer has arrived, has ended, or has not come back to the next head within
 * link_grace.
 *
 * The head's thread.
 */
#ifndef MS_HEAD_JOBS_ASKED_H
#define MS_HEAD_JOBS_ASKED_H

#include "base/list.h"
#include "head/ops/verbs.h"
#include "io/loop.h"

#include <stdint.h>

struct ms_hosted;
struct ms_jobs;

/* In struct ms_jobs. */
struct ms_asked {
    const struct ms_head_op
        *op;              /* the change under way, if it came over a link; else NULL */
    struct ms_list all;   /* as the journal has them */
    struct ms_timer late; /* askers of the head before that have not come back */
};

/* What the head before has carried out. 0, or why it cannot be known. */
int ms_asked_open(struct ms_jobs *j, struct ms_error *err);
void ms_asked_close(struct ms_asked *a);

/* Carries out the request, or answers it if that was done before; as `run`. */
int ms_asked_run(struct ms_head_op *op, ms_verb_run *run);
/* The change under way is an event of this job: writes that, within the event's transaction. */
int ms_asked_write(struct ms_hosted *job, struct ms_error *err);
/* That transaction is done: who asks for it again is answered. */
void ms_asked_written(struct ms_hosted *job);
/* As ms_replies_settle, of this driver. `j` may be NULL. */
void ms_asked_settle(struct ms_jobs *j,
                     uint64_t driver,
                     uint64_t watermark,
                     const uint64_t *arrived,
                     size_t count);

#endif
