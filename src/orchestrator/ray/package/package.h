/* package.h - Muster as a zip that a machine can run which has nothing of it
 *
 *   bin/muster   the program
 *   lib/         the shared libraries that it and the extension need (libraries.h)
 *   muster/      the Python package, with its extension
 *   job/         what belongs to one job
 *
 * Its name is a hash of what is in it. It is made once: the user's cache keeps it.
 */
#ifndef MS_ORCHESTRATOR_RAY_PACKAGE_PACKAGE_H
#define MS_ORCHESTRATOR_RAY_PACKAGE_PACKAGE_H

#include "base/error.h"
#include "orchestrator/ray/site.h"

#include <stddef.h>
#include <stdint.h>

/* What Ray takes by HTTP. */
#define MS_PACKAGE_MAX ((size_t)100 << 20)

enum { MS_PACKAGE_NAME_MAX = 64, MS_PACKAGES_KEPT = 4 };

struct ms_package {
    char name[MS_PACKAGE_NAME_MAX]; /* "muster_0123456789abcdef.zip" */
    uint8_t *data;
    size_t len;
};

/* `files` are pairs "path in job/", "path here", NULL-terminated; NULL: none. Reads, and
 * the first time packs, some 20 MB: it blocks for a second. 0, -ENOENT (nothing to make it
 * of), -EFBIG, ... with the reason. Any thread. */
int ms_package_make(struct ms_package *p,
                    const struct ms_ray_site *site,
                    const char *const *files,
                    struct ms_error *err);
void ms_package_finish(struct ms_package *p);

#endif
