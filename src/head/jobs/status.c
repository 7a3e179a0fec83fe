/* status.c - what there is to say of a job, as a message */
#include "base/cleanup.h"
#include "base/proto.h"
#include "head/jobs/hosted.h"
#include "head/jobs/machines.h"
#include "head/jobs/simulated.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static Muster__JobRoleStatus *role_status(const struct ms_hosted *job, uint32_t role)
{
    struct ms_job_role_view v = ms_job_core_role(job->core, role);
    Muster__JobRoleStatus m = MUSTER__JOB_ROLE_STATUS__INIT;
    char cluster[MS_NAME_MAX + 1];

    m.name = ms_field_text(v.spec->name);
    m.size = v.size;
    m.wanted = v.wanted;
    m.running = v.counts[MS_JOB_SLOT_RUNNING];
    m.succeeded = v.counts[MS_JOB_SLOT_SUCCEEDED];
    m.min = v.spec->min;
    m.max = v.spec->max;
    m.cluster = (char *)(uintptr_t)ms_hosted_cluster(job, role, cluster);
    m.doing = ms_field_text(v.doing ? ms_job_action_name(v.doing) : "");
    m.text = ms_field_text(v.text);
    for (uint32_t i = 0; i < v.size; i++)
        m.restarts += ms_job_core_slot(job->core, role, i).restarts;
    return (Muster__JobRoleStatus *)ms_proto_copy(&m.base);
}

static bool add_roles(const struct ms_hosted *job, Muster__JobStatus *s)
{
    for (uint32_t i = 0; i < ms_job_core_role_count(job->core); i++)
        if (!ms_proto_append(&s->roles, &s->n_roles, role_status(job, i)))
            return false;
    return true;
}

/* Where it prints, or has printed; nodes that it does not have any more have left folders. */
struct log_nodes {
    char (*texts)[2 * MS_NAME_MAX + 2];
    char **names;
    size_t count;
};

static void log_nodes_finish(struct log_nodes *l)
{
    free(l->texts);
    free(l->names);
}

static void
log_nodes_add(struct log_nodes *l, const struct ms_hosted *job, const char *name)
{
    l->names[l->count] = l->texts[l->count];
    snprintf(l->texts[l->count++],
             sizeof *l->texts,
             "%s%s%s",
             job ? job->name : "",
             job ? "." : "",
             name);
}

static int
log_nodes_init(struct log_nodes *l, const struct ms_hosted *job, const char *const *now)
{
    size_t room = job->file.node_count + 1 + ms_field_count(now);

    l->texts = calloc(room, sizeof *l->texts);
    l->names = calloc(room, sizeof *l->names);
    if (!l->texts || !l->names)
        return -ENOMEM;
    for (size_t i = 0; (job->is_on_ours || ms_hosted_is_on_ray(job)) && now && now[i];
         i++)
        log_nodes_add(l, NULL, now[i]);
    if (ms_hosted_is_simulated(job) || ms_hosted_is_on_ray(job))
        return 0;
    for (size_t i = 0; !job->is_on_ours && i < job->file.node_count; i++)
        log_nodes_add(l, job, job->file.nodes[i]->name);
    if (!job->is_on_ours && !job->file.has_nodes)
        log_nodes_add(l, job, "localhost");
    return 0;
}

Muster__JobStatus *ms_hosted_status(const struct ms_hosted *job)
{
    struct ms_job_view v = ms_job_core_view(job->core);
    Muster__JobStatus m = MUSTER__JOB_STATUS__INIT, *s;
    MS_CLEANUP(ms_cleanup_free) const char **nodes = ms_machines_nodes(job);
    MS_CLEANUP(log_nodes_finish) struct log_nodes logs = {0};

    if (log_nodes_init(&logs, job, nodes) < 0)
        return NULL;
    m.name = (char *)(uintptr_t)job->name;
    m.stage = ms_field_text(ms_job_stage_name(v.stage));
    m.is_over = ms_job_stage_is_over(v.stage);
    m.code = v.code;
    m.cause = ms_field_text(v.cause ? ms_job_cause_name(v.cause) : "");
    m.text = ms_field_text(job->is_recovering && !m.is_over
                               ? "the head was started again and asks what still runs"
                           : v.stage == MS_JOB_STAGE_QUEUED ? job->queued_why
                                                            : v.text);
    m.is_recovering = job->is_recovering;
    m.priority = job->file.priority;
    m.submitted_ns = (uint64_t)job->submitted_ns;
    m.ended_ns = (uint64_t)job->ended_ns;
    m.attempt = v.attempt;
    m.driver_runs = v.driver_runs;
    m.nodes = ms_field_strings(nodes);
    m.n_nodes = v.is_held ? ms_field_count(nodes) : 0;
    m.on = ms_field_text(job->file.on ? job->file.on : "local");
    m.restarts = v.restarts;
    m.journal = ms_field_text(job->journal.code ? job->journal.text : "");
    m.folder = job->submit->folder;
    m.log_nodes = logs.names;
    m.n_log_nodes = logs.count;
    s = (Muster__JobStatus *)ms_proto_copy(&m.base);
    if (s && add_roles(job, s))
        return s;
    muster__job_status__free_unpacked(s, NULL);
    return NULL;
}
