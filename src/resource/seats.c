/* seats.c - groups that clusters bring along: placed with the first, grown, moved, cut
 *
 * A change is worked out beside the group: what its bundles will be and where. Bundles that
 * have to be somewhere else are given back first, so that others of the same change can have
 * their places; if one finds none all of it is undone.
 */
#include "base/cleanup.h"
#include "resource/amount.h"
#include "resource/books_impl.h"
#include "resource/why.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct change {
    struct ms_books *books;
    const struct ms_seats_request *r;
    struct ms_group *group;    /* NULL: it is new */
    size_t before, count;      /* bundles */
    uint32_t width;            /* devices of each */
    struct ms_bundle *bundles; /* as they will be */
    struct ms_placement p;
    bool *is_open;  /* has no place yet */
    bool *is_given; /* its old place was given back */
    bool *is_taken; /* its new place is held */
};

static void change_finish(struct change *c)
{
    free(c->bundles);
    free(c->is_open);
    free(c->is_given);
    free(c->is_taken);
    ms_placement_finish(&c->p);
}

static const struct ms_bundle *each(const struct change *c)
{
    return c->r->like->bundles;
}

static uint32_t *devices_of(const struct change *c, size_t i)
{
    return c->p.devices + i * c->width;
}

static struct ms_stock_node *node_of(const struct change *c, size_t i)
{
    return &c->books->stock.nodes[c->p.nodes[i]];
}

static int change_init(struct change *c)
{
    size_t least = c->r->like->count, end = c->r->first + (size_t)c->r->count;

    c->before = c->group ? c->group->request.count : 0;
    c->count = end > least ? end : least;
    if (c->count < c->before)
        c->count = c->before;
    c->width = ms_bundle_width(each(c));
    c->bundles = calloc(c->count + 1, sizeof *c->bundles);
    c->is_open = calloc(c->count + 1, sizeof *c->is_open);
    c->is_given = calloc(c->count + 1, sizeof *c->is_given);
    c->is_taken = calloc(c->count + 1, sizeof *c->is_taken);
    c->p.count = c->count;
    c->p.nodes = calloc(c->count + 1, sizeof *c->p.nodes);
    c->p.first = calloc(c->count + 1, sizeof *c->p.first);
    c->p.devices = calloc(c->count * c->width + 1, sizeof *c->p.devices);
    if (!c->bundles || !c->is_open || !c->is_given || !c->is_taken || !c->p.nodes ||
        !c->p.first || !c->p.devices)
        return -ENOMEM;
    for (size_t i = 0; i < c->count; i++) {
        c->bundles[i] = i < c->before ? c->group->request.bundles[i] : *each(c);
        c->is_open[i] = i >= c->before;
        c->p.first[i + 1] = (uint32_t)(i + 1) * c->width;
    }
    if (!c->group)
        return 0;
    memcpy(c->p.nodes, c->group->placement.nodes, c->before * sizeof *c->p.nodes);
    memcpy(c->p.devices,
           c->group->placement.devices,
           c->before * c->width * sizeof *c->p.devices);
    return 0;
}

/* ---- bundles that stay, bundles that do not ---------------------------------------- */

static bool is_in(const struct ms_scope *s, uint32_t node)
{
    for (size_t i = 0; i < s->count; i++)
        if (s->nodes[i] == node)
            return true;
    return false;
}

static bool is_wanted(const struct change *c, size_t i)
{
    return i >= c->r->first && i - c->r->first < c->r->count;
}

/* Of those that are wanted, what is on no node of the scope, or is of another size. */
static void give_old(struct change *c, const struct ms_scope *scope)
{
    for (size_t i = 0; i < c->before; i++) {
        bool is_there = !node_of(c, i)->is_gone && is_in(scope, c->p.nodes[i]);

        if (!is_wanted(c, i) || (is_there && c->bundles[i].memory == each(c)->memory))
            continue;
        ms_bundle_give(&c->bundles[i], node_of(c, i), devices_of(c, i));
        c->bundles[i] = *each(c);
        c->is_given[i] = c->is_open[i] = true;
    }
}

