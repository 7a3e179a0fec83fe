/* simulated.c - jobs on sim: nothing is started, and all that is asked for is answered
 *
 * The core decides as for any job. Machines are those of the file; a role is placed on them
 * as it would be, and counts as running from then on. There is no driver, so the job goes on
 * until it is stopped. What does not fit is refused as on a real machine.
 */
#include "head/jobs/simulated.h"
#include "base/cleanup.h"
#include "head/head_impl.h"
#include "head/jobs/act.h"
#include "head/jobs/feed.h"
#include "head/jobs/hosted.h"
#include "job/plan.h"
#include "orchestrator/whole_nodes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool ms_hosted_is_simulated(const struct ms_hosted *job)
{
    return job->file.on && strcmp(job->file.on, "sim") == 0;
}

/* No driver, and no process that could hang. */
void ms_simulated_change(struct ms_job_spec *spec)
{
    spec->has_driver = false;
    spec->driver_hang_ns = 0;
    for (uint32_t i = 0; i < spec->role_count; i++)
        spec->roles[i].hang_ns = 0;
}

/* How many ranks a role has now, or will have with this action. 0: it is not there. */
static uint32_t ranks_of(const struct ms_hosted *job,
                         const struct ms_job_doing *d,
                         uint32_t wanted,
                         uint32_t role)
{
    struct ms_job_role_view v = ms_job_core_role(job->core, role);

    if (role == d->role)
        return wanted ? wanted : v.size;
    return v.counts[MS_JOB_SLOT_RUNNING] ||
                   (role < d->role &&
                    v.counts[MS_JOB_SLOT_STARTING]) /* placed before */
               ? v.size
               : 0;
}

/* The roles that hold something, with the sizes that they have. `roles` has room for all of
 * the file's, and borrows from them. How many. */
static size_t choose_roles(const struct ms_hosted *job,
                           const struct ms_job_doing *d,
                           uint32_t wanted,
                           struct ms_job_role *roles)
{
    size_t count = 0;

    for (uint32_t i = 0; i < ms_job_core_role_count(job->core); i++) {
        uint32_t ranks = ranks_of(job, d, wanted, i);

        if (ranks == 0)
            continue;
        roles[count] = *ms_hosted_file_role(job, i);
        if (roles[count].size.max > roles[count].size.min)
            roles[count].world_size = ranks;
        count++;
    }
    return count;
}

/* With so many ranks of its role. */
static int place(const struct ms_job_doing *d, uint32_t wanted, struct ms_error *err)
{
    const struct ms_hosted *job = d->job;
    MS_CLEANUP(ms_whole_nodes_finish) struct ms_whole_nodes nodes = {0};
    MS_CLEANUP(ms_job_plan_finish) struct ms_job_plan plan;
    MS_CLEANUP(ms_cleanup_free)
    struct ms_job_role *roles = calloc(job->file.role_count + 1, sizeof *roles);
    struct ms_job now = job->file;
    int rc;

    ms_job_plan_init(&plan);
    if (!roles)
        return ms_error_set(err, -ENOMEM, "out of memory");
    now.roles = roles;
    now.role_count = choose_roles(job, d, wanted, roles);
    rc = ms_whole_nodes_init(&nodes,
                             (const Muster__NodeShape *const *)job->file.nodes,
                             job->file.node_count,
                             true,
                             err);
    for (size_t i = 0; rc == 0 && i < nodes.count; i++)
        rc = ms_books_node_came(&plan.books, nodes.shapes[i], err);
    return rc < 0 ? rc : ms_job_plan_make(&plan, &now, NULL, err);
}

/* The most ranks of the role that can be placed, less than what was asked for. */
static uint32_t count_fitting(const struct ms_job_doing *d)
{
    uint32_t good = 0, bad = d->count;

    while (bad - good > 1) {
        uint32_t middle = good + (bad - good) / 2;

        if (place(d, middle, NULL) == 0)
            good = middle;
        else
            bad = middle;
    }
    return good;
}

void ms_act_simulated(struct ms_job_doing *d)
{
    struct ms_error why = {0};
    int rc = d->what == MS_JOB_DO_CREATE || d->what == MS_JOB_DO_RESTART ||
                     d->what == MS_JOB_DO_RESIZE
                 ? place(d, d->count, &why)
                 : 0;
    uint32_t before = d->what == MS_JOB_DO_RESIZE && d->rank_count ? d->ranks[0] : 0;

    if (rc == -ENOSPC && d->count) {
        d->fits = count_fitting(d);
        d->fits -= d->fits > before ? before : d->fits; /* more than it has */
    }
    if (rc < 0)
        ms_doing_failed_with(d, rc, &why);
    else
        ms_doing_done(d);
}

/* What ran before the head was started again still does. */
void ms_simulated_recover(struct ms_hosted *job)
{
    size_t count = 0;
    MS_CLEANUP(ms_cleanup_free) struct ms_job_report *reports = NULL;

    for (uint32_t i = 0; i < ms_job_core_role_count(job->core); i++)
        count += ms_job_core_role(job->core, i).size;
    reports = calloc(count + 1, sizeof *reports);
    count = 0;
    for (uint32_t i = 0; reports && i < ms_job_core_role_count(job->core); i++)
        for (uint32_t k = 0; k < ms_job_core_role(job->core, i).size; k++) {
            struct ms_job_slot_view s = ms_job_core_slot(job->core, i, k);

            if (s.state == MS_JOB_SLOT_RUNNING || s.state == MS_JOB_SLOT_UNKNOWN)
                reports[count++] = (struct ms_job_report){.role = i,
                                                          .rank = k,
                                                          .incarnation = s.incarnation,
                                                          .seen = MS_JOB_SEEN_RUNNING};
        }
    job->is_recovering = false;
    ms_hosted_feed(job,
                   &(struct ms_job_event){.what = MS_JOB_RECOVERED,
                                          .reports = reports,
                                          .report_count = count,
                                          .flags = reports ? MS_JOB_COMPLETE : 0});
}
