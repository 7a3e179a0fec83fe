/* claim.c - places for the ranks of clusters: planned, held, given back */
#include "base/cleanup.h"
#include "base/name.h"
#include "head/drivers/driver.h"
#include "head/head_impl.h"
#include "head/ops/op.h"
#include "head/place/group_request.h"
#include "head/place/place_impl.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- groups that clusters bring along, under the lock ------------------------------ */

/* It borrows from the message. */
struct brought {
    Muster__PlaceGroup group;
    Muster__BundleSpec one, *list[1];
    struct ms_group_request w;
};

static void brought_finish(struct brought *g)
{
    ms_group_request_finish(&g->w);
}

static int brought_read(struct brought *g,
                        struct ms_books *b,
                        const Muster__PlaceCluster *m,
                        struct ms_error *err)
{
    int rc;

    if (m->own_group->n_bundles != 1)
        return ms_error_set(err, -EINVAL, "a group for clusters has one bundle");
    g->group = *m->own_group;
    g->one = *m->own_group->bundles[0];
    g->one.count = 1;
    g->list[0] = &g->one;
    g->group.bundles = g->list;
    g->group.scope = m->scope;
    rc = ms_group_request_read(&g->w, &b->stock, &g->group, err);
    g->w.request.count = m->own_group->bundles[0]->count;
    return rc;
}

/* Seats for ranks, malloc'd. */
static int bring(struct ms_books *b,
                 const Muster__PlaceCluster *m,
                 struct ms_seats_request *r,
                 struct ms_seat **out,
                 struct ms_buf *table,
                 struct ms_error *err)
{
    MS_CLEANUP(brought_finish) struct brought g = {0};
    int rc = brought_read(&g, b, m, err);

    *out = calloc(r->count + (size_t)1, sizeof **out);
    if (!*out)
        return ms_error_set(err, -ENOMEM, "out of memory");
    r->like = &g.w.request;
    if (rc == 0)
        rc = ms_books_seat(b, r, *out, table, err);
    r->like = NULL;
    return rc;
}

static bool is_possible(struct ms_books *b, const Muster__PlaceCluster *m)
{
    MS_CLEANUP(brought_finish) struct brought g = {0};
    MS_CLEANUP(ms_cleanup_free)
    struct ms_bundle *all = calloc(m->world_size + (size_t)1, sizeof *all);

    if (!all || brought_read(&g, b, m, NULL) < 0)
        return false;
    assert(g.w.bundles);
    for (uint32_t i = 0; i < m->world_size; i++)
        all[i] = g.w.bundles[0];
    g.w.request.bundles = all;
    g.w.request.count = m->world_size;
    return ms_books_check_group(b, &g.w.request, NULL) == 0;
}

/* ---- claiming, under the lock ---------------------------------------------------- */

/* The seats as the books take them; malloc'd. */
static int read_seats(const struct ms_books *b,
                      const Muster__PlaceCluster *m,
                      const char *cluster,
                      struct ms_seat **out,
                      struct ms_error *err)
{
    struct ms_seat *seats = calloc(m->n_seats + 1, sizeof *seats);

    *out = seats;
    if (!seats)
        return ms_error_set(err, -ENOMEM, "cluster '%s': out of memory", cluster);
    for (size_t i = 0; i < m->n_seats; i++) {
        seats[i].bundle = m->seats[i]->bundle;
        seats[i].group = ms_place_find(b, m->seats[i]->group);
        if (!seats[i].group)
            return ms_error_set(
                err, -ENOENT, "cluster '%s': its placement group was removed", cluster);
    }
    return 0;
}

/* Leave in a request what is about `count` ranks from `first` on. -ENOSPC: it has not that
 * many. */
static int cut(Muster__PlaceCluster *m, uint32_t first, uint32_t count)
{
    size_t each = m->devices_per_worker ? m->devices_per_worker : 1;
    size_t end = first + (size_t)count;

    if ((m->n_devices && end * each > m->n_devices) || (m->n_seats && end > m->n_seats))
        return -ENOSPC;
    m->world_size = count;
    if (m->n_devices) {
        m->devices += first * each;
        m->n_devices = count * each;
    }
    if (m->n_seats) {
        m->seats += first;
        m->n_seats = count;
    }
    return 0;
}

