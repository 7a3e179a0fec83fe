#include "agent/agent.h"
#include "cli/args.h"
#include "cli/out.h"

#include <limits.h>

enum ms_exit ms_cmd_agent(const struct ms_cli *cli)
{
    struct ms_error err = {0};
    long fd = -1;

    if (ms_args_number(cli, MS_OPT_FD, 3, INT_MAX - 1, &fd, &err) < 0)
        return ms_out_fail(cli, MS_EXIT_USAGE, "%s", err.text);
    if (fd < 0)
        return ms_out_fail(cli,
                           MS_EXIT_USAGE,
                           "--fd is missing; a head starts the agent, people need not");
    return ms_agent_run((int)fd, (int)fd + 1) == 0 ? MS_EXIT_OK : MS_EXIT_FAILED;
}
