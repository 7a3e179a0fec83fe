#include "base/cleanup.h"
#include "head/clusters/place_impl.h"
#include "head/drivers/driver.h"
#include "head/head_impl.h"
#include "head/nodes/node.h"
#include "head/op.h"
#include "head/waiting.h"
#include "resource/mapping.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- placing --------------------------------------------------------------------- */

/* The seats as the books take them; malloc'd. */
static int read_seats(const struct ms_books *b,
                      const Muster__PlaceCluster *m,
                      struct ms_seat **out,
                      struct ms_error *err)
{
    struct ms_seat *seats = calloc(m->n_seats + 1, sizeof *seats);

    *out = seats;
    if (!seats)
        return ms_error_set(err, -ENOMEM, "cluster '%s': out of memory", m->name);
    for (size_t i = 0; i < m->n_seats; i++) {
        seats[i].bundle = m->seats[i]->bundle;
        ms_list_each (g, &b->groups.all, struct ms_group, link)
            if (g->id == m->seats[i]->group && !g->is_ending)
                seats[i].group = g;
        if (!seats[i].group)
            return ms_error_set(
                err, -ENOENT, "cluster '%s': its placement group was removed", m->name);
    }
    return 0;
}

static int place(struct ms_head_op *op,
                 Muster__ClusterPlaced **out,
                 struct ms_buf *table,
                 struct ms_error *err)
{
    const Muster__PlaceCluster *m = op->wanted->place_cluster;
    struct ms_books *b = &op->head->place.books;
    MS_CLEANUP(ms_cleanup_free) struct ms_seat *seats = NULL;
    struct ms_claim_request r = {
        .owner = ms_driver_id(op->driver),
        .request = {.cluster = m->name,
                    .world_size = m->world_size,
                    .devices = m->devices,
                    .device_count = m->n_devices,
                    .devices_per_worker = m->devices_per_worker,
                    .cpu_milli = m->cpu_milli,
                    .memory = m->memory,
                    .device_memory = m->device_memory}};
    struct ms_claim *c = NULL;
    int rc = read_seats(b, m, &seats, err);

    ms_place_scope(m->scope, &r.scope);
    r.seats = m->n_seats ? seats : NULL;
    r.seat_count = (uint32_t)m->n_seats;
    if (rc == 0)
        rc = ms_books_claim(b, &r, &c, table, err);
    if (rc < 0)
        return rc;
    *out = ms_place_cluster_message(b, &c->layout);
    if (*out)
        return 0;
    ms_books_drop_cluster(b, m->name);
    return ms_error_set(err, -ENOMEM, "cluster '%s': out of memory", m->name);
}

/* Whose cluster has the name; on the head's thread, as all that drivers ask. */
static void name_owner(const struct ms_head_op *op, struct ms_error *err)
{
    const char *name = op->wanted->place_cluster->name;
    const struct ms_cluster *c = ms_registry_find(&op->head->registry, name);
    char owner[MS_OWNER_TEXT_MAX];

    if (c)
        ms_error_set(err,
                     -EEXIST,
                     "there is a cluster '%s' already%s",
                     name,
                     ms_driver_print_owner(op->head, c, owner, sizeof owner));
}

void ms_place_cluster_run(struct ms_head_op *op)
{
    struct ms_place_desk *desk = &op->head->place;
    MS_CLEANUP(ms_buf_finish) struct ms_buf table = {0};
    Muster__ClusterPlaced *placed = NULL;
    struct ms_error err = {0};
    int rc;

    if (op->driver && ms_head_wait_for_nodes(op))
        return;
    pthread_mutex_lock(&desk->lock);
    rc = place(op, &placed, &table, &err);
    pthread_mutex_unlock(&desk->lock);
    if (rc == -EEXIST && op->driver)
        name_owner(op, &err);
    if (rc == 0)
        ms_head_op_succeed(op, &placed->base);
    else
        ms_place_fail(op, &err, &table);
}

