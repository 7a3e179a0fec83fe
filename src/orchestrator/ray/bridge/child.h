/* child.h - a bridge (ray_bridge.py) as a child process of ours, by lines
 *
 * It runs with the Python that Ray runs with, has one socket for stdin and stdout, and
 * prints where we do.
 */
#ifndef MS_ORCHESTRATOR_RAY_BRIDGE_CHILD_H
#define MS_ORCHESTRATOR_RAY_BRIDGE_CHILD_H

#include "orchestrator/ray/bridge/transport.h"

#define MS_RAY_LINE_MAX ((size_t)8 << 20) /* one that is longer ends it */

struct ms_bridge_child_spec {
    struct ms_loop *loop;
    const char *python; /* NULL: ms_ray_find_python */
    const char *script; /* NULL: beside this program, or in python_dir */
    const char *python_dir;
    const char *name;
    int64_t grace_ns;
};

/* The code of on_down is 0 if it ended as it should, with exit code 0. */
struct ms_bridge_transport *
ms_bridge_child_start(const struct ms_bridge_child_spec *spec,
                      const struct ms_bridge_transport_events *events,
                      void *arg,
                      struct ms_error *err);
/* Nothing more is sent; it is to end by itself. */
void ms_bridge_child_end(struct ms_bridge_transport *c);

#endif
