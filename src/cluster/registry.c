/* registry.c - which clusters there are, and what happens to their workers */
#include "cluster/registry.h"
#include "base/cleanup.h"
#include "base/name.h"
#include "base/proto.h"
#include "cluster/registry_impl.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

void ms_registry_init(struct ms_registry *r)
{
    *r = (struct ms_registry){0};
    ms_list_init(&r->clusters);
    ms_map_init(&r->by_uid);
    ms_map_init(&r->by_former);
}

void ms_registry_finish(struct ms_registry *r)
{
    ms_list_each (c, &r->clusters, struct ms_cluster, link)
        ms_registry_remove(r, c);
    assert(r->live == 0 && r->by_uid.count == 0 && r->by_former.count == 0);
    ms_map_finish(&r->by_uid);
    ms_map_finish(&r->by_former);
}

/* ---- slots and instances --------------------------------------------------------- */

bool ms_slot_is_live(const struct ms_slot *s)
{
    return s->now.state == MUSTER__WORKER_STATE__WORKER_STARTING ||
           s->now.state == MUSTER__WORKER_STATE__WORKER_RUNNING;
}

static void instance_finish(struct ms_instance *i)
{
    free(i->address);
    free(i->why);
    free(i->log_path);
    muster__exit__free_unpacked(i->exit, NULL);
    *i = (struct ms_instance){0};
}

static void cluster_destroy(struct ms_cluster *c)
{
    if (!c)
        return;
    for (size_t i = 0; c->slots && i < c->count; i++) {
        instance_finish(&c->slots[i].now);
        muster__worker_started__free_unpacked(c->slots[i].expected_process, NULL);
        free(c->slots[i].devices);
    }
    free(c->slots);
    muster__cluster_spec__free_unpacked(c->spec, NULL);
    muster__cluster_placed__free_unpacked(c->placed, NULL);
    muster__port_held__free_unpacked(c->master, NULL);
    free(c->port_owner);
    free(c);
}

static void cleanup_cluster(struct ms_cluster **c)
{
    cluster_destroy(*c);
}

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

int ms_slot_init(struct ms_slot *s, const struct ms_slot_spec *spec)
{
    s->now.uid = spec->uid;
    s->now.incarnation = 1;
    s->memory = spec->memory;
    s->device_memory = spec->device_memory;
    s->cpu_milli = spec->cpu_milli;
    s->helps = spec->helps;
    s->now.state = MUSTER__WORKER_STATE__WORKER_STARTING;
    return ms_slot_move(
        s, spec->node ? spec->node : "", spec->devices, spec->device_count);
}

struct ms_cluster *ms_cluster_create(const char *name, size_t count)
{
    MS_CLEANUP(cleanup_cluster) struct ms_cluster *c = calloc(1, sizeof *c);

    if (!c)
        return NULL;
    ms_list_init(&c->link);
    strcpy(c->name, name); /* ms_name_check knows that it fits */
    c->slots = calloc(count + 1, sizeof *c->slots);
    if (!c->slots)
        return NULL;
    c->count = c->unknown = count;
    for (size_t i = 0; i < count; i++) {
        c->slots[i].cluster = c;
        c->slots[i].rank = (uint32_t)i;
    }
    return MS_TAKE(c);
}

/* ---- clusters -------------------------------------------------------------------- */

static int check_room(const struct ms_registry *r,
                      const char *name,
                      size_t count,
                      struct ms_error *err)
{
    if (count == 0)
        return ms_error_set(err, -EINVAL, "cluster '%s' has no workers", name);
    if (count > MS_CLUSTER_WORKERS_MAX || r->live > MS_CLUSTER_WORKERS_MAX - count)
        return ms_error_set(err,
                            -ENOSPC,
                            "cluster '%s' wants %zu workers, %zu are running; a head "
                            "can have %u",
                            name,
                            count,
                            r->live,
                            MS_CLUSTER_WORKERS_MAX);
    return 0;
}

int ms_registry_add(struct ms_registry *r,
                    const char *name,
                    const struct ms_slot_spec *slots,
                    size_t count,
                    struct ms_cluster **out,
                    struct ms_error *err)
{
    MS_CLEANUP(cleanup_cluster) struct ms_cluster *c = NULL;
    int rc = ms_name_check(name, "cluster", err);

