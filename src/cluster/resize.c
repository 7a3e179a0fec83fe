/* resize.c - a cluster that changes: slots that move, slots that come and go */
#include "base/cleanup.h"
#include "cluster/registry.h"
#include "cluster/registry_impl.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

int ms_slot_move(struct ms_slot *slot,
                 const char *node,
                 const uint32_t *devices,
                 size_t count)
{
    uint32_t *copy = calloc(count + 1, sizeof *copy);

    if (!copy)
        return -ENOMEM;
    if (count)
        memcpy(copy, devices, count * sizeof *copy);
    free(slot->devices);
    slot->devices = copy;
    slot->device_count = count;
    snprintf(slot->node, sizeof slot->node, "%s", node);
    return 0;
}

/* The maps lead to the slots, which are elsewhere now. Both have room: the keys stay. */
static void point_to(struct ms_registry *r, struct ms_slot *s)
{
    if (s->now.uid) {
        ms_map_remove(&r->by_uid, s->now.uid);
        (void)ms_map_add(&r->by_uid, s->now.uid, s);
    }
    for (unsigned i = 0; i < MS_FORMER_MAX; i++)
        if (s->former[i]) {
            ms_map_remove(&r->by_former, s->former[i]);
            (void)ms_map_add(&r->by_former, s->former[i], s);
        }
}

static int shrink(struct ms_registry *r, struct ms_cluster *c, size_t count)
{
    for (size_t i = count; i < c->count; i++)
        if (ms_slot_is_live(&c->slots[i]))
            return -EBUSY;
    for (size_t i = count; i < c->count; i++) {
        c->unknown -= c->slots[i].now.uid == 0;
        c->unconfirmed -= c->slots[i].now.uid && !c->slots[i].now.address;
        ms_slot_finish(r, &c->slots[i]);
    }
    c->count = count;
    return 0;
}

/* The slots from c->count on, in memory of their own; -EEXIST, -ENOMEM: none is there. */
static int fill(struct ms_registry *r,
                struct ms_cluster *c,
                struct ms_slot *all,
                const struct ms_slot_spec *slots,
                size_t count,
                int64_t now_ns)
{
    for (size_t i = c->count; i < count; i++) {
        int rc = ms_slot_init(&all[i], &slots[i - c->count], now_ns);

        all[i].cluster = c;
        all[i].rank = (uint32_t)i;
        if (rc == 0)
            rc = ms_map_add(&r->by_uid, all[i].now.uid, &all[i]);
        if (rc == 0)
            continue;
        all[i].now.uid = 0; /* is somebody else's, or in no map */
        for (size_t k = c->count; k <= i; k++)
            ms_slot_finish(r, &all[k]);
        return rc;
    }
    return 0;
}

static int grow(struct ms_registry *r,
                struct ms_cluster *c,
                const struct ms_slot_spec *slots,
                size_t count,
                int64_t now_ns)
{
    struct ms_slot *all;
    size_t more = count - c->count;
    int rc;

    if (count > MS_CLUSTER_WORKERS_MAX || r->live > MS_CLUSTER_WORKERS_MAX - more)
        return -ENOSPC;
    all = calloc(count, sizeof *all);
    if (!all)
        return -ENOMEM;
    rc = fill(r, c, all, slots, count, now_ns);
    if (rc < 0) {
        free(all);
        return rc;
    }
    if (c->count)
        memcpy(all, c->slots, c->count * sizeof *all);
    free(c->slots);
    c->slots = all;
    for (size_t i = 0; i < c->count; i++)
        point_to(r, &all[i]);
    c->count = count;
    c->live += more;
    c->unconfirmed += more;
    r->live += more;
    return 0;
}

int ms_cluster_resize(struct ms_registry *r,
                      struct ms_cluster *c,
                      const struct ms_slot_spec *slots,
                      size_t count,
                      int64_t now_ns)
{
    assert(count > 0);
    if (count <= c->count)
        return shrink(r, c, count);
    return grow(r, c, slots, count, now_ns);
}
