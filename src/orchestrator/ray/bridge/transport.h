/* transport.h - how lines go to a bridge and come from it
 *
 * Three kinds: a bridge in a job on a cluster (wired.c); one that is our child, as we are in
 * such a job ourselves (child.c); and there, where it is to outlive us, a process beside us
 * (wired.c, beside.c). Lines arrive once and in order. All on the
 * thread of one loop, and nothing comes from inside of a call.
 */
#ifndef MS_ORCHESTRATOR_RAY_BRIDGE_TRANSPORT_H
#define MS_ORCHESTRATOR_RAY_BRIDGE_TRANSPORT_H

#include "orchestrator/ray/ray.h"

#include <stdbool.h>

struct ms_bridge_transport;

struct ms_bridge_transport_events {
    void (*on_line)(void *arg, const char *line, size_t len); /* with a NUL behind it */
    /* It cannot be reached (`why`), or can again (NULL). What is sent meanwhile waits. */
    void (*on_silent)(void *arg, const struct ms_error *why);
    /* There is no bridge, and nothing of it is left; the last. It may be destroyed here. */
    void (*on_down)(void *arg, const struct ms_error *why);
};

struct ms_bridge_transport_ops {
    /* 0, -ENOMEM, -EMSGSIZE, -EPIPE. */
    int (*send)(struct ms_bridge_transport *c, const char *line, size_t len);
    /* With `keep` what is lent stays for the next controller. Without, the bridge ends and
     * this waits for it until `until_ns` at most. */
    void (*destroy)(struct ms_bridge_transport *c, bool keep, int64_t until_ns);
};

struct ms_bridge_transport {
    const struct ms_bridge_transport_ops *ops;
};

/* NULL: with the reason. The options are borrowed for as long as it lives. */
typedef struct ms_bridge_transport *
ms_bridge_open(const struct ms_ray_options *o,
               const struct ms_bridge_transport_events *events,
               void *arg,
               struct ms_error *err);

ms_bridge_open ms_bridge_open_job, ms_bridge_open_child, ms_bridge_open_beside;

/* The connection to the bridge breaks, as a network breaks it: for tests. */
void ms_bridge_wire_cut(struct ms_bridge_transport *c);

#endif
