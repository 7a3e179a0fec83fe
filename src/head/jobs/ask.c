/* ask.c - what people ask of jobs: submit, look, wait, change */
#include "base/name.h"
#include "base/nearest.h"
#include "base/proto.h"
#include "head/head_impl.h"
#include "head/jobs/feed.h"
#include "head/jobs/hosted.h"
#include "head/jobs/machines.h"
#include "head/jobs/right.h"
#include "head/jobs/roles_entry.h"
#include "head/jobs/simulated.h"
#include "head/ops/op.h"
#include "head/ops/request.h"
#include "head/state/journal.h"

#include <errno.h>
#include <string.h>

/* Longer ones ask again. */
#define WAIT_MAX_NS (30 * MS_NS_PER_S)

enum { EVENTS_MAX = 1000 }; /* in one answer */

static struct ms_jobs *jobs_of(struct ms_head_op *op)
{
    if (!op->head->jobs)
        ms_error_set(&op->error,
                     -ENOENT,
                     "this head hosts no jobs: it keeps no journal. `muster submit` "
                     "without --head has one that does");
    else if (op->head->stop_op)
        ms_error_set(&op->error, -ESHUTDOWN, "the head is ending");
    else
        return op->head->jobs;
    return NULL;
}

/* NULL with the reason: -ENXIO, there is no such job; of a role or a rank it is -ENOENT. */
static struct ms_hosted *find(struct ms_head_op *op, const char *name)
{
    struct ms_jobs *j = jobs_of(op);
    struct ms_hosted *job = j ? ms_hosted_find(j, name) : NULL;
    struct ms_nearest near = {.word = name};

    if (job || !j)
        return job;
    ms_list_each (other, &j->all, struct ms_hosted, link)
        ms_nearest_consider(&near, other->name);
    ms_error_set(&op->error,
                 -ENXIO,
                 "there is no job '%.64s'%s%s%s",
                 name,
                 near.best ? "; did you mean '" : "",
                 near.best ? near.best : "",
                 near.best ? "'?" : "");
    return NULL;
}

static int answer_status(struct ms_head_op *op, const struct ms_hosted *job)
{
    Muster__JobStatus *s = ms_hosted_status(job);

    if (!s)
        return -ENOMEM;
    ms_head_op_succeed(op, &s->base);
    return 0;
}

/* ---- a new one --------------------------------------------------------------------- */

/* Its clusters are its own: the driver of another job, or of none, may have made one. */
static int
check_cluster(const struct ms_hosted *job, const char *role, struct ms_error *err)
{
    char name[MS_NAME_MAX + 1];
    const struct ms_cluster *c;

    if (snprintf(name, sizeof name, "%s.%s", job->name, role) >= (int)sizeof name)
        return 0;
    c = ms_registry_find(&job->jobs->head->registry, name);
    if (c && ms_hosted_is_foreign(job, c))
        return ms_error_set(err,
                            -EEXIST,
                            "there is a cluster '%s' already, which is not of this "
                            "job: give this one another name",
                            name);
    return 0;
}

static int check_clusters(const struct ms_hosted *job, struct ms_error *err)
{
    int rc = job->file.driver ? check_cluster(job, MS_JOB_DRIVER_NAME, err) : 0;

    for (size_t i = 0; i < job->file.role_count && rc == 0; i++)
        if (ms_job_role_is_ours(&job->file.roles[i]))
            rc = check_cluster(job, job->file.roles[i].name, err);
    return rc;
}

static int check_new(const struct ms_jobs *j,
                     const struct ms_hosted *job,
                     struct ms_buf *table,
                     struct ms_error *err)
{
    const struct ms_hosted *old = ms_hosted_find(j, job->name);
    int rc = ms_job_is_right(&job->file, job->name, table, err);

    if (rc < 0)
        return rc;

    if (old && ms_job_stage_is_over(ms_job_core_view(old->core).stage))
        return ms_error_set(err,
                            -EEXIST,
                            "there is a job '%s' already, which has ended: `muster "
                            "delete %s` frees the name, or give this one another",
                            job->name,
                            job->name);
    if (old)
        return ms_error_set(err,
                            -EEXIST,
                            "there is a job '%s' already, and it is %s",
                            job->name,
                            ms_job_stage_name(ms_job_core_view(old->core).stage));
    if (j->count >= MS_JOBS_MAX)
        return ms_error_set(
            err, -ENOSPC, "this head has %zu jobs: delete old ones", j->count);
    if (ms_hosted_is_on_ray(job) && !j->ray)
        return ms_error_set(
            err,
            -ENOTSUP,
            "on ray: this head has no Ray; `muster submit --on ray "
            "--address http://HEAD:8265 FILE` has the job hosted there");
    if (!ms_hosted_is_simulated(job) && check_clusters(job, err) < 0)
        return err->code;
    return 0;
}