    if (rc < 0)
        return rc;
    if (ms_registry_find(r, name))
        return ms_error_set(err, -EEXIST, "there is a cluster '%s' already", name);
    rc = check_room(r, name, count, err);
    if (rc < 0)
        return rc;
    c = ms_cluster_create(name, 0);
    rc = c ? ms_cluster_resize(r, c, slots, count) : -ENOMEM;
    if (rc < 0)
        return ms_error_sys(err, rc, "cannot add cluster '%s'", name);
    ms_list_add_tail(&r->clusters, &c->link);
    *out = MS_TAKE(c);
    return 0;
}

/* Room for one more: the oldest is forgotten. */
static uint64_t *next_former(struct ms_registry *r, struct ms_slot *s)
{
    uint64_t *at = &s->former[s->former_next];

    s->former_next = (s->former_next + 1) % MS_FORMER_MAX;
    if (*at)
        ms_map_remove(&r->by_former, *at);
    *at = 0;
    return at;
}

static void forget_uids(struct ms_registry *r, struct ms_slot *s)
{
    if (s->now.uid)
        ms_map_remove(&r->by_uid, s->now.uid);
    for (unsigned i = 0; i < MS_FORMER_MAX; i++)
        next_former(r, s);
}

void ms_registry_remove(struct ms_registry *r, struct ms_cluster *c)
{
    for (size_t i = 0; i < c->count; i++)
        forget_uids(r, &c->slots[i]);
    assert(r->live >= c->live);
    r->live -= c->live;
    ms_list_remove(&c->link);
    cluster_destroy(c);
}

struct ms_cluster *ms_registry_find(const struct ms_registry *r, const char *name)
{
    ms_list_each (c, &r->clusters, struct ms_cluster, link)
        if (strcmp(c->name, name) == 0)
            return c;
    return NULL;
}

struct ms_slot *ms_registry_find_uid(const struct ms_registry *r, uint64_t uid)
{
    return ms_map_find(&r->by_uid, uid);
}

struct ms_slot *ms_registry_find_former(const struct ms_registry *r, uint64_t uid)
{
    return ms_map_find(&r->by_former, uid);
}

bool ms_cluster_outlives_driver(const struct ms_cluster *c)
{
    return c->detached && c->is_made;
}

/* ---- events ---------------------------------------------------------------------- */

int ms_registry_started(struct ms_registry *r,
                        const Muster__WorkerStarted *s,
                        int64_t now_ns)
{
    MS_CLEANUP(ms_cleanup_free) char *address = strdup(s->address);
    MS_CLEANUP(ms_cleanup_free) char *log_path = strdup(s->log_path);
    struct ms_slot *slot = ms_registry_find_uid(r, s->uid);

    if (!slot || slot->now.address)
        return -ESTALE;
    if (!address || !log_path)
        return -ENOMEM;
    slot->now.pid = s->pid;
    slot->now.address = MS_TAKE(address);
    slot->now.log_path = MS_TAKE(log_path);
    slot->now.started_ns = now_ns;
    if (ms_slot_is_live(slot))
        slot->now.state = MUSTER__WORKER_STATE__WORKER_RUNNING;
    assert(slot->cluster->unconfirmed > 0);
    if (--slot->cluster->unconfirmed == 0 &&
        slot->cluster->state == MS_CLUSTER_STARTING)
        slot->cluster->state = MS_CLUSTER_RUNNING;
    return 0;
}

struct ms_slot *
ms_registry_exited(struct ms_registry *r, uint64_t uid, const Muster__Exit *exit)
{
    struct ms_slot *slot = ms_registry_find_uid(r, uid);

    if (!slot || !ms_slot_is_live(slot))
        return NULL;
    slot->now.exit = exit ? (Muster__Exit *)ms_proto_copy(&exit->base) : NULL;
    slot->now.state = MUSTER__WORKER_STATE__WORKER_EXITED;
    assert(slot->cluster->live > 0 && r->live > 0);
    slot->cluster->live--;
    r->live--;
    return slot;
}

