/* tail.c - the tail plan: long requests among few others, so that they are quick
 *
 * When nothing waits, a replica ends after a * longest + b * sum of what it has, for steps
 * that take a + b * batch. The plan sorts requests by what is expected of them and cuts the
 * row into one run per replica, such that the latest of those ends is least: the runs of
 * the longest are short. Lengths are uncertain, so ends are means over draws from what is
 * known; half of the draws make the plan, the other half judge it against leaving
 * everything as it is, so that a plan is not taken for fitting its own draws. It is
 * carried out only if it gains clearly more than moved requests cost to compute anew.
 */
#include "generate/policy.h"

#include "base/buf.h"

#include <math.h>
#include <stdlib.h>

enum { DRAWS = 48, BISECTIONS = 30 };

#define GAIN         0.03 /* of the time that is left: what a move must bring */
#define SEED         UINT64_C(0x9E3779B97F4A7C15)
#define REQUESTS_MAX 16384 /* with more, none is far from its end */

struct tail_item {
    double mean; /* tokens to come, expected */
    uint32_t request, run;
    uint32_t kv;
    float draw[2 * DRAWS]; /* and as they could be */
};

/* Arrays are in the scheduler's scratch memory. */
struct tail {
    struct tail_item *at;
    size_t n;
    double a, b;
    uint32_t runs, slots; /* replicas, and what each takes */
    uint64_t kv;
    double *longest, *sum; /* of each replica or run */
    uint32_t *have; /* runs * replicas: requests of a run that are there already */
    uint32_t *to;   /* the replica of each run */
};

/* ---- what there is ----------------------------------------------------------------- */

/* What all replicas have; false if a plan makes no sense. */
static bool measure(struct ms_scheduler *s, struct tail *t)
{
    s->plans++;
    *t = (struct tail){
        .a = s->a_ns, .b = s->b_ns, .slots = UINT32_MAX, .kv = UINT64_MAX};
    for (size_t i = 0; i < s->replica_count; i++) {
        const struct ms_gen_replica *r = &s->replicas[i];

        if (r->state != MS_REPLICA_OPEN)
            continue;
        t->runs++;
        t->slots = r->slots < t->slots ? r->slots : t->slots;
        if (r->kv_max > 0 && r->kv_max < t->kv)
            t->kv = r->kv_max;
    }
    return t->runs > 1 && t->a > 0 && t->b > 0;
}

static bool reserve(struct ms_scheduler *s, struct tail *t, size_t n)
{
    size_t items = n * sizeof *t->at, sums = 2 * s->replica_count * sizeof *t->sum;
    size_t counts = t->runs * (s->replica_count + 1) * sizeof *t->have;

    if (n == 0 || n > REQUESTS_MAX ||
        ms_array_reserve(&s->scratch, &s->scratch_room, items + sums + counts, 1) < 0)
        return false;
    t->at = (void *)s->scratch;
    t->longest = (void *)(s->scratch + items);
    t->sum = t->longest + s->replica_count;
    t->have = (void *)(s->scratch + items + sums);
    t->to = t->have + t->runs * s->replica_count;
    return true;
}

static double unit(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return ((double)(*seed >> 11) + 0.5) / 9007199254740992.0;
}

/* Samples of one group share what is uncertain of their prompt: the same seed. */
static void add(struct ms_scheduler *s, struct tail *t, uint32_t i)
{
    const struct ms_gen_request *q = &s->requests[i];
    struct ms_length_guess g = s->groups[q->group].guess;
    uint64_t seed = (s->groups[q->group].id ^ s->plans << 32) * SEED | 1;
    struct tail_item *x = &t->at[t->n++];

    unit(&seed);
    unit(&seed);
    x->mean = ms_length_remaining(g, q->generated, q->max_new);
    x->request = i;
    x->kv = q->prompt + q->generated;
    for (int d = 0; d < 2 * DRAWS; d++)
        x->draw[d] = (float)ms_length_draw(g,
                                           ms_length_draw_mu(g, unit(&seed)),
                                           unit(&s->seed),
                                           q->generated,
                                           q->max_new);
}

static int longest_first(const void *x, const void *y)
{
    const struct tail_item *p = x, *q = y;

    if (p->mean != q->mean)
        return p->mean > q->mean ? -1 : 1;
    return p->request < q->request ? -1 : 1;
}

/* ---- the plan ---------------------------------------------------------------------- */

/* A run as it grows, in each draw. */
struct tail_run {
    uint32_t count;
    double kv, longest[DRAWS], sum[DRAWS];
};

static bool fits(const struct tail *t,
                 const struct tail_run *run,
                 const struct tail_item *x,
                 double limit_ns)
{
    double end = 0;

    if (run->count >= t->slots || run->kv + x->kv + x->mean > (double)t->kv)
        return false;
    for (int d = 0; d < DRAWS; d++)
        end += t->a * fmax(run->longest[d], x->draw[d]) +
               t->b * (run->sum[d] + x->draw[d]);
    return end / DRAWS <= limit_ns;
}

