/* check.c - `muster check`: is a job's file right, and do its roles fit on its nodes */
#include "base/cleanup.h"
#include "cli/jobs/jobs.h"
#include "cli/out.h"
#include "cli/run/run.h"

#include <stdlib.h>
#include <string.h>

/* Do its roles fit on the nodes that it describes? */
static enum ms_exit check_fit(const struct ms_cli *cli, const struct ms_job *job)
{
    MS_CLEANUP(ms_whole_nodes_finish) struct ms_whole_nodes nodes = {0};
    struct ms_error err = {0};

    if (!job->has_nodes)
        return MS_EXIT_OK;
    if (ms_whole_nodes_init(&nodes,
                            (const Muster__NodeShape *const *)job->nodes,
                            job->node_count,
                            !job->on || strcmp(job->on, "ray") != 0,
                            &err) < 0)
        return ms_out_fail(cli, MS_EXIT_FAILED, "%s", err.text);
    return ms_plan_check(
        cli, job, (const Muster__NodeShape *const *)nodes.shapes, nodes.count);
}

enum ms_exit ms_jobs_check(const struct ms_cli *cli, struct ms_job *job)
{
    struct ms_job_spec spec;
    struct ms_error err = {0};
    const char *file = cli->operands[0], *on = cli->values[MS_OPT_ON], *name;

    if (cli->operand_count != 1)
        return ms_out_fail(cli,
                           MS_EXIT_USAGE,
                           "which FILE? `muster help %s` has one",
                           cli->command->name);
    if (ms_job_open(job, file, &err) < 0)
        return ms_out_fail(cli, MS_EXIT_USAGE, "%s", err.text);
    if (on) {
        free(job->on);
        job->on = strdup(on);
    }
    name = cli->values[MS_OPT_NAME] ? cli->values[MS_OPT_NAME] : job->name;
    if (ms_job_check_submit(
            job, name ? name : "job", job->on ? job->on : "local", &err) < 0)
        return ms_out_fail(cli, MS_EXIT_USAGE, "%s", err.text);
    if (ms_job_make_spec(job, &spec, &err) < 0)
        return ms_out_fail(cli, MS_EXIT_USAGE, "%s: %s", file, err.text);
    ms_job_made_spec_finish(&spec);
    return check_fit(cli, job);
}

enum ms_exit ms_cmd_check(const struct ms_cli *cli)
{
    MS_CLEANUP(ms_job_finish) struct ms_job job = {0};
    enum ms_exit code = ms_jobs_check(cli, &job);
    size_t ours = 0;

    if (code)
        return code;
    for (size_t i = 0; i < job.role_count; i++)
        ours += ms_job_role_is_ours(&job.roles[i]);
    if (ms_cli_has(cli, MS_OPT_JSON))
        return ms_out_json(
            MS_JSON({"file", ms_json_string(cli->operands[0])},
                    {"name", ms_json_string(job.name ? job.name : "job")},
                    {"nodes", json_integer((json_int_t)job.node_count)},
                    {"roles", json_integer((json_int_t)job.role_count)},
                    {"created_by_the_controller", json_integer((json_int_t)ours)},
                    {"driver", json_boolean(job.driver != NULL)}));
    printf("%s: job '%s' is right: %zu node%s, %zu role%s, %zu of them created by the "
           "controller, %s driver\n",
           cli->operands[0],
           job.name ? job.name : "job",
           job.node_count,
           job.node_count == 1 ? "" : "s",
           job.role_count,
           job.role_count == 1 ? "" : "s",
           ours,
           job.driver ? "a" : "no");
    return MS_EXIT_OK;
}
