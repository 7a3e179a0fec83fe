/* ends.c - ends of processes that come together are one event
 *
 * A machine that is lost takes all of its workers with it: one decision, one record of the
 * journal and one request for their replacements. What comes in one turn of the loop is
 * collected, as long as it is of one role and one node and says the same. Errors of the
 * application each have a text that counts, and are told alone. Whatever else happens to the
 * job is told after them.
 */
#include "head/jobs/ends.h"
#include "head/head_impl.h"
#include "head/jobs/feed.h"
#include "head/jobs/hosted.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool
is_alike(struct ms_job_ends *ends, const struct ms_job_report *report, const char *text)
{
    const struct ms_job_report *last = &ends->all[ends->count - 1];
    const char *last_text = ms_buf_str(&ends->text);

    return last->role == report->role && last->cause == report->cause &&
           last->cause != MS_JOB_APPLICATION && strcmp(last->node, report->node) == 0 &&
           last_text && strcmp(last_text, text) == 0;
}

static void feed(struct ms_hosted *job,
                 const struct ms_job_report *reports,
                 size_t count,
                 const char *text)
{
    ms_hosted_feed(job,
                   &(struct ms_job_event){.what = MS_JOB_EXITED,
                                          .text = text,
                                          .reports = reports,
                                          .report_count = count});
}

void ms_ends_tell(struct ms_hosted *job)
{
    struct ms_job_ends *ends = &job->ends;
    struct ms_job_report *all = ends->all;
    struct ms_buf text = ends->text;
    size_t count = ends->count;

    if (count == 0)
        return;
    ends->all = NULL; /* others may come while these are told */
    ends->count = ends->room = 0;
    ms_buf_init(&ends->text);
    ms_timer_cancel(&ends->later);
    feed(job, all, count, ms_buf_str(&text));
    ms_buf_finish(&text);
    free(all);
}

/* The node's name is kept once. */
static int
keep(struct ms_job_ends *ends, const struct ms_job_report *report, const char *text)
{
    int rc =
        ms_array_reserve(&ends->all, &ends->room, ends->count + 1, sizeof *ends->all);

    if (rc == 0 && ends->count == 0) {
        snprintf(ends->node, sizeof ends->node, "%s", report->node);
        rc = ms_buf_printf(&ends->text, "%s", text);
    }
    if (rc < 0)
        return rc;
    ends->all[ends->count] = *report;
    ends->all[ends->count++].node = ends->node;
    return 0;
}

void ms_ends_add(struct ms_hosted *job,
                 const struct ms_job_report *report,
                 const char *text)
{
    if (job->ends.count && !is_alike(&job->ends, report, text))
        ms_ends_tell(job);
    if (keep(&job->ends, report, text) == 0)
        ms_timer_set(&job->ends.later, 0);
    else
        feed(job, report, 1, text); /* after what was kept */
}

static void on_later(void *arg)
{
    ms_ends_tell(arg);
}

int ms_ends_init(struct ms_hosted *job, struct ms_error *err)
{
    ms_buf_init(&job->ends.text);
    if (ms_timer_init(&job->ends.later, job->jobs->head->loop, on_later, job) < 0)
        return ms_error_set(err, -ENOMEM, "out of memory");
    return 0;
}

void ms_ends_finish(struct ms_hosted *job)
{
    ms_timer_finish(&job->ends.later);
    ms_buf_finish(&job->ends.text);
    free(job->ends.all);
}
