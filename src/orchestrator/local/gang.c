#include "base/cleanup.h"
#include "orchestrator/local/local_impl.h"
#include "resource/request_copy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- how agents are started -------------------------------------------------------- */

static int copy_text(char **to, const char *from)
{
    if (from && !(*to = strdup(from)))
        return -ENOMEM;
    return 0;
}

void ms_agent_start_finish(struct agent_start *s)
{
    for (size_t i = 0; s->env && s->env[i]; i++)
        free(s->env[i]);
    free(s->env);
    free(s->head);
    free(s->secret_file);
    *s = (struct agent_start){0};
}

int ms_agent_start_copy(struct agent_start *to, const struct ms_agent_start *from)
{
    size_t count = 0;
    int rc;

    *to = (struct agent_start){0};
    if (!from)
        return 0;
    while (from->env && from->env[count])
        count++;
    to->env = calloc(count + 1, sizeof(char *));
    rc = to->env ? copy_text(&to->head, from->head) : -ENOMEM;
    if (rc == 0)
        rc = copy_text(&to->secret_file, from->secret_file);
    for (size_t i = 0; i < count && rc == 0; i++)
        rc = copy_text(&to->env[i], from->env[i]);
    if (rc < 0)
        ms_agent_start_finish(to);
    return rc;
}

/* ---- gangs ------------------------------------------------------------------------- */

struct gang *ms_gang_create(struct local *l, const struct ms_reserve *r, uint32_t first)
{
    struct gang *g = calloc(1, sizeof *g);

    if (!g)
        return NULL;
    ms_list_init(&g->parts);
    ms_list_init(&g->link);
    g->local = l;
    g->first = first;
    g->left = r->pieces.count;
    g->is_released = calloc(r->pieces.count, sizeof *g->is_released);
    snprintf(g->key, sizeof g->key, "%s", r->key);
    if (!g->is_released || ms_request_copy(&g->pieces, &r->pieces) < 0 ||
        ms_agent_start_copy(&g->start, r->agent) < 0) {
        ms_gang_destroy(g);
        return NULL;
    }
    ms_list_add_tail(&l->gangs, &g->link);
    l->has_room = true;
    return g;
}

void ms_gang_destroy(struct gang *g)
{
    ms_list_each (p, &g->parts, struct part, link)
        ms_part_destroy(p);
    ms_list_remove(&g->link);
    ms_placement_finish(&g->placement);
    ms_request_finish(&g->pieces);
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
    struct ms_mirrored *r = ms_mirror_find(&l->mirror, g->key);

    for (size_t i = 0; r && i < g->pieces.count; i++) {
        uint32_t at = g->placement.nodes[i], first = g->placement.first[i];
        struct ms_lent_piece said = *like;

        if (at != node)
            continue;
        said.number = g->first + (uint32_t)i;
        said.incarnation = 1;
        said.node = l->stock.nodes[at].name;
        said.devices = g->placement.devices + first;
        said.device_count = g->placement.first[i + 1] - first;
        ms_mirror_tell(&l->mirror, r, &said);
    }
    ms_watches_wake(&l->watches);
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

    for (size_t i = 0; i < l->stock.count; i++)
        if (l->avoided[i] && len < sizeof g->why.text)
            len += (size_t)snprintf(g->why.text + len,
                                    sizeof g->why.text - len,
                                    "; %.30s is avoided: %.60s",
                                    l->stock.nodes[i].name,
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
    int rc = ms_place(&l->stock, &g->pieces, &g->placement, &g->why);

    if (rc < 0) {
        add_avoided(g);
        return;
    }
    rc = create_parts(g);
    if (rc < 0) {
        ms_error_set(&g->why, rc, "out of memory");
        ms_place_release(&l->stock, &g->pieces, &g->placement);
        return;
    }
    g->is_placed = true;
    ms_list_each (p, &g->parts, struct part, link)
        ms_part_start(p);
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
