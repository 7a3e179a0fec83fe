/* zip.h - a zip archive, written in memory
 *
 * The same entries in the same order give the same bytes: no times, no owners. Entries
 * are deflated where that makes them smaller. Good for up to 4 GiB in all (no zip64).
 */
#ifndef MS_ORCHESTRATOR_RAY_PACKAGE_ZIP_H
#define MS_ORCHESTRATOR_RAY_PACKAGE_ZIP_H

#include "base/buf.h"

#include <stdint.h>

#define MS_ZIP_MAX         ((size_t)1 << 31)
#define MS_ZIP_ENTRIES_MAX 65535u

struct ms_zip {
    struct ms_buf out;     /* the archive so far */
    struct ms_buf central; /* its directory, which goes behind */
    uint32_t count;
};

void ms_zip_init(struct ms_zip *z);
void ms_zip_finish(struct ms_zip *z);

/* A file; `mode` is its permissions (0755). 0, -EINVAL (the name), -EFBIG, -ENOMEM. */
int ms_zip_add(
    struct ms_zip *z, const char *name, uint32_t mode, const void *data, size_t len);

/* The whole: z->out is it. Nothing is added behind. */
int ms_zip_end(struct ms_zip *z);

#endif
