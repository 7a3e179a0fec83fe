/* gang.c - pieces that were asked for together: they wait, are placed, and are released */
#include "base/cleanup.h"
#include "orchestrator/local/local_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- gangs ------------------------------------------------------------------------- */

int ms_gang_create(struct local *l, struct ms_orch_op *launch)
{
    struct gang *g = calloc(1, sizeof *g);

    if (!g || !(g->is_released = calloc(launch->piece_count, sizeof(bool)))) {
        free(g);
        return -ENOMEM;
    }
    ms_list_init(&g->parts);
    g->local = l;
    g->first = launch->first;
    g->mark = launch->mark;
    g->left = launch->piece_count;
    g->pieces = launch->pieces;
    g->start = launch->agent;
    launch->pieces = (struct ms_place_request){0};
    launch->agent = (struct ms_agent_start){0};
    snprintf(g->key, sizeof g->key, "%s", launch->key);
    ms_list_add_tail(&l->gangs, &g->link);
    l->has_room = true;
    return 0;
}

void ms_gang_destroy(struct gang *g)
{
    ms_list_each (p, &g->parts, struct part, link)
        ms_part_destroy(p);
    ms_list_remove(&g->link);
    ms_placement_finish(&g->placement);
    ms_place_request_finish(&g->pieces);
    ms_agent_start_finish(&g->start);
    free(g->is_released);
    free(g);
}

struct gang *ms_gang_find(const struct local *l, const char *key, uint32_t number)
{
    ms_list_each (g, &l->gangs, struct gang, link)
        if (strcmp(g->key, key) == 0 && number >= g->first &&
            number - g->first < g->pieces.count)
            return g;
    return NULL;
}

void ms_gang_tell(struct gang *g, uint32_t node, const struct ms_lent_piece *like)
{
    struct local *l = g->local;
    struct ms_inventory_entry *r = ms_inventory_find(&l->controller.inventory, g->key);

    for (size_t i = 0; r && i < g->pieces.count; i++) {
        uint32_t at = g->placement.nodes[i], first = g->placement.first[i];
        struct ms_lent_piece said = *like;

        if (at != node)
            continue;
        said.number = g->first + (uint32_t)i;
        said.incarnation = 1;
        said.node = l->nodes.stock.nodes[at].name;
        said.devices = g->placement.devices + first;
        said.device_count = g->placement.first[i + 1] - first;
        ms_inventory_update(&l->controller.inventory, r, &said);
    }
    ms_controller_news(&l->controller);
}

/* ---- placing ----------------------------------------------------------------------- */

static bool has_part(const struct gang *g, uint32_t node)
{
    ms_list_each (p, &g->parts, struct part, link)
        if (p->node == node)
            return true;
    return false;
}

/* What it would need is on nodes that are avoided, perhaps: say so. */
static void add_avoided(struct gang *g)
{
    const struct local *l = g->local;
    size_t len = strlen(g->why.text);

    for (size_t i = 0; i < l->nodes.stock.count; i++)
        if (l->avoided[i] && len < sizeof g->why.text)
            len += (size_t)snprintf(g->why.text + len,
                                    sizeof g->why.text - len,
                                    "; %.30s is avoided: %.60s",
                                    l->nodes.stock.nodes[i].name,
                                    l->avoided[i]);
}

static int create_parts(struct gang *g)
{
    int rc = 0;

    for (size_t i = 0; i < g->pieces.count && rc == 0; i++)
        if (!has_part(g, g->placement.nodes[i]))
            rc = ms_part_create(g, g->placement.nodes[i]);
    if (rc < 0)
        ms_list_each (p, &g->parts, struct part, link)
            ms_part_destroy(p);
    return rc;
}

static void place(struct gang *g)
{
    struct local *l = g->local;
    int rc = ms_place(&l->nodes.stock, &g->pieces, &g->placement, &g->why);

    if (rc < 0) {
        add_avoided(g);
        return;
    }
    rc = create_parts(g);
    if (rc < 0) {
        ms_error_set(&g->why, rc, "out of memory");
        ms_place_release(&l->nodes.stock, &g->pieces, &g->placement);
        return;
    }
    g->is_placed = true;
    /* the next controller looks for what it finds written down without a process */
    rc = ms_gang_file_write(l, &g->why);
    ms_list_each (p, &g->parts, struct part, link)
        ms_part_start(p, rc < 0 ? &g->why : NULL);
    ms_gang_file_write(l, NULL);
}

void ms_gangs_place(struct local *l)
{
    if (!l->has_room)
        return;
    l->has_room = false;
    ms_list_each (g, &l->gangs, struct gang, link)
        if (!g->is_placed)
            place(g);
}

/* ---- releasing --------------------------------------------------------------------- */

static struct part *part_of(const struct gang *g, uint32_t number)
{
    ms_list_each (p, &g->parts, struct part, link)
        if (p->node == g->placement.nodes[number - g->first])
            return p;
    return NULL;
}

bool ms_gang_release(struct gang *g, uint32_t number)
{
    struct part *p;

    if (g->is_released[number - g->first])
        return false;
    g->is_released[number - g->first] = true;
    g->left--;
    p = g->is_placed ? part_of(g, number) : NULL;
    if (p && --p->left == 0)
        ms_part_stop(p);
    return true;
}

bool ms_gang_is_clear(const struct gang *g, uint32_t number)
{
    const struct part *p = g->is_placed ? part_of(g, number) : NULL;

    return !p || !p->is_alive || p->left > 0;
}
