/* local_ray.h - a Ray of our own on this machine
 *
 * One node, on the loopback interface alone, with ports that nobody else has and a folder
 * of its own, started by `ray start --head --block` below `muster hold`: it ends with this
 * process, however that ends, and then nothing of it is left.
 */
#ifndef MS_ORCHESTRATOR_RAY_LOCAL_RAY_H
#define MS_ORCHESTRATOR_RAY_LOCAL_RAY_H

#include "base/clock.h"
#include "base/error.h"
#include "io/loop.h"
#include "orchestrator/ray/site.h"

/* Its folder; `muster hold` removes one of this name. Sockets are in there: it is short. */
#define MS_LOCAL_RAY_DIR "muster-ray-"

#define MS_LOCAL_RAY_START_NS (120 * MS_NS_PER_S)
#define MS_LOCAL_RAY_END_NS   (20 * MS_NS_PER_S)

struct ms_local_ray;

/* `told` comes with rc 0 and its address ("http://127.0.0.1:40123") when it answers; and
 * with rc < 0 when it cannot be started or has ended, which is the last. Never from inside.
 * It may be destroyed there. NULL: with the reason. */
struct ms_local_ray *ms_local_ray_start(
    struct ms_loop *loop,
    const struct ms_ray_site *site,
    void (*told)(void *arg, int rc, const char *base, const struct ms_error *why),
    void *arg,
    struct ms_error *err);
/* Ends it, and waits for that. NULL is nothing. */
void ms_local_ray_destroy(struct ms_local_ray *r);

#endif
