/* plan.h - where every rank of a cluster goes, or why it cannot
 *
 * A pure function from nodes and a request to a plan: no clock, no I/O, and the same
 * input always gives the same plan. Nothing here remembers anything: whoever owns the
 * nodes writes down what a plan took (cpu_milli_held, memory_held, held_by) and passes
 * it in the next time.
 *
 * The rules:
 *  - Nodes with devices are equal: a device has the global id
 *    node index * devices per node + its index on the node.
 *  - With a list of devices, rank r gets the r-th run of `devices_per_worker` of them,
 * in the order given. A worker's devices are all on one node. A device may be held by
 *    other clusters (colocation); within one request it appears once.
 *  - Without a list, workers have no devices, whatever devices_per_worker says (its
 *    default is 1, and ROLL's users leave it there). Rank r goes to node r modulo the
 *    number of nodes; a node whose CPUs or memory are used up is passed over.
 *  - CPUs and memory count per node: what all ranks there ask for must be free there.
 *    Zero asks for nothing. They are never shared between clusters.
 * So for every request that these rules allow a plan is found.
 */
#ifndef MS_RESOURCE_PLAN_H
#define MS_RESOURCE_PLAN_H

#include "base/buf.h"
#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

#define MS_PLAN_NODES_MAX   ((size_t)1 << 16)
#define MS_PLAN_WORKERS_MAX ((uint32_t)1 << 20)
#define MS_PLAN_DEVICES_MAX ((uint32_t)1 << 12) /* on one node */

struct ms_plan_node {
    const char *name;
    uint32_t devices;                   /* they have the indexes 0 .. devices - 1 */
    uint64_t cpu_milli, cpu_milli_held; /* thousandths of a CPU */
    uint64_t memory, memory_held;       /* bytes */
    /* Who holds each device, for display: `devices` strings ("actor_train/0"), each of
     * which may be NULL; or NULL when nobody holds any. */
    const char *const *held_by;
};

struct ms_plan_request {
    const char *cluster;
    uint32_t world_size;     /* 0: as many as the devices make */
    const uint32_t *devices; /* global ids */
    size_t device_count;     /* 0: workers without devices */
    uint32_t devices_per_worker;
    uint64_t cpu_milli; /* each worker */
    uint64_t memory;    /* each worker, bytes */
};

struct ms_plan {
    uint32_t world_size;
    uint32_t devices_per_worker; /* 0: no devices */
    uint32_t *nodes;             /* [world_size] index of the rank's node */
    uint32_t *devices; /* [world_size * devices_per_worker] indexes on that node */
};

/* Make a plan; ms_plan_finish frees what is in it. On failure `out` is untouched, `err`
 * has one sentence, and a table is appended to `table` (may be NULL): what was asked,
 * what each node has, and a '>' before the lines that are the reason. -EINVAL  the
 * request contradicts itself, or is beyond a limit above -ENOSPC  the nodes do not have
 * it -ENOMEM */
int ms_plan_make(const struct ms_plan_node *nodes,
                 size_t node_count,
                 const struct ms_plan_request *request,
                 struct ms_plan *out,
                 struct ms_buf *table,
                 struct ms_error *err);
void ms_plan_finish(struct ms_plan *p);

/* Append the map of ranks as a table: rank, node, devices there, global ids, and who
 * else holds those devices. 0 or -ENOMEM. */
int ms_plan_print(const struct ms_plan *p,
                  const struct ms_plan_node *nodes,
                  struct ms_buf *out);

#endif
