/* choose.c - simulates a step under each candidate order and takes the best
 *
 * The model is that of the tail plan: a step of a batch of b takes a + b * beta, a prefix
 * costs its prefill, and replicas are alike. Cache limits are taken by what is drawn.
 */
#include "generate/choose.h"

#include "base/buf.h"
#include "base/clock.h"
#include "generate/policy.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

enum { DRAWS = 6, FIRST_DRAWS = 2, REQUESTS_MAX = 16384 };

#define WORST_SIGMAS 2.5   /* above the expected logarithm: as long as one can get */
#define WORST_LEFT   0.1   /* of that, for what is longer already */
#define BETTER       0.995 /* of the default's makespan: what another one must reach */
#define HOPELESS     1.03 /* of the best after the first draws: not looked at further */
#define EXPIRES      1.5 /* of the expected makespan: then what came later counts more */
#define TICK_NS      1e9 /* between slices in the simulation */
#define SEED         UINT64_C(0xD1B54A32D192ED03)

/* Slices as shares of the mean length; 0: not sliced. */
static const struct {
    uint8_t order;
    double slice;
} candidates[] = {
    {MS_ORDER_FIFO, 0},
    {MS_ORDER_LONGEST, 0},
    {MS_ORDER_WORST, 0.15},
    {MS_ORDER_WORST, 0.3},
    {MS_ORDER_WORST, 0.6},
    {MS_ORDER_WORST, 1},
};
enum { CANDIDATES = sizeof candidates / sizeof *candidates };

/* A request as the simulation sees it. */
struct choose_item {
    float mean, worst; /* tokens, of the whole answer */
    float draw[DRAWS];
    uint32_t prompt;
};

struct choose_wait { /* in the queue: the greatest key first, then the least number */
    float key, had;
    uint32_t item;
};

struct choose_run {    /* on a replica */
    double end, began; /* on its clock of tokens */
    float had;
    uint32_t item;
};

struct choose_replica {
    uint32_t count;
    double clock;           /* tokens that each of its requests has got */
    double now_ns, free_ns; /* the clock is right at now; prefill until free */
    double kv;
    struct choose_run *at; /* heap by end */
};

struct choose {
    struct choose_item *items;
    uint32_t n, replica_count, slots, draw, waiting;
    double a, b, prefill, kv_max, slice;
    uint8_t order;
    struct choose_wait *queue; /* heap */
    struct choose_replica *replicas;
    struct choose_run *runs; /* of all replicas */
    struct choose_yield {
        double left;
        uint32_t replica, at;
    } * yields; /* scratch of slicing */
    struct choose_wait *yielded;
};

/* ---- the queue --------------------------------------------------------------------- */

static bool goes_before(const struct choose_wait *x, const struct choose_wait *y)
{
    return x->key != y->key ? x->key > y->key : x->item < y->item;
}

static void push(struct choose *c, struct choose_wait w)
{
    uint32_t at = c->waiting++;

    for (; at > 0 && goes_before(&w, &c->queue[(at - 1) / 2]); at = (at - 1) / 2)
        c->queue[at] = c->queue[(at - 1) / 2];
    c->queue[at] = w;
}

