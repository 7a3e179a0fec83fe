/* child.h - a Python script of ours as a child process, by lines
 *
 * It has one socket for stdin and stdout, and prints where we do. The bridge
 * (ray_bridge.py) runs with the Python that Ray runs with.
 */
#ifndef MS_ORCHESTRATOR_RAY_BRIDGE_CHILD_H
#define MS_ORCHESTRATOR_RAY_BRIDGE_CHILD_H

#include "orchestrator/ray/bridge/transport.h"

#define MS_RAY_LINE_MAX ((size_t)8 << 20) /* one that is longer ends it */

struct ms_script_spec {
    struct ms_loop *loop;
    const char *what;        /* as sentences call it; outlives it */
    const char *python;      /* NULL: ms_ray_find_python */
    const char *const *argv; /* Python's own options, the script, and its words */
    bool new_session;        /* without our terminal and its signals */
};

/* The code of on_down is 0 if it ended as it should, with exit code 0. */
struct ms_bridge_transport *
ms_script_start(const struct ms_script_spec *spec,
                const struct ms_bridge_transport_events *events,
                void *arg,
                struct ms_error *err);
/* Nothing more is sent; it is to end by itself. */
void ms_script_end(struct ms_bridge_transport *c);

struct ms_bridge_child_spec {
    struct ms_loop *loop;
    struct ms_ray_site site;
    const char *python; /* NULL: ms_ray_find_python */
    const char *script; /* NULL: ray_bridge.py, as ms_ray_find_script finds it */
    const char *name;
    int64_t grace_ns;
};

/* The bridge. */
struct ms_bridge_transport *
ms_bridge_child_start(const struct ms_bridge_child_spec *spec,
                      const struct ms_bridge_transport_events *events,
                      void *arg,
                      struct ms_error *err);

#endif