/* Later than all others, also when the clock was set back: the queue goes by age. */
static int64_t time_of_new(const struct ms_jobs *j)
{
    int64_t at_ns = ms_wall_ns();

    ms_list_each (other, &j->all, struct ms_hosted, link)
        if (at_ns <= other->submitted_ns)
            at_ns = other->submitted_ns + 1;
    return at_ns;
}

/* Into the journal and the core, and then the queue. */
static int enter(struct ms_hosted *job, struct ms_error *err)
{
    struct ms_job_spec spec;
    int rc = ms_job_make_spec(&job->file, &spec, err);

    if (rc == 0 && ms_hosted_is_simulated(job))
        ms_simulated_change(&spec);
    if (rc < 0) {
        ms_job_made_spec_finish(&spec);
        return rc;
    }
    snprintf(spec.name, sizeof spec.name, "%s", job->name);
    job->core = ms_job_core_create();
    job->id = ms_random_id();
    job->submitted_ns = time_of_new(job->jobs);
    rc = job->core ? ms_hosted_keep_new(job, err)
                   : ms_error_set(err, -ENOMEM, "out of memory");
    if (rc == 0)
        rc = ms_roles_entry_put(job, err);
    if (rc == 0)
        rc = ms_hosted_want(
            job, &(struct ms_job_event){.what = MS_JOB_SUBMITTED, .spec = &spec}, err);
    ms_job_made_spec_finish(&spec);
    if (rc < 0)
        ms_hosted_forget(job);
    return rc;
}

int ms_jobs_submit_run(struct ms_head_op *op)
{
    struct ms_jobs *j = jobs_of(op);
    Muster__SubmitJob *m;
    struct ms_hosted *job;
    int rc;

    if (!j)
        return op->error.code;
    if (op->request->submit_job->folder[0] != '/')
        return ms_error_set(&op->error, -EINVAL, "'folder' must be an absolute path");
    m = (Muster__SubmitJob *)ms_proto_copy(&op->request->submit_job->base);
    if (!m)
        return -ENOMEM;
    job = ms_hosted_create(j, m, &op->error);
    if (!job)
        return op->error.code ? op->error.code : -ENOMEM;
    rc = check_new(j, job, &op->table, &op->error);
    if (rc == 0)
        rc = enter(job, &op->error);
    if (rc < 0) {
        ms_hosted_destroy(job);
        return rc;
    }
    ms_list_add_tail(&j->all, &job->link);
    j->count++;
    ms_jobs_changed(j);
    return answer_status(op, job);
}

/* ---- looking ----------------------------------------------------------------------- */

int ms_jobs_get_run(struct ms_head_op *op)
{
    const struct ms_hosted *job = find(op, op->request->get_job->name);

    return job ? answer_status(op, job) : op->error.code;
}

int ms_jobs_list_run(struct ms_head_op *op)
{
    struct ms_jobs *j = jobs_of(op);
    Muster__Jobs *m =
        j ? (Muster__Jobs *)ms_proto_create(&muster__jobs__descriptor) : NULL;

    if (!j)
        return op->error.code;
    if (m)
        ms_list_each (job, &j->all, struct ms_hosted, link)
            if (!job->is_forgotten &&
                !ms_proto_append(&m->jobs, &m->n_jobs, ms_hosted_status(job))) {
                muster__jobs__free_unpacked(m, NULL);
                return -ENOMEM;
            }
    ms_head_op_answer(op, m ? &m->base : NULL);
    return 0;
}

static int64_t wait_of(uint64_t wait_ns, bool is_endless)
{
    if (wait_ns == 0 && is_endless)
        return WAIT_MAX_NS;
    return wait_ns < (uint64_t)WAIT_MAX_NS ? (int64_t)wait_ns : WAIT_MAX_NS;
}

static bool try_wait(struct ms_head_op *op, bool is_last)
{
    const struct ms_hosted *job = find(op, op->request->wait_job->name);

    if (job && !is_last && !ms_job_stage_is_over(ms_job_core_view(job->core).stage))
        return false;
    ms_head_op_end(op, job ? answer_status(op, job) : op->error.code);
    return true;
}

int ms_jobs_wait_run(struct ms_head_op *op)
{
    const Muster__WaitJob *m = op->request->wait_job;

    if (!find(op, m->name))
        return op->error.code;
    return ms_head_op_wait_in(
        op, &op->head->jobs->waiting, try_wait, wait_of(m->wait_ns, true));
}

/* ---- events ------------------------------------------------------------------------ */

struct reading {
    Muster__JobEvents *m;
    bool failed;
};

static void on_line(void *arg, const char *key, const uint8_t *data, size_t len)
{
    struct reading *r = arg;
    Muster__JobEvent *e;

    (void)key;
    if (r->failed)
        return;
    e = muster__job_event__unpack(NULL, len, data);
    r->failed = e && !ms_proto_append(&r->m->events, &r->m->n_events, e);
}

