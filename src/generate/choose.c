/* choose.c - simulates a step under each candidate order and takes the best
 *
 * Of a step that would take more than MS_CHOOSE_WORK_MAX a part is simulated: every k-th
 * request on the k-th part of the places. Draws end when the work is used up.
 */
#include "generate/choose.h"

#include "base/buf.h"
#include "generate/choose_sim.h"
#include "generate/policy.h"

#include <math.h>
#include <stdlib.h>

enum { FIRST_DRAWS = 2 };

#define WORST_SIGMAS 2.5   /* above the expected logarithm: as long as one can get */
#define BETTER       0.995 /* of the default's makespan: what another one must reach */
#define HOPELESS     1.03 /* of the best after the first draws: not looked at further */
#define EXPIRES      1.5 /* of the expected makespan: then what came later counts more */
#define REPLICAS_MIN 4   /* of a part of a step: below, it says little of the whole */
#define SLOTS_MIN    8
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
enum { CANDIDATES = sizeof candidates / sizeof *candidates, SLICED = 4 };

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

static void add_item(const struct ms_scheduler *s,
                     struct ms_choose *c,
                     const struct ms_gen_request *q,
                     uint64_t *seed)
{
    const struct ms_gen_group *g = &s->groups[q->group];
    uint64_t shared = (g->id ^ s->plans << 32) * SEED | 1;
    struct ms_choose_item *x = &c->items[c->n++];

    unit(&shared);
    unit(&shared);
    x->prompt = q->prompt + q->generated;
    x->mean = g->expected + g->later;
    x->worst = (float)worst(g, q->max_new) + g->later;
    for (int d = 0; d < MS_CHOOSE_DRAWS; d++)
        x->draw[d] =
            g->later + (float)ms_length_draw(g->guess,
                                             ms_length_draw_mu(g->guess, unit(&shared)),
                                             unit(seed),
                                             q->generated,
                                             q->max_new);
}

/* Items in order of submission, `share` of them. The samples of a group share what is
 * uncertain of their prompt. */
static void
add_items(struct ms_scheduler *s, struct ms_choose *c, double share, uint64_t *order)
{
    uint64_t seed = (s->plans + 1) * SEED | 1;

    for (size_t i = 0; i < s->queue.count; i++)
        order[i] = (uint64_t)s->queue.at[i].tie << 32 | s->queue.at[i].index;
    qsort(order, s->queue.count, sizeof *order, by_submission);
    for (size_t i = 0; i < s->queue.count; i++)
        if (floor((double)i * share) < floor((double)(i + 1) * share))
            add_item(s, c, &s->requests[(uint32_t)order[i]], &seed);
}

/* About what all draws take, of which half the candidates do not see all. */
static double work_of(const struct ms_choose *c, double requests, double length)
{
    double places = (double)c->replica_count * c->slots;
    double ticks =
        requests * length * (c->a + c->b * c->slots) / places / MS_CHOOSE_TICK_NS;

    return MS_CHOOSE_DRAWS / 2.0 *
           (CANDIDATES * requests * (2.0 * c->replica_count + MS_CHOOSE_EVENT_WORK) +
            SLICED * ticks * places * MS_CHOOSE_SORT_WORK);
}

/* Half of the replicas, or of the slots, whose requests then weigh as many as they stand
 * for: the step takes as long. False: it is too small for that. */
static bool halve(struct ms_choose *c)
{
    uint32_t slots = (c->slots + 1) / 2;
    double weight = (double)c->slots / slots;

    if (c->replica_count >= 2 * REPLICAS_MIN) {
        c->replica_count = (c->replica_count + 1) / 2;
        return true;
    }
    if (c->slots < 2 * SLOTS_MIN)
        return false;
    c->slots = slots;
    c->b *= weight;
    c->prefill *= weight;
    c->kv_max /= weight;
    return true;
}

/* The share of the requests that can be simulated with the work that there is. */
static double scale_down(struct ms_choose *c, size_t requests, double length)
{
    double places = (double)c->replica_count * c->slots, share = 1;

    while (work_of(c, (double)requests * share, length) > (double)c->work_max &&
           halve(c))
        share = (double)c->replica_count * c->slots / places;
    return share;
}

