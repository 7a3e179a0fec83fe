/* cmd_version.c - `muster version`, and the commands that other programs of ours start */
#include "cli/out.h"
#include "io/proc.h"
#include "orchestrator/ray/bridge/bridge.h"
#include "wire/frame.h"
#include "wire/handshake.h"
#include "worker/native/native.h"

enum ms_exit ms_cmd_version(const struct ms_cli *cli)
{
    if (ms_cli_has(cli, MS_OPT_JSON))
        return ms_out_json(
            MS_JSON({"version", json_string(MS_VERSION)},
                    {"frame_version", json_integer(MS_FRAME_VERSION)},
                    {"handshake_version", json_integer(MS_HANDSHAKE_VERSION)}));
    printf("muster %s (frames %d, handshake %d)\n",
           MS_VERSION,
           (int)MS_FRAME_VERSION,
           (int)MS_HANDSHAKE_VERSION);
    return MS_EXIT_OK;
}

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

/* `muster worker`: run classes of shared libraries. */
enum ms_exit ms_cmd_worker(const struct ms_cli *cli)
{
    (void)cli;
    return (enum ms_exit)ms_native_main();
}
