/* topology.c - where devices are in the machine, as hwloc sees it */
#include "agent/machine/topology.h"
#include "base/cleanup.h"

#include <hwloc.h>
#include <string.h>

/* PCI devices, the way to them, and what they are near to. */
static int prepare(hwloc_topology_t t)
{
    static const hwloc_obj_type_t kept[] = {
        HWLOC_OBJ_PCI_DEVICE, HWLOC_OBJ_BRIDGE, HWLOC_OBJ_PACKAGE};

    if (hwloc_topology_set_all_types_filter(t, HWLOC_TYPE_FILTER_KEEP_NONE) < 0 ||
        hwloc_topology_set_type_filter(
            t, HWLOC_OBJ_GROUP, HWLOC_TYPE_FILTER_KEEP_STRUCTURE) < 0)
        return -1;
    for (size_t i = 0; i < MS_COUNT(kept); i++)
        if (hwloc_topology_set_type_filter(t, kept[i], HWLOC_TYPE_FILTER_KEEP_ALL) < 0)
            return -1;
    /* it would visit every core to ask it what it is */
    hwloc_topology_set_components(t, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, "x86");
    return 0;
}

struct hwloc_topology *ms_topology_open(const char *xml)
{
    hwloc_topology_t t;

    if (hwloc_topology_init(&t) < 0)
        return NULL;
    if (prepare(t) == 0 &&
        (!xml || hwloc_topology_set_xmlbuffer(t, xml, (int)strlen(xml) + 1) == 0) &&
        hwloc_topology_load(t) == 0)
        return t;
    ms_topology_close(t);
    return NULL;
}

void ms_topology_close(struct hwloc_topology *t)
{
    if (t)
        hwloc_topology_destroy(t);
}

static hwloc_obj_t top_bridge(hwloc_obj_t device)
{
    hwloc_obj_t root = device;

    for (hwloc_obj_t o = device; o; o = o->parent)
        if (o->type == HWLOC_OBJ_BRIDGE)
            root = o;
    return root;
}

bool ms_topology_find(struct hwloc_topology *t,
                      const char *pci,
                      struct ms_topology_place *out)
{
    hwloc_obj_t device = hwloc_get_pcidev_by_busidstring(t, pci), beside;

    if (!device)
        return false;
    *out = (struct ms_topology_place){.order = device->logical_index,
                                      .root = top_bridge(device)->logical_index,
                                      .numa = -1};
    beside = hwloc_get_non_io_ancestor_obj(t, device);
    /* one NUMA node: it is near that one; several: near none of them */
    if (beside && beside->nodeset && hwloc_bitmap_weight(beside->nodeset) == 1)
        out->numa = hwloc_bitmap_first(beside->nodeset);
    return true;
}
