/* layout.c - a layout: checks, ranks without devices, holding and giving back */
#include "resource/layout.h"
#include "base/cleanup.h"
#include "resource/amount.h"
#include "resource/layout_impl.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

int ms_layout_init(struct ms_layout *l, uint32_t ranks, size_t pieces, size_t devices)
{
    *l = (struct ms_layout){.world_size = ranks};
    l->first = calloc(ranks + (size_t)1, sizeof *l->first);
    l->pieces = calloc(pieces + 1, sizeof *l->pieces);
    l->devices = calloc(devices + 1, sizeof *l->devices);
    return l->first && l->pieces && l->devices ? 0 : -ENOMEM;
}

void ms_layout_finish(struct ms_layout *l)
{
    free(l->first);
    free(l->pieces);
    free(l->devices);
    *l = (struct ms_layout){0};
}

void ms_attempt_finish(struct ms_attempt *a)
{
    ms_layout_finish(&a->layout);
    free(a->needs);
    free(a->ids);
    a->needs = NULL;
    a->ids = NULL;
}

/* ---- is the request one? --------------------------------------------------------- */

static int check_devices(struct ms_attempt *a)
{
    const struct ms_layout_request *r = a->request;
    uint32_t per = r->devices_per_worker;

    if (per == 0)
        return ms_error_set(a->err,
                            -EINVAL,
                            "%zu devices are given, but 0 for each worker",
                            r->device_count);
    if (r->device_count % per)
        return ms_error_set(a->err,
                            -EINVAL,
                            "%zu devices cannot be divided into workers of %u devices",
                            r->device_count,
                            per);
    if (r->world_size && r->device_count / per != r->world_size)
        return ms_error_set(a->err,
                            -EINVAL,
                            "%zu devices make %zu workers of %s, but world_size is %u",
                            r->device_count,
                            r->device_count / per,
                            ms_amount_count(per, "device").text,
                            r->world_size);
    return 0;
}

static int check_request(struct ms_attempt *a)
{
    const struct ms_layout_request *r = a->request;

    if (r->scope->count == 0)
        return ms_error_set(a->err, -EINVAL, "there are no nodes");
    if (r->world_size > MS_LAYOUT_WORKERS_MAX ||
        r->device_count > MS_LAYOUT_WORKERS_MAX)
        return ms_error_set(
            a->err, -EINVAL, "more than %u workers or devices", MS_LAYOUT_WORKERS_MAX);
    if (r->device_count)
        return check_devices(a);
    if (r->world_size == 0)
        return ms_error_set(
            a->err, -EINVAL, "say how many workers: world_size or device_mapping");
    if (r->devices_per_worker == 0 && r->device_memory)
        return ms_error_set(a->err, -EINVAL, "gpu_memory is asked for, but no device");
    return 0;
}

/* ---- room ------------------------------------------------------------------------ */

static int prepare(struct ms_attempt *a)
{
    const struct ms_layout_request *r = a->request;
    uint32_t ranks = r->device_count
                         ? (uint32_t)(r->device_count / r->devices_per_worker)
                         : r->world_size;
    size_t pieces = r->device_count ? r->device_count : ranks;
    int rc = ms_layout_init(&a->layout, ranks, pieces, r->device_count);

    a->layout.cpu_milli = r->cpu_milli;
    a->layout.memory = r->memory;
    a->layout.device_memory = r->device_memory;
    if (!a->needs)
        a->needs = calloc(r->scope->count, sizeof *a->needs);
    return rc == 0 && a->needs ? 0 : ms_error_set(a->err, -ENOMEM, "out of memory");
}

