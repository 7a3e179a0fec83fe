/* messages.c - groups, placements and resources as messages */
#include "base/cleanup.h"
#include "base/proto.h"
#include "head/head_impl.h"
#include "head/nodes/node.h"
#include "head/ops/op.h"
#include "head/place/place_impl.h"
#include "resource/why.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static Muster__Piece *piece_message(const struct ms_stock *s,
                                    uint32_t node,
                                    const uint32_t *devices,
                                    size_t count)
{
    Muster__Piece p = MUSTER__PIECE__INIT;

    p.node = ms_field_text(s->nodes[node].name);
    p.devices = (uint32_t *)(uintptr_t)devices;
    p.n_devices = count;
    return (Muster__Piece *)ms_proto_copy(&p.base);
}

/* ---- groups ---------------------------------------------------------------------- */

static Muster__GroupState state_of(const struct ms_group *g)
{
    static const Muster__GroupState states[] = {
        [MS_PLACEMENT_WAITING] = MUSTER__GROUP_STATE__GROUP_WAITING,
        [MS_PLACEMENT_PLACED] = MUSTER__GROUP_STATE__GROUP_PLACED,
        [MS_PLACEMENT_BROKEN] = MUSTER__GROUP_STATE__GROUP_BROKEN,
        [MS_PLACEMENT_FAILED] = MUSTER__GROUP_STATE__GROUP_FAILED,
    };

    return states[g->state];
}

static bool
add_pieces(Muster__GroupStatus *m, const struct ms_books *b, const struct ms_group *g)
{
    const struct ms_placement *p = &g->placement;

    for (size_t i = 0; i < p->count; i++)
        if (!ms_proto_append(&m->pieces,
                             &m->n_pieces,
                             piece_message(&b->stock,
                                           p->nodes[i],
                                           p->devices + p->first[i],
                                           p->first[i + 1] - p->first[i])))
            return false;
    return true;
}

/* Why it has failed: the table is as things are now. */
static bool
add_why(Muster__GroupStatus *m, struct ms_books *b, const struct ms_group *g)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf table = {0};
    struct ms_holders holders = ms_books_holders(b);

    if (g->state != MS_PLACEMENT_FAILED)
        return true;
    return ms_place_explain(&b->stock, &g->request, &holders, &table) == 0 &&
           ms_proto_set_text(&m->why, g->why.text) &&
           (table.len == 0 || ms_proto_set_text(&m->table, ms_buf_str(&table)));
}

static bool is_in(const struct ms_claim *c, const struct ms_group *g)
{
    for (uint32_t i = 0; c->seats && i < c->layout.world_size; i++)
        if (c->seats[i].group == g)
            return true;
    return false;
}

static bool
add_clusters(Muster__GroupStatus *m, const struct ms_books *b, const struct ms_group *g)
{
    if (g->users == 0)
        return true;
    m->clusters = calloc(g->users, sizeof(char *));
    if (!m->clusters)
        return false;
    ms_list_each (c, &b->claims, struct ms_claim, link)
        if (m->n_clusters < g->users && is_in(c, g)) {
            m->clusters[m->n_clusters] = strdup(c->cluster);
            if (!m->clusters[m->n_clusters])
                return false;
            m->n_clusters++;
        }
    return true;
}

Muster__GroupStatus *ms_place_group_message(struct ms_books *b,
                                            const struct ms_group *g)
{
    Muster__GroupStatus *m =
        (Muster__GroupStatus *)ms_proto_create(&muster__group_status__descriptor);

    if (!m)
        return NULL;
    m->id = g->id;
    m->state = state_of(g);
    m->bundles = (uint32_t)g->request.count;
    m->driver = g->owner;
    m->detached = g->detached;
    if (ms_proto_set_text(&m->name, g->name) &&
        ms_proto_set_text(&m->strategy, ms_strategy_name(g->request.strategy)) &&
        add_pieces(m, b, g) && add_why(m, b, g) && add_clusters(m, b, g))
        return m;
    muster__group_status__free_unpacked(m, NULL);
    return NULL;
}

