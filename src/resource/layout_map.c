/* Ranks on the devices that were named. */
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

    if (all == 0)
        return ms_error_set(a->err,
                            -ENOSPC,
                            "cluster '%s': rank %u wants device %u, but no node has "
                            "devices",
                            a->request->cluster,
                            rank,
                            id);
    return ms_error_set(
        a->err,
        -ENOSPC,
        "cluster '%s': rank %u wants device %u, but the ids are 0 to %u "
        "(on %zu node%s)",
        a->request->cluster,
        rank,
        id,
        all - 1,
        scope->count,
        scope->count == 1 ? "" : "s");
}

static int fail_held(struct ms_attempt *a, uint32_t rank, uint32_t id, size_t node)
{
    a->misfit = node;
    return ms_error_set(a->err,
                        -ENOSPC,
                        "cluster '%s': rank %u wants device %u (on node '%s'), but a "
                        "placement group holds it",
                        a->request->cluster,
                        rank,
                        id,
                        ms_attempt_node(a, node)->name);
}

static uint64_t memory_left(const struct ms_device *d)
{
    return d->memory > d->memory_held ? d->memory - d->memory_held : 0;
}

static int fail_memory(struct ms_attempt *a,
                       uint32_t rank,
                       uint32_t id,
                       size_t node,
                       const struct ms_device *d)
{
    struct ms_buf want = {0}, have = {0};
    int rc;

    a->misfit = node;
    ms_amount_print_bytes(a->request->device_memory, &want);
    if (d->memory)
        ms_amount_print_bytes(memory_left(d), &have);
    else
        ms_buf_printf(&have, "nothing (nobody has told how much it has)");
    rc = ms_error_set(
        a->err,
        -ENOSPC,
        "cluster '%s': rank %u wants %s of the memory of device %u (on node "
        "'%s'), and %s is what is free",
        a->request->cluster,
        rank,
        ms_buf_str(&want),
        id,
        ms_attempt_node(a, node)->name,
        ms_buf_str(&have));
    ms_buf_finish(&want);
    ms_buf_finish(&have);
    return rc;
}

static int fail_twice(struct ms_attempt *a, uint32_t rank, uint32_t id)
{
    return ms_error_set(
        a->err,
        -EINVAL,
        "cluster '%s': device %u is given twice (again for rank %u); two "
        "clusters can share a device, two ranks of one cluster cannot",
        a->request->cluster,
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
        return ms_error_set(a->err, -ENOMEM, "cluster '%s': out of memory", r->cluster);
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
static int check_devices(struct ms_attempt *a, const struct place *places)
{
    const struct ms_layout_request *r = a->request;

    for (size_t i = 0; i < r->device_count; i++) {
        const struct place *p = &places[i];
        const struct ms_device *d = &ms_attempt_node(a, p->node)->devices[p->index];
        uint32_t rank = (uint32_t)(i / r->devices_per_worker);

        if (d->held_milli)
            return fail_held(a, rank, r->devices[i], p->node);
        if (r->device_memory > memory_left(d))
            return fail_memory(a, rank, r->devices[i], p->node, d);
    }
    return 0;
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
    int rc =
        places
            ? find_devices(a, places)
            : ms_error_set(
                  a->err, -ENOMEM, "cluster '%s': out of memory", a->request->cluster);

    if (rc == 0)
        rc = check_devices(a, places);
    if (rc == 0)
        place_ranks(a, places);
    return rc;
}
