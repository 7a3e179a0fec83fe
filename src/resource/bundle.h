/* bundle.h - what one process or instance needs on one node, and taking it there
 *
 * Devices are taken whole, or as a share of one. A whole device is one of which nobody
 * holds anything; a share needs that much of the device, and of its memory, to be free,
 * and the device to be in no cluster's mapping.
 * Which devices: those of one domain where that is possible, the domain with the fewest
 * that suffice, in order; a share goes to the fullest device that has room. So the same
 * stock and the same bundle always give the same devices.
 */
#ifndef MS_RESOURCE_BUNDLE_H
#define MS_RESOURCE_BUNDLE_H

#include "resource/stock.h"

struct ms_extra_need {
    const char *name;
    uint64_t amount;
};

struct ms_bundle {
    uint64_t cpu_milli, memory;
    uint32_t devices;     /* whole ones; or... */
    uint32_t share_milli; /* ...this much of one (below MS_WHOLE_MILLI; devices is 0) */
    uint64_t device_memory; /* on each */
    uint8_t kind;           /* of device; 0: any */
    bool one_domain;        /* all its devices in one domain */
    const struct ms_extra_need *extras;
    size_t extra_count;
    const struct ms_selector *selector; /* NULL: any node */
};

/* How many devices it takes: `devices`, or 1 for a share. */
uint32_t ms_bundle_width(const struct ms_bundle *b);

bool ms_bundle_is_equal(const struct ms_bundle *a, const struct ms_bundle *b);

/* 0, or -EINVAL with the reason. */
int ms_bundle_check(const struct ms_bundle *b, struct ms_error *err);

/* How many such bundles fit on the node now; at most `most`. */
uint32_t
ms_bundle_room(const struct ms_bundle *b, const struct ms_stock_node *n, uint32_t most);

/* Take one; `devices` has room for its width and gets their indexes. False, and nothing
 * taken: it does not fit. */
bool ms_bundle_take(const struct ms_bundle *b,
                    struct ms_stock_node *n,
                    uint32_t *devices);

/* The same with a share of this device. */
bool ms_bundle_take_at(const struct ms_bundle *b,
                       struct ms_stock_node *n,
                       uint32_t device);

/* Take it on these devices, whether it is free or not: for what is so already. */
void ms_bundle_hold(const struct ms_bundle *b,
                    struct ms_stock_node *n,
                    const uint32_t *devices);

/* Give back exactly what was taken. */
void ms_bundle_give(const struct ms_bundle *b,
                    struct ms_stock_node *n,
                    const uint32_t *devices);

#endif
