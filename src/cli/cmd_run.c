#include "base/cleanup.h"
#include "cli/out.h"
#include "cli/plan_check.h"
#include "cli/run.h"

#include <string.h>

#define DEFAULT_NAME "job"

static enum ms_exit run_on(struct ms_run *r)
{
    const char *on = r->cli->values[MS_OPT_ON];
    bool is_sim = on && strcmp(on, "sim") == 0;

    if (is_sim && !r->job->has_nodes)
        return ms_out_fail(r->cli,
                           MS_EXIT_USAGE,
                           "%s has no 'nodes': what is to be simulated?",
                           r->cli->operands[0]);
    if (!is_sim && !r->job->driver)
        return ms_out_fail(
            r->cli,
            MS_EXIT_USAGE,
            "%s has no 'driver': what is to be run? (--on sim runs none)",
            r->cli->operands[0]);
    r->out = is_sim ? stdout : stderr;
    return is_sim ? ms_run_sim(r) : ms_run_local(r);
}

enum ms_exit ms_cmd_run(const struct ms_cli *cli)
{
    MS_CLEANUP(ms_job_finish) struct ms_job job = {0};
    MS_CLEANUP(ms_run_nodes_finish) struct ms_run_nodes nodes = {0};
    struct ms_run r = {.cli = cli, .job = &job, .nodes = &nodes};
    struct ms_error err = {0};
    enum ms_exit code;

    if (cli->operand_count != 1)
        return ms_out_fail(cli, MS_EXIT_USAGE, "which FILE? `muster help run` has one");
    if (ms_job_open(&job, cli->operands[0], &err) < 0)
        return ms_out_fail(cli, MS_EXIT_USAGE, "%s", err.text);
    r.key = job.name ? job.name : DEFAULT_NAME;
    if (ms_run_nodes_init(&nodes, &job, r.key, &err) < 0)
        return ms_out_fail(cli, MS_EXIT_FAILED, "%s", err.text);
    code = ms_plan_check(
        cli, &job, (const Muster__NodeShape *const *)nodes.shapes, nodes.count);
    return code ? code : run_on(&r);
}
