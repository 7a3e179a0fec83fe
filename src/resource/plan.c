#include "resource/plan.h"
#include "base/cleanup.h"
#include "resource/amount.h"
#include "resource/plan_table.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

/* One attempt. */
struct attempt {
    const struct ms_plan_node *nodes;
    size_t node_count;
    const struct ms_plan_request *request;
    struct ms_plan plan;
    struct ms_plan_need *needs; /* [node_count] */
    struct ms_error *err;
};

void ms_plan_finish(struct ms_plan *p)
{
    free(p->nodes);
    free(p->devices);
    *p = (struct ms_plan){0};
}

static uint64_t times(uint64_t a, uint64_t b)
{
    uint64_t product;

    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

static uint64_t left(uint64_t total, uint64_t held)
{
    return total > held ? total - held : 0;
}

/* ---- is the request one? --------------------------------------------------------- */

static int check_devices(struct attempt *a)
{
    const struct ms_plan_request *r = a->request;
    uint32_t per = r->devices_per_worker;
    const char *who = r->cluster;

    if (per == 0)
        return ms_error_set(
            a->err,
            -EINVAL,
            "cluster '%s': %zu devices are given, but 0 for each worker",
            who,
            r->device_count);
    if (r->device_count % per)
        return ms_error_set(
            a->err,
            -EINVAL,
            "cluster '%s': %zu devices cannot be divided into workers of "
            "%u devices",
            who,
            r->device_count,
            per);
    if (r->world_size && r->device_count / per != r->world_size)
        return ms_error_set(a->err,
                            -EINVAL,
                            "cluster '%s': %zu devices make %zu workers of %u devices, "
                            "but world_size is %u",
                            who,
                            r->device_count,
                            r->device_count / per,
                            per,
                            r->world_size);
    if (a->nodes[0].devices > MS_PLAN_DEVICES_MAX)
        return ms_error_set(a->err,
                            -EINVAL,
                            "cluster '%s': %u devices on a node are more than %u",
                            who,
                            a->nodes[0].devices,
                            MS_PLAN_DEVICES_MAX);
    for (size_t i = 1; i < a->node_count; i++)
        if (a->nodes[i].devices != a->nodes[0].devices)
            return ms_error_set(a->err,
                                -EINVAL,
                                "cluster '%s': global device ids need equal nodes, but "
                                "'%s' has %u devices and '%s' has %u",
                                who,
                                a->nodes[0].name,
                                a->nodes[0].devices,
                                a->nodes[i].name,
                                a->nodes[i].devices);
    return 0;
}

static int check_request(struct attempt *a)
{
    const struct ms_plan_request *r = a->request;
    const char *who = r->cluster;
    int rc;

    if (a->node_count == 0)
        return ms_error_set(a->err, -EINVAL, "cluster '%s': there are no nodes", who);
    if (a->node_count > MS_PLAN_NODES_MAX)
        return ms_error_set(a->err,
                            -EINVAL,
                            "cluster '%s': %zu nodes are more than %zu",
                            who,
                            a->node_count,
                            MS_PLAN_NODES_MAX);
    rc = r->device_count ? check_devices(a) : 0;
    if (rc < 0)
        return rc;
    if (r->device_count == 0 && r->world_size == 0)
        return ms_error_set(
            a->err,
            -EINVAL,
            "cluster '%s': say how many workers: world_size or device_mapping",
            who);
    if (r->world_size > MS_PLAN_WORKERS_MAX || r->device_count > MS_PLAN_WORKERS_MAX)
        return ms_error_set(a->err,
                            -EINVAL,
                            "cluster '%s': more than %u workers or devices",
                            who,
                            MS_PLAN_WORKERS_MAX);
    return 0;
}

/* ---- room ------------------------------------------------------------------------ */

static int prepare(struct attempt *a)
{
    const struct ms_plan_request *r = a->request;
    struct ms_plan *p = &a->plan;

    p->devices_per_worker = r->device_count ? r->devices_per_worker : 0;
    p->world_size = r->device_count
                        ? (uint32_t)(r->device_count / r->devices_per_worker)
                        : r->world_size;
    p->nodes = calloc(p->world_size, sizeof *p->nodes);
    p->devices = calloc(r->device_count ? r->device_count : 1, sizeof *p->devices);
    a->needs = calloc(a->node_count, sizeof *a->needs);
    if (!p->nodes || !p->devices || !a->needs)
        return ms_error_set(a->err, -ENOMEM, "cluster '%s': out of memory", r->cluster);
    return 0;
}

/* How often `each` fits into what is left. */
static uint32_t fits(uint64_t total, uint64_t held, uint64_t each)
{
    uint64_t n = each ? left(total, held) / each : UINT32_MAX;

    return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

static void measure_room(struct attempt *a)
{
    for (size_t i = 0; i < a->node_count; i++) {
        const struct ms_plan_node *n = &a->nodes[i];
        uint32_t cpus = fits(n->cpu_milli, n->cpu_milli_held, a->request->cpu_milli);
        uint32_t memory = fits(n->memory, n->memory_held, a->request->memory);

        a->needs[i].room = cpus < memory ? cpus : memory;
    }
}

static void put(struct attempt *a, uint32_t rank, uint32_t node)
{
    struct ms_plan_need *need = &a->needs[node];

    a->plan.nodes[rank] = node;
    need->workers++;
    need->cpu_milli = times(need->workers, a->request->cpu_milli);
    need->memory = times(need->workers, a->request->memory);
}

/* ---- workers with devices -------------------------------------------------------- */

static int fail_device(struct attempt *a, uint32_t rank, uint32_t id)
{
    uint32_t per_node = a->nodes[0].devices;
    size_t all = a->node_count * per_node;

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
        "cluster '%s': rank %u wants device %u, but the ids are 0 to %zu "
        "(nodes: %zu, devices on each: %u)",
        a->request->cluster,
        rank,
        id,
        all - 1,
        a->node_count,
        per_node);
}

static int place_device_rank(struct attempt *a, uint32_t rank)
{
    uint32_t per = a->plan.devices_per_worker;
    uint32_t per_node = a->nodes[0].devices;
    const uint32_t *ids = a->request->devices + (size_t)rank * per;

    for (uint32_t i = 0; i < per; i++) {
        uint32_t id = ids[i];

        if (per_node == 0 || id / per_node >= a->node_count)
            return fail_device(a, rank, id);
        if (id / per_node != ids[0] / per_node)
            return ms_error_set(
                a->err,
                -ENOSPC,
                "cluster '%s': rank %u wants device %u on node '%s' and "
                "device %u on node '%s', but the devices of a worker "
                "must be on one node",
                a->request->cluster,
                rank,
                ids[0],
                a->nodes[ids[0] / per_node].name,
                id,
                a->nodes[id / per_node].name);
        a->plan.devices[(size_t)rank * per + i] = id % per_node;
    }
    put(a, rank, ids[0] / per_node);
    return 0;
}

/* Every id once. Only called when all ids exist. */
static int check_twice(struct attempt *a)
{
    const struct ms_plan_request *r = a->request;
    size_t all = a->node_count * a->nodes[0].devices;
    MS_CLEANUP(ms_cleanup_free) unsigned char *seen = calloc(all, 1);

    if (!seen)
        return ms_error_set(a->err, -ENOMEM, "cluster '%s': out of memory", r->cluster);
    for (size_t i = 0; i < r->device_count; i++) {
        if (seen[r->devices[i]])
            return ms_error_set(
                a->err,
                -EINVAL,
                "cluster '%s': device %u is given twice (again for rank "
                "%zu); two clusters can share a device, two ranks of one "
                "cluster cannot",
                r->cluster,
                r->devices[i],
                i / r->devices_per_worker);
        seen[r->devices[i]] = 1;
    }
    return 0;
}

/* Which resource is short on a node, for the sentence. */
static int fail_node(struct attempt *a, size_t node)
{
    const struct ms_plan_node *n = &a->nodes[node];
    const struct ms_plan_need *need = &a->needs[node];
    bool cpus = need->cpu_milli > left(n->cpu_milli, n->cpu_milli_held);
    struct ms_buf want = {0}, have = {0};
    int rc;

    if (cpus) {
        ms_amount_print_cpus(need->cpu_milli, &want);
        ms_amount_print_cpus(left(n->cpu_milli, n->cpu_milli_held), &have);
    } else {
        ms_amount_print_bytes(need->memory, &want);
        ms_amount_print_bytes(left(n->memory, n->memory_held), &have);
    }
    rc = ms_error_set(a->err,
                      -ENOSPC,
                      "cluster '%s': %u worker%s on node '%s' would need %s%s, "
                      "and %s is what is free",
                      a->request->cluster,
                      need->workers,
                      need->workers == 1 ? "" : "s",
                      n->name,
                      ms_buf_str(&want),
                      cpus ? " CPUs" : " of memory",
                      ms_buf_str(&have));
    ms_buf_finish(&want);
    ms_buf_finish(&have);
    return rc;
}

static int place_on_devices(struct attempt *a)
{
    int rc = 0;

    for (uint32_t rank = 0; rc == 0 && rank < a->plan.world_size; rank++)
        rc = place_device_rank(a, rank);
    if (rc == 0)
        rc = check_twice(a);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < a->node_count; i++) {
        a->needs[i].misfit = a->needs[i].workers > a->needs[i].room;
        if (a->needs[i].misfit && rc == 0)
            rc = fail_node(a, i);
    }
    return rc;
}

