/* backend.c - the simulated backend: its nodes, its life, and what can happen to it */
#include "orchestrator/sim/backend.h"

#include "base/cleanup.h"
#include "orchestrator/sim/backend_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MILLI = 1000, NODE_NAME_MAX = 24 };

static uint64_t next_random(struct ms_sim *s)
{
    uint64_t z = s->random += 0x9e3779b97f4a7c15U;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
}

bool ms_sim_chance(struct ms_sim *s, uint32_t milli)
{
    return milli > 0 && next_random(s) % MILLI < milli;
}

int64_t ms_sim_up_to(struct ms_sim *s, int64_t ns)
{
    return ns > 0 ? (int64_t)(next_random(s) % (uint64_t)ns) : 0;
}

/* ---- what happens ------------------------------------------------------------------ */

static void on_node_lost(void *arg)
{
    struct node *n = arg;

    ms_list_each (i, &n->instances, struct instance, on_node)
        ms_sim_piece_end(i, MS_CAUSE_NODE_LOST, 0);
}

static void node_dies(void *arg)
{
    struct node *n = arg;
    struct ms_sim *s = n->sim;

    if (s->stock.nodes[n->index].is_gone)
        return;
    s->stock.nodes[n->index].is_gone = true;
    if (!ms_sim_clock_add(&s->clock, MS_SIM_NOTICE_NS, on_node_lost, n))
        on_node_lost(n);
}

int ms_sim_kill_node(struct ms_sim *s, const char *node)
{
    struct ms_stock_node *n = ms_stock_find(&s->stock, node);

    if (!n)
        return -ENOENT;
    n->is_gone = false; /* cordoned or not */
    node_dies(&s->nodes[n - s->stock.nodes]);
    return 0;
}

int ms_sim_end_piece(
    struct ms_sim *s, const char *key, uint32_t number, enum ms_cause cause, int code)
{
    struct gang *g = ms_sim_gang_find(s, key, number);

    if (!g || !g->instances || g->instances[number - g->first].is_released)
        return -ENOENT;
    ms_sim_piece_end(&g->instances[number - g->first], cause, code);
    ms_sim_retry_waiting(s);
    return 0;
}

void ms_sim_silence(struct ms_sim *s, int64_t for_ns)
{
    int64_t until_ns = ms_deadline_ns(s->clock.now_ns, for_ns);

    if (until_ns > s->silent_until_ns)
        s->silent_until_ns = until_ns;
}

static void outage(void *arg)
{
    struct ms_sim *s = arg;

    ms_sim_silence(s, s->faults.outage_ns);
    ms_sim_clock_add(&s->clock, s->faults.outage_every_ns, outage, s);
}

/* ---- the whole --------------------------------------------------------------------- */

size_t ms_sim_held(const struct ms_sim *s)
{
    size_t waiting = 0;

    ms_list_each (g, &s->gangs, struct gang, link)
        waiting += g->instances ? 0 : g->pieces.count;
    return s->held + waiting;
}

int64_t ms_sim_now_ns(const struct ms_sim *s)
{
    return s->clock.now_ns;
}

struct ms_sim_clock *ms_sim_clock(struct ms_sim *s)
{
    return &s->clock;
}

bool ms_sim_step(struct ms_sim *s, int64_t until_ns)
{
    return ms_sim_clock_step(&s->clock, until_ns);
}

uint32_t ms_sim_listen(struct ms_sim *s, const struct ms_sim_listener *l)
{
    s->listener = l ? *l : (struct ms_sim_listener){0};
    return ++s->listeners;
}

/* A node of the stock begins to live. */
static int begin_node(struct ms_sim *s, size_t i)
{
    s->nodes[i].sim = s;
    s->nodes[i].index = (uint32_t)i;
    ms_list_init(&s->nodes[i].instances);
    if (s->faults.node_life_ns &&
        !ms_sim_clock_add(&s->clock,
                          ms_sim_up_to(s, 2 * s->faults.node_life_ns),
                          node_dies,
                          &s->nodes[i]))
        return -ENOMEM;
    return 0;
}

static int add_node(struct ms_sim *s, const struct ms_sim_options *o, size_t i)
{
    char name[NODE_NAME_MAX], rack[NODE_NAME_MAX + 8];
    int kind = ms_stock_kind(&s->stock, "gpu", NULL);
    int64_t at;

    snprintf(name, sizeof name, "n%zu", i);
    at = ms_stock_append(&s->stock, name, o->cpu_milli, o->memory, NULL);
    if (at < 0 || kind < 0)
        return -ENOMEM;
    if (o->devices &&
        ms_stock_add_devices(
            &s->stock, (size_t)at, (uint8_t)kind, o->devices, 0, 0, NULL) < 0)
        return -ENOMEM;
    if (o->racks) {
        snprintf(rack, sizeof rack, "rack=r%zu", i % o->racks);
        if (ms_stock_add_label(&s->stock, (size_t)at, rack, NULL) < 0)
            return -ENOMEM;
    }
    return begin_node(s, i);
}

struct ms_sim *ms_sim_create(const struct ms_sim_options *o)
{
    struct ms_sim *s = calloc(1, sizeof *s);
    int rc = 0;

    if (!s)
        return NULL;
    ms_sim_clock_init(&s->clock);
    ms_list_init(&s->gangs);
    s->faults = o->faults;
    s->random = o->seed;
    if (o->stock) {
        s->stock = *o->stock;
        *o->stock = (struct ms_stock){0};
    }
    s->nodes = calloc((o->stock ? s->stock.count : o->nodes) + 1, sizeof *s->nodes);
    if (!s->nodes)
        rc = -ENOMEM;
    for (size_t i = 0; o->stock && i < s->stock.count && rc == 0; i++)
        rc = begin_node(s, i);
    for (size_t i = 0; !o->stock && i < o->nodes && rc == 0; i++)
        rc = add_node(s, o, i);
    if (rc == 0 && o->faults.outage_every_ns &&
        !ms_sim_clock_add(&s->clock, o->faults.outage_every_ns, outage, s))
        rc = -ENOMEM;
    if (rc < 0)
        ms_sim_destroy(s);
    return rc < 0 ? NULL : s;
}

/* What is on its way is freed with it. */
static void drop_events(struct ms_sim *s)
{
    for (size_t i = 0; i < s->clock.count; i++) {
        struct ms_sim_event *e = &s->clock.heap[i];

        if (e->fn == ms_sim_deliver)
            free(e->arg);
        else if (e->fn == ms_sim_arrive)
            ms_sim_request_free(e->arg);
        else if (e->fn == ms_sim_piece_started)
            ms_sim_gang_unref(((struct instance *)e->arg)->gang);
    }
    s->clock.count = 0;
}

void ms_sim_destroy(struct ms_sim *s)
{
    if (!s)
        return;
    s->listener = (struct ms_sim_listener){0};
    ms_list_each (g, &s->gangs, struct gang, link)
        ms_sim_gang_remove(g);
    drop_events(s);
    ms_sim_clock_finish(&s->clock);
    ms_stock_finish(&s->stock);
    free(s->nodes);
    free(s);
}
