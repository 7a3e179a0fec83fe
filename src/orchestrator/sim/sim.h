/* sim.h - the orchestrator of a simulated backend
 *
 * It lives through what any backend does: it asks again until it is answered, compares
 * what it knows with the whole from time to time, and puts what it hears in order by the
 * inventory. Several may follow one another on the same backend, as controllers do that were
 * started again.
 */
#ifndef MS_ORCHESTRATOR_SIM_SIM_H
#define MS_ORCHESTRATOR_SIM_SIM_H

#include "orchestrator/sim/backend.h"

/* NULL: out of memory. The backend is borrowed and outlives it. */
struct ms_orchestrator *ms_orchestrator_sim(struct ms_sim *backend);

#endif
