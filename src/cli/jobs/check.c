/* check.c - `muster check`: is a job's file right, and do its roles fit on its nodes */
#include "base/cleanup.h"
#include "cli/jobs/jobs.h"
#include "cli/out.h"
#include "cli/run/run.h"
#include "head/jobs/right.h"
#include "head/rest/message_json.h"
#include "session/job_file.h"

#include <stdlib.h>
#include <string.h>

enum ms_exit ms_jobs_check(const struct ms_cli *cli, struct ms_job *job)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf table = {0};
    struct ms_error err = {0};
    const char *file = cli->operands[0], *on = cli->values[MS_OPT_ON];

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
    return ms_plan_answer(cli,
                          ms_job_is_right(job, cli->values[MS_OPT_NAME], &table, &err),
                          &table,
                          &err);
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
    Muster__JobChecked m;
    enum ms_exit code = ms_jobs_check(cli, &job);

    if (code)
        return code;
    ms_job_checked_fill(&job, cli->values[MS_OPT_NAME], cli->operands[0], &m);
    if (ms_cli_has(cli, MS_OPT_JSON))
        return ms_out_json(ms_message_print(&m.base));
    print_nodes(&job, nodes);
    printf("%s: job '%s' is right: %s, %u role%s, %u of them created by the "
           "controller, %s driver\n",
           m.file,
           m.name,
           nodes,
           m.roles,
           m.roles == 1 ? "" : "s",
           m.created_by_the_controller,
           m.driver ? "a" : "no");
    return MS_EXIT_OK;
}
