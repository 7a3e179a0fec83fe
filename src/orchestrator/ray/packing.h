/* packing.h - a package, made on a thread of its own */
#ifndef MS_ORCHESTRATOR_RAY_PACKING_H
#define MS_ORCHESTRATOR_RAY_PACKING_H

#include "io/loop.h"
#include "orchestrator/ray/package.h"

struct ms_packing;

/* `made` comes once, on the loop: rc and why as ms_package_make says them, and the package,
 * which is the callee's. What is borrowed (site, files) stays until then, or until it is
 * destroyed. NULL: with the reason. */
struct ms_packing *ms_packing_start(
    struct ms_loop *loop,
    const struct ms_ray_site *site,
    const char *const *files,
    void (*made)(void *arg, int rc, struct ms_package *p, const struct ms_error *why),
    void *arg,
    struct ms_error *err);
/* Waits for the thread. Legal in `made`; NULL is nothing. */
void ms_packing_destroy(struct ms_packing *p);

#endif
