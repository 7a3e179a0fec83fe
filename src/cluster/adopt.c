/* adopt.c - clusters and workers of another head's time */
#include "base/name.h"
#include "cluster/registry.h"
#include "cluster/registry_impl.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

static int check(const Muster__WorkerReport *report, struct ms_error *err)
{
    const Muster__WorkerSpec *s = report->spec;

    if (!s || !s->uid)
        return ms_error_set(err, -EINVAL, "a report names no worker");
    if (s->world_size == 0 || s->world_size > MS_CLUSTER_WORKERS_MAX ||
        s->rank >= s->world_size)
        return ms_error_set(err,
                            -EINVAL,
                            "rank %u of a cluster of %u workers is reported",
                            s->rank,
                            s->world_size);
    return ms_name_check(s->cluster, "cluster", err);
}

struct ms_cluster *
ms_registry_expect(struct ms_registry *r, const char *name, size_t count)
{
    struct ms_cluster *c;

    if (ms_name_check(name, "cluster", NULL) < 0 || count == 0 ||
        count > MS_CLUSTER_WORKERS_MAX || ms_registry_find(r, name))
        return NULL;
    c = ms_cluster_create(name, count);
    if (!c)
        return NULL;
    c->is_made = true; /* by the head before us, for all we know */
    c->state = MS_CLUSTER_RUNNING;
    ms_list_add_tail(&r->clusters, &c->link);
    return c;
}

static int find_cluster(struct ms_registry *r,
                        const Muster__WorkerSpec *s,
                        struct ms_cluster **out,
                        struct ms_error *err)
{
    struct ms_cluster *c = *out = ms_registry_find(r, s->cluster);

    if (c && c->spec && s->rank < c->count && c->driver == s->driver)
        return 0; /* it may have had another size when that worker was started */
    if (c && (c->count != s->world_size ||
              (c->driver != s->driver && !(c->detached && s->detached))))
        return ms_error_set(err,
                            -EEXIST,
                            "there is another cluster '%s' of %zu workers",
                            c->name,
                            c->count);
    if (c)
        return 0;
    c = *out = ms_registry_expect(r, s->cluster, s->world_size);
    if (!c)
        return ms_error_sys(err, -ENOMEM, "cluster '%s'", s->cluster);
    c->driver = s->driver;
    c->detached = s->detached;
    return 0;
}

/* The worker takes its place. */
static int fill(struct ms_registry *r,
                struct ms_slot *slot,
                const char *node,
                const Muster__WorkerSpec *s)
{
    const struct ms_slot_spec spec = {
        .uid = s->uid,
        .node = node,
        .devices = s->devices,
        .device_count = s->n_devices,
        .memory = s->memory_limit,
        .device_memory = s->device_memory,
        .cpu_milli = s->cpu_milli,
        .helps = s->helps,
    };
    int rc = ms_map_add(&r->by_uid, s->uid, slot);

    if (rc < 0)
        return rc;
    rc = ms_slot_init(slot, &spec);
    if (rc < 0) {
        ms_map_remove(&r->by_uid, s->uid);
        memset(&slot->now, 0, sizeof slot->now);
        return rc;
    }
    slot->cluster->unknown--;
    slot->cluster->unconfirmed++;
    slot->cluster->live++;
    r->live++;
    return 0;
}

/* A cluster that would have no worker that is known. */
static void drop_if_empty(struct ms_registry *r, struct ms_cluster *c)
{
    if (c->unknown == c->count && !c->spec)
        ms_registry_remove(r, c);
}

int ms_registry_adopt(struct ms_registry *r,
                      const char *node,
                      const Muster__WorkerReport *report,
                      int64_t now_ns,
                      struct ms_slot **out,
                      struct ms_error *err)
{
    const Muster__WorkerSpec *s = report->spec;
    struct ms_cluster *c = NULL;
    struct ms_slot *slot;
    int rc = check(report, err);

    if (rc < 0)
        return rc;
    slot = ms_registry_find_uid(r, s->uid);
    if (slot) {
        *out = slot;
        return 0;
    }
    rc = find_cluster(r, s, &c, err);
    if (rc < 0)
        return rc;
    assert(c);
    slot = &c->slots[s->rank];
    if (slot->now.uid && (ms_slot_is_live(slot) || !slot->now.exit ||
                          s->incarnation <= slot->now.incarnation))
        return ms_error_set(
            err, -EEXIST, "there is another worker %s/%u", c->name, s->rank);
    if (slot->now.uid) /* a dead one was reported before */
        rc = ms_slot_renew(r, slot, s->uid);
    else
        rc = fill(r, slot, node, s);
    if (rc == 0)
        slot->now.incarnation = s->incarnation;
    if (rc == 0 && report->started)
        rc = ms_registry_started(r, report->started, now_ns);
    if (rc < 0) {
        drop_if_empty(r, c);
        return ms_error_sys(err, rc, "worker %s/%u", s->cluster, s->rank);
    }
    *out = slot;
    return 0;
}
