/* cmd_version.c - `muster version` */
#include "cli/out.h"
#include "wire/frame.h"
#include "wire/handshake.h"

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
