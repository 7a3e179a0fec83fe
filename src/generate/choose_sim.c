/* choose_sim.c - simulates one step in one order, on one draw of what lengths could be
 *
 * Cache limits are taken by what is drawn.
 */
#include "generate/choose_sim.h"

#include <math.h>
#include <stdlib.h>

#define WORST_LEFT 0.1  /* of the worst, for what is longer already */
#define RESUMED    1e9F /* key: what has tokens goes before all that has none */

/* ---- the queue --------------------------------------------------------------------- */

static bool goes_before(const struct ms_choose_wait *x, const struct ms_choose_wait *y)
{
    return x->key != y->key ? x->key > y->key : x->item < y->item;
}

static void push(struct ms_choose *c, struct ms_choose_wait w)
{
    uint32_t at = c->waiting++;

    for (; at > 0 && goes_before(&w, &c->queue[(at - 1) / 2]); at = (at - 1) / 2)
        c->queue[at] = c->queue[(at - 1) / 2];
    c->queue[at] = w;
}

static struct ms_choose_wait pop(struct ms_choose *c)
{
    struct ms_choose_wait first = c->queue[0], w = c->queue[--c->waiting];
    uint32_t at = 0;

    for (;;) {
        uint32_t child = 2 * at + 1;

        if (child + 1 < c->waiting &&
            goes_before(&c->queue[child + 1], &c->queue[child]))
            child++;
        if (child >= c->waiting || !goes_before(&c->queue[child], &w))
            break;
        c->queue[at] = c->queue[child];
        at = child;
    }
    c->queue[at] = w;
    return first;
}

double ms_choose_worst_left(double worst, double had)
{
    return fmax(worst - had, WORST_LEFT * worst);
}

static float key_of(const struct ms_choose *c, uint32_t i, float had)
{
    const struct ms_choose_item *x = &c->items[i];
    float first = had > 0 ? RESUMED : 0;

    if (c->order == MS_ORDER_FIFO)
        return first;
    if (c->order == MS_ORDER_LONGEST)
        return first + x->mean - had;
    return (float)(ms_choose_worst_left(x->worst[c->worst], had) +
                   1e-3 * (x->mean - had));
}

/* ---- replicas ---------------------------------------------------------------------- */

static void
advance(const struct ms_choose *c, struct ms_choose_replica *r, double now_ns)
{
    double from_ns = fmax(r->now_ns, r->free_ns);

    if (now_ns > from_ns && r->count > 0)
        r->clock += (now_ns - from_ns) / (c->a + c->b * r->count);
    r->now_ns = now_ns;
}

static double next_end_ns(const struct ms_choose *c, const struct ms_choose_replica *r)
{
    if (r->count == 0)
        return INFINITY;
    return fmax(r->now_ns, r->free_ns) +
           fmax(r->at[0].end - r->clock, 0) * (c->a + c->b * r->count);
}

static double tokens_of(const struct ms_choose *c, uint32_t i)
{
    /* what it takes of the cache, over its stay */
    return c->items[i].prompt + 0.6 * c->items[i].draw[c->draw];
}

static void
run(const struct ms_choose *c, struct ms_choose_replica *r, struct ms_choose_wait w)
{
    const struct ms_choose_item *x = &c->items[w.item];
    struct ms_choose_run run = {.began = r->clock,
                                .end = r->clock + fmax(x->draw[c->draw] - w.had, 1),
                                .had = w.had,
                                .item = w.item};
    uint32_t at = r->count++;

    for (; at > 0 && run.end < r->at[(at - 1) / 2].end; at = (at - 1) / 2)
        r->at[at] = r->at[(at - 1) / 2];
    r->at[at] = run;
    r->kv += tokens_of(c, w.item);
}

static void
begin(const struct ms_choose *c, struct ms_choose_replica *r, struct ms_choose_wait w)
{
    run(c, r, w);
    r->free_ns = fmax(r->free_ns, r->now_ns) +
                 c->prefill * ((double)c->items[w.item].prompt + w.had);
}

static void sift_down(struct ms_choose_replica *r, uint32_t at)
{
    struct ms_choose_run run = r->at[at];

    for (;;) {
        uint32_t child = 2 * at + 1;

        if (child + 1 < r->count && r->at[child + 1].end < r->at[child].end)
            child++;
        if (child >= r->count || r->at[child].end >= run.end)
            break;
        r->at[at] = r->at[child];
        at = child;
    }
    r->at[at] = run;
}

static void leave_first(const struct ms_choose *c, struct ms_choose_replica *r)
{
    r->kv -= tokens_of(c, r->at[0].item);
    r->at[0] = r->at[--r->count];
    if (r->count > 0)
        sift_down(r, 0);
}

static bool
has_room(const struct ms_choose *c, const struct ms_choose_replica *r, uint32_t i)
{
    return r->count < c->slots &&
           (r->count == 0 || r->kv + tokens_of(c, i) <= c->kv_max);
}

