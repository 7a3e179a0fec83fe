/* stock.h - what there is, and what of it is held
 *
 * A stock has nodes; a node has CPUs, memory, devices, extra resources by name, and
 * labels. Nodes keep their index for as long as the stock lives: one that is gone is
 * marked, and may come back. Devices keep the order in which they were given, which is
 * that of the topology. The stock owns everything in it. Pure: no clock, no I/O.
 */
#ifndef MS_RESOURCE_STOCK_H
#define MS_RESOURCE_STOCK_H

#include "base/error.h"
#include "resource/label.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MS_STOCK_NODES_MAX   ((size_t)1 << 20)
#define MS_STOCK_DEVICES_MAX ((uint32_t)1 << 12) /* on one node */
#define MS_STOCK_KINDS_MAX   ((uint32_t)255)     /* of devices */

enum { MS_WHOLE_MILLI = 1000 }; /* a whole device, in thousandths */

struct ms_device {
    uint8_t kind; /* see ms_stock_kind */
    /* Devices with the same number are joined closely (NVLink, PCIe) */
    uint32_t domain;
    uint64_t memory; /* bytes; 0: not known */
    uint64_t memory_held;
    uint32_t held_milli; /* by bundles */
    uint32_t mapped;     /* clusters that name it in their mapping: colocation */
};

/* A resource that only has a name: licences, network cards, anything countable. */
struct ms_extra {
    char *name;
    uint64_t total, held;
};

struct ms_stock_node {
    char *name;
    bool is_gone;
    uint64_t cpu_milli, cpu_milli_held;
    uint64_t memory, memory_held;
    struct ms_device *devices;
    uint32_t device_count;
    uint32_t whole; /* devices that ms_device_is_free */
    struct ms_extra *extras;
    size_t extra_count;
    char **labels; /* "name=value" */
    size_t label_count;
};

/* All zero: an empty one. */
struct ms_stock {
    struct ms_stock_node *nodes;
    size_t count, capacity;
    char **kinds;
    uint32_t kind_count;
};

void ms_stock_finish(struct ms_stock *s);

/* The number of a kind of device ("gpu", "npu"), from 1; made if it is new. A negative
 * errno otherwise. */
int ms_stock_kind(struct ms_stock *s, const char *name, struct ms_error *err);
const char *ms_stock_kind_name(const struct ms_stock *s, uint8_t kind);

/* A new node without devices, extras and labels, of a name that is not taken; its index, or
 * -EINVAL (its name), -E2BIG, -ENOMEM. */
int64_t ms_stock_append(struct ms_stock *s,
                        const char *name,
                        uint64_t cpu_milli,
                        uint64_t memory,
                        struct ms_error *err);
/* Forget its devices, extras and labels; nothing of them may be held. */
void ms_stock_strip(struct ms_stock_node *n);

/* Add to a node. 0; -EINVAL, -EEXIST, -E2BIG, -ENOMEM. */
int ms_stock_add_devices(struct ms_stock *s,
                         size_t node,
                         uint8_t kind,
                         uint32_t count,
                         uint64_t memory,
                         uint32_t domain,
                         struct ms_error *err);
int ms_stock_add_extra(struct ms_stock *s,
                       size_t node,
                       const char *name,
                       uint64_t total,
                       struct ms_error *err);
int ms_stock_add_label(struct ms_stock *s,
                       size_t node,
                       const char *text,
                       struct ms_error *err);

/* The stock as if nothing were held, to try things on; names and labels are borrowed. 0 or
 * -ENOMEM. Freed with ms_stock_copy_finish. */
int ms_stock_copy_unheld(const struct ms_stock *s, struct ms_stock *out);
void ms_stock_copy_finish(struct ms_stock *s);

/* What is free; more may be held than there is. */
static inline uint64_t ms_stock_left(uint64_t total, uint64_t held)
{
    return total > held ? total - held : 0;
}

/* Nobody has any of it. */
bool ms_device_is_free(const struct ms_device *d);

/* NULL if there is none. */
struct ms_stock_node *ms_stock_find(const struct ms_stock *s, const char *name);
struct ms_extra *ms_stock_find_extra(const struct ms_stock_node *n, const char *name);

#endif