/* Where they are already, for those of which that is known. */
static void hold_known(struct change *c)
{
    for (size_t i = c->before; c->r->known && i < c->count; i++) {
        const struct ms_known_seat *k = &c->r->known[i - c->r->first];
        const struct ms_stock_node *n =
            is_wanted(c, i) ? ms_stock_find(&c->books->stock, k->node) : NULL;
        bool is_good = n && k->device_count == c->width;

        for (uint32_t d = 0; is_good && d < c->width; d++)
            is_good = k->devices[d] < n->device_count;
        if (!is_good)
            continue;
        c->p.nodes[i] = (uint32_t)(n - c->books->stock.nodes);
        if (c->width)
            memcpy(devices_of(c, i), k->devices, c->width * sizeof *k->devices);
        ms_bundle_hold(&c->bundles[i], node_of(c, i), devices_of(c, i));
        c->is_open[i] = false;
        c->is_taken[i] = true;
    }
}

/* Those of another size stay on their node if it has room. */
static void stay(struct change *c, const struct ms_scope *scope)
{
    for (size_t i = 0; i < c->before; i++)
        if (c->is_open[i] && !node_of(c, i)->is_gone && is_in(scope, c->p.nodes[i]) &&
            ms_bundle_take(&c->bundles[i], node_of(c, i), devices_of(c, i))) {
            c->is_open[i] = false;
            c->is_taken[i] = true;
        }
}

/* ---- places for those that are open ------------------------------------------------- */

static const char *label_of(const struct change *c, uint32_t node)
{
    const struct ms_stock_node *n = &c->books->stock.nodes[node];

    return ms_label_find(n->labels, n->label_count, c->r->like->same);
}

/* May an open bundle be on this node, as the others are placed? */
static bool goes_with_others(const struct change *c, uint32_t node)
{
    const struct ms_place_request *like = c->r->like;

    for (size_t i = 0; i < c->count; i++) {
        const char *a, *b;

        if (c->is_open[i])
            continue;
        if (like->strategy == MS_STRATEGY_STRICT_PACK && c->p.nodes[i] != node)
            return false;
        if (like->strategy == MS_STRATEGY_STRICT_SPREAD && c->p.nodes[i] == node)
            return false;
        if (!like->same)
            continue;
        a = label_of(c, node);
        b = label_of(c, c->p.nodes[i]);
        if (!a || !b || strcmp(a, b) != 0)
            return false;
    }
    return true;
}

/* The names of nodes on which open bundles may be; malloc'd. NULL: out of memory. */
static const char **
find_nodes(const struct change *c, const struct ms_scope *scope, size_t *count)
{
    const char **names = calloc(scope->count + 1, sizeof *names);

    *count = 0;
    for (size_t i = 0; names && i < scope->count; i++)
        if (!c->books->stock.nodes[scope->nodes[i]].is_gone &&
            goes_with_others(c, scope->nodes[i]))
            names[(*count)++] = c->books->stock.nodes[scope->nodes[i]].name;
    return names;
}

static void scatter(struct change *c, const struct ms_placement *from)
{
    for (size_t i = 0, k = 0; i < c->count; i++) {
        if (!c->is_open[i])
            continue;
        c->p.nodes[i] = from->nodes[k];
        if (c->width)
            memcpy(devices_of(c, i),
                   from->devices + from->first[k],
                   c->width * sizeof *from->devices);
        c->is_open[i] = false;
        c->is_taken[i] = true;
        k++;
    }
}

/* Whose bundles they are knows their number; what each of them needs, the file alone. */
static void add_needs(const struct change *c, struct ms_error *err)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf text = {0};
    struct ms_error whole = {0};

    if (!err)
        return;
    whole = *err;
    ms_bundle_print(&c->books->stock, each(c), &text);
    if (text.len)
        ms_error_set(
            err, whole.code, "%s; each needs %s", whole.text, ms_buf_str(&text));
}

static int place_among(struct change *c,
                       const struct ms_place_request *r,
                       struct ms_buf *table,
                       struct ms_error *err)
{
    MS_CLEANUP(ms_placement_finish) struct ms_placement p = {0};
    struct ms_holders holders = ms_books_holders(c->books);
    int rc = ms_place(&c->books->stock, r, &p, err);

    if (rc == -EAGAIN)
        rc = -ENOSPC; /* nobody has shown that there is a way */
    if (rc == -ENOSPC && table &&
        ms_place_explain(&c->books->stock, r, &holders, table) < 0)
        rc = ms_error_set(err, -ENOMEM, "out of memory");
    if (rc == -ENOSPC && ms_books_check_group(c->books, r, NULL) == 0)
        ms_error_set(err,
                     rc,
                     "group '%s': what its %s need%s is held by others",
                     r->name,
                     ms_amount_count(r->count, "bundle").text,
                     r->count == 1 ? "s" : "");
    if (rc == -ENOSPC)
        add_needs(c, err);
    if (rc == 0)
        scatter(c, &p);
    return rc;
}