/* As long as there is a place, to the replica with the fewest. */
static void fill(struct ms_choose *c, double now_ns)
{
    while (c->waiting > 0 && c->work <= c->work_max) {
        struct ms_choose_replica *best = NULL;

        c->work += c->replica_count;
        for (uint32_t k = 0; k < c->replica_count; k++) {
            struct ms_choose_replica *r = &c->replicas[k];

            if (has_room(c, r, c->queue[0].item) && (!best || r->count < best->count))
                best = r;
        }
        if (!best)
            return;
        advance(c, best, now_ns);
        begin(c, best, pop(c));
    }
}

/* ---- slices ------------------------------------------------------------------------ */

static int least_left(const void *x, const void *y)
{
    double p = ((const struct ms_choose_yield *)x)->left;
    double q = ((const struct ms_choose_yield *)y)->left;

    return p < q ? -1 : p > q;
}

static float had_of(const struct ms_choose_replica *r, const struct ms_choose_run *run)
{
    return run->had + (float)(r->clock - run->began);
}

static uint32_t list_running(struct ms_choose *c, double now_ns)
{
    uint32_t n = 0;

    for (uint32_t k = 0; k < c->replica_count; k++) {
        struct ms_choose_replica *r = &c->replicas[k];

        advance(c, r, now_ns);
        for (uint32_t i = 0; i < r->count; i++)
            c->yields[n++] = (struct ms_choose_yield){
                key_of(c, r->at[i].item, had_of(r, &r->at[i])), k, i};
    }
    qsort(c->yields, n, sizeof *c->yields, least_left);
    c->work += (uint64_t)n * MS_CHOOSE_SORT_WORK;
    return n;
}

/* Those with the least to go at worst make way; the places in the heaps stay until all
 * have been named. */
static void slice(struct ms_choose *c, double now_ns)
{
    uint32_t n = list_running(c, now_ns), out = 0;

    while (out < n && c->waiting > 0 &&
           c->queue[0].key - c->yields[out].left > c->slice) {
        struct ms_choose_replica *r = &c->replicas[c->yields[out].replica];
        struct ms_choose_run *run = &r->at[c->yields[out].at];
        struct ms_choose_wait w = pop(c), back = {.item = run->item};

        back.had = had_of(r, run);
        back.key = key_of(c, back.item, back.had);
        c->yielded[out++] = back;
        r->kv += tokens_of(c, w.item) - tokens_of(c, back.item);
        *run = (struct ms_choose_run){
            .began = r->clock,
            .end = r->clock + fmax(c->items[w.item].draw[c->draw] - w.had, 1),
            .had = w.had,
            .item = w.item};
        r->free_ns = fmax(r->free_ns, now_ns) +
                     c->prefill * ((double)c->items[w.item].prompt + w.had);
    }
    for (uint32_t i = 0; i < out; i++)
        push(c, c->yielded[i]);
    for (uint32_t k = 0; out > 0 && k < c->replica_count; k++)
        for (uint32_t i = c->replicas[k].count / 2; i-- > 0;)
            sift_down(&c->replicas[k], i);
}

/* ---- a run ------------------------------------------------------------------------- */

static void reset(struct ms_choose *c)
{
    c->waiting = 0;
    c->work += c->n;
    for (uint32_t k = 0; k < c->replica_count; k++)
        c->replicas[k] =
            (struct ms_choose_replica){.at = c->runs + (size_t)k * c->slots};
    for (uint32_t i = 0; i < c->n; i++) {
        const struct ms_choose_item *x = &c->items[i];
        struct ms_choose_wait w = {key_of(c, i, x->had), x->had, i};

        if (x->on == MS_NOWHERE)
            push(c, w);
        else
            run(c, &c->replicas[x->on], w);
    }
}

double ms_choose_run_ns(struct ms_choose *c)
{
    double now_ns = 0, tick_ns = MS_CHOOSE_TICK_NS;

    reset(c);
    fill(c, 0);
    for (;;) {
        double next_ns = INFINITY;
        struct ms_choose_replica *first = NULL;

        c->work += c->replica_count + MS_CHOOSE_EVENT_WORK;
        if (c->work > c->work_max)
            return INFINITY;
        for (uint32_t k = 0; k < c->replica_count; k++) {
            double end_ns = next_end_ns(c, &c->replicas[k]);

            if (end_ns < next_ns) {
                next_ns = end_ns;
                first = &c->replicas[k];
            }
        }
        if (!first)
            return now_ns;
        if (c->slice > 0 && c->waiting > 0 && tick_ns < next_ns) {
            slice(c, tick_ns);
            tick_ns += MS_CHOOSE_TICK_NS;
            continue;
        }
        now_ns = next_ns;
        advance(c, first, now_ns);
        leave_first(c, first);
        fill(c, now_ns);
    }
}