void ms_place_drop_run(struct ms_head_op *op)
{
    ms_place_not_created(
        op->head, op->wanted->drop_claim->cluster, ms_driver_id(op->driver));
    ms_head_op_succeed(op, NULL);
}

/* ---- creating -------------------------------------------------------------------- */

static int mismatch(const Muster__CreateCluster *create,
                    size_t rank,
                    const char *node,
                    const char *planned,
                    struct ms_error *err)
{
    return ms_error_set(err,
                        -EINVAL,
                        "cluster '%s': rank %zu is to start on node %s, and what was "
                        "placed for it is %s",
                        create->name,
                        rank,
                        node,
                        planned);
}

static bool is_same(const Muster__WorkerSpec *s,
                    const struct ms_layout *l,
                    const struct ms_piece *p)
{
    return s->n_devices == p->count &&
           (p->count == 0 ||
            memcmp(s->devices, l->devices + p->first, p->count * sizeof *s->devices) ==
                0);
}

/* A rank that starts: it has the place that was claimed for it, and no more. */
static int check_rank(const struct ms_books *b,
                      const struct ms_claim *c,
                      const Muster__CreateCluster *create,
                      size_t rank,
                      const char *node,
                      struct ms_error *err)
{
    const Muster__WorkerSpec *s = create->ranks[rank]->spec;
    const struct ms_layout *l = &c->layout;
    const struct ms_piece *p = &l->pieces[l->first[rank]];
    struct ms_buf text = {0};
    int rc = 0;

    if (strcmp(b->stock.nodes[p->node].name, node) != 0 || !is_same(s, l, p)) {
        ms_buf_printf(&text, "node %s, devices ", b->stock.nodes[p->node].name);
        ms_mapping_print(l->devices + p->first, p->count, 0, &text);
        rc = mismatch(create, rank, node, ms_buf_str(&text), err);
    } else if (s->cpu_milli > l->cpu_milli || s->memory_limit > l->memory) {
        if (!l->in_bundles)
            rc = mismatch(create, rank, node, "less of its CPUs or memory", err);
    }
    ms_buf_finish(&text);
    return rc;
}

static int check_claim(const struct ms_books *b,
                       struct ms_claim *c,
                       const Muster__CreateCluster *create,
                       struct ms_node *const *nodes,
                       uint64_t driver,
                       struct ms_error *err)
{
    int rc = 0;

    if (c->owner != driver || c->has_cluster)
        return ms_error_set(err,
                            -EEXIST,
                            "there is a cluster '%s' already, or another driver is "
                            "creating it",
                            create->name);
    if (create->n_ranks != c->layout.world_size)
        return ms_error_set(err,
                            -EINVAL,
                            "cluster '%s': %zu workers are to start, and places were "
                            "made for %u",
                            create->name,
                            create->n_ranks,
                            c->layout.world_size);
    for (size_t i = 0; rc == 0 && i < create->n_ranks; i++)
        rc = check_rank(b, c, create, i, nodes[i]->name, err);
    c->has_cluster = rc == 0;
    return rc;
}

/* One of a cluster that nobody has placed: is what it wants to be had where it wants it? */
static int check_unplaced(const struct ms_books *b,
                          const Muster__WorkerSpec *s,
                          const char *node,
                          size_t rank,
                          struct ms_error *err)
{
    const struct ms_stock_node *n = ms_stock_find(&b->stock, node);
    const char *what = NULL;

    if (!n)
        return 0; /* it has not said what it has */
    if (s->cpu_milli && n->cpu_milli_held + s->cpu_milli > n->cpu_milli)
        what = "not so many CPUs are free";
    if (s->memory_limit && n->memory_held + s->memory_limit > n->memory)
        what = "not so much memory is free";
    for (size_t i = 0; i < s->n_devices; i++)
        if (s->devices[i] < n->device_count && n->devices[s->devices[i]].held_milli)
            what = "a placement group holds one of its devices";
    return what ? ms_error_set(err,
                               -ENOSPC,
                               "cluster '%s': rank %zu on node %s: %s",
                               s->cluster,
                               rank,
                               node,
                               what)
                : 0;
}

