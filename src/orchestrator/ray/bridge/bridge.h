/* bridge.h - `muster bridge`: the lines of ray_bridge.py, carried to its controller
 *
 * Runs in a job on the cluster, with the bridge proper as its child. It answers the
 * controller's offer in the job's log (offer.h), dials it and listens for it, and is then
 * its controller's for as long as that lives; a connection that breaks is made again
 * (relay.h). Without a controller it waits for its grace, or, if only the network broke,
 * for MS_BRIDGE_BROKEN_NS; then the child's input ends, it releases everything, and both
 * end. When the child ends so does this.
 */
#ifndef MS_ORCHESTRATOR_RAY_BRIDGE_BRIDGE_H
#define MS_ORCHESTRATOR_RAY_BRIDGE_BRIDGE_H

#include <stdint.h>
#include <stdio.h>

/* The environment that it is started with, beside MS_OFFER_ENV. */
#define MS_BRIDGE_NAME_ENV  "MUSTER_BRIDGE_NAME"
#define MS_BRIDGE_GRACE_ENV "MUSTER_BRIDGE_GRACE" /* seconds */
/* Of a process beside its controller: with which process it ends (io/supervised.h). */
#define MS_BRIDGE_WITH_ENV "MUSTER_BRIDGE_WITH"

struct ms_bridge_options {
    const char *offer; /* of the controller */
    const char *name;
    int64_t grace_ns;
    const char *with; /* the name of a process with which it ends; NULL: none */
    FILE *out;        /* the job's log */
    const char *python, *script; /* of the child; NULL: found (child.h) */
};

/* Until the end; an exit code. */
int ms_bridge_run(const struct ms_bridge_options *o);
/* The same, with what the environment says; -EINVAL: it is not that of a bridge. */
int ms_bridge_run_by_env(FILE *out);

#endif
