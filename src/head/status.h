/* status.h - what there is: the Status message, and waiting until it is another one
 *
 * Every change of nodes or workers is counted. Who asks for the status may name the count
 * that it has seen, and is answered when that is no longer the last one. Read by drivers,
 * tools (control.h) and HTTP (rest/). The head's thread.
 */
#ifndef MS_HEAD_STATUS_H
#define MS_HEAD_STATUS_H

#include "base/list.h"
#include "proto/muster.pb-c.h"

#include <stdbool.h>
#include <stdint.h>

struct ms_driver;
struct ms_head;
struct ms_head_op;
struct ms_node;

struct ms_head_status {
    uint64_t change;         /* counted */
    struct ms_list watching; /* operations that wait for another one */
};

/* The caller's; NULL: out of memory. */
Muster__Status *ms_head_status_message(struct ms_head *h);
Muster__NodeStatus *ms_node_status(const struct ms_node *n);
Muster__DriverStatus *ms_driver_status(const struct ms_driver *d);
/* Of all nodes, behind what is in the list of a message. False: out of memory. */
bool ms_nodes_add_status(const struct ms_head *h,
                         Muster__NodeStatus ***list,
                         size_t *count);

/* Nodes or workers have come or gone: who waits for that is answered. */
void ms_head_changed(struct ms_head *h);

#endif
