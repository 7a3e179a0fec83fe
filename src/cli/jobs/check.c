/* check.c - `muster check`: is a job's file right, and do its roles fit on its nodes */
#include "base/cleanup.h"
#include "cli/jobs/jobs.h"
#include "cli/out.h"
#include "cli/run/run.h"
#include "job/node_ranges.h"
#include "session/job_file.h"

#include <stdlib.h>
#include <string.h>

/* Do its roles, with the least ranks that they may have, fit on the nodes that it needs? */
static enum ms_exit check_fit(const struct ms_cli *cli, const struct ms_job *job)
{
    MS_CLEANUP(ms_whole_nodes_finish) struct ms_whole_nodes nodes = {0};
    MS_CLEANUP(ms_cleanup_free)
    const Muster__NodeShape **shapes = calloc(job->node_count + 1, sizeof *shapes);
    MS_CLEANUP(ms_cleanup_free)
    uint32_t *least = calloc(job->node_count + 1, sizeof *least);
    size_t count;
    struct ms_error err = {0};

    if (!job->has_nodes)
        return MS_EXIT_OK;
    if (!shapes || !least)
        return ms_out_fail(cli, MS_EXIT_FAILED, "out of memory");
    if (ms_whole_nodes_init(&nodes,
                            (const Muster__NodeShape *const *)job->nodes,
                            job->node_count,
                            !job->on || strcmp(job->on, "ray") != 0,
                            &err) < 0)
        return ms_out_fail(cli, MS_EXIT_FAILED, "%s", err.text);
    count = ms_job_nodes_least(job, least);
    for (size_t i = 0; i < count; i++)
        shapes[i] = nodes.shapes[least[i]];
    return ms_plan_check(cli, job, shapes, count);
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
    if (ms_job_file_read(job, file, &err) < 0)
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

/* "4 nodes", or "2 to 4 nodes". */
static void print_nodes(const struct ms_job *job, char out[64])
{
    size_t least = job->node_count;

    for (size_t i = 0; i < job->node_range_count; i++)
        least -= job->node_ranges[i].count.max - job->node_ranges[i].count.min;
    if (least < job->node_count)
        snprintf(out, 64, "%zu to %zu nodes", least, job->node_count);
    else
        snprintf(out, 64, "%zu node%s", least, least == 1 ? "" : "s");
}

enum ms_exit ms_cmd_check(const struct ms_cli *cli)
{
    char nodes[64];
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
    print_nodes(&job, nodes);
    printf("%s: job '%s' is right: %s, %zu role%s, %zu of them created by the "
           "controller, %s driver\n",
           cli->operands[0],
           job.name ? job.name : "job",
           nodes,
           job.role_count,
           job.role_count == 1 ? "" : "s",
           ours,
           job.driver ? "a" : "no");
    return MS_EXIT_OK;
}