/* As the books take it; borrows from all three. */
static void fill_request(struct ms_claim_request *r,
                         const Muster__PlaceCluster *m,
                         const struct ms_place_claim *what,
                         const struct ms_seat *seats)
{
    *r = (struct ms_claim_request){
        .owner = what->driver,
        .is_more = what->is_more,
        .request = {.cluster = what->cluster,
                    .world_size = m->world_size,
                    .devices = m->devices,
                    .device_count = m->n_devices,
                    .devices_per_worker = m->devices_per_worker,
                    .cpu_milli = m->cpu_milli,
                    .memory = m->memory,
                    .device_memory = m->device_memory}};
    ms_place_scope(m->scope, &r->scope);
    r->seats = m->n_seats || m->own_group ? seats : NULL;
    r->seat_count = m->own_group ? m->world_size : (uint32_t)m->n_seats;
}

/* Without a number of ranks it is one. */
static int find_seats(struct ms_books *b,
                      const Muster__PlaceCluster *m,
                      const struct ms_place_claim *what,
                      struct ms_seat **out,
                      struct ms_buf *table,
                      struct ms_error *err)
{
    struct ms_seats_request r = {
        .owner = what->driver, .first = what->first, .count = m->world_size};
    int rc;

    if (!m->own_group)
        return read_seats(b, m, what->cluster, out, err);
    rc = bring(b, m, &r, out, table, err);
    if (rc < 0)
        ms_error_wrap(err, "cluster '%s'", what->cluster);
    return rc;
}

static int claim(struct ms_books *b,
                 const Muster__PlaceCluster *m,
                 const struct ms_place_claim *what,
                 struct ms_claim **out,
                 struct ms_buf *table,
                 struct ms_error *err)
{
    MS_CLEANUP(ms_cleanup_free) struct ms_seat *seats = NULL;
    struct ms_claim_request r;
    int rc = find_seats(b, m, what, &seats, table, err);

    fill_request(&r, m, what, seats);
    if (rc == 0)
        rc = ms_books_claim(b, &r, out, table, err);
    if (rc < 0 && m->own_group)
        ms_books_settle(b);
    return rc;
}

bool ms_place_is_possible(struct ms_head *h, const Muster__ClusterSpec *spec)
{
    const struct ms_place_claim what = {.cluster = spec->name};
    MS_CLEANUP(ms_cleanup_free) struct ms_seat *seats = NULL;
    MS_CLEANUP(ms_place_unlock) struct ms_place *desk = ms_place_lock(h);
    struct ms_claim_request r;

    if (spec->place->own_group)
        return is_possible(&desk->books, spec->place);
    if (read_seats(&desk->books, spec->place, spec->name, &seats, NULL) < 0)
        return false;
    fill_request(&r, spec->place, &what, seats);
    return ms_books_is_possible(&desk->books, &r);
}

static int place(struct ms_books *b,
                 const struct ms_place_claim *what,
                 Muster__ClusterPlaced **out,
                 struct ms_buf *table,
                 struct ms_error *err)
{
    Muster__PlaceCluster m = *what->request;
    struct ms_claim *c = NULL;
    int rc = what->count ? cut(&m, what->first, what->count) : 0;

    if (rc < 0)
        return ms_error_set(
            err,
            rc,
            "cluster '%s': its devices or bundles do not make %u workers",
            what->cluster,
            what->first + what->count);
    rc = claim(b, &m, what, &c, table, err);
    if (rc < 0)
        return rc;
    *out = ms_place_cluster_message(b, &c->layout);
    if (*out)
        return 0;
    ms_books_drop_cluster(b, what->cluster);
    return ms_error_set(err, -ENOMEM, "cluster '%s': out of memory", what->cluster);
}

int ms_place_claim(struct ms_head *h,
                   const struct ms_place_claim *what,
                   Muster__ClusterPlaced **out,
                   struct ms_buf *table,
                   struct ms_error *err)
{
    MS_CLEANUP(ms_place_unlock) struct ms_place *desk = ms_place_lock(h);

    return place(&desk->books, what, out, table, err);
}

/* ---- a plan: nothing is held ----------------------------------------------------- */