static int place_open(struct change *c,
                      const struct ms_scope *scope,
                      struct ms_buf *table,
                      struct ms_error *err)
{
    MS_CLEANUP(ms_cleanup_free)
    struct ms_bundle *bundles = calloc(c->count + 1, sizeof *bundles);
    struct ms_scope_request among = {.devices_per_node = MS_ALL_DEVICES};
    struct ms_place_request r = *c->r->like;
    MS_CLEANUP(ms_cleanup_free)
    const char **names = find_nodes(c, scope, &among.name_count);

    if (!bundles || !names)
        return ms_error_set(err, -ENOMEM, "out of memory");
    r.count = 0;
    for (size_t i = 0; i < c->count; i++)
        if (c->is_open[i])
            bundles[r.count++] = c->bundles[i];
    if (r.count == 0)
        return 0;
    if (among.name_count == 0)
        return ms_error_set(err,
                            -ENOSPC,
                            "group '%s': no node is left for %s of its bundles (%s)",
                            r.name,
                            c->before ? "some" : "any",
                            ms_strategy_name(r.strategy));
    if (r.scope)
        among.devices_per_node = r.scope->devices_per_node;
    among.names = names;
    r.bundles = bundles;
    r.scope = &among;
    return place_among(c, &r, table, err);
}

/* ---- undone, or done --------------------------------------------------------------- */

static void give_taken(struct change *c)
{
    for (size_t i = 0; i < c->count; i++)
        if (c->is_taken[i])
            ms_bundle_give(&c->bundles[i], node_of(c, i), devices_of(c, i));
}

static void undo(struct change *c)
{
    const struct ms_group *g = c->group;

    give_taken(c);
    for (size_t i = 0; i < c->before; i++)
        if (c->is_given[i])
            ms_bundle_hold(&g->request.bundles[i],
                           &c->books->stock.nodes[g->placement.nodes[i]],
                           g->placement.devices + g->placement.first[i]);
}

/* The request for the group as it will be; it borrows. */
static struct ms_place_request request_of(const struct change *c)
{
    struct ms_place_request r = *c->r->like;

    r.bundles = c->bundles;
    r.count = c->count;
    r.scope = NULL;
    return r;
}

static int make_new(struct change *c, struct ms_error *err)
{
    struct ms_place_request r = request_of(c);
    int rc;

    give_taken(c); /* it is held with the group */
    rc = ms_books_restore(c->books, &r, &c->p, &c->group, err);
    if (rc < 0)
        return rc;
    c->group->id = ++c->books->last_id;
    c->group->owner = c->r->owner;
    c->group->detached = c->group->is_of_clusters = true;
    c->group->least = c->r->like->count;
    return 0;
}

static void follow(struct ms_claim *claim, const struct ms_group *g)
{
    const struct ms_placement *p = &g->placement;
    struct ms_layout *l = &claim->layout;

    for (uint32_t i = 0; claim->seats && i < l->world_size; i++) {
        uint32_t bundle = claim->seats[i].bundle;

        if (claim->seats[i].group != g)
            continue;
        l->pieces[i].node = p->nodes[bundle];
        if (l->pieces[i].count)
            memcpy(l->devices + l->pieces[i].first,
                   p->devices + p->first[bundle],
                   l->pieces[i].count * sizeof *l->devices);
    }
}

static int change_group(struct change *c, struct ms_error *err)
{
    struct ms_group *g = c->group;
    struct ms_place_request r = request_of(c), copy;
    struct ms_bundle_use *uses = calloc(c->count + 1, sizeof *uses);

    if (!uses || ms_place_request_copy(&copy, &r) < 0) {
        free(uses);
        undo(c);
        return ms_error_set(err, -ENOMEM, "group '%s': out of memory", g->name);
    }
    if (g->uses)
        memcpy(uses, g->uses, c->before * sizeof *uses);
    free(g->uses);
    g->uses = uses;
    ms_place_request_finish(&g->request);
    g->request = copy;
    ms_placement_finish(&g->placement);
    g->placement = c->p;
    c->p = (struct ms_placement){0};
    ms_list_each (claim, &c->books->claims, struct ms_claim, link)
        follow(claim, g);
    return 0;
}

