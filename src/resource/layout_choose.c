/* Devices for ranks for which none were named. */
#include "base/cleanup.h"
#include "resource/layout_impl.h"

#include <errno.h>
#include <stdlib.h>

static bool is_free(const struct ms_device *d, uint64_t memory)
{
    return ms_device_is_free(d) && d->memory >= d->memory_held + memory;
}

/* The ids of free devices of a node, for whole workers alone; how many workers. */
static uint32_t
take_node(const struct ms_attempt *a, size_t i, uint32_t workers_max, uint32_t *ids)
{
    const struct ms_layout_request *r = a->request;
    const struct ms_stock_node *n = ms_attempt_node(a, i);
    uint32_t per = r->devices_per_worker, count = 0;
    uint32_t room = ms_attempt_room(a, i);
    uint64_t most = (uint64_t)(room < workers_max ? room : workers_max) * per;

    for (uint32_t d = 0; d < ms_scope_devices_of(r->scope, i) && count < most; d++)
        if (is_free(&n->devices[d], r->device_memory))
            ids[count++] = r->scope->first[i] + d;
    return count / per;
}

static int fail_choice(struct ms_attempt *a, uint32_t found)
{
    const struct ms_layout_request *r = a->request;

    return ms_error_set(a->err,
                        -ENOSPC,
                        "cluster '%s': %u worker%s with %u device%s each %s asked for, "
                        "and what is free on the nodes is enough for %u (a worker that "
                        "is wider than a node needs a device_mapping)",
                        r->cluster,
                        r->world_size,
                        r->world_size == 1 ? "" : "s",
                        r->devices_per_worker,
                        r->devices_per_worker == 1 ? "" : "s",
                        r->world_size == 1 ? "is" : "are",
                        found);
}

int ms_attempt_choose(struct ms_attempt *a)
{
    const struct ms_layout_request *r = a->request;
    uint32_t per = r->devices_per_worker, found = 0;
    uint64_t wanted = (uint64_t)r->world_size * per;

    if (wanted > MS_LAYOUT_WORKERS_MAX)
        return ms_error_set(a->err,
                            -EINVAL,
                            "cluster '%s': more than %u devices",
                            r->cluster,
                            MS_LAYOUT_WORKERS_MAX);
    a->ids = calloc(wanted, sizeof *a->ids);
    a->needs = calloc(r->scope->count, sizeof *a->needs);
    if (!a->ids || !a->needs)
        return ms_error_set(a->err, -ENOMEM, "cluster '%s': out of memory", r->cluster);
    for (size_t i = 0; i < r->scope->count && found < r->world_size; i++) {
        uint32_t *at = a->ids + (size_t)found * per;

        a->needs[i].room = take_node(a, i, r->world_size - found, at);
        found += a->needs[i].room;
    }
    if (found < r->world_size)
        return fail_choice(a, found);
    a->chosen = *r;
    a->chosen.devices = a->ids;
    a->chosen.device_count = wanted;
    a->request = &a->chosen;
    return 0;
}
