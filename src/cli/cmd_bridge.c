#include "base/clock.h"
#include "cli/out.h"
#include "io/proc.h"
#include "orchestrator/ray/bridge.h"
#include "orchestrator/ray/offer.h"

#include <stdlib.h>

/* `muster bridge` runs in a job on a Ray cluster. What it needs to know is in its
 * environment, and none of it is secret. */
enum ms_exit ms_cmd_bridge(const struct ms_cli *cli)
{
    const char *offer = getenv(MS_OFFER_ENV), *name = getenv(MS_BRIDGE_NAME_ENV),
               *grace = getenv(MS_BRIDGE_GRACE_ENV);
    double grace_s = grace ? strtod(grace, NULL) : 0;

    if (!offer || !name || !(grace_s >= 0 && grace_s < 1e9))
        return ms_out_fail(cli, MS_EXIT_USAGE, "it is for a job on a Ray cluster");
    ms_proc_set_name("muster-bridge");
    return ms_bridge_run(&(struct ms_bridge_options){
               .offer = offer,
               .name = name,
               .grace_ns = (int64_t)(grace_s * (double)MS_NS_PER_S),
               .out = stdout}) == 0
               ? MS_EXIT_OK
               : MS_EXIT_FAILED;
}
