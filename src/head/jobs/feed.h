/* feed.h - events of one job: into the journal, then into its core */
#ifndef MS_HEAD_JOBS_FEED_H
#define MS_HEAD_JOBS_FEED_H

#include "base/buf.h"
#include "base/clock.h"
#include "head/jobs/hosted.h"

#define MS_JOB_SNAPSHOT  256               /* events until the next one */
#define MS_JOB_LINES_MAX ((uint64_t)20000) /* that are kept of one job */
#define MS_JOB_RETRY_NS  (1 * MS_NS_PER_S) /* a journal that cannot be written */

/* An event that is not in the core yet, as bytes. */
struct ms_job_waiting {
    struct ms_list link; /* ms_hosted.waiting */
    bool is_kept;        /* it goes into the journal */
    bool is_asked;       /* a person waits for it, and is told if it cannot be kept */
    struct ms_buf data;
};

int ms_hosted_start(struct ms_hosted *job, struct ms_error *err); /* its timers */
/* An event that has happened: it is in the core sooner or later. */
void ms_hosted_feed(struct ms_hosted *job, const struct ms_job_event *e);
/* A PROGRESS with all that the ones before it have not told. False: it waits, in their place,
 * because what waits before it cannot be written. */
bool ms_hosted_feed_looks(struct ms_hosted *job, const struct ms_job_event *e);
/* One that a person wants: 0, or why not, and nothing has changed. */
int ms_hosted_want(struct ms_hosted *job,
                   const struct ms_job_event *e,
                   struct ms_error *err);
/* One more line of the explanation. */
void ms_hosted_say(struct ms_hosted *job, const struct ms_job_action *said);
/* The same, of the host itself. */
void ms_hosted_note(struct ms_hosted *job,
                    enum ms_job_level level,
                    const char *fmt,
                    ...) __attribute__((format(printf, 3, 4)));
/* "NAME/00000000000000000012" */
void ms_hosted_number_key(const struct ms_hosted *job, uint64_t number, char out[96]);
/* Its record in the journal, as it is now. */
int ms_hosted_keep(struct ms_hosted *job, struct ms_error *err);
/* The first one. */
int ms_hosted_keep_new(struct ms_hosted *job, struct ms_error *err);
/* Nothing of it stays in the journal. */
void ms_hosted_forget(struct ms_hosted *job);

#endif
