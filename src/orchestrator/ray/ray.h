/* ray.h - the orchestrator `ray`: placement groups of a Ray cluster
 *
 * One job on the cluster, the bridge, does what is asked (python/muster/ray_bridge.py);
 * this is its controller. The bridge is started when it is first needed, and once more
 * when it was lost. Its lines (doc/orchestrators.md) come over Muster's own wire, by a
 * connection that either side may make, keyed by a secret that both derive and nobody
 * sends (offer.h).
 *
 * What fails before there is a bridge (nobody there, not Ray, too old, a wrong token, an
 * upload that was cut) completes what waits for it, with a sentence that says so.
 *
 * With a grace the bridge outlives its controller for that long: then the backend is
 * MS_ORCH_DURABLE, destroy leaves what is lent, and the next controller of the same name
 * and state_dir goes on with it. Without, everything ends with the controller, however
 * that ends. Inside of a job of the cluster the bridge ends in any case with the parent of
 * the controller, which is to start the next one.
 */
#ifndef MS_ORCHESTRATOR_RAY_RAY_H
#define MS_ORCHESTRATOR_RAY_RAY_H

#include "io/loop.h"
#include "orchestrator/orchestrator.h"
#include "orchestrator/ray/site.h"

/* How the wire to the bridge comes about. */
enum ms_ray_dialling {
    MS_RAY_BOTH_DIAL,        /* both are tried; the first that is open is taken */
    MS_RAY_BRIDGE_DIALS,     /* the bridge dials us */
    MS_RAY_CONTROLLER_DIALS, /* we dial the bridge, at the address that its log says */
};

/* Borrowed until it exists, but the loop, which outlives it. */
struct ms_ray_options {
    struct ms_loop *loop;
    struct ms_ray_site site; /* which cluster */
    const char *name;        /* of the session: in the names of what Ray shows */
    enum ms_ray_dialling dialling;
    int64_t grace_ns;      /* 0: nothing outlives the controller */
    const char *state_dir; /* with a grace: what the next controller needs; 0700 */
    /* What the bridge prints, a part at a time; may be NULL. */
    void (*on_log)(void *arg, const char *text, size_t len);
    void *log_arg;
};

/* Returns at once; nothing was asked yet. NULL: with the reason. */
struct ms_orchestrator *ms_ray_create(const struct ms_ray_options *o,
                                      struct ms_error *err);

#endif