static int answer_events(struct ms_head_op *op, const struct ms_hosted *job)
{
    uint64_t after = op->request->job_events->after;
    struct reading r = {0};
    char prefix[MS_NAME_MAX + 2], from[96];
    int rc;

    r.m = (Muster__JobEvents *)ms_proto_create(&muster__job_events__descriptor);
    if (!r.m)
        return -ENOMEM;
    snprintf(prefix, sizeof prefix, "%s/", job->name);
    ms_hosted_number_key(job, after < UINT64_MAX ? after + 1 : after, from);
    rc = ms_journal_read_some(op->head->persist.journal,
                              MS_PERSIST_JOB_LINE,
                              prefix,
                              from,
                              EVENTS_MAX,
                              on_line,
                              &r,
                              &op->error);
    if (rc < 0 || r.failed) {
        muster__job_events__free_unpacked(r.m, NULL);
        return rc < 0 ? rc : -ENOMEM;
    }
    r.m->is_over = ms_job_stage_is_over(ms_job_core_view(job->core).stage) &&
                   r.m->n_events < EVENTS_MAX;
    ms_head_op_succeed(op, &r.m->base);
    return 0;
}

static bool try_events(struct ms_head_op *op, bool is_last)
{
    const Muster__AskJobEvents *m = op->request->job_events;
    const struct ms_hosted *job = find(op, m->name);

    if (job && !is_last && job->line_number <= m->after &&
        !ms_job_stage_is_over(ms_job_core_view(job->core).stage))
        return false;
    ms_head_op_end(op, job ? answer_events(op, job) : op->error.code);
    return true;
}

int ms_jobs_events_run(struct ms_head_op *op)
{
    const Muster__AskJobEvents *m = op->request->job_events;

    if (!find(op, m->name))
        return op->error.code;
    return ms_head_op_wait_in(
        op, &op->head->jobs->waiting, try_events, wait_of(m->wait_ns, false));
}

/* ---- changing ---------------------------------------------------------------------- */

static int want(struct ms_head_op *op, const char *name, struct ms_job_event *e)
{
    struct ms_hosted *job = find(op, name);
    int rc = job ? ms_hosted_want(job, e, &op->error) : op->error.code;

    return rc < 0 ? rc : answer_status(op, job);
}

static int want_plain(struct ms_head_op *op, const Muster__JobRef *m, uint32_t what)
{
    struct ms_job_event e = {.what = what,
                             .text = m->reason[0] ? m->reason : NULL,
                             .flags = what == MS_JOB_RESUME ? MS_JOB_REQUEUE : 0};

    return want(op, m->name, &e);
}

int ms_jobs_suspend_run(struct ms_head_op *op)
{
    return want_plain(op, op->request->suspend_job, MS_JOB_SUSPEND);
}

int ms_jobs_resume_run(struct ms_head_op *op)
{
    return want_plain(op, op->request->resume_job, MS_JOB_RESUME);
}

int ms_jobs_stop_run(struct ms_head_op *op)
{
    return want_plain(op, op->request->stop_job, MS_JOB_STOP);
}

int ms_jobs_delete_run(struct ms_head_op *op)
{
    return want_plain(op, op->request->delete_job, MS_JOB_DELETE);
}

/* MS_JOB_NO_ROLE with the reason. */
static uint32_t find_role(struct ms_head_op *op, const char *job_name, const char *role)
{
    const struct ms_hosted *job = find(op, job_name);
    uint32_t found = job ? ms_job_core_find_role(job->core, role) : MS_JOB_NO_ROLE;
    struct ms_nearest near = {.word = role};

    if (!job || found != MS_JOB_NO_ROLE)
        return found;
    for (uint32_t i = 0; i < ms_job_core_role_count(job->core); i++)
        ms_nearest_consider(&near, ms_hosted_role_name(job, i));
    ms_error_set(&op->error,
                 -ENOENT,
                 "job '%s' has no role '%.64s' that the controller creates%s%s%s",
                 job->name,
                 role,
                 near.best ? "; did you mean '" : "",
                 near.best ? near.best : "",
                 near.best ? "'?" : "");
    return MS_JOB_NO_ROLE;
}

int ms_jobs_scale_run(struct ms_head_op *op)
{
    const Muster__ScaleJob *m = op->request->scale_job;
    struct ms_job_event e = {.what = MS_JOB_SCALE, .count = m->count};

    e.role = find_role(op, m->name, m->role);
    return e.role == MS_JOB_NO_ROLE ? op->error.code : want(op, m->name, &e);
}

int ms_jobs_restart_run(struct ms_head_op *op)
{
    const Muster__RestartJob *m = op->request->restart_job;
    struct ms_job_event e = {.what = MS_JOB_RESTART,
                             .role = MS_JOB_NO_ROLE,
                             .rank = m->one_rank ? m->rank : MS_JOB_ALL_RANKS};

    if (strcmp(m->role, MS_JOB_DRIVER_NAME) == 0)
        e.role = MS_JOB_DRIVER;
    else if (m->role[0] && (e.role = find_role(op, m->name, m->role)) == MS_JOB_NO_ROLE)
        return op->error.code;
    return want(op, m->name, &e);
}
