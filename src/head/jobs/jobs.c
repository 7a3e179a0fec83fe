/* jobs.c - all jobs of a head: their life, and what the head tells them */
#include "base/cleanup.h"
#include "base/name.h"
#include "head/drivers/driver.h"
#include "head/fleet/fleet.h"
#include "head/head_impl.h"
#include "head/jobs/act.h"
#include "head/jobs/check.h"
#include "head/jobs/ends.h"
#include "head/jobs/feed.h"
#include "head/jobs/hosted.h"
#include "head/jobs/machines.h"
#include "head/jobs/queue.h"
#include "head/jobs/ranks.h"
#include "head/jobs/signs.h"
#include "head/ops/op.h"
#include "io/session/node_dir.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- one job ----------------------------------------------------------------------- */

struct ms_hosted *ms_hosted_find(const struct ms_jobs *j, const char *name)
{
    ms_list_each (job, &j->all, struct ms_hosted, link)
        if (!job->is_forgotten && strcmp(job->name, name) == 0)
            return job;
    return NULL;
}

struct ms_hosted *ms_hosted_find_id(const struct ms_jobs *j, uint64_t id)
{
    ms_list_each (job, &j->all, struct ms_hosted, link)
        if (job->id == id)
            return job;
    return NULL;
}

bool ms_hosted_is_foreign(const struct ms_hosted *job, const struct ms_cluster *c)
{
    const struct ms_hosted *other = ms_hosted_find_id(job->jobs, c->driver);

    if (c->driver == job->id)
        return false;
    return c->live > 0 || c->driver == 0 || (other && !other->is_forgotten) ||
           ms_driver_find(job->jobs->head, c->driver);
}

const struct ms_job_role *ms_hosted_file_role(const struct ms_hosted *job,
                                              uint32_t role)
{
    return &job->file.roles[job->file_roles[role]];
}

const char *ms_hosted_role_name(const struct ms_hosted *job, uint32_t role)
{
    return role == MS_JOB_DRIVER ? MS_JOB_DRIVER_NAME
                                 : ms_job_core_role(job->core, role).spec->name;
}

const char *
ms_hosted_cluster(const struct ms_hosted *job, uint32_t role, char out[MS_NAME_MAX + 1])
{
    const char *name = ms_hosted_role_name(job, role);

    /* ms_job_check_submit has seen to it that it fits */
    if (snprintf(out, MS_NAME_MAX + 1, "%s.%s", job->name, name) > (int)MS_NAME_MAX)
        out[MS_NAME_MAX] = 0;
    return out;
}

uint32_t ms_hosted_role(const struct ms_hosted *job, const char *cluster)
{
    size_t len = strlen(job->name);

    if (strncmp(cluster, job->name, len) != 0 || cluster[len] != '.')
        return MS_JOB_NO_ROLE;
    if (strcmp(cluster + len + 1, MS_JOB_DRIVER_NAME) == 0)
        return MS_JOB_DRIVER;
    return ms_job_core_find_role(job->core, cluster + len + 1);
}

static int find_roles(struct ms_hosted *job)
{
    uint32_t count = 0;

    job->role_room = job->refused.code ? MS_JOB_ROLES_MAX : job->file.role_count;
    job->file_roles = calloc(job->role_room + 1, sizeof *job->file_roles);
    job->ranks = calloc(job->role_room + 1, sizeof *job->ranks);
    if (!job->file_roles || !job->ranks)
        return -ENOMEM;
    for (size_t i = 0; i < job->file.role_count; i++)
        if (ms_job_role_is_ours(&job->file.roles[i]))
            job->file_roles[count++] = (uint32_t)i;
    return 0;
}

/* By what the file says, and what was said beside it. */
static int set_up(struct ms_hosted *job, const char *name, struct ms_error *err)
{
    const Muster__SubmitJob *m = job->submit;

    if (m->on[0]) {
        free(job->file.on);
        job->file.on = strdup(m->on);
        if (!job->file.on)
            return ms_error_set(err, -ENOMEM, "out of memory");
    }
    snprintf(job->name, sizeof job->name, "%s", name);
    snprintf(job->key, sizeof job->key, MS_JOB_KEY "%.59s", name);
    if (find_roles(job) < 0)
        return ms_error_set(err, -ENOMEM, "out of memory");
    return 0;
}

static int read_file(struct ms_hosted *job, struct ms_error *err)
{
    const Muster__SubmitJob *m = job->submit;
    const char *name;
    int rc;

    if (strlen(m->text) > MS_JOB_TEXT_FILE_MAX)
        return ms_error_set(
            err, -E2BIG, "%s has more than %zu bytes", m->file, MS_JOB_TEXT_FILE_MAX);
    rc = ms_job_read(
        &job->file, m->file[0] ? m->file : "job.yaml", m->text, strlen(m->text), err);
    if (rc < 0)
        return rc;
    name = m->name[0] ? m->name : job->file.name ? job->file.name : "job";
    rc = ms_name_check(name, "job", err);
    return rc < 0 ? rc : set_up(job, name, err);
}

