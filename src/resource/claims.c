/* claims.c - what clusters hold of the books */
#include "base/cleanup.h"
#include "base/name.h"
#include "resource/amount.h"
#include "resource/books_impl.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void ms_claim_destroy(struct ms_claim *c)
{
    ms_list_remove(&c->link);
    ms_layout_finish(&c->layout);
    free(c->seats);
    free(c->cluster);
    free(c);
}

/* Its groups, each once; a run of seats in one group is the rule. */
static bool is_first_of_group(const struct ms_seat *seats, uint32_t i)
{
    for (uint32_t k = i; k > 0; k--)
        if (seats[k - 1].group == seats[i].group)
            return false;
    return true;
}

static void leave_bundles(struct ms_claim *c)
{
    const struct ms_layout *l = &c->layout;

    for (uint32_t i = 0; i < l->world_size; i++) {
        struct ms_bundle_use *u = &c->seats[i].group->uses[c->seats[i].bundle];

        u->cpu_milli -= l->cpu_milli;
        u->memory -= l->memory;
        u->device_memory -= l->device_memory;
        c->seats[i].group->users -= is_first_of_group(c->seats, i);
    }
}

static void give(struct ms_books *b, struct ms_claim *c)
{
    if (c->seats)
        leave_bundles(c);
    else
        ms_layout_release(&b->stock, &c->layout);
    ms_claim_destroy(c);
}

struct ms_claim *ms_books_find_claim(const struct ms_books *b, const char *cluster)
{
    ms_list_each (c, &b->claims, struct ms_claim, link)
        if (c->rank == MS_CLAIM_WHOLE && strcmp(c->cluster, cluster) == 0)
            return c;
    return NULL;
}

static void end_groups(struct ms_claim *c)
{
    for (uint32_t i = 0; c->seats && i < c->layout.world_size; i++)
        if (c->seats[i].group->ends_with_cluster)
            c->seats[i].group->is_ending = true;
}

void ms_books_drop_cluster(struct ms_books *b, const char *cluster)
{
    bool dropped = false;

    ms_list_each (c, &b->claims, struct ms_claim, link)
        if (strcmp(c->cluster, cluster) == 0) {
            end_groups(c);
            give(b, c);
            dropped = true;
        }
    if (dropped)
        ms_books_settle(b);
}

void ms_books_drop_newest(struct ms_books *b, const char *cluster)
{
    struct ms_claim *newest = NULL;

    ms_list_each (c, &b->claims, struct ms_claim, link)
        if (strcmp(c->cluster, cluster) == 0)
            newest = c;
    if (!newest)
        return;
    give(b, newest);
    ms_books_settle(b);
}

/* ---- in bundles ------------------------------------------------------------------ */

static int check_seats(const struct ms_claim_request *r, struct ms_error *err)
{
    const struct ms_layout_request *q = &r->request;

    if (r->seat_count == 0 || r->seat_count > MS_LAYOUT_WORKERS_MAX)
        return ms_error_set(err, -EINVAL, "it has no bundle to stand in");
    if (q->device_count)
        return ms_error_set(
            err, -EINVAL, "a device mapping makes no sense in a placement group");
    if (q->world_size > r->seat_count)
        return ms_error_set(err,
                            -ENOSPC,
                            "%u workers are asked for, and there are %u bundles (it "
                            "fits with world_size=%u)",
                            q->world_size,
                            r->seat_count,
                            r->seat_count);
    for (uint32_t i = 0; i < r->seat_count; i++) {
        const struct ms_group *g = r->seats[i].group;

        if (g->state != MS_PLACEMENT_PLACED)
            return ms_error_set(
                err,
                -EINVAL,
                "group '%s' is not placed%s",
                g->name,
                g->state == MS_PLACEMENT_BROKEN ? ": a node of it is gone" : "");
        if (r->seats[i].bundle >= g->request.count)
            return ms_error_set(err,
                                -EINVAL,
                                "group '%s' has %zu bundles, not %u",
                                g->name,
                                g->request.count,
                                r->seats[i].bundle + 1);
    }
    return 0;
}

/* What a worker asks of its bundle's own, and how much of that others there have taken. */
struct part {
    uint64_t want, total, *used;
    struct ms_amount (*print)(uint64_t amount);
    const char *what;
};