static int carry_out(struct change *c,
                     const struct ms_scope *scope,
                     struct ms_buf *table,
                     struct ms_error *err)
{
    int rc;

    if (change_init(c) < 0)
        return ms_error_set(err, -ENOMEM, "out of memory");
    hold_known(c);
    if (!c->r->known) {
        give_old(c, scope);
        stay(c, scope);
    }
    rc = place_open(c, scope, table, err);
    if (rc < 0) {
        undo(c);
        return rc;
    }
    return c->group ? change_group(c, err) : make_new(c, err);
}

/* ---- asking ------------------------------------------------------------------------ */

static int find_group(struct change *c, struct ms_error *err)
{
    const char *name = c->r->like->name;

    ms_list_each (g, &c->books->groups.all, struct ms_group, link)
        if (strcmp(g->name, name) == 0)
            c->group = g;
    if (!c->group || c->group->is_of_clusters)
        return 0;
    return ms_error_set(err, -EEXIST, "there is a group '%s' already", name);
}

int ms_books_seat(struct ms_books *b,
                  const struct ms_seats_request *r,
                  struct ms_seat *seats,
                  struct ms_buf *table,
                  struct ms_error *err)
{
    static const struct ms_scope_request all = {.devices_per_node = MS_ALL_DEVICES};
    MS_CLEANUP(ms_scope_finish) struct ms_scope scope = {0};
    MS_CLEANUP(change_finish) struct change c = {.books = b, .r = r};
    int rc = ms_bundle_check(each(&c), err);

    if (rc < 0 || r->first + (size_t)r->count > MS_PLACE_BUNDLES_MAX)
        return rc < 0 ? rc : ms_error_set(err, -E2BIG, "too many bundles");
    rc = find_group(&c, err);
    if (rc == 0 && c.group &&
        ms_bundle_width(c.group->request.bundles) != ms_bundle_width(each(&c)))
        rc = ms_error_set(err, -EINVAL, "group '%s' has other bundles", r->like->name);
    if (rc == 0)
        rc = ms_scope_init(
            &scope, &b->stock, r->like->scope ? r->like->scope : &all, table, err);
    if (rc == 0)
        rc = carry_out(&c, &scope, table, err);
    for (uint32_t i = 0; rc == 0 && i < r->count; i++)
        seats[i] = (struct ms_seat){c.group, r->first + i};
    return rc == -ENOENT ? -ENOSPC : rc;
}

/* ---- those that nobody needs any more ---------------------------------------------- */

static size_t needed(const struct ms_books *b, const struct ms_group *g)
{
    size_t most = 0;

    ms_list_each (c, &b->claims, struct ms_claim, link)
        for (uint32_t i = 0; c->seats && i < c->layout.world_size; i++)
            if (c->seats[i].group == g && c->seats[i].bundle >= most)
                most = (size_t)c->seats[i].bundle + 1;
    return most;
}

void ms_group_cut(struct ms_books *b, struct ms_group *g)
{
    size_t keep = needed(b, g), before = g->request.count;
    struct ms_placement *p = &g->placement;

    if (keep == 0 || !g->is_of_clusters)
        return;
    keep = keep > g->least ? keep : g->least;
    for (size_t i = keep; i < before; i++)
        ms_bundle_give(&g->request.bundles[i],
                       &b->stock.nodes[p->nodes[i]],
                       p->devices + p->first[i]);
    if (keep < before)
        g->request.count = p->count = keep;
}

int ms_books_reseat(struct ms_books *b,
                    const char *cluster,
                    uint64_t owner,
                    const char *group,
                    uint32_t count,
                    struct ms_error *err)
{
    struct ms_group *g = ms_books_find_group(b, group);
    MS_CLEANUP(ms_cleanup_free)
    struct ms_seat *seats = calloc(count + 1, sizeof *seats);
    struct ms_claim_request r = {.owner = owner,
                                 .request = {.cluster = cluster, .world_size = count},
                                 .seats = seats,
                                 .seat_count = count};
    struct ms_claim *claim = NULL;
    int rc;

    if (!g || count > g->request.count)
        return -ENOENT;
    if (!seats)
        return -ENOMEM;
    for (uint32_t i = 0; i < count; i++)
        seats[i] = (struct ms_seat){g, i};
    g->users++; /* it stays meanwhile */
    ms_books_drop_cluster(b, cluster);
    rc = ms_books_claim(b, &r, &claim, NULL, err);
    g->users--;
    ms_books_settle(b);
    return rc;
}