static int adopt(struct ms_books *b,
                 const char *cluster,
                 uint32_t rank,
                 uint64_t driver,
                 const char *node,
                 struct ms_layout what,
                 const uint32_t *devices,
                 size_t count)
{
    struct ms_piece piece = {.count = (uint32_t)count};

    what.pieces = &piece;
    what.devices = (uint32_t *)(uintptr_t)devices;
    return ms_books_adopt(b, cluster, rank, driver, node, &what);
}

static int claim_unplaced(struct ms_books *b,
                          const Muster__CreateCluster *create,
                          struct ms_node *const *nodes,
                          uint64_t driver,
                          struct ms_error *err)
{
    int rc = 0;

    for (size_t i = 0; rc == 0 && i < create->n_ranks; i++) {
        const Muster__WorkerSpec *s = create->ranks[i]->spec;
        struct ms_layout what = {.cpu_milli = s->cpu_milli, .memory = s->memory_limit};

        if (s->beside || s->helps)
            continue; /* it lives on what that one has */
        rc = check_unplaced(b, s, nodes[i]->name, i, err);
        if (rc == 0)
            rc = adopt(b,
                       create->name,
                       (uint32_t)i,
                       driver,
                       nodes[i]->name,
                       what,
                       s->devices,
                       s->n_devices);
        if (rc == -ENOENT)
            rc = 0;
        if (rc == -ENOMEM)
            ms_error_set(err, rc, "cluster '%s': out of memory", create->name);
    }
    if (rc < 0)
        ms_books_drop_cluster(b, create->name);
    return rc;
}

int ms_place_begin_create(struct ms_head *h,
                          const Muster__CreateCluster *create,
                          struct ms_node *const *nodes,
                          uint64_t driver,
                          struct ms_error *err)
{
    struct ms_books *b = &h->place.books;
    struct ms_claim *c;
    int rc;

    pthread_mutex_lock(&h->place.lock);
    c = ms_books_find_claim(b, create->name);
    rc = c ? check_claim(b, c, create, nodes, driver, err)
           : claim_unplaced(b, create, nodes, driver, err);
    pthread_mutex_unlock(&h->place.lock);
    return rc;
}

uint64_t ms_place_device_memory(struct ms_head *h, const char *cluster)
{
    const struct ms_claim *c;
    uint64_t memory;

    pthread_mutex_lock(&h->place.lock);
    c = ms_books_find_claim(&h->place.books, cluster);
    memory = c ? c->layout.device_memory : 0;
    pthread_mutex_unlock(&h->place.lock);
    return memory;
}

/* ---- the end --------------------------------------------------------------------- */

void ms_place_not_created(struct ms_head *h, const char *cluster, uint64_t driver)
{
    struct ms_books *b = &h->place.books;
    struct ms_claim *c;

    pthread_mutex_lock(&h->place.lock);
    c = ms_books_find_claim(b, cluster);
    if (c && c->owner == driver && !c->has_cluster)
        ms_books_drop_cluster(b, cluster);
    pthread_mutex_unlock(&h->place.lock);
    ms_place_kick(h);
}

void ms_place_cluster_gone(struct ms_head *h, const char *cluster)
{
    pthread_mutex_lock(&h->place.lock);
    ms_books_drop_cluster(&h->place.books, cluster);
    pthread_mutex_unlock(&h->place.lock);
    ms_place_kick(h);
}

void ms_place_adopt(struct ms_head *h, const struct ms_slot *slot)
{
    struct ms_layout what = {.cpu_milli = slot->cpu_milli,
                             .memory = slot->memory,
                             .device_memory = slot->device_memory};

    pthread_mutex_lock(&h->place.lock);
    adopt(&h->place.books,
          slot->cluster->name,
          slot->rank,
          slot->cluster->driver,
          slot->node,
          what,
          slot->devices,
          slot->device_count);
    pthread_mutex_unlock(&h->place.lock);
}