/* Into how many runs, if none may take longer; each item is told its own. */
static uint32_t cut(struct tail *t, double limit_ns)
{
    struct tail_run run = {0};
    uint32_t number = 0;

    for (size_t i = 0; i < t->n; i++) {
        struct tail_item *x = &t->at[i];

        if (run.count > 0 && !fits(t, &run, x, limit_ns)) {
            run = (struct tail_run){0};
            number++;
        }
        for (int d = 0; d < DRAWS; d++) {
            run.longest[d] = fmax(run.longest[d], x->draw[d]);
            run.sum[d] += x->draw[d];
        }
        run.kv += x->kv + x->mean;
        run.count++;
        x->run = number;
    }
    return number + 1;
}

/* The least limit that does with the replicas there are; false: there is none. */
static bool plan(struct tail *t, double high_ns)
{
    double low_ns = 0;

    for (int i = 0; i < BISECTIONS; i++) {
        double at_ns = (low_ns + high_ns) / 2;

        *(cut(t, at_ns) <= t->runs ? &high_ns : &low_ns) = at_ns;
    }
    return cut(t, high_ns) <= t->runs;
}

/* The mean of the latest end, by the other draws. */
static double judge(const struct ms_scheduler *s, struct tail *t, bool planned)
{
    double total = 0;

    for (int d = DRAWS; d < 2 * DRAWS; d++) {
        double latest = 0;

        for (size_t i = 0; i < s->replica_count; i++)
            t->longest[i] = t->sum[i] = 0;
        for (size_t i = 0; i < t->n; i++) {
            const struct tail_item *x = &t->at[i];
            uint32_t on = planned ? x->run : s->requests[x->request].replica;

            t->longest[on] = fmax(t->longest[on], x->draw[d]);
            t->sum[on] += x->draw[d];
        }
        for (size_t i = 0; i < s->replica_count; i++)
            latest = fmax(latest, t->a * t->longest[i] + t->b * t->sum[i]);
        total += latest;
    }
    return total / DRAWS;
}

/* Each run to the replica that has the most of it already. */
static void match(const struct ms_scheduler *s, struct tail *t, bool running)
{
    size_t width = s->replica_count;

    for (size_t i = 0; i < t->runs * width; i++)
        t->have[i] = s->replicas[i % width].state == MS_REPLICA_OPEN;
    for (size_t i = 0; running && i < t->n; i++)
        t->have[t->at[i].run * width + s->requests[t->at[i].request].replica]++;
    for (size_t run = 0; run < t->runs; run++) {
        uint32_t to = 0;

        for (uint32_t i = 1; i < width; i++)
            if (t->have[run * width + i] > t->have[run * width + to])
                to = i;
        t->to[run] = to;
        for (size_t later = run + 1; later < t->runs; later++)
            t->have[later * width + to] = 0; /* taken */
    }
}

/* What it costs to compute the moved ones' prefixes, on all replicas at once. */
static double cost_ns(const struct ms_scheduler *s, const struct tail *t)
{
    double tokens = 0;

    for (size_t i = 0; i < t->n; i++)
        if (s->requests[t->at[i].request].replica != t->to[t->at[i].run])
            tokens += t->at[i].kv;
    return tokens * s->o.prefill_ns / t->runs;
}

/* ---- what is done with it ---------------------------------------------------------- */

void ms_tail_rebalance(struct ms_scheduler *s)
{
    struct tail t;
    double stay_ns, go_ns;

    if (!measure(s, &t) || !reserve(s, &t, s->stats.running))
        return;
    ms_gen_groups_guess(s);
    for (size_t k = 0; k < s->replica_count; k++)
        for (uint32_t i = s->replicas[k].first; i != MS_NONE; i = s->requests[i].after)
            add(s, &t, i);
    qsort(t.at, t.n, sizeof *t.at, longest_first);
    stay_ns = judge(s, &t, false);
    if (!plan(&t, 2 * stay_ns))
        return;
    go_ns = judge(s, &t, true);
    match(s, &t, true);
    if (go_ns + cost_ns(s, &t) > stay_ns * (1 - GAIN))
        return;
    for (size_t i = 0; i < t.n; i++)
        ms_scheduler_move(s, t.at[i].request, t.to[t.at[i].run]);
}

void ms_tail_place(struct ms_scheduler *s)
{
    struct tail t;
    double dealt_ns;

    if (!measure(s, &t) || s->queue.count > (uint64_t)t.runs * t.slots ||
        !reserve(s, &t, s->queue.count))
        return;
    for (size_t i = 0; i < s->queue.count; i++)
        add(s, &t, s->queue.at[i].index);
    qsort(t.at, t.n, sizeof *t.at, longest_first);
    for (size_t i = 0; i < t.n; i++)
        t.at[i].run = (uint32_t)(i % t.runs);
    dealt_ns = judge(s, &t, true);
    if (!plan(&t, 2 * dealt_ns) || judge(s, &t, true) > dealt_ns)
        return;
    match(s, &t, false);
    for (size_t i = 0; i < t.n; i++)
        s->requests[t.at[i].request].target = t.to[t.at[i].run];
}