/* The name of one whose file was refused for this reason; else both are NULL. */
static struct ms_hosted *create(struct ms_jobs *j,
                                Muster__SubmitJob *submit,
                                const char *name,
                                const struct ms_error *why,
                                struct ms_error *err)
{
    struct ms_hosted *job = calloc(1, sizeof *job);
    int rc;

    if (!job) {
        muster__submit_job__free_unpacked(submit, NULL);
        ms_error_set(err, -ENOMEM, "out of memory");
        return NULL;
    }
    ms_list_init(&job->link);
    ms_list_init(&job->waiting);
    ms_list_init(&job->actions);
    job->jobs = j;
    job->submit = submit;
    if (why) {
        job->refused = *why;
        ms_job_read_rest(&job->file, submit->file, submit->text, strlen(submit->text));
    }
    rc = why ? set_up(job, name, err) : read_file(job, err);
    if (rc == 0)
        rc = ms_hosted_start(job, err);
    if (rc == 0)
        rc = ms_ends_init(job, err);
    if (rc == 0)
        rc = ms_machines_init(job, err);
    if (rc == 0)
        rc = ms_signs_init(job, err);
    if (rc == 0)
        return job;
    ms_hosted_destroy(job);
    return NULL;
}

struct ms_hosted *
ms_hosted_create(struct ms_jobs *j, Muster__SubmitJob *submit, struct ms_error *err)
{
    return create(j, submit, NULL, NULL, err);
}

struct ms_hosted *ms_hosted_create_refused(struct ms_jobs *j,
                                           Muster__SubmitJob *submit,
                                           const char *name,
                                           const struct ms_error *why,
                                           struct ms_error *err)
{
    return create(j, submit, name, why, err);
}

static void ranks_finish(struct ms_job_ranks *r)
{
    free(r->uids);
    free(r->incarnations);
}

void ms_hosted_destroy(struct ms_hosted *job)
{
    if (!ms_list_is_empty(&job->link))
        job->jobs->count--;
    ms_list_remove(&job->link);
    ms_check_drop(job);
    ms_doings_drop(job);
    ms_machines_finish(job);
    ms_signs_finish(job);
    ms_beats_finish(job);
    ms_ends_finish(job);
    ms_timer_finish(&job->wake);
    ms_timer_finish(&job->retry);
    ms_list_each (w, &job->waiting, struct ms_job_waiting, link) {
        ms_list_remove(&w->link);
        ms_buf_finish(&w->data);
        free(w);
    }
    for (size_t i = 0; job->ranks && i < job->role_room; i++)
        ranks_finish(&job->ranks[i]);
    ranks_finish(&job->driver);
    free(job->ranks);
    free(job->file_roles);
    ms_job_core_destroy(job->core);
    ms_job_finish(&job->file);
    muster__submit_job__free_unpacked(job->submit, NULL);
    free(job);
}

/* ---- changes ----------------------------------------------------------------------- */

static enum ms_job_stage stage_of(const struct ms_hosted *job)
{
    return ms_job_core_view(job->core).stage;
}

/* What a job that is over leaves: its orchestrator, and when it was deleted all of it. */
static void sweep(struct ms_jobs *j)
{
    ms_list_each (job, &j->all, struct ms_hosted, link)
        if (job->fleet && !job->is_recovering && ms_job_stage_is_over(stage_of(job)) &&
            ms_list_is_empty(&job->actions) && ms_fleet_end(job->fleet)) {
            ms_fleet_destroy(MS_TAKE(job->fleet));
            ms_node_dirs_sweep(j->head->session.name); /* of agents that were killed */
        }
    ms_list_each (job, &j->all, struct ms_hosted, link)
        if (job->is_forgotten && !job->is_feeding && ms_list_is_empty(&job->actions) &&
            !job->fleet)
            ms_hosted_destroy(job);
}

/* Nodes have joined by themselves. */
static void tell_room(struct ms_jobs *j)
{
    if (!j->has_room)
        return;
    j->has_room = false;
    ms_list_each (job, &j->all, struct ms_hosted, link)
        if (job->is_on_ours && !ms_job_stage_is_over(stage_of(job)))
            ms_hosted_feed(job, &(struct ms_job_event){.what = MS_JOB_ROOM});
}

static void on_later(void *arg)
{
    struct ms_jobs *j = arg;

    if (j->is_ending)
        return;
    tell_room(j);
    ms_jobs_admit(j);
    sweep(j);
    ms_head_op_retry_all(&j->waiting);
}

/* Not from inside of a change: that may still be under way. */
void ms_jobs_changed(struct ms_jobs *j)
{
    ms_timer_set(&j->later, 0);
}

/* ---- what the head tells ----------------------------------------------------------- */

