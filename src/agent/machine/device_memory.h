/* device_memory.h - how much memory is in use on the devices of a node, by all processes
 *
 *   nvidia  the driver's program is run: nvidia-smi --query-gpu, found in PATH
 *   amd     /sys/bus/pci/devices/<address>/mem_info_vram_used
 *
 * Of other vendors' devices, and of devices that are only described, nothing is known.
 *
 * nvidia-smi can take seconds, and does not end where a device has failed: it runs beside us,
 * one at a time. What it said counts for MS_DEVICE_MEMORY_OLD_NS; after that time one that
 * still runs is killed.
 */
#ifndef MS_AGENT_MACHINE_DEVICE_MEMORY_H
#define MS_AGENT_MACHINE_DEVICE_MEMORY_H

#include "base/buf.h"
#include "io/loop.h"
#include "io/spawn.h"
#include "proto/muster.pb-c.h"

struct ms_device_memory_entry {
    uint64_t used;
    int64_t read_ns; /* 0: never */
};

struct ms_device_memory {
    struct ms_loop *loop;
    const Muster__NodeShape *shape;    /* borrowed; NULL: nothing was asked yet */
    struct ms_device_memory_entry *of; /* its devices */
    size_t room;
    struct ms_process program; /* pidfd -1: none runs */
    int64_t begun_ns;
    int out_fd;
    struct ms_watch out;
    struct ms_buf text;
    void (*on_read)(void *arg);
    void *arg;
};

/* on_read: the answer that ms_device_memory_ask promised is there, or will not come. */
void ms_device_memory_init(struct ms_device_memory *m,
                           struct ms_loop *loop,
                           void (*on_read)(void *arg),
                           void *arg);
/* One that still runs is killed; the agent reaps it, as all of its children. */
void ms_device_memory_finish(struct ms_device_memory *m);

/* Look anew at the devices of a node, which are always the same and stay. True: on_read will
 * come; false: all that can be known is. */
bool ms_device_memory_ask(struct ms_device_memory *m, const Muster__NodeShape *shape);

/* Of all of these devices together. False: of one it is not known, or there are none. */
bool ms_device_memory_sum(const struct ms_device_memory *m,
                          const uint32_t *devices,
                          size_t count,
                          uint64_t *used);

/* The pure part: what nvidia-smi printed, "0, GPU-..., 00000000:3B:00.0, 1234" in MiB. */
void ms_device_memory_parse(struct ms_device_memory *m,
                            const char *text,
                            int64_t now_ns);

#endif
