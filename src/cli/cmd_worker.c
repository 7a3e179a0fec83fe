/* cmd_worker.c - `muster worker`: run classes of shared libraries */
#include "cli/cli.h"
#include "worker/native/native.h"

enum ms_exit ms_cmd_worker(const struct ms_cli *cli)
{
    (void)cli;
    return (enum ms_exit)ms_native_main();
}
