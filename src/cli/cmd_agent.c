#include "agent/agent.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "cli/args.h"
#include "cli/out.h"
#include "cli/target.h"
#include "resource/shape.h"

#include <limits.h>
#include <stdlib.h>

enum { DEVICES_MAX = 4096, WITHIN_MAX = 30 * 24 * 3600 };

struct values {
    const char *at[MS_CLI_MANY_MAX];
    size_t count;
};

static void collect(const struct ms_cli *cli, enum ms_opt id, struct values *out)
{
    const char *value;
    size_t pos = 0;

    while ((value = ms_cli_next(cli, id, &pos)))
        out->at[out->count++] = value;
}

/* What the command line says of this machine. */
static int
describe(const struct ms_cli *cli, Muster__NodeShape *s, struct ms_error *err)
{
    struct ms_shape_devices devices = {0};
    long gpus = -1, cpus = -1;
    const char *label;
    size_t pos = 0;
    int rc = ms_args_number(cli, MS_OPT_NUM_GPUS, 0, DEVICES_MAX, &gpus, err);

    if (rc == 0)
        rc = ms_args_number(cli, MS_OPT_NUM_CPUS, 1, DEVICES_MAX, &cpus, err);
    while (rc == 0 && (label = ms_cli_next(cli, MS_OPT_LABEL, &pos)))
        rc = ms_shape_add_label_text(s, label, err);
    s->cpus = (int32_t)cpus;
    s->look_for_devices = gpus < 0;
    devices.count = gpus > 0 ? (uint32_t)gpus : 0;
    return rc < 0 ? rc : ms_shape_add_devices(s, &devices, err);
}

static enum ms_exit join(const struct ms_cli *cli, const struct ms_target *target)
{
    MS_CLEANUP(ms_shape_cleanup) Muster__NodeShape *shape = ms_shape_create("");
    struct values bind = {0};
    long within = 0, end_with = 0;
    struct ms_error err = {0};
    struct ms_join_options o = {.head = target->address,
                                .secret = target->secret,
                                .node_name = cli->values[MS_OPT_NODE_NAME]};

    if (!shape)
        return ms_out_fail(cli, MS_EXIT_FAILED, "out of memory");
    if (describe(cli, shape, &err) < 0 ||
        ms_args_number(cli, MS_OPT_JOIN_WITHIN, 1, WITHIN_MAX, &within, &err) < 0 ||
        ms_args_number(cli, MS_OPT_END_WITH, 1, INT_MAX, &end_with, &err) < 0 ||
        (ms_cli_has(cli, MS_OPT_TLS) &&
         ms_tls_mode_parse(cli->values[MS_OPT_TLS], &o.tls, &err) < 0))
        return ms_out_fail(cli, MS_EXIT_USAGE, "%s", err.text);
    collect(cli, MS_OPT_BIND, &bind);
    o.shape = shape;
    o.join_within_ns = within * MS_NS_PER_S;
    o.end_with_pid = (pid_t)end_with;
    o.bind = bind.at;
    o.bind_count = bind.count;
    return ms_agent_join(&o) == 0 ? MS_EXIT_OK : MS_EXIT_FAILED;
}

static enum ms_exit find_and_join(const struct ms_cli *cli)
{
    const char *env = getenv("MUSTER_ADDRESS");
    struct ms_target target;
    enum ms_exit code;

    if (!ms_cli_has(cli, MS_OPT_HEAD) && (!env || !*env))
        return ms_out_fail(
            cli,
            MS_EXIT_USAGE,
            "which head? Give --head HOST:PORT, as `muster head` says it");
    code = ms_target_init(&target, cli);
    if (!code)
        code = join(cli, &target);
    ms_target_finish(&target);
    return code;
}

enum ms_exit ms_cmd_agent(const struct ms_cli *cli)
{
    struct ms_error err = {0};
    long fd = -1;

    if (ms_args_number(cli, MS_OPT_FD, 3, INT_MAX - 1, &fd, &err) < 0)
        return ms_out_fail(cli, MS_EXIT_USAGE, "%s", err.text);
    if (fd < 0)
        return find_and_join(cli);
    return ms_agent_run((int)fd, (int)fd + 1) == 0 ? MS_EXIT_OK : MS_EXIT_FAILED;
}