struct ms_slot *ms_cluster_next_changing(const struct ms_cluster *c,
                                         const struct ms_slot *after)
{
    for (size_t i = after ? after->rank + (size_t)1 : 0; i < c->count; i++)
        if (c->slots[i].is_changing)
            return &c->slots[i];
    return NULL;
}

void ms_cluster_set_changing(struct ms_cluster *c, size_t first)
{
    for (size_t i = 0; i < c->count; i++)
        c->slots[i].is_changing = i >= first;
}

void ms_cluster_end_unstarted(struct ms_registry *r,
                              struct ms_cluster *c,
                              bool all,
                              const char *why)
{
    Muster__Exit exit = MUSTER__EXIT__INIT;

    exit.code = -1;
    exit.detail = ms_field_text(why);
    for (size_t i = 0; i < c->count; i++) {
        const struct ms_slot *s = &c->slots[i];

        exit.node = ms_field_text(s->node);
        if ((all || s->is_changing) && ms_slot_is_live(s) && !s->now.address)
            ms_registry_exited(r, s->now.uid, &exit);
    }
}

/* Without memory for it nobody will find its successor. */
void ms_slot_remember(struct ms_registry *r, struct ms_slot *s, uint64_t uid)
{
    uint64_t *at = next_former(r, s);

    if (ms_map_add(&r->by_former, uid, s) == 0)
        *at = uid;
}

int ms_slot_renew(struct ms_registry *r, struct ms_slot *slot, uint64_t uid)
{
    uint32_t incarnation = slot->now.incarnation + 1;
    int rc;

    if (ms_slot_is_live(slot))
        return -EBUSY;
    if (r->live >= MS_CLUSTER_WORKERS_MAX)
        return -ENOSPC;
    rc = ms_map_add(&r->by_uid, uid, slot);
    if (rc < 0)
        return rc;
    ms_map_remove(&r->by_uid, slot->now.uid);
    ms_slot_remember(r, slot, slot->now.uid);
    if (slot->now.address)
        slot->cluster->unconfirmed++;
    instance_finish(&slot->now);
    slot->now.uid = uid;
    slot->now.incarnation = incarnation;
    slot->now.state = MUSTER__WORKER_STATE__WORKER_STARTING;
    slot->cluster->live++;
    r->live++;
    return 0;
}

/* ---- more or fewer slots ---------------------------------------------------------- */

/* Nothing of it stays: its uids are unknown, its memory is free. */
static void slot_finish(struct ms_registry *r, struct ms_slot *s)
{
    forget_uids(r, s);
    instance_finish(&s->now);
    muster__worker_started__free_unpacked(MS_TAKE(s->expected_process), NULL);
    free(s->devices);
    s->devices = NULL;
    s->device_count = 0;
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
        slot_finish(r, &c->slots[i]);
    }
    c->count = count;
    return 0;
}

/* The slots from c->count on, in memory of their own; -EEXIST, -ENOMEM: none is there. */
static int fill(struct ms_registry *r,
                struct ms_cluster *c,
                struct ms_slot *all,
                const struct ms_slot_spec *slots,
                size_t count)
{
    for (size_t i = c->count; i < count; i++) {
        int rc = ms_slot_init(&all[i], &slots[i - c->count]);

        all[i].cluster = c;
        all[i].rank = (uint32_t)i;
        if (rc == 0)
            rc = ms_map_add(&r->by_uid, all[i].now.uid, &all[i]);
        if (rc == 0)
            continue;
        all[i].now.uid = 0; /* another slot has it, or no map */
        for (size_t k = c->count; k <= i; k++)
            slot_finish(r, &all[k]);
        return rc;
    }
    return 0;
}

static int grow(struct ms_registry *r,
                struct ms_cluster *c,
                const struct ms_slot_spec *slots,
                size_t count)
{
    struct ms_slot *all;
    size_t more = count - c->count;
    int rc;

    if (count > MS_CLUSTER_WORKERS_MAX || r->live > MS_CLUSTER_WORKERS_MAX - more)
        return -ENOSPC;
    all = calloc(count, sizeof *all);
    if (!all)
        return -ENOMEM;
    rc = fill(r, c, all, slots, count);
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
                      size_t count)
{
    assert(count > 0);
    if (count <= c->count)
        return shrink(r, c, count);
    return grow(r, c, slots, count);
}