/* How often `each` fits into what is left. */
static uint32_t fits(uint64_t total, uint64_t held, uint64_t each)
{
    uint64_t n = each ? ms_stock_left(total, held) / each : UINT32_MAX;

    return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

uint32_t ms_attempt_room(const struct ms_attempt *a, size_t i)
{
    const struct ms_stock_node *n = ms_attempt_node(a, i);
    uint32_t cpus = fits(n->cpu_milli, n->cpu_milli_held, a->request->cpu_milli);
    uint32_t memory = fits(n->memory, n->memory_held, a->request->memory);

    return n->is_gone ? 0 : cpus < memory ? cpus : memory;
}

/* Which resource is short on a node, for the sentence. */
static int fail_node(struct ms_attempt *a, size_t node)
{
    const struct ms_stock_node *n = ms_attempt_node(a, node);
    uint32_t workers = a->needs[node].workers;
    uint64_t want = ms_times(workers, a->request->cpu_milli);
    uint64_t have = ms_stock_left(n->cpu_milli, n->cpu_milli_held);
    bool cpus = want > have;

    a->misfit = node;
    if (n->is_gone)
        return ms_error_set(a->err, -ENOSPC, "node '%s' is gone", n->name);
    if (!cpus) {
        want = ms_times(workers, a->request->memory);
        have = ms_stock_left(n->memory, n->memory_held);
    }
    return ms_error_set(a->err,
                        -ENOSPC,
                        "%s on node '%s' would need %s%s, and %s is what is free",
                        ms_amount_count(workers, "worker").text,
                        n->name,
                        cpus ? ms_amount_cpus(want).text : ms_amount_bytes(want).text,
                        cpus ? " CPUs" : " of memory",
                        cpus ? ms_amount_cpus(have).text : ms_amount_bytes(have).text);
}

/* ---- workers without devices ----------------------------------------------------- */

static int fail_spread(struct ms_attempt *a)
{
    uint64_t room = 0;

    for (size_t i = 0; i < a->request->scope->count; i++) {
        room += a->needs[i].room;
        if (a->misfit == SIZE_MAX && a->needs[i].room == 0)
            a->misfit = i;
    }
    return ms_error_set(a->err,
                        -ENOSPC,
                        "%u workers are asked for, but the CPUs and memory that are "
                        "free are enough for %llu",
                        a->layout.world_size,
                        (unsigned long long)room);
}

static int spread(struct ms_attempt *a)
{
    const struct ms_scope *scope = a->request->scope;
    struct ms_layout *l = &a->layout;
    size_t node = 0;

    for (uint32_t rank = 0; rank < l->world_size; rank++) {
        size_t looked = 0;

        while (looked < scope->count && a->needs[node].workers >= a->needs[node].room) {
            node = (node + 1) % scope->count;
            looked++;
        }
        if (looked == scope->count)
            return fail_spread(a);
        l->first[rank] = rank;
        l->pieces[rank].node = scope->nodes[node];
        a->needs[node].workers++;
        node = (node + 1) % scope->count;
    }
    l->first[l->world_size] = l->world_size;
    return 0;
}

/* ---- holding --------------------------------------------------------------------- */

/* `sign` is 1 to hold it, and -1 to give it back. */
static void hold_devices(struct ms_stock_node *n,
                         const struct ms_layout *l,
                         const struct ms_piece *p,
                         int sign)
{
    for (uint32_t i = 0; i < p->count; i++) {
        struct ms_device *d = &n->devices[l->devices[p->first + i]];

        assert(sign > 0 || (d->mapped && d->memory_held >= l->device_memory));
        n->whole -= ms_device_is_free(d);
        d->mapped += (uint32_t)sign;
        d->memory_held += (uint64_t)sign * l->device_memory;
        n->whole += ms_device_is_free(d);
    }
}

static void hold(struct ms_stock *s, const struct ms_layout *l, int sign)
{
    assert(!l->in_bundles);
    for (uint32_t i = 0; i < l->first[l->world_size]; i++) {
        struct ms_stock_node *n = &s->nodes[l->pieces[i].node];

        assert(sign > 0 ||
               (n->cpu_milli_held >= l->cpu_milli && n->memory_held >= l->memory));
        n->cpu_milli_held += (uint64_t)sign * l->cpu_milli;
        n->memory_held += (uint64_t)sign * l->memory;
        hold_devices(n, l, &l->pieces[i], sign);
    }
}

void ms_layout_hold(struct ms_stock *s, const struct ms_layout *l)
{
    hold(s, l, 1);
}

void ms_layout_release(struct ms_stock *s, struct ms_layout *l)
{
    hold(s, l, -1);
    ms_layout_finish(l);
}

/* -----------------------------------------------------------------------------------*/

static int run(struct ms_attempt *a)
{
    int rc = check_request(a);

    a->misfit = SIZE_MAX;
    if (rc == 0 && a->request->device_count == 0 && a->request->devices_per_worker)
        rc = ms_attempt_choose(a);
    if (rc == 0)
        rc = prepare(a);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < a->request->scope->count; i++)
        a->needs[i].room = ms_attempt_room(a, i);
    if (a->request->device_count == 0)
        return spread(a);
    rc = ms_attempt_map(a);
    for (size_t i = 0; rc == 0 && i < a->request->scope->count; i++)
        if (a->needs[i].workers > a->needs[i].room)
            rc = fail_node(a, i);
    return rc;
}

int ms_attempt_run(struct ms_attempt *a)
{
    int rc = run(a);

    if (rc < 0)
        ms_error_wrap(a->err, "cluster '%s'", a->request->cluster);
    return rc;
}

int ms_layout_make(struct ms_stock *s,
                   const struct ms_layout_request *request,
                   struct ms_layout *out,
                   const struct ms_holders *holders,
                   struct ms_buf *table,
                   struct ms_error *err)
{
    MS_CLEANUP(ms_attempt_finish)
    struct ms_attempt a = {.stock = s, .request = request, .err = err};
    int rc = ms_attempt_run(&a);

    if (rc == 0) {
        ms_layout_hold(s, &a.layout);
        *out = a.layout;
        a.layout = (struct ms_layout){0};
        return 0;
    }
    if (rc != -ENOMEM && table && ms_attempt_explain(&a, request, holders, table) < 0)
        rc =
            ms_error_set(err, -ENOMEM, "cluster '%s': out of memory", request->cluster);
    return rc;
}
