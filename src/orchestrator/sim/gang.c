/* gang.c - the gangs of the simulated backend: they are placed, start and end */
#include "base/cleanup.h"
#include "orchestrator/sim/backend_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- pieces ------------------------------------------------------------------------ */

void ms_sim_gang_unref(struct gang *g)
{
    if (--g->refs > 0)
        return;
    ms_placement_finish(&g->placement);
    ms_place_request_finish(&g->pieces);
    free(g->instances);
    free(g);
}

/* What it holds is given back. */
static void give_back(struct instance *i)
{
    struct gang *g = i->gang;
    struct ms_sim *s = g->sim;

    if (ms_list_is_empty(&i->on_node))
        return;
    ms_list_remove(&i->on_node);
    ms_bundle_give(&g->pieces.bundles[i->piece.number - g->first],
                   &s->stock.nodes[i->node],
                   i->piece.devices);
    s->held--;
}

void ms_sim_piece_end(struct instance *i, enum ms_cause cause, int code)
{
    if (i->piece.phase == MS_PHASE_ENDED)
        return;
    i->piece.phase = MS_PHASE_ENDED;
    i->piece.cause = cause;
    i->piece.code = code;
    i->piece.detail = ms_cause_name(cause);
    give_back(i);
    ms_sim_tell(i->gang->sim, i);
}

void ms_sim_piece_started(void *arg)
{
    struct instance *i = arg;
    struct gang *g = i->gang;

    if (i->piece.phase == MS_PHASE_STARTING) {
        if (ms_sim_chance(g->sim, g->sim->faults.refuse)) {
            ms_sim_piece_end(i, MS_CAUSE_REFUSED, 0);
        } else {
            i->piece.phase = MS_PHASE_RUNNING;
            ms_sim_tell(g->sim, i);
        }
    }
    ms_sim_gang_unref(g);
}

static void start(struct gang *g, size_t at)
{
    struct ms_sim *s = g->sim;
    struct instance *i = &g->instances[at];
    uint32_t first = g->placement.first[at];

    i->gang = g;
    i->node = g->placement.nodes[at];
    i->piece =
        (struct ms_lent_piece){.number = g->first + (uint32_t)at,
                               .incarnation = 1,
                               .phase = MS_PHASE_STARTING,
                               .node = s->stock.nodes[i->node].name,
                               .devices = g->placement.devices + first,
                               .device_count = g->placement.first[at + 1] - first};
    ms_list_add_tail(&s->nodes[i->node].instances, &i->on_node);
    s->held++;
    ms_sim_tell(s, i);
    g->refs++;
    if (!ms_sim_clock_add(&s->clock,
                          MS_NS_PER_MS + ms_sim_up_to(s, s->faults.start_ns),
                          ms_sim_piece_started,
                          i)) {
        g->refs--;
        ms_sim_piece_end(i, MS_CAUSE_REFUSED, 0);
    }
}

/* ---- gangs ------------------------------------------------------------------------- */

/* 0: its pieces start now. */
int ms_sim_gang_place(struct gang *g, struct ms_error *err)
{
    int rc = 0;

    g->instances = calloc(g->pieces.count, sizeof *g->instances);
    if (g->instances)
        rc = ms_place(&g->sim->stock, &g->pieces, &g->placement, err);
    else
        rc = ms_error_sys(err, -ENOMEM, "placing");
    if (rc < 0) {
        free(MS_TAKE(g->instances));
        return rc;
    }
    for (size_t i = 0; i < g->pieces.count; i++)
        ms_list_init(&g->instances[i].on_node);
    for (size_t i = 0; i < g->pieces.count; i++)
        start(g, i);
    return 0;
}

void ms_sim_retry_waiting(struct ms_sim *s)
{
    ms_list_each (g, &s->gangs, struct gang, link)
        if (!g->instances && ms_sim_gang_place(g, NULL) == 0)
            ms_sim_reply(s, g->request, 0, NULL);
}

void ms_sim_gang_remove(struct gang *g)
{
    for (size_t i = 0; g->instances && i < g->pieces.count; i++)
        ms_sim_piece_end(&g->instances[i], MS_CAUSE_RELEASED, 0);
    ms_list_remove(&g->link);
    ms_sim_gang_unref(g);
}

struct gang *ms_sim_gang_create(struct ms_sim *s,
                                const char *key,
                                const struct ms_place_request *pieces)
{
    struct gang *g = calloc(1, sizeof *g);

    if (!g || ms_place_request_copy(&g->pieces, pieces) < 0) {
        free(g);
        return NULL;
    }
    g->sim = s;
    g->refs = 1;
    g->left = pieces->count;
    snprintf(g->key, sizeof g->key, "%s", key);
    ms_list_init(&g->link);
    return g;
}

struct gang *ms_sim_gang_find(const struct ms_sim *s, const char *key, uint32_t number)
{
    ms_list_each (g, &s->gangs, struct gang, link)
        if (strcmp(g->key, key) == 0 && number >= g->first &&
            number - g->first < g->pieces.count)
            return g;
    return NULL;
}
