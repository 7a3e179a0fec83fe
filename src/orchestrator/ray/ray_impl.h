/* ray_impl.h - what the files of the orchestrator `ray` share
 *
 * ray.c       the orchestrator, the backend of its operations (op.h), the bridge's life
 * request.c   what is asked of the bridge, as JSON
 * events.c    what is heard from it, into the inventory
 */
#ifndef MS_ORCHESTRATOR_RAY_RAY_IMPL_H
#define MS_ORCHESTRATOR_RAY_RAY_IMPL_H

#include "orchestrator/op.h"
#include "orchestrator/ray/bridge/transport.h"

#include <jansson.h>

enum bridge_state { BRIDGE_DOWN, BRIDGE_STARTING, BRIDGE_UP };

struct ray {
    struct ms_controller controller;
    struct ms_ray_options options; /* its texts are ours */
    ms_bridge_open *open;
    json_t *avoided; /* reasons, by the names of nodes */
    struct ms_timer linger;
    struct ms_bridge_transport *transport, *old; /* `old` is over, and cleans up */
    enum bridge_state bridge;
    bool is_silent;     /* the bridge cannot be reached */
    bool is_ray_silent; /* Ray does not answer the bridge */
    struct ms_error silence;
    int64_t late_ns;            /* a launch: behind its deadline, or cancel */
    uintptr_t life;             /* of bridges, counted: who has told of a reservation */
    uint64_t next_id, known_id; /* known_id: of the list that begins a bridge's life */
};

/* ---- ray.c ------------------------------------------------------------------------- */

/* As if this process had been killed: connections close, and nobody is told. */
void ms_ray_abandon(struct ms_orchestrator *o);
/* The bridge goes; with `keep`, what is lent is left to the next controller. */
void ms_ray_leave_bridge(struct ray *r, bool keep);
/* Send a request under a new id; 0, or why not. Borrowed. */
int ms_ray_send(struct ray *r, json_t *request, uint64_t *id);
/* The bridge's answer to a request; `first`: the number of the first piece that it lent. */
void ms_ray_answered(
    struct ray *r, uint64_t id, int rc, uint32_t first, const char *why);

/* ---- request.c --------------------------------------------------------------------- */

/* What it asks for; NULL: out of memory, or (*err is set) it cannot be asked. */
json_t *
ms_ray_request(const struct ms_orch_op *op, double timeout_s, struct ms_error *err);
json_t *ms_ray_avoid_request(const char *node, const char *reason);

/* ---- events.c ---------------------------------------------------------------------- */

/* One line from the bridge. */
void ms_ray_heard(struct ray *r, const char *line, size_t len);
/* Everything that is lent has ended with the bridge. */
void ms_ray_all_ended(struct ray *r, const struct ms_error *why);

#endif
