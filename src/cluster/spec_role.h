/* spec_role.h - what is said of a role, made into the spec of its cluster
 *
 * Drivers and the heads of jobs say the same things of a role: a class, how it is started,
 * what it may have. What follows from that is decided here, once: how its processes start,
 * which modules are imported before they are forked, how the class is named to them, what its
 * engines are given, and whether the cluster can change its size.
 *
 * Pure: paths are looked up by the caller.
 */
#ifndef MS_CLUSTER_SPEC_ROLE_H
#define MS_CLUSTER_SPEC_ROLE_H

#include "base/error.h"
#include "muster/value.h"
#include "proto/muster.pb-c.h"

#include <jansson.h>

/* All borrowed; 0, NULL and false: not said. */
struct ms_spec_role {
    const char *name; /* of the cluster */
    /* "package.module.Class", "package.module:Class" or "library.so:symbol"; NULL: `command`
     * hosts no engine; "": a class of Python's that has no such path. */
    const char *worker_cls;
    bool brings_step;    /* its engine is made by a step of the caller's */
    const char *library; /* of a class in one: where it is; NULL: workers look for it */
    const char *const *command; /* starts the interpreter, or is the process */
    bool is_fresh;              /* an interpreter of its own: none is forked */
    const char *const *env;
    const char *const *preload;
    const char *const *python;
    const char *folder, *working_dir; /* which may be relative to the folder */
    uint64_t memory;                  /* bytes of each rank */
    uint32_t cpu_milli;
    uint64_t step_timeout_ns;
    bool detached;
    bool is_fixed; /* the number of its ranks does not change */
    const struct muster_value *args, *kwargs;
    /* What a file says beside that: max_concurrency, mesh, http_open, visible. */
    const json_t *told;
    const Muster__PlaceCluster *place;
    const Muster__DriverContext *context;
};

/* Freed with muster__cluster_spec__free_unpacked(s, NULL). NULL with the reason: -EINVAL (an
 * argument that cannot be sent), -E2BIG, -ENOMEM. */
Muster__ClusterSpec *ms_spec_role_build(const struct ms_spec_role *r,
                                        struct ms_error *err);

/* A text or a list of texts, as an array of borrowed ones that ends with NULL; malloc'd. NULL:
 * neither, or out of memory. */
const char **ms_spec_words(const json_t *told);
/* "NAME=value" as Python's str() has the value: True, 0.5; malloc'd. NULL: out of memory. */
char *ms_spec_variable(const char *name, const json_t *value);

#endif