void ms_jobs_worker_exited(struct ms_jobs *j,
                           const struct ms_slot *slot,
                           const Muster__Exit *exit)
{
    struct ms_hosted *job = j ? ms_hosted_find_id(j, slot->cluster->driver) : NULL;
    MS_CLEANUP(ms_buf_finish) struct ms_buf text = {0};
    struct ms_job_report report = {.rank = slot->rank,
                                   .seen = MS_JOB_SEEN_ENDED,
                                   .signaled = exit->signaled != 0,
                                   .code = exit->code,
                                   .node = slot->node};

    if (!job || j->is_ending || job->is_recovering || exit->requested)
        return; /* of one that is recovered all ends are told then */
    if (ms_check_exited(job, slot, exit))
        return;
    report.role = ms_hosted_role(job, slot->cluster->name);
    if (report.role == MS_JOB_NO_ROLE)
        return;
    report.incarnation = ms_hosted_incarnation(job, report.role, slot->now.uid);
    report.cause = (uint8_t)ms_job_cause_of(exit);
    if (!report.incarnation)
        return; /* of an action under way, which tells of it */
    ms_job_exit_text(exit, &text);
    ms_ends_add(job, &report, ms_buf_str(&text) ? ms_buf_str(&text) : "");
}

void ms_jobs_node_came(struct ms_jobs *j, const char *node)
{
    if (!j || j->is_ending || ms_jobs_lend(j, node))
        return;
    j->has_room = true;
    ms_jobs_changed(j);
}

struct ms_fleet *ms_jobs_fleet(const struct ms_jobs *j, const char *key)
{
    if (!j)
        return NULL;
    ms_list_each (job, &j->all, struct ms_hosted, link)
        if (job->fleet && strcmp(job->key, key) == 0)
            return job->fleet;
    return NULL;
}

bool ms_jobs_lend(const struct ms_jobs *j, const char *node)
{
    if (!j)
        return false;
    ms_list_each (job, &j->all, struct ms_hosted, link)
        if (ms_fleet_lends(job->fleet, node))
            return true;
    return false;
}

uint64_t ms_jobs_find_of(const struct ms_jobs *j, const Muster__DriverContext *context)
{
    static const char variable[] = "MUSTER_JOB=";
    const struct ms_hosted *job = NULL;

    for (size_t i = 0; j && context && i < context->n_env && !job; i++)
        if (strncmp(context->env[i], variable, sizeof variable - 1) == 0)
            job = ms_hosted_find(j, context->env[i] + sizeof variable - 1);
    return job && ms_jobs_has(j, job->id) ? job->id : 0;
}

bool ms_jobs_has(const struct ms_jobs *j, uint64_t id)
{
    const struct ms_hosted *job = j ? ms_hosted_find_id(j, id) : NULL;

    return job && !ms_job_stage_is_over(stage_of(job));
}

/* ---- life -------------------------------------------------------------------------- */

int ms_jobs_open(struct ms_head *h,
                 const char *agent_path,
                 const char *ray,
                 struct ms_error *err)
{
    struct ms_jobs *j;
    int rc;

    if (!h->persist.journal)
        return 0;
    j = h->jobs = calloc(1, sizeof *j);
    if (!j)
        return ms_error_set(err, -ENOMEM, "out of memory");
    j->head = h;
    ms_list_init(&j->all);
    ms_list_init(&j->waiting);
    ms_list_init(&j->asked.all);
    snprintf(j->agent_path, sizeof j->agent_path, "%s", agent_path);
    j->ray = ray ? strdup(ray) : NULL;
    if (ray && !j->ray)
        return ms_error_set(err, -ENOMEM, "out of memory");
    rc = ms_timer_init(&j->recover, h->loop, ms_jobs_recover, j);
    if (rc == 0)
        rc = ms_timer_init(&j->later, h->loop, on_later, j);
    if (rc < 0)
        return ms_error_set(err, -ENOMEM, "out of memory");
    rc = ms_jobs_read(j, err);
    if (rc == 0)
        rc = ms_asked_open(j, err);
    if (rc == 0)
        ms_timer_set(&j->recover, 0);
    return rc;
}

void ms_jobs_destroy(struct ms_jobs *j)
{
    if (!j)
        return;
    ms_list_each (job, &j->all, struct ms_hosted, link)
        ms_hosted_destroy(job);
    ms_asked_close(&j->asked);
    ms_timer_finish(&j->recover);
    ms_timer_finish(&j->later);
    free(j->ray);
    free(j);
}

void ms_jobs_quit(struct ms_jobs *j)
{
    if (j)
        j->is_ending = true;
}

bool ms_jobs_end(struct ms_jobs *j)
{
    bool is_over = true;

    if (!j)
        return true;
    ms_list_each (job, &j->all, struct ms_hosted, link)
        if (job->fleet && !ms_fleet_end(job->fleet))
            is_over = false;
    return is_over;
}