static int sit(const struct ms_claim_request *r, uint32_t i, struct ms_error *err)
{
    const struct ms_layout_request *q = &r->request;
    const struct ms_seat *seat = &r->seats[i];
    const struct ms_bundle *b = &seat->group->request.bundles[seat->bundle];
    struct ms_bundle_use *u = &seat->group->uses[seat->bundle];
    const struct part parts[] = {
        {q->cpu_milli, b->cpu_milli, &u->cpu_milli, ms_amount_cpus, " CPUs"},
        {q->memory, b->memory, &u->memory, ms_amount_bytes, " of memory"},
        {q->device_memory,
         b->device_memory,
         &u->device_memory,
         ms_amount_bytes,
         " of device memory"},
    };

    for (const struct part *p = parts; p < parts + MS_COUNT(parts); p++) {
        uint64_t left = ms_stock_left(p->total, *p->used);

        if (p->want > left)
            return ms_error_set(err,
                                -ENOSPC,
                                "a worker wants %s%s, and bundle %u of group '%s' has "
                                "%s of its own left",
                                p->print(p->want).text,
                                p->what,
                                seat->bundle,
                                seat->group->name,
                                p->print(left).text);
    }
    for (const struct part *p = parts; p < parts + MS_COUNT(parts); p++)
        *p->used += p->want;
    return 0;
}

static int reserve_uses(const struct ms_claim_request *r, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        struct ms_group *g = r->seats[i].group;

        if (!g->uses)
            g->uses = calloc(g->request.count, sizeof *g->uses);
        if (!g->uses)
            return -ENOMEM;
    }
    return 0;
}

/* Where the bundles are; the devices are the groups'. */
static int
layout_seats(struct ms_layout *l, const struct ms_seat *seats, uint32_t count)
{
    size_t devices = 0;

    for (uint32_t i = 0; i < count; i++) {
        const struct ms_placement *p = &seats[i].group->placement;

        devices += p->first[seats[i].bundle + 1] - p->first[seats[i].bundle];
    }
    if (ms_layout_init(l, count, count, devices) < 0)
        return -ENOMEM;
    l->in_bundles = true;
    for (uint32_t i = 0, at = 0; i < count; at += l->pieces[i++].count) {
        const struct ms_placement *p = &seats[i].group->placement;
        uint32_t from = p->first[seats[i].bundle];

        l->first[i + 1] = i + 1;
        l->pieces[i] = (struct ms_piece){.node = p->nodes[seats[i].bundle],
                                         .first = at,
                                         .count = p->first[seats[i].bundle + 1] - from};
        memcpy(l->devices + at,
               p->devices + from,
               l->pieces[i].count * sizeof *l->devices);
    }
    return 0;
}

static int
claim_seats(struct ms_claim *c, const struct ms_claim_request *r, struct ms_error *err)
{
    uint32_t count = r->request.world_size ? r->request.world_size : r->seat_count;
    int rc = check_seats(r, err);
    uint32_t i = 0;

    if (rc < 0)
        return rc;
    c->seats = calloc(count, sizeof *c->seats);
    if (!c->seats || layout_seats(&c->layout, r->seats, count) < 0 ||
        reserve_uses(r, count) < 0)
        return ms_error_set(err, -ENOMEM, "out of memory");
    memcpy(c->seats, r->seats, count * sizeof *c->seats);
    c->layout.cpu_milli = r->request.cpu_milli;
    c->layout.memory = r->request.memory;
    c->layout.device_memory = r->request.device_memory;
    for (; rc == 0 && i < count; i++) {
        rc = sit(r, i, err);
        c->seats[i].group->users += rc == 0 && is_first_of_group(c->seats, i);
    }
    if (rc < 0) { /* those before it get up */
        c->layout.world_size = i - 1;
        leave_bundles(c);
    }
    return rc;
}

/* ---- by name --------------------------------------------------------------------- */

static int claim_devices(struct ms_books *b,
                         struct ms_stock *stock,
                         struct ms_claim *c,
                         const struct ms_claim_request *r,
                         struct ms_buf *table,
                         struct ms_error *err)
{
    MS_CLEANUP(ms_scope_finish) struct ms_scope scope = {0};
    struct ms_holders holders = ms_books_holders(b);
    struct ms_layout_request q = r->request;
    int rc = ms_scope_init(&scope, stock, &r->scope, table, err);

    if (rc < 0) {
        ms_error_wrap(err, "cluster '%s'", q.cluster);
        return rc == -ENOENT ? -ENOSPC : rc;
    }
    q.scope = &scope;
    return ms_layout_make(stock, &q, &c->layout, &holders, table, err);
}

static struct ms_claim *claim_create(const char *cluster, uint64_t owner, uint32_t rank)
{
    struct ms_claim *c = calloc(1, sizeof *c);

