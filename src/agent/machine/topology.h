/* topology.h - where the devices of this machine are: NUMA node, PCIe root, order
 *
 * Read by hwloc, which costs some milliseconds: only machines with devices pay. The order
 * is that of the machine's tree, so devices that are near each other are near in it.
 *
 * topology.c alone calls hwloc.
 */
#ifndef MS_AGENT_MACHINE_TOPOLOGY_H
#define MS_AGENT_MACHINE_TOPOLOGY_H

#include <stdbool.h>
#include <stdint.h>

struct hwloc_topology;

/* Of this machine (`xml` NULL); or, for tests and other machines, of hwloc's XML text. NULL:
 * it cannot be read. */
struct hwloc_topology *ms_topology_open(const char *xml);
void ms_topology_close(struct hwloc_topology *t); /* NULL is nothing */

struct ms_topology_place {
    uint32_t order; /* among all PCI devices */
    uint32_t root;  /* devices below the same PCIe root have the same number */
    int32_t numa;   /* -1: not known */
};

/* Of the device at "0000:3b:00.0". False: there is none. */
bool ms_topology_find(struct hwloc_topology *t,
                      const char *pci,
                      struct ms_topology_place *out);

#endif