bool ms_place_add_groups(struct ms_head *h, Muster__Status *s)
{
    MS_CLEANUP(ms_place_unlock) struct ms_place *desk = ms_place_lock(h);

    ms_list_each (g, &desk->books.groups.all, struct ms_group, link)
        if (!ms_proto_append(
                &s->groups, &s->n_groups, ms_place_group_message(&desk->books, g)))
            return false;
    return true;
}

/* ---- clusters -------------------------------------------------------------------- */

static Muster__RankPlace *
rank_message(const struct ms_books *b, const struct ms_layout *l, uint32_t rank)
{
    Muster__RankPlace *m =
        (Muster__RankPlace *)ms_proto_create(&muster__rank_place__descriptor);

    for (uint32_t i = l->first[rank]; m && i < l->first[rank + 1]; i++) {
        const struct ms_piece *p = &l->pieces[i];

        if (!ms_proto_append(
                &m->pieces,
                &m->n_pieces,
                piece_message(&b->stock, p->node, l->devices + p->first, p->count))) {
            muster__rank_place__free_unpacked(m, NULL);
            return NULL;
        }
    }
    return m;
}

Muster__ClusterPlaced *ms_place_cluster_message(const struct ms_books *b,
                                                const struct ms_layout *l)
{
    Muster__ClusterPlaced *m =
        (Muster__ClusterPlaced *)ms_proto_create(&muster__cluster_placed__descriptor);

    for (uint32_t i = 0; m && i < l->world_size; i++)
        if (!ms_proto_append(&m->ranks, &m->n_ranks, rank_message(b, l, i))) {
            muster__cluster_placed__free_unpacked(m, NULL);
            return NULL;
        }
    return m;
}

/* ---- what there is --------------------------------------------------------------- */

void ms_place_scope(const Muster__Scope *m, struct ms_scope_request *out)
{
    *out = (struct ms_scope_request){.devices_per_node = MS_ALL_DEVICES};
    if (!m)
        return;
    out->num_nodes = m->num_nodes;
    if (m->is_limited)
        out->devices_per_node = m->devices_per_node;
    if (m->n_nodes) {
        out->names = (const char *const *)m->nodes;
        out->name_count = m->n_nodes;
    }
}

static Muster__NodeUse *node_message(const struct ms_stock_node *n, uint32_t devices)
{
    Muster__NodeUse m = MUSTER__NODE_USE__INIT;

    m.name = ms_field_text(n->name);
    m.cpu_milli = n->cpu_milli;
    m.cpu_milli_held = n->cpu_milli_held;
    m.memory = n->memory;
    m.memory_held = n->memory_held;
    m.devices = devices;
    m.devices_free = n->whole;
    m.gone = n->is_gone;
    return (Muster__NodeUse *)ms_proto_copy(&m.base);
}

static Muster__Resources *resources_message(struct ms_books *b,
                                            const struct ms_scope *scope)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf table = {0};
    Muster__Resources *m =
        (Muster__Resources *)ms_proto_create(&muster__resources__descriptor);
    bool is_good = m && ms_books_print(b, scope, &table) == 0 &&
                   ms_proto_set_text(&m->table, ms_buf_str(&table));

    for (size_t i = 0; is_good && i < scope->count; i++)
        is_good = ms_proto_append(&m->nodes,
                                  &m->n_nodes,
                                  node_message(&b->stock.nodes[scope->nodes[i]],
                                               ms_scope_devices_of(scope, i)));
    if (is_good)
        return m;
    muster__resources__free_unpacked(m, NULL);
    return NULL;
}

int ms_place_resources_run(struct ms_head_op *op)
{
    struct ms_place *desk = &op->head->place;
    MS_CLEANUP(ms_scope_finish) struct ms_scope scope = {0};
    struct ms_scope_request r;
    Muster__Resources *m = NULL;
    int rc;

    ms_place_scope(op->request->resources->scope, &r);
    pthread_mutex_lock(&desk->lock);
    rc = ms_scope_init(&scope, &desk->books.stock, &r, &op->table, &op->error);
    if (rc == 0 && !(m = resources_message(&desk->books, &scope)))
        rc = -ENOMEM;
    pthread_mutex_unlock(&desk->lock);
    if (rc == 0)
        ms_head_op_succeed(op, &m->base);
    return rc;
}