    if (!c)
        return NULL;
    ms_list_init(&c->link);
    c->owner = owner;
    c->rank = rank;
    c->cluster = strdup(cluster);
    if (c->cluster)
        return c;
    free(c);
    return NULL;
}

int ms_books_claim(struct ms_books *b,
                   const struct ms_claim_request *r,
                   struct ms_claim **out,
                   struct ms_buf *table,
                   struct ms_error *err)
{
    const char *cluster = r->request.cluster;
    int rc = ms_name_check(cluster, "cluster", err);
    struct ms_claim *c;

    if (rc < 0)
        return rc;
    ms_list_each (other, &b->claims, struct ms_claim, link)
        if (!r->is_more && strcmp(other->cluster, cluster) == 0)
            return ms_error_set(
                err, -EEXIST, "there is a cluster '%s' already", cluster);
    c = claim_create(cluster, r->owner, MS_CLAIM_WHOLE);
    if (!c)
        return ms_error_set(err, -ENOMEM, "cluster '%s': out of memory", cluster);
    rc = r->seats ? claim_seats(c, r, err)
                  : claim_devices(b, &b->stock, c, r, table, err);
    if (rc < 0) {
        if (r->seats)
            ms_error_wrap(err, "cluster '%s'", cluster);
        ms_claim_destroy(c);
        return rc;
    }
    ms_list_add_tail(&b->claims, &c->link);
    *out = c;
    return 0;
}

/* ---- if nobody held anything ------------------------------------------------------- */

/* In its bundle with nobody else in it. */
static bool seat_has_room(const struct ms_claim_request *r, const struct ms_seat *seat)
{
    const struct ms_bundle *b;

    if (seat->bundle >= seat->group->request.count)
        return false;
    b = &seat->group->request.bundles[seat->bundle];
    return r->request.cpu_milli <= b->cpu_milli && r->request.memory <= b->memory &&
           r->request.device_memory <= b->device_memory;
}

bool ms_books_is_possible(struct ms_books *b, const struct ms_claim_request *r)
{
    struct ms_claim trial = {0};
    struct ms_stock free_stock;
    bool is_possible = true;

    for (uint32_t i = 0; r->seats && i < r->seat_count; i++)
        is_possible = is_possible && seat_has_room(r, &r->seats[i]);
    if (r->seats)
        return is_possible;
    if (ms_stock_copy_unheld(&b->stock, &free_stock) < 0)
        return false;
    is_possible = claim_devices(b, &free_stock, &trial, r, NULL, NULL) == 0;
    ms_layout_finish(&trial.layout);
    ms_stock_copy_finish(&free_stock);
    return is_possible;
}

/* ---- what runs already ----------------------------------------------------------- */

/* One worker's part, with those of its devices that there are. */
static int adopt_layout(struct ms_layout *l,
                        const struct ms_layout *what,
                        const struct ms_stock_node *n,
                        uint32_t node)
{
    uint32_t count = what->pieces ? what->pieces[0].count : 0;

    if (ms_layout_init(l, 1, 1, count) < 0)
        return -ENOMEM;
    l->cpu_milli = what->cpu_milli;
    l->memory = what->memory;
    l->device_memory = what->device_memory;
    l->first[1] = 1;
    l->pieces[0].node = node;
    for (uint32_t i = 0; i < count; i++)
        if (what->devices[i] < n->device_count)
            l->devices[l->pieces[0].count++] = what->devices[i];
    return 0;
}

int ms_books_adopt(struct ms_books *b,
                   const char *cluster,
                   uint32_t rank,
                   uint64_t owner,
                   const char *node,
                   const struct ms_layout *what)
{
    const struct ms_stock_node *n = ms_stock_find(&b->stock, node);
    struct ms_claim *c;

    if (!n)
        return -ENOENT;
    ms_list_each (other, &b->claims, struct ms_claim, link)
        if (strcmp(other->cluster, cluster) == 0 &&
            (other->rank == MS_CLAIM_WHOLE || other->rank == rank))
            return 0;
    c = claim_create(cluster, owner, rank);
    if (!c)
        return -ENOMEM;
    if (adopt_layout(&c->layout, what, n, (uint32_t)(n - b->stock.nodes)) < 0) {
        ms_claim_destroy(c);
        return -ENOMEM;
    }
    ms_layout_hold(&b->stock, &c->layout);
    ms_list_add_tail(&b->claims, &c->link);
    return 0;
}
