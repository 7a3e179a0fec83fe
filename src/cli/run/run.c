/* run.c - `muster run`: read the job, check it, and run it */
#include "cli/run/run.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/out.h"
#include "session/job_file.h"

#include <errno.h>
#include <string.h>

#define DEFAULT_NAME "job"
#define INSIDE       "inside" /* the address of the Ray that this process is a job of */

enum { TIMEOUT_S = 120, TIMEOUT_MAX_S = 7 * 86400 };

static bool is_on(const struct ms_run_spec *r, const char *name)
{
    return strcmp(r->on, name) == 0;
}

/* What is missing for this orchestrator. */
static enum ms_exit check(const struct ms_run_spec *r)
{
    const char *file = r->cli->operands[0];

    if (!r->job->has_nodes && !is_on(r, "local"))
        return ms_out_fail(r->cli,
                           MS_EXIT_USAGE,
                           "%s has no 'nodes': what is to be %s?",
                           file,
                           is_on(r, "sim") ? "simulated" : "lent");
    if (!is_on(r, "sim") && !r->job->driver)
        return ms_out_fail(r->cli,
                           MS_EXIT_USAGE,
                           "%s has no 'driver': what is to be run? (--on sim runs "
                           "none)",
                           file);
    for (size_t i = 0; i < r->job->role_count; i++)
        if (r->job->roles[i].command)
            return ms_out_fail(r->cli,
                               MS_EXIT_USAGE,
                               "%s: role '%s' has a 'command': those are started by "
                               "the controller of a job, `muster submit`",
                               file,
                               r->job->roles[i].name);
    if (is_on(r, "ray") != (r->address != NULL))
        return ms_out_fail(r->cli,
                           MS_EXIT_USAGE,
                           is_on(r, "ray")
                               ? "--on ray: which one? --address http://HEAD:8265, or "
                                 "--address local to start one here"
                               : "--address belongs to --on ray");
    return MS_EXIT_OK;
}

static enum ms_exit run_on(struct ms_run_spec *r)
{
    r->out = is_on(r, "sim") ? stdout : stderr;
    if (is_on(r, "sim"))
        return ms_run_sim(r);
    return is_on(r, "ray") && !r->is_inside ? ms_run_ray(r) : ms_run_job(r);
}

/* By the command line, else by the file. */
static int find_timeout(struct ms_run_spec *r, struct ms_error *err)
{
    int64_t by_file = r->job->timeout_s ? (int64_t)r->job->timeout_s : TIMEOUT_S;
    int64_t seconds = ms_cli_number(r->cli, MS_OPT_TIMEOUT, by_file);

    r->timeout_ns = seconds * MS_NS_PER_S;
    if (seconds <= TIMEOUT_MAX_S)
        return 0;
    return ms_error_set(err,
                        -EINVAL,
                        "%s: 'timeout' is %lld s; up to %d s are possible",
                        r->cli->operands[0],
                        (long long)seconds,
                        TIMEOUT_MAX_S);
}

static enum ms_exit run(struct ms_run_spec *r, struct ms_whole_nodes *nodes)
{
    const struct ms_job *job = r->job;
    bool are_here = !is_on(r, "ray");
    struct ms_error err = {0};
    enum ms_exit code = check(r);

    if (code)
        return code;
    if (find_timeout(r, &err) < 0)
        return ms_out_fail(r->cli, MS_EXIT_USAGE, "%s", err.text);
    if (ms_whole_nodes_init(nodes,
                            (const Muster__NodeShape *const *)job->nodes,
                            job->node_count,
                            are_here,
                            &err) < 0)
        return ms_out_fail(r->cli, MS_EXIT_FAILED, "%s", err.text);
    nodes->pieces.name = r->key;
    code = ms_plan_check(
        r->cli, job, (const Muster__NodeShape *const *)nodes->shapes, nodes->count);
    return code ? code : run_on(r);
}

enum ms_exit ms_cmd_run(const struct ms_cli *cli)
{
    MS_CLEANUP(ms_job_finish) struct ms_job job = {0};
    MS_CLEANUP(ms_whole_nodes_finish) struct ms_whole_nodes nodes = {0};
    const char *on = cli->values[MS_OPT_ON], *at = cli->values[MS_OPT_ADDRESS];
    struct ms_run_spec r = {.cli = cli,
                            .job = &job,
                            .nodes = &nodes,
                            .address = at,
                            .is_inside = at && strcmp(at, INSIDE) == 0};
    struct ms_error err = {0};

    if (cli->operand_count != 1)
        return ms_out_fail(cli, MS_EXIT_USAGE, "which FILE? `muster help run` has one");
    if (ms_job_file_read(&job, cli->operands[0], &err) < 0)
        return ms_out_fail(cli, MS_EXIT_USAGE, "%s", err.text);
    r.key = job.name ? job.name : DEFAULT_NAME;
    r.on = on ? on : job.on ? job.on : "local";
    if (ms_job_check_on(&job, r.on, &err) < 0)
        return ms_out_fail(cli, MS_EXIT_USAGE, "%s: %s", cli->operands[0], err.text);
    return run(&r, &nodes);
}