int ms_place_cluster_run(struct ms_head_op *op)
{
    const Muster__PlaceCluster *m = op->request->place_cluster;
    struct ms_place *desk = &op->head->place;
    Muster__ClusterPlaced *placed = NULL;
    struct ms_place_claim what = {.request = m, .cluster = m->name, .is_more = true};
    int rc = ms_name_check(m->name, "cluster", &op->error);

    if (rc < 0)
        return rc;
    pthread_mutex_lock(&desk->lock);
    rc = place(&desk->books, &what, &placed, &op->table, &op->error);
    if (rc == 0)
        ms_books_drop_newest(&desk->books, m->name);
    pthread_mutex_unlock(&desk->lock);
    if (rc == 0)
        ms_head_op_succeed(op, &placed->base);
    return rc;
}

/* Are there places for so many of them? */
static bool fits(struct ms_books *b, const struct ms_place_claim *what, uint32_t count)
{
    Muster__ClusterPlaced *placed = NULL;
    struct ms_place_claim some = *what;
    struct ms_buf table;
    int rc;

    some.count = count;
    some.is_more = true;
    ms_buf_init(&table);
    rc = place(b, &some, &placed, &table, NULL);
    if (rc == 0)
        ms_books_drop_newest(b, what->cluster);
    muster__cluster_placed__free_unpacked(placed, NULL);
    ms_buf_finish(&table);
    return rc == 0;
}

uint32_t ms_place_fits(struct ms_head *h, const struct ms_place_claim *what)
{
    MS_CLEANUP(ms_place_unlock) struct ms_place *desk = ms_place_lock(h);
    uint32_t some = 0, many = what->count;

    while (some < many) {
        uint32_t middle = some + (many - some + 1) / 2;

        if (fits(&desk->books, what, middle))
            some = middle;
        else
            many = middle - 1;
    }
    return some;
}

/* ---- the end --------------------------------------------------------------------- */

void ms_place_cluster_gone(struct ms_head *h, const char *cluster)
{
    pthread_mutex_lock(&h->place.lock);
    ms_books_drop_cluster(&h->place.books, cluster);
    pthread_mutex_unlock(&h->place.lock);
    ms_place_kick(h);
}

/* ---- what runs already ----------------------------------------------------------- */

static void adopt(struct ms_books *b, const struct ms_slot *slot)
{
    struct ms_piece piece = {.count = (uint32_t)slot->device_count};
    struct ms_layout what = {.cpu_milli = slot->cpu_milli,
                             .memory = slot->memory,
                             .device_memory = slot->device_memory,
                             .pieces = &piece,
                             .devices = slot->devices};

    ms_books_adopt(
        b, slot->cluster->name, slot->rank, slot->cluster->driver, slot->node, &what);
}

static const Muster__PlaceGroup *own_group(const struct ms_cluster *c)
{
    return c->spec && c->spec->place && c->placed ? c->spec->place->own_group : NULL;
}

/* Where its ranks were; malloc'd. NULL: out of memory. */
static struct ms_known_seat *known_seats(const struct ms_cluster *c)
{
    struct ms_known_seat *seats = calloc(c->placed->n_ranks + 1, sizeof *seats);

    for (size_t i = 0; seats && i < c->placed->n_ranks; i++) {
        const Muster__Piece *p = c->placed->ranks[i]->pieces[0];

        seats[i] = (struct ms_known_seat){p->node, p->devices, (uint32_t)p->n_devices};
    }
    return seats;
}

static bool are_known(const struct ms_books *b, const struct ms_cluster *c)
{
    for (size_t i = 0; i < c->placed->n_ranks; i++)
        if (!ms_stock_find(&b->stock, c->placed->ranks[i]->pieces[0]->node))
            return false;
    return true;
}

/* Leave in the request's scope what is known of it; the names are malloc'd. -ENOENT: nothing
 * is. */
static int cut_scope(const struct ms_books *b,
                     Muster__PlaceCluster *m,
                     Muster__Scope *scope,
                     char ***names)
{
    if (!m->scope || m->scope->n_nodes == 0)
        return 0;
    *scope = *m->scope;
    *names = scope->nodes = calloc(m->scope->n_nodes, sizeof **names);
    if (!scope->nodes)
        return -ENOMEM;
    scope->n_nodes = 0;
    for (size_t i = 0; i < m->scope->n_nodes; i++)
        if (ms_stock_find(&b->stock, m->scope->nodes[i]))
            scope->nodes[scope->n_nodes++] = m->scope->nodes[i];
    m->scope = scope;
    return scope->n_nodes ? 0 : -ENOENT;
}

