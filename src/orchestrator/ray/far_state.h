/* far_state.h - what the next controller needs to go on with a bridge
 *
 * One file in the options' state_dir, readable by its owner alone: it has the secret of
 * the bridge's wire. Only where there is a grace; otherwise all of this does nothing.
 */
#ifndef MS_ORCHESTRATOR_RAY_FAR_STATE_H
#define MS_ORCHESTRATOR_RAY_FAR_STATE_H

#include "orchestrator/ray/ray.h"

struct ms_far_state {
    const char *id;        /* of the job */
    const uint8_t *secret; /* 32 bytes */
    const char *bridge_at; /* addresses; "": it dials us */
    uint16_t port;         /* where it dials us; 0: it does not */
    void *memory;          /* of the texts, if it was read */
};

/* 0; -ENOENT: there is none (of this cluster). */
int ms_far_state_read(const struct ms_ray_options *o, struct ms_far_state *s);
void ms_far_state_finish(struct ms_far_state *s);
/* Without it nobody can go on, but nothing else is lost. */
void ms_far_state_write(const struct ms_ray_options *o, const struct ms_far_state *s);
void ms_far_state_remove(const struct ms_ray_options *o);

#endif
