/* state.h - what the next controller needs to go on with a bridge
 *
 * One file in the options' state_dir, readable by its owner alone: it has the secret of
 * the bridge's wire. Only where there is a grace; otherwise all of this does nothing.
 */
#ifndef MS_ORCHESTRATOR_RAY_BRIDGE_STATE_H
#define MS_ORCHESTRATOR_RAY_BRIDGE_STATE_H

#include "orchestrator/ray/bridge/wire.h"
#include "orchestrator/ray/ray.h"

struct ms_bridge_state {
    char job[MS_NAME_MAX + 32]; /* its id */
    uint8_t secret[MS_WIRE_SECRET];
    char bridge_at[MS_ADDR_LIST_MAX + 1]; /* addresses; "": it dials us */
    uint16_t port;                        /* where it dials us; 0: it does not */
};

/* 0; -ENOENT: there is none (of this cluster), and *s is as it was. */
int ms_bridge_state_read(const struct ms_ray_options *o, struct ms_bridge_state *s);
/* Without it nobody can go on, but nothing else is lost. */
void ms_bridge_state_write(const struct ms_ray_options *o,
                           const struct ms_bridge_state *s);
void ms_bridge_state_remove(const struct ms_ray_options *o);

#endif
