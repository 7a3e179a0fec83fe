/* local_ray.h - a Ray of our own on this machine
 *
 * One node, on the loopback interface alone, with ports that nobody else has and a folder
 * of its own, started by `ray start --head --block` below `muster hold`: it ends with this
 * process, however that ends, and then nothing of it is left.
 */
#ifndef MS_ORCHESTRATOR_RAY_JOB_LOCAL_RAY_H
#define MS_ORCHESTRATOR_RAY_JOB_LOCAL_RAY_H

#include "base/error.h"
#include "orchestrator/ray/site.h"

#include <stdbool.h>

/* Its folder; `muster hold` removes one of this name. Sockets are in there: it is short. */
#define MS_LOCAL_RAY_DIR "muster-ray-"

struct ms_local_ray;

/* Begin to start it; *base is its address ("http://127.0.0.1:40123"), where it answers in a
 * while, malloc'd. NULL: with the reason. */
struct ms_local_ray *
ms_local_ray_start(const struct ms_ray_site *site, char **base, struct ms_error *err);
/* It has ended, or could not be started: why. */
bool ms_local_ray_has_ended(struct ms_local_ray *r, struct ms_error *why);
/* Say what is wrong with it, with the end of its log; rc. */
int ms_local_ray_failed(const struct ms_local_ray *r,
                        int rc,
                        const char *what,
                        struct ms_error *why);
/* Ends it, and waits for that. NULL is nothing. */
void ms_local_ray_destroy(struct ms_local_ray *r);

#endif
