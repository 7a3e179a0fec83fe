/* layout_map.c - ranks on the devices that were named, or on free ones */
#include "base/cleanup.h"
#include "resource/amount.h"
#include "resource/layout_impl.h"

#include <errno.h>
#include <stdlib.h>

/* Where the ids are: nodes of the scope and indexes on them. */
struct place {
    size_t node;
    uint32_t index;
};

static int fail_unknown(struct ms_attempt *a, uint32_t rank, uint32_t id)
{
    const struct ms_scope *scope = a->request->scope;
    uint32_t all = ms_scope_devices(scope);
    char why[96] = "no node has devices";

    if (all)
        snprintf(why,
                 sizeof why,
                 "the ids are 0 to %u (on %s)",
                 all - 1,
                 ms_amount_count(scope->count, "node").text);
    return ms_error_set(
        a->err, -ENOSPC, "rank %u wants device %u, but %s", rank, id, why);
}

static int fail_twice(struct ms_attempt *a, uint32_t rank, uint32_t id)
{
    return ms_error_set(
        a->err,
        -EINVAL,
        "device %u is given twice (again for rank %u); two clusters can "
        "share a device, two ranks of one cluster cannot",
        id,
        rank);
}

/* ---- looking --------------------------------------------------------------------- */

static int find_devices(struct ms_attempt *a, struct place *places)
{
    const struct ms_layout_request *r = a->request;
    MS_CLEANUP(ms_cleanup_free)
    unsigned char *seen = calloc(ms_scope_devices(r->scope) + (size_t)1, 1);

    if (!seen)
        return ms_error_set(a->err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < r->device_count; i++) {
        uint32_t id = r->devices[i], rank = (uint32_t)(i / r->devices_per_worker);

        if (!ms_scope_find(r->scope, id, &places[i].node, &places[i].index))
            return fail_unknown(a, rank, id);
        if (seen[id])
            return fail_twice(a, rank, id);
        seen[id] = 1;
    }
    return 0;
}

/* Is the device to be had? A node that is gone is found with the CPUs. */
static int check_device(struct ms_attempt *a, const struct place *p, size_t i)
{
    const struct ms_layout_request *r = a->request;
    const struct ms_stock_node *n = ms_attempt_node(a, p->node);
    const struct ms_device *d = &n->devices[p->index];
    uint64_t have = ms_stock_left(d->memory, d->memory_held);
    uint32_t rank = (uint32_t)(i / r->devices_per_worker);

    if (!d->held_milli && r->device_memory <= have)
        return 0;
    a->misfit = p->node;
    if (d->held_milli)
        return ms_error_set(
            a->err,
            -ENOSPC,
            "rank %u wants device %u (on node '%s'), but a placement group holds it",
            rank,
            r->devices[i],
            n->name);
    return ms_error_set(a->err,
                        -ENOSPC,
                        "rank %u wants %s of the memory of device %u (on node '%s'), "
                        "and %s is what is free",
                        rank,
                        ms_amount_bytes(r->device_memory).text,
                        r->devices[i],
                        n->name,
                        d->memory ? ms_amount_bytes(have).text
                                  : "nothing (nobody has told how much it has)");
}

/* ---- placing --------------------------------------------------------------------- */

/* The rank's devices on the node of places[at], which gets a piece; they are marked. */
static uint32_t add_piece(struct ms_attempt *a,
                          struct place *places,
                          uint32_t at,
                          uint32_t end,
                          uint32_t device)
{
    struct ms_layout *l = &a->layout;
    size_t node = places[at].node;
    struct ms_piece *p =
        &l->pieces[l->first[at / a->request->devices_per_worker + 1]++];

    *p = (struct ms_piece){.node = a->request->scope->nodes[node], .first = device};
    for (uint32_t i = at; i < end; i++)
        if (places[i].node == node) {
            l->devices[device + p->count++] = places[i].index;
            places[i].node = SIZE_MAX;
        }
    a->needs[node].workers++;
    return p->count;
}

static void place_ranks(struct ms_attempt *a, struct place *places)
{
    uint32_t per = a->request->devices_per_worker, device = 0;
    struct ms_layout *l = &a->layout;

    for (uint32_t rank = 0; rank < l->world_size; rank++) {
        uint32_t end = (rank + 1) * per;

        l->first[rank + 1] = l->first[rank];
        for (uint32_t i = rank * per; i < end; i++)
            if (places[i].node != SIZE_MAX)
                device += add_piece(a, places, i, end, device);
    }
}

int ms_attempt_map(struct ms_attempt *a)
{
    MS_CLEANUP(ms_cleanup_free)
    struct place *places = calloc(a->request->device_count, sizeof *places);
    int rc = places ? find_devices(a, places)
                    : ms_error_set(a->err, -ENOMEM, "out of memory");

    for (size_t i = 0; rc == 0 && i < a->request->device_count; i++)
        rc = check_device(a, &places[i], i);
    if (rc == 0)
        place_ranks(a, places);
    return rc;
}

/* ---- free devices, where none were named ------------------------------------------- */

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
    uint32_t per = a->request->devices_per_worker, workers = a->request->world_size;

    return ms_error_set(a->err,
                        -ENOSPC,
                        "%s with %s each %s asked for, and what is free on the nodes "
                        "is enough for %u (a worker that is wider than a node needs a "
                        "device_mapping)",
                        ms_amount_count(workers, "worker").text,
                        ms_amount_count(per, "device").text,
                        workers == 1 ? "is" : "are",
                        found);
}

int ms_attempt_choose(struct ms_attempt *a)
{
    const struct ms_layout_request *r = a->request;
    uint32_t per = r->devices_per_worker, found = 0;
    uint64_t wanted = (uint64_t)r->world_size * per;

    if (wanted > MS_LAYOUT_WORKERS_MAX)
        return ms_error_set(
            a->err, -EINVAL, "more than %u devices", MS_LAYOUT_WORKERS_MAX);
    a->ids = calloc(wanted, sizeof *a->ids);
    a->needs = calloc(r->scope->count, sizeof *a->needs);
    if (!a->ids || !a->needs)
        return ms_error_set(a->err, -ENOMEM, "out of memory");
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
