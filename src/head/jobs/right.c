/* right.c - whether a job's file is right, for `check` and `submit` alike */
#include "head/jobs/right.h"
#include "base/cleanup.h"
#include "base/proto.h"
#include "head/ops/op.h"
#include "head/ops/request.h"
#include "job/node_ranges.h"
#include "job/plan.h"
#include "orchestrator/whole_nodes.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char *on_of(const struct ms_job *job)
{
    return job->on ? job->on : "local";
}

static const char *name_of(const struct ms_job *job, const char *name)
{
    return name && *name ? name : job->name ? job->name : "job";
}

static int make_plan(const struct ms_job *job,
                     const struct ms_whole_nodes *nodes,
                     struct ms_buf *table,
                     struct ms_error *err)
{
    MS_CLEANUP(ms_job_plan_finish) struct ms_job_plan plan;
    MS_CLEANUP(ms_cleanup_free)
    uint32_t *least = calloc(job->node_count + 1, sizeof *least);
    size_t count = least ? ms_job_nodes_least(job, least) : 0;
    int rc = least ? 0 : ms_error_set(err, -ENOMEM, "out of memory");

    ms_job_plan_init(&plan);
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = ms_books_node_came(&plan.books, nodes->shapes[least[i]], err);
    return rc < 0 ? rc : ms_job_plan_make(&plan, job, table, err);
}

static int
check_fit(const struct ms_job *job, struct ms_buf *table, struct ms_error *err)
{
    MS_CLEANUP(ms_whole_nodes_finish) struct ms_whole_nodes nodes = {0};
    int rc;

    if (!job->has_nodes)
        return 0;
    rc = ms_whole_nodes_init(&nodes,
                             (const Muster__NodeShape *const *)job->nodes,
                             job->node_count,
                             strcmp(on_of(job), "ray") != 0,
                             err);
    return rc < 0 ? rc : make_plan(job, &nodes, table, err);
}

int ms_job_is_right(const struct ms_job *job,
                    const char *name,
                    struct ms_buf *table,
                    struct ms_error *err)
{
    struct ms_job_spec spec;
    int rc = ms_job_check_submit(job, name_of(job, name), on_of(job), err);

    if (rc < 0)
        return rc;
    rc = ms_job_make_spec(job, &spec, err);
    if (rc < 0) {
        ms_error_wrap(err, "%s", job->source ? job->source : "job.yaml");
        return rc;
    }
    ms_job_made_spec_finish(&spec);
    return check_fit(job, table, err);
}

void ms_job_checked_fill(const struct ms_job *job,
                         const char *name,
                         const char *file,
                         Muster__JobChecked *out)
{
    muster__job_checked__init(out);
    out->file = ms_field_text(file);
    out->name = ms_field_text(name_of(job, name));
    out->nodes = (uint32_t)job->node_count;
    out->roles = (uint32_t)job->role_count;
    out->driver = job->driver != NULL;
    for (size_t i = 0; i < job->role_count; i++)
        out->created_by_the_controller += ms_job_role_is_ours(&job->roles[i]);
}

/* ---- the verb ---------------------------------------------------------------------- */

static int
read_file(struct ms_job *job, const Muster__SubmitJob *m, struct ms_error *err)
{
    int rc = ms_job_read(
        job, m->file[0] ? m->file : "job.yaml", m->text, strlen(m->text), err);

    if (rc < 0 || !m->on[0])
        return rc;
    free(job->on);
    job->on = strdup(m->on);
    return job->on ? 0 : ms_error_set(err, -ENOMEM, "out of memory");
}

int ms_jobs_check_run(struct ms_head_op *op)
{
    const Muster__SubmitJob *m = op->request->check_job;
    MS_CLEANUP(ms_job_finish) struct ms_job job = {0};
    Muster__JobChecked checked;
    ProtobufCMessage *answer;
    int rc = read_file(&job, m, &op->error);

    if (rc == 0)
        rc = ms_job_is_right(&job, m->name, &op->table, &op->error);
    if (rc < 0)
        return rc;
    ms_job_checked_fill(&job, m->name, m->file[0] ? m->file : "job.yaml", &checked);
    answer = ms_proto_copy(&checked.base);
    ms_head_op_answer(op, answer);
    return 0;
}