static int restore(struct ms_books *b, const struct ms_cluster *c)
{
    Muster__PlaceCluster m = *c->spec->place;
    Muster__Scope scope;
    MS_CLEANUP(ms_cleanup_free) char **names = NULL;
    MS_CLEANUP(ms_cleanup_free) struct ms_known_seat *known = known_seats(c);
    MS_CLEANUP(ms_cleanup_free) struct ms_seat *seats = NULL;
    struct ms_seats_request r = {
        .owner = c->driver, .count = (uint32_t)c->placed->n_ranks, .known = known};
    struct ms_claim_request claim = {
        .owner = c->driver,
        .request = {.cluster = c->name, .world_size = r.count},
        .seat_count = r.count};
    struct ms_claim *made;
    int rc = known ? cut_scope(b, &m, &scope, &names) : -ENOMEM;

    if (rc == 0)
        rc = bring(b, &m, &r, &seats, NULL, NULL);
    if (rc < 0)
        return rc;
    claim.seats = seats;
    rc = ms_books_claim(b, &claim, &made, NULL, NULL);
    if (rc < 0)
        ms_books_settle(b);
    return rc;
}

/* All of its bundles, or what its ranks that live have of the nodes. */
static void hold(struct ms_books *b, const struct ms_cluster *c)
{
    if (ms_books_find_claim(b, c->name))
        return;
    ms_books_drop_cluster(b, c->name); /* what some of its ranks had */
    if (restore(b, c) == 0)
        return;
    for (size_t i = 0; i < c->count; i++)
        if (ms_slot_is_live(&c->slots[i]))
            adopt(b, &c->slots[i]);
}

static bool has_adopted(const struct ms_books *b, const struct ms_cluster *c)
{
    ms_list_each (claim, &b->claims, struct ms_claim, link)
        if (claim->rank != MS_CLAIM_WHOLE && strcmp(claim->cluster, c->name) == 0)
            return true;
    return false;
}

void ms_place_recover(struct ms_head *h, const struct ms_cluster *c)
{
    MS_CLEANUP(ms_place_unlock) struct ms_place *desk = ms_place_lock(h);

    if (own_group(c))
        hold(&desk->books, c);
}

/* Of a cluster that has brought its bundles along all of them, when their nodes are there; if
 * that fails, rank by rank until all have been found. */
void ms_place_adopt(struct ms_head *h, const struct ms_slot *slot)
{
    MS_CLEANUP(ms_place_unlock) struct ms_place *desk = ms_place_lock(h);
    const struct ms_cluster *c = slot->cluster;

    if (!own_group(c) || has_adopted(&desk->books, c))
        adopt(&desk->books, slot);
    else if (are_known(&desk->books, c))
        hold(&desk->books, c);
}

bool ms_place_is_shared(struct ms_head *h, const struct ms_cluster *c)
{
    MS_CLEANUP(ms_place_unlock) struct ms_place *desk = ms_place_lock(h);
    const Muster__PlaceGroup *own = own_group(c);
    const struct ms_group *g =
        own ? ms_books_find_group(&desk->books, own->name) : NULL;

    ms_list_each (claim, &desk->books.claims, struct ms_claim, link)
        for (uint32_t i = 0; g && claim->seats && i < claim->layout.world_size; i++)
            if (claim->seats[i].group == g && strcmp(claim->cluster, c->name) != 0)
                return true;
    return false;
}

static bool is_wide(const struct ms_cluster *c)
{
    for (size_t i = 0; i < c->placed->n_ranks; i++)
        if (c->placed->ranks[i]->n_pieces > 1)
            return true;
    return false;
}

void ms_place_settle(struct ms_head *h, const struct ms_cluster *c)
{
    struct ms_books *b = &h->place.books;
    const struct ms_claim *whole;

    pthread_mutex_lock(&h->place.lock);
    whole = ms_books_find_claim(b, c->name);
    if (own_group(c)) {
        ms_books_reseat(
            b, c->name, c->driver, own_group(c)->name, (uint32_t)c->count, NULL);
    } else if ((!whole || !whole->seats) && !is_wide(c)) {
        ms_books_drop_cluster(b, c->name);
        for (size_t i = 0; i < c->count; i++)
            adopt(b, &c->slots[i]);
    }
    pthread_mutex_unlock(&h->place.lock);
    ms_place_kick(h);
}