static struct choose_wait pop(struct choose *c)
{
    struct choose_wait first = c->queue[0], w = c->queue[--c->waiting];
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

static double worst_left(double worst, double had)
{
    return fmax(worst - had, WORST_LEFT * worst);
}

static float key_of(const struct choose *c, uint32_t i, float had)
{
    const struct choose_item *x = &c->items[i];

    if (c->order == MS_ORDER_FIFO)
        return 0;
    if (c->order == MS_ORDER_LONGEST)
        return x->mean;
    return (float)(worst_left(x->worst, had) + 1e-3 * (x->mean - had));
}

/* ---- replicas ---------------------------------------------------------------------- */

static void advance(const struct choose *c, struct choose_replica *r, double now_ns)
{
    double from_ns = fmax(r->now_ns, r->free_ns);

    if (now_ns > from_ns && r->count > 0)
        r->clock += (now_ns - from_ns) / (c->a + c->b * r->count);
    r->now_ns = now_ns;
}

static double next_end_ns(const struct choose *c, const struct choose_replica *r)
{
    if (r->count == 0)
        return INFINITY;
    return fmax(r->now_ns, r->free_ns) +
           fmax(r->at[0].end - r->clock, 0) * (c->a + c->b * r->count);
}

static double tokens_of(const struct choose *c, uint32_t i)
{
    /* what it takes of the cache, over its stay */
    return c->items[i].prompt + 0.6 * c->items[i].draw[c->draw];
}

static void
begin(const struct choose *c, struct choose_replica *r, struct choose_wait w)
{
    const struct choose_item *x = &c->items[w.item];
    struct choose_run run = {.began = r->clock,
                             .end = r->clock + fmax(x->draw[c->draw] - w.had, 1),
                             .had = w.had,
                             .item = w.item};
    uint32_t at = r->count++;

    for (; at > 0 && run.end < r->at[(at - 1) / 2].end; at = (at - 1) / 2)
        r->at[at] = r->at[(at - 1) / 2];
    r->at[at] = run;
    r->kv += tokens_of(c, w.item);
    r->free_ns = fmax(r->free_ns, r->now_ns) + c->prefill * ((double)x->prompt + w.had);
}

static void sift_down(struct choose_replica *r, uint32_t at)
{
    struct choose_run run = r->at[at];

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

static void leave_first(const struct choose *c, struct choose_replica *r)
{
    r->kv -= tokens_of(c, r->at[0].item);
    r->at[0] = r->at[--r->count];
    if (r->count > 0)
        sift_down(r, 0);
}

static bool has_room(const struct choose *c, const struct choose_replica *r, uint32_t i)
{
    return r->count < c->slots &&
           (r->count == 0 || r->kv + tokens_of(c, i) <= c->kv_max);
}

/* As long as there is a place, to the replica with the fewest. */
static void fill(struct choose *c, double now_ns)
{
    while (c->waiting > 0) {
        struct choose_replica *best = NULL;

        for (uint32_t k = 0; k < c->replica_count; k++) {
            struct choose_replica *r = &c->replicas[k];

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
    double p = ((const struct choose_yield *)x)->left;
    double q = ((const struct choose_yield *)y)->left;

    return p < q ? -1 : p > q;
}

static float had_of(const struct choose_replica *r, const struct choose_run *run)
{
    return run->had + (float)(r->clock - run->began);
}

static uint32_t list_running(struct choose *c, double now_ns)
{
    uint32_t n = 0;

    for (uint32_t k = 0; k < c->replica_count; k++) {
        struct choose_replica *r = &c->replicas[k];

        advance(c, r, now_ns);
        for (uint32_t i = 0; i < r->count; i++)
            c->yields[n++] = (struct choose_yield){
                key_of(c, r->at[i].item, had_of(r, &r->at[i])), k, i};
    }
    qsort(c->yields, n, sizeof *c->yields, least_left);
    return n;
}

/* Those with the least to go at worst make way; the places in the heaps stay until all
 * have been named. */
static void slice(struct choose *c, double now_ns)
{
    uint32_t n = list_running(c, now_ns), out = 0;

    while (out < n && c->waiting > 0 &&
           c->queue[0].key - c->yields[out].left > c->slice) {
        struct choose_replica *r = &c->replicas[c->yields[out].replica];
        struct choose_run *run = &r->at[c->yields[out].at];
        struct choose_wait w = pop(c), back = {.item = run->item};

        back.had = had_of(r, run);
        back.key = key_of(c, back.item, back.had);
        c->yielded[out++] = back;
        r->kv += tokens_of(c, w.item) - tokens_of(c, back.item);
        *run = (struct choose_run){
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

static void reset(struct choose *c)
{
    c->waiting = 0;
    for (uint32_t k = 0; k < c->replica_count; k++)
        c->replicas[k] = (struct choose_replica){.at = c->runs + (size_t)k * c->slots};
    for (uint32_t i = 0; i < c->n; i++)
        push(c, (struct choose_wait){key_of(c, i, 0), 0, i});
}

static double makespan_ns(struct choose *c)
{
    double now_ns = 0, tick_ns = TICK_NS;

    reset(c);
    fill(c, 0);
    for (;;) {
        double next_ns = INFINITY;
        struct choose_replica *first = NULL;

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
            tick_ns += TICK_NS;
            continue;
        }
        now_ns = next_ns;
        advance(c, first, now_ns);
        leave_first(c, first);
        fill(c, now_ns);
    }
}

/* ---- what there is ----------------------------------------------------------------- */

static double unit(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return ((double)(*seed >> 11) + 0.5) / 9007199254740992.0;
}

static double worst(const struct ms_gen_group *g, uint32_t max_new)
{
    return fmin(exp(g->guess.mu + WORST_SIGMAS * g->guess.sigma), max_new);
}

static int by_submission(const void *x, const void *y)
{
    uint64_t p = *(const uint64_t *)x, q = *(const uint64_t *)y;

    return p < q ? -1 : p > q;
}

/* Items in order of submission. The samples of a group share what is uncertain of their
 * prompt. */
static void add_items(struct ms_scheduler *s, struct choose *c, uint64_t *order)
{
    uint64_t seed = (s->plans + 1) * SEED | 1;

    for (size_t i = 0; i < s->queue.count; i++)
        order[i] = (uint64_t)s->queue.at[i].tie << 32 | s->queue.at[i].index;
    qsort(order, s->queue.count, sizeof *order, by_submission);
    for (size_t i = 0; i < s->queue.count; i++) {
        const struct ms_gen_request *q = &s->requests[(uint32_t)order[i]];
        const struct ms_gen_group *g = &s->groups[q->group];
        uint64_t shared = (g->id ^ s->plans << 32) * SEED | 1;
        struct choose_item *x = &c->items[c->n++];

        unit(&shared);
        unit(&shared);
        x->prompt = q->prompt + q->generated;
        x->mean = g->expected + g->later;
        x->worst = (float)worst(g, q->max_new) + g->later;
        for (int d = 0; d < DRAWS; d++)
            x->draw[d] = g->later + (float)ms_length_draw(
                                        g->guess,
                                        ms_length_draw_mu(g->guess, unit(&shared)),
                                        unit(&seed),
                                        q->generated,
                                        q->max_new);
    }
}

static bool measure(const struct ms_scheduler *s, struct choose *c)
{
    *c = (struct choose){.a = s->a_ns,
                         .b = s->b_ns,
                         .prefill = s->o.prefill_ns,
                         .slots = UINT32_MAX,
                         .kv_max = INFINITY};
    for (size_t i = 0; i < s->replica_count; i++) {
        const struct ms_gen_replica *r = &s->replicas[i];

        if (r->state != MS_REPLICA_OPEN)
            continue;
        c->replica_count++;
        c->slots = r->slots < c->slots ? r->slots : c->slots;
        if (r->kv_max > 0)
            c->kv_max = fmin(c->kv_max, (double)r->kv_max);
    }
    return c->replica_count > 0 && c->a > 0 && s->queue.count <= REQUESTS_MAX &&
           s->queue.count > (uint64_t)c->replica_count * c->slots;
}

static bool reserve(struct ms_scheduler *s, struct choose *c, uint64_t **order)
{
    size_t n = s->queue.count, places = (size_t)c->replica_count * c->slots;
    size_t sizes[] = {n * sizeof **order,
                      places * sizeof *c->runs,
                      places * sizeof *c->yields,
                      c->replica_count * sizeof *c->replicas,
                      n * sizeof *c->items,
                      n * sizeof *c->queue,
                      places * sizeof *c->yielded};
    size_t all = 0;
    char *at;

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        all += sizes[i] = (sizes[i] + 15) & ~(size_t)15;
    if (ms_array_reserve(&s->scratch, &s->scratch_room, all, 1) < 0)
        return false;
    at = s->scratch;
    *order = (void *)at;
    c->runs = (void *)(at += sizes[0]);
    c->yields = (void *)(at += sizes[1]);
    c->replicas = (void *)(at += sizes[2]);
    c->items = (void *)(at += sizes[3]);
    c->queue = (void *)(at += sizes[4]);
    c->yielded = (void *)(at + sizes[5]);
    return true;
}

/* ---- the choice -------------------------------------------------------------------- */

/* The mean over the draws from `from` to before `to`. */
static double
mean_ns(struct choose *c, int k, double length, uint32_t from, uint32_t to)
{
    double sum = 0;

    c->order = candidates[k].order;
    c->slice = candidates[k].slice * length;
    for (c->draw = from; c->draw < to; c->draw++)
        sum += makespan_ns(c);
    return sum / (to - from);
}

/* All candidates on a few draws, then those that are near the best on all. */
static void try_all(struct choose *c, double length, double *means)
{
    double least = INFINITY;

    for (int k = 0; k < CANDIDATES; k++) {
        means[k] = mean_ns(c, k, length, 0, FIRST_DRAWS);
        least = fmin(least, means[k]);
    }
    for (int k = 0; k < CANDIDATES; k++) {
        double rest = means[k] > HOPELESS * least
                          ? means[k]
                          : mean_ns(c, k, length, FIRST_DRAWS, DRAWS);

        means[k] += (rest - means[k]) * (DRAWS - FIRST_DRAWS) / DRAWS;
    }
}

void ms_choose(struct ms_scheduler *s)
{
    struct choose c;
    uint64_t *order;
    double means[CANDIDATES], length = 0;
    int best, usual;

    s->plans++;
    if (!measure(s, &c) || !reserve(s, &c, &order))
        return;
    add_items(s, &c, order);
    for (uint32_t i = 0; i < c.n; i++)
        length += (double)c.items[i].mean / c.n;
    try_all(&c, length, means);
    best = usual = ms_lengths_icc(s->lengths) < MS_ICC_MIN ? 0 : 1;
    for (int k = 0; k < CANDIDATES; k++)
        if (means[k] < BETTER * means[usual] && means[k] < means[best])
            best = k;
    s->choice = (struct ms_choice){.order = candidates[best].order,
                                   .slice = candidates[best].slice * length,
                                   .began_ns = s->now_ns,
                                   .expected_ns = means[best]};
}

bool ms_choice_holds(const struct ms_scheduler *s)
{
    return s->choice.order != MS_ORDER_UNKNOWN &&
           (double)(s->now_ns - s->choice.began_ns) <= EXPIRES * s->choice.expected_ns;
}

double ms_choice_worst(const struct ms_scheduler *s, const struct ms_gen_request *q)
{
    const struct ms_gen_group *g = &s->groups[q->group];

    return worst_left(worst(g, q->max_new), q->generated) + (double)g->later +
           1e-3 * ((double)g->expected - q->generated);
}

struct yield {
    double left;
    uint32_t request;
};

static int yields_first(const void *x, const void *y)
{
    const struct yield *p = x, *q = y;

    if (p->left != q->left)
        return p->left < q->left ? -1 : 1;
    return p->request < q->request ? -1 : 1;
}

static size_t
list_live(const struct ms_scheduler *s, struct yield *running, struct yield *waiting)
{
    size_t n = 0;

    for (size_t k = 0; k < s->replica_count; k++)
        for (uint32_t i = s->replicas[k].first; i != MS_NONE; i = s->requests[i].after)
            if (s->requests[i].state == MS_REQUEST_RUNNING)
                running[n++] = (struct yield){ms_choice_worst(s, &s->requests[i]), i};
    for (size_t k = 0; k < s->queue.count; k++) {
        uint32_t i = s->queue.at[k].index;

        waiting[k] = (struct yield){-ms_choice_worst(s, &s->requests[i]), i};
    }
    qsort(running, n, sizeof *running, yields_first);
    qsort(waiting, s->queue.count, sizeof *waiting, yields_first);
    return n;
}

void ms_choice_slice(struct ms_scheduler *s)
{
    size_t room = s->stats.running + s->queue.count, n;
    struct yield *running, *waiting;

    if (s->choice.slice <= 0 || !ms_choice_holds(s) ||
        ms_array_reserve(&s->scratch, &s->scratch_room, room * sizeof *running, 1) < 0)
        return;
    running = (void *)s->scratch;
    waiting = running + s->stats.running;
    n = list_live(s, running, waiting);
    for (size_t k = 0; k < n && k < s->queue.count &&
                       -waiting[k].left - running[k].left > s->choice.slice;
         k++)
        ms_scheduler_yield(s, running[k].request);
}
