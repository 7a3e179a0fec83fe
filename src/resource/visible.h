/* visible.h - how a process is told which devices of its node it may see
 *
 * Each vendor has a variable of the environment for that (ms_device_variable); a node with
 * devices of several vendors has several. All of them are set for every worker, so that it
 * sees no device that it was not given. Pure.
 */
#ifndef MS_RESOURCE_VISIBLE_H
#define MS_RESOURCE_VISIBLE_H

#include "base/buf.h"
#include "proto/muster.pb-c.h"

enum { MS_DEVICE_VARIABLES_MAX = 16 }; /* of one node */

/* The variables of a node's devices, each once, in the order of the devices; that of
 * NVIDIA's for a node without any (or NULL). Borrowed from `s`. Their number. */
size_t ms_shape_variables(const Muster__NodeShape *s,
                          const char *out[MS_DEVICE_VARIABLES_MAX]);

/* What the variable says to whom these devices of the node were given: their names, with
 * commas. Appended to `out`; 0 or -ENOMEM. */
int ms_shape_visible(const Muster__NodeShape *s,
                     const char *variable,
                     const uint32_t *devices,
                     size_t count,
                     struct ms_buf *out);

#endif