static double mean_length(const struct ms_scheduler *s)
{
    double sum = 0;

    for (size_t i = 0; i < s->queue.count; i++) {
        const struct ms_gen_group *g =
            &s->groups[s->requests[s->queue.at[i].index].group];

        sum += g->expected + g->later;
    }
    return sum / (double)s->queue.count;
}

static bool measure(const struct ms_scheduler *s, struct ms_choose *c)
{
    *c = (struct ms_choose){.work_max = MS_CHOOSE_WORK_MAX,
                            .a = s->a_ns,
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
    return c->replica_count > 0 && c->a > 0 &&
           s->queue.count > (uint64_t)c->replica_count * c->slots;
}

static bool
reserve(struct ms_scheduler *s, struct ms_choose *c, double share, uint64_t **order)
{
    size_t n = (size_t)((double)s->queue.count * share) + 1;
    size_t places = (size_t)c->replica_count * c->slots;
    size_t sizes[] = {s->queue.count * sizeof **order,
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

static double run_ns(struct ms_choose *c, int k, double length)
{
    c->order = candidates[k].order;
    c->slice = candidates[k].slice * length;
    return ms_choose_run_ns(c);
}

/* One draw more of all candidates that are near the best; false: the work is used up, and
 * nothing has changed. */
static bool
try_draw(struct ms_choose *c, double length, const bool *hopeless, double *means)
{
    double found[CANDIDATES];

    for (int k = 0; k < CANDIDATES; k++) {
        found[k] = hopeless[k] ? means[k] : run_ns(c, k, length);
        if (isinf(found[k]))
            return false;
    }
    for (int k = 0; k < CANDIDATES; k++)
        means[k] += (found[k] - means[k]) / (c->draw + 1);
    return true;
}

/* All candidates on a few draws, then those that are near the best on all. How many draws
 * there were. */
static uint32_t try_all(struct ms_choose *c, double length, double *means)
{
    bool hopeless[CANDIDATES] = {false};

    for (int k = 0; k < CANDIDATES; k++)
        means[k] = 0;
    for (c->draw = 0; c->draw < MS_CHOOSE_DRAWS; c->draw++) {
        double least = INFINITY;

        if (!try_draw(c, length, hopeless, means))
            break;
        for (int k = 0; k < CANDIDATES; k++)
            least = fmin(least, means[k]);
        for (int k = 0; k < CANDIDATES; k++)
            hopeless[k] |= c->draw + 1 == FIRST_DRAWS && means[k] > HOPELESS * least;
    }
    return c->draw;
}

void ms_choose(struct ms_scheduler *s)
{
    struct ms_choose c;
    uint64_t *order;
    double means[CANDIDATES], length, share;
    int best, usual;

    s->plans++;
    if (!measure(s, &c))
        return;
    length = mean_length(s);
    share = scale_down(&c, s->queue.count, length);
    if (!reserve(s, &c, share, &order))
        return;
    add_items(s, &c, share, order);
    if (try_all(&c, length, means) == 0)
        return;
    best = usual = ms_lengths_icc(s->lengths) < MS_ICC_MIN ? 0 : 1;
    for (int k = 0; k < CANDIDATES; k++)
        if (means[k] < BETTER * means[usual] && means[k] < means[best])
            best = k;
    s->choice = (struct ms_choice){.order = candidates[best].order,
                                   .slice = candidates[best].slice * length,
                                   .began_ns = s->now_ns,
                                   .expected_ns = means[best],
                                   .work = c.work};
}

bool ms_choice_holds(const struct ms_scheduler *s)
{
    return s->choice.order != MS_ORDER_UNKNOWN &&
           (double)(s->now_ns - s->choice.began_ns) <= EXPIRES * s->choice.expected_ns;
}

double ms_choice_worst(const struct ms_scheduler *s, const struct ms_gen_request *q)
{
    const struct ms_gen_group *g = &s->groups[q->group];

    return ms_choose_worst_left(worst(g, q->max_new), q->generated) + (double)g->later +
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

    if (ms_array_reserve(&s->scratch, &s->scratch_room, room * sizeof *running, 1) < 0)
        return;
    running = (void *)s->scratch;
    waiting = running + s->stats.running;
    n = list_live(s, running, waiting);
    for (size_t k = 0; k < n && k < s->queue.count &&
                       -waiting[k].left - running[k].left > s->choice.slice;
         k++)
        ms_scheduler_yield(s, running[k].request);
}
