/* cmd_bridge.c - `muster bridge`, for a job on a Ray cluster */
#include "cli/out.h"
#include "io/proc.h"
#include "orchestrator/ray/bridge/bridge.h"

/* `muster bridge` runs in a job on a Ray cluster. What it needs to know is in its
 * environment, and none of it is secret. */
enum ms_exit ms_cmd_bridge(const struct ms_cli *cli)
{
    int code;

    ms_proc_set_name("muster-bridge");
    code = ms_bridge_run_by_env(stdout);
    if (code < 0)
        return ms_out_fail(cli, MS_EXIT_USAGE, "it is for a job on a Ray cluster");
    return code == 0 ? MS_EXIT_OK : MS_EXIT_FAILED;
}