/* ---- workers without devices ----------------------------------------------------- */

static int fail_spread(struct attempt *a)
{
    uint64_t room = 0;

    for (size_t i = 0; i < a->node_count; i++) {
        room += a->needs[i].room;
        a->needs[i].misfit = true;
    }
    return ms_error_set(
        a->err,
        -ENOSPC,
        "cluster '%s': %u workers are asked for, but the CPUs and memory "
        "that are free are enough for %llu",
        a->request->cluster,
        a->plan.world_size,
        (unsigned long long)room);
}

static int spread(struct attempt *a)
{
    size_t node = 0;

    for (uint32_t rank = 0; rank < a->plan.world_size; rank++) {
        size_t looked = 0;

        while (looked < a->node_count &&
               a->needs[node].workers >= a->needs[node].room) {
            node = (node + 1) % a->node_count;
            looked++;
        }
        if (looked == a->node_count)
            return fail_spread(a);
        put(a, rank, (uint32_t)node);
        node = (node + 1) % a->node_count;
    }
    return 0;
}

/* ------------------------------------------------------------------------------------
 */

static int run(struct attempt *a)
{
    int rc = check_request(a);

    if (rc == 0)
        rc = prepare(a);
    if (rc < 0)
        return rc;
    assert(a->needs);
    measure_room(a);
    return a->plan.devices_per_worker ? place_on_devices(a) : spread(a);
}

int ms_plan_make(const struct ms_plan_node *nodes,
                 size_t node_count,
                 const struct ms_plan_request *request,
                 struct ms_plan *out,
                 struct ms_buf *table,
                 struct ms_error *err)
{
    struct attempt a = {
        .nodes = nodes, .node_count = node_count, .request = request, .err = err};
    int rc = run(&a);

    if (rc == 0)
        *out = a.plan;
    else
        ms_plan_finish(&a.plan);
    if (rc < 0 && rc != -ENOMEM && table &&
        ms_plan_explain(nodes, node_count, request, a.needs, table) < 0)
        rc =
            ms_error_set(err, -ENOMEM, "cluster '%s': out of memory", request->cluster);
    free(a.needs);
    return rc;
}
