/* plan_print.c - the map of a plan, for people and as JSON */
#include "base/cleanup.h"
#include "base/json.h"
#include "job/plan.h"
#include "resource/grid.h"
#include "resource/mapping.h"

#include <errno.h>

/* Which roles stand on each device: [role * devices + id]. */
struct seen {
    bool *on;
    size_t devices, roles;
};

static int seen_init(struct seen *s, const struct ms_job_plan *p)
{
    *s = (struct seen){.devices = ms_scope_devices(&p->scope),
                       .roles = p->job->role_count};
    s->on = calloc(s->devices * s->roles + 1, sizeof *s->on);
    if (!s->on)
        return -ENOMEM;
    for (size_t r = 0; r < s->roles; r++) {
        const struct ms_layout *l = &p->claims[r]->layout;

        for (uint32_t i = 0; i < l->first[l->world_size]; i++) {
            uint32_t id = p->first_ids[l->pieces[i].node];

            for (uint32_t d = 0; d < l->pieces[i].count; d++)
                s->on[r * s->devices + id + l->devices[l->pieces[i].first + d]] = true;
        }
    }
    return 0;
}

/* Does this role stand on one of these devices? */
static bool is_on(const struct seen *s,
                  size_t role,
                  uint32_t id,
                  const uint32_t *devices,
                  uint32_t count)
{
    for (uint32_t d = 0; d < count; d++)
        if (s->on[role * s->devices + id + devices[d]])
            return true;
    return false;
}

/* ---- for people ------------------------------------------------------------------ */

static void
add_mapping(struct ms_grid *g, const uint32_t *ids, size_t count, uint32_t base)
{
    struct ms_buf text = {0};

    if (count && ms_mapping_print(ids, count, base, &text) < 0)
        g->failed = -ENOMEM;
    ms_grid_add(g, NULL, "%s", text.len ? ms_buf_str(&text) : "-");
    ms_buf_finish(&text);
}

static void add_others(struct ms_grid *g,
                       const struct ms_job_plan *p,
                       const struct seen *s,
                       size_t role,
                       const struct ms_piece *piece)
{
    const uint32_t *devices = p->claims[role]->layout.devices + piece->first;
    struct ms_buf text = {0};

    for (size_t r = 0; r < s->roles; r++)
        if (r != role &&
            is_on(s, r, p->first_ids[piece->node], devices, piece->count) &&
            ms_buf_printf(&text, "%s%s", text.len ? ", " : "", p->job->roles[r].name) <
                0)
            g->failed = -ENOMEM;
    ms_grid_add(g, NULL, "%s", text.len ? ms_buf_str(&text) : "");
    ms_buf_finish(&text);
}

static void add_role(struct ms_grid *g,
                     const struct ms_job_plan *p,
                     const struct seen *s,
                     size_t role)
{
    const struct ms_layout *l = &p->claims[role]->layout;

    for (uint32_t rank = 0; rank < l->world_size; rank++)
        for (uint32_t at = l->first[rank]; at < l->first[rank + 1]; at++) {
            const struct ms_piece *piece = &l->pieces[at];
            bool is_first = at == l->first[rank];

            ms_grid_add(
                g, NULL, "%s", rank || !is_first ? "" : p->job->roles[role].name);
            if (is_first)
                ms_grid_add(g, NULL, "%u", rank);
            else
                ms_grid_add(g, NULL, "+");
            ms_grid_add(g, NULL, "%s", p->books.stock.nodes[piece->node].name);
            add_mapping(g, l->devices + piece->first, piece->count, 0);
            add_mapping(
                g, l->devices + piece->first, piece->count, p->first_ids[piece->node]);
            add_others(g, p, s, role, piece);
        }
}

int ms_job_plan_print(const struct ms_job_plan *p, struct ms_buf *out)
{
    static const char *const title[] = {
        "ROLE", "RANK", "NODE", "DEVICES", "GLOBAL", "SHARED WITH"};
    struct ms_grid g;
    struct seen s;
    int rc = seen_init(&s, p);

    ms_grid_init(&g, "lrllll");
    for (size_t i = 0; i < MS_COUNT(title); i++)
        ms_grid_add(&g, NULL, "%s", title[i]);
    for (size_t i = 0; i < p->job->role_count && rc == 0; i++)
        add_role(&g, p, &s, i);
    if (rc == 0)
        rc = ms_grid_print(&g, out);
    ms_grid_finish(&g);
    free(s.on);
    return rc;
}

/* ---- for programs ---------------------------------------------------------------- */

static json_t *ids_json(const uint32_t *ids, size_t count, uint32_t base)
{
    json_t *list = json_array();

    for (size_t i = 0; i < count; i++)
        json_array_append_new(list, json_integer((json_int_t)ids[i] + base));
    return list;
}

static json_t *piece_json(const struct ms_job_plan *p,
                          const struct ms_layout *l,
                          const struct ms_piece *piece)
{
    const uint32_t *devices = l->devices + piece->first;

    return MS_JSON({"node", json_string(p->books.stock.nodes[piece->node].name)},
                   {"devices", ids_json(devices, piece->count, 0)},
                   {"ids", ids_json(devices, piece->count, p->first_ids[piece->node])});
}

static json_t *
rank_json(const struct ms_job_plan *p, const struct ms_layout *l, uint32_t rank)
{
    json_t *o = piece_json(p, l, &l->pieces[l->first[rank]]), *helpers = json_array();

    for (uint32_t at = l->first[rank] + 1; at < l->first[rank + 1]; at++)
        json_array_append_new(helpers, piece_json(p, l, &l->pieces[at]));
    json_object_set_new(o, "rank", json_integer(rank));
    json_object_set_new(o, "helpers", helpers);
    return o;
}

static json_t *role_json(const struct ms_job_plan *p, size_t role)
{
    const struct ms_layout *l = &p->claims[role]->layout;
    json_t *ranks = json_array();

    for (uint32_t rank = 0; rank < l->world_size; rank++)
        json_array_append_new(ranks, rank_json(p, l, rank));
    return MS_JSON({"name", json_string(p->job->roles[role].name)},
                   {"world_size", json_integer(l->world_size)},
                   {"ranks", ranks});
}

static json_t *nodes_json(const struct ms_job_plan *p)
{
    json_t *nodes = json_array();

    for (size_t i = 0; i < p->scope.count; i++) {
        const struct ms_stock_node *n = &p->books.stock.nodes[p->scope.nodes[i]];

        json_array_append_new(nodes,
                              MS_JSON({"name", json_string(n->name)},
                                      {"cpus", json_real((double)n->cpu_milli / 1000)},
                                      {"memory", json_integer((json_int_t)n->memory)},
                                      {"devices", json_integer(n->device_count)},
                                      {"first_id", json_integer(p->scope.first[i])}));
    }
    return nodes;
}

json_t *ms_job_plan_json(const struct ms_job_plan *p)
{
    json_t *roles = json_array();

    for (size_t i = 0; i < p->job->role_count; i++)
        json_array_append_new(roles, role_json(p, i));
    return MS_JSON({"nodes", nodes_json(p)}, {"roles", roles});
}
