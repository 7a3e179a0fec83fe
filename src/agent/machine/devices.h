/* devices.h - the devices of this machine, of any vendor
 *
 * Found by reading files of the kernel and of the drivers, without any vendor's library:
 *
 *   nvidia     /proc/driver/nvidia/gpus/, else /dev/nvidia0 ...
 *   amd        /sys/class/kfd/kfd/topology/nodes/
 *   huawei     /dev/davinci0 ...
 *   habana     /sys/class/accel/accel0/device/ ..., and so Google's
 *   intel      /sys/class/drm/card0/device/ ... of graphics cards without a display
 *   cambricon  /dev/cambricon_dev0 ...
 *
 * Where the visible-devices variable of a vendor is set in our own environment, only the
 * devices that it names are ours.
 */
#ifndef MS_AGENT_MACHINE_DEVICES_H
#define MS_AGENT_MACHINE_DEVICES_H

#include "agent/machine/topology.h"
#include "base/error.h"
#include "proto/muster.pb-c.h"

enum { MS_DEVICE_TEXT_MAX = 96 };

/* One that was found, before it is put in order. */
struct ms_found_device {
    const char *kind, *vendor; /* static */
    char id[MS_DEVICE_TEXT_MAX];
    char uuid[MS_DEVICE_TEXT_MAX]; /* another name of it; empty: none */
    char pci[MS_DEVICE_TEXT_MAX];
    char model[MS_DEVICE_TEXT_MAX];
    uint64_t memory;
    uint32_t links; /* those with the same number, and not 0, have links of their own */
    uint32_t number; /* in the order in which it was found */
    struct ms_topology_place place;
};

struct ms_found {
    struct ms_found_device *at;
    size_t count;
};

/* Look below this folder ("": the machine itself); 0 or -ENOMEM. */
int ms_devices_look(const char *root, struct ms_found *out);
void ms_found_finish(struct ms_found *f);

/* Add the devices of this machine to a node, in the order of the topology. */
int ms_devices_find(Muster__NodeShape *s, struct ms_error *err);

/* A variable of this process's environment; NULL: it is not set. */
const char *ms_devices_own_variable(const char *name);

/* The pure part of it. `topology` may be NULL; `visible` says what a variable has (NULL:
 * it is not set). */
int ms_devices_add(Muster__NodeShape *s,
                   struct ms_found *found,
                   struct hwloc_topology *topology,
                   const char *(*visible)(const char *variable),
                   struct ms_error *err);

/* Devices that were only described get the names that the variable has, if it has as many:
 * a part of the machine was given to us. 0 or -ENOMEM. */
int ms_devices_rename(Muster__NodeShape *s,
                      const char *(*visible)(const char *variable));

#endif
