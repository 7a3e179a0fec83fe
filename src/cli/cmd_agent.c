#include "agent/agent.h"
#include "cli/args.h"
#include "cli/out.h"
#include "cli/target.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICES_MAX = 65535 };

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

static enum ms_exit check_labels(const struct ms_cli *cli, const struct values *labels)
{
    for (size_t i = 0; i < labels->count; i++) {
        const char *equals = strchr(labels->at[i], '=');

        if (!equals || equals == labels->at[i])
            return ms_out_fail(cli,
                               MS_EXIT_USAGE,
                               "--label wants NAME=VALUE, not '%s'",
                               labels->at[i]);
    }
    return MS_EXIT_OK;
}

static enum ms_exit join(const struct ms_cli *cli, const struct ms_target *target)
{
    struct values labels = {0}, bind = {0};
    long gpus = -1, cpus = -1;
    struct ms_error err = {0};
    struct ms_join_options o = {.head = target->address,
                                .secret = target->secret,
                                .node_name = cli->values[MS_OPT_NODE_NAME]};
    enum ms_exit code;

    if (ms_args_number(cli, MS_OPT_NUM_GPUS, 0, DEVICES_MAX, &gpus, &err) < 0 ||
        ms_args_number(cli, MS_OPT_NUM_CPUS, 1, DEVICES_MAX, &cpus, &err) < 0 ||
        (ms_cli_has(cli, MS_OPT_TLS) &&
         ms_tls_mode_parse(cli->values[MS_OPT_TLS], &o.tls, &err) < 0))
        return ms_out_fail(cli, MS_EXIT_USAGE, "%s", err.text);
    collect(cli, MS_OPT_LABEL, &labels);
    collect(cli, MS_OPT_BIND, &bind);
    code = check_labels(cli, &labels);
    if (code)
        return code;
    o.num_gpus = (int)gpus;
    o.num_cpus = (int)cpus;
    o.labels = labels.at;
    o.label_count = labels.count;
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
