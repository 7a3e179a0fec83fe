/* libraries.h - the shared libraries that a program needs and another machine may not have
 *
 * The program's own loader is asked (LD_TRACE_LOADED_OBJECTS), so that the answer is the
 * files that it really runs with. Those of the C library are left out: they belong to the
 * machine, together.
 */
#ifndef MS_ORCHESTRATOR_RAY_PACKAGE_LIBRARIES_H
#define MS_ORCHESTRATOR_RAY_PACKAGE_LIBRARIES_H

#include "base/error.h"

#include <stddef.h>

#define MS_LIBRARIES_MAX ((size_t)128)

struct ms_library {
    char *name; /* as it is asked for: "libssl.so.3" */
    char *path; /* where it is */
};

struct ms_libraries {
    struct ms_library at[MS_LIBRARIES_MAX];
    size_t count;
};

/* What one line of the loader's list says: 1 and a need was added, 0: nothing that is
 * needed; -ENOENT: a library that is not found; -ENOMEM, -E2BIG. Pure. */
int ms_libraries_parse(struct ms_libraries *n, const char *line, struct ms_error *err);

/* Those of a program. Blocks. */
int ms_libraries_add(struct ms_libraries *n, const char *program, struct ms_error *err);
void ms_libraries_finish(struct ms_libraries *n);

#endif
