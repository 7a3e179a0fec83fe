/* choose.c - simulates a step under each candidate order and takes the best
 *
 * Of a step that would take more than MS_CHOOSE_WORK_MAX a part is simulated: every k-th
 * request on the k-th part of the places. Draws end when the work is used up.
 * What was expected of a step is compared with what it took, if nothing came between: as
 * long as that is far off the order is first come first served.
 */
#include "generate/choose.h"

#include "base/buf.h"
#include "base/clock.h"
#include "generate/choose_sim.h"
#include "generate/policy.h"

#include <math.h>
#include <stdlib.h>

enum { FIRST_DRAWS = 2 };

#define BETTER       0.995 /* of the default's makespan: what another one must reach */
#define HOPELESS     1.03 /* of the best after the first draws: not looked at further */
#define EXPIRES      1.5 /* of the expected makespan: then what came later counts more */
#define KNOWN_GROUPS 16 /* that have ended: with fewer, draws are of what was assumed */
#define MISTRUST                                                                       \
    0.15 /* of the expected makespan: a mean error that shows no knowledge */
#define MISSES_KEEP  0.7 /* of earlier steps, in that mean */
#define AGAIN_SHARE  4 /* of the groups that there are so many are new: choose again */
#define AGAIN_NS     (10 * MS_NS_PER_S) /* at most so often */
#define REPLICAS_MIN 4 /* of a part of a step: below, it says little of the whole */
#define SLOTS_MIN    8
#define SEED         UINT64_C(0xD1B54A32D192ED03)

/* As long as an answer can get: so many deviations above the expected logarithm. */
static const double worst_sigmas[MS_CHOOSE_WORSTS] = {2.5, 2.0};

/* Slices as shares of the mean length (0: not sliced), and by which worst they are ordered. Thin
 * ones let all begin early where little is known, and count with longer answers; thick ones
 * even out the end. */
static const struct {
    uint8_t order, worst;
    double slice;
} candidates[] = {
    {MS_ORDER_FIFO, 0, 0},
    {MS_ORDER_LONGEST, 0, 0},
    {MS_ORDER_WORST, 0, 0.15},
    {MS_ORDER_WORST, 0, 0.3},
    {MS_ORDER_WORST, 1, 0.6},
    {MS_ORDER_WORST, 1, 1},
};
enum { FIFO, LONGEST, CANDIDATES = sizeof candidates / sizeof *candidates, SLICED = 4 };

/* ---- what there is ----------------------------------------------------------------- */

static double unit(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return ((double)(*seed >> 11) + 0.5) / 9007199254740992.0;
}

static double worst(const struct ms_gen_group *g, int which, uint32_t max_new)
{
    return fmin(exp(g->guess.mu + worst_sigmas[which] * g->guess.sigma), max_new);
}

static int by_submission(const void *x, const void *y)
{
    uint64_t p = *(const uint64_t *)x, q = *(const uint64_t *)y;

    return p < q ? -1 : p > q;
}

/* `on`: the replica of the simulation that it runs on, or MS_NOWHERE. */
static void add_item(const struct ms_scheduler *s,
                     struct ms_choose *c,
                     const struct ms_gen_request *q,
                     uint32_t on,
                     uint64_t *seed)
{
    const struct ms_gen_group *g = &s->groups[q->group];
    uint64_t shared = (g->id ^ s->plans << 32) * SEED | 1;
    struct ms_choose_item *x = &c->items[c->n++];

    unit(&shared);
    unit(&shared);
    x->prompt = q->prompt;
    x->had = (float)q->generated;
    x->on = on;
    x->mean =
        g->later +
        (q->generated == 0
             ? g->expected
             : x->had + (float)ms_length_remaining(g->guess, q->generated, q->max_new));
    for (int k = 0; k < MS_CHOOSE_WORSTS; k++)
        x->worst[k] = (float)worst(g, k, q->max_new) + g->later;
    for (int d = 0; d < MS_CHOOSE_DRAWS; d++)
        x->draw[d] = g->later + x->had +
                     (float)ms_length_draw(g->guess,
                                           ms_length_draw_mu(g->guess, unit(&shared)),
                                           unit(seed),
                                           q->generated,
                                           q->max_new);
}

/* Is this one of the `share` of a row that is simulated? */
static bool is_in_share(size_t i, double share)
{
    return floor((double)i * share) < floor((double)(i + 1) * share);
}

/* A place for one that runs on the k-th of `open` replicas: there, or beside. */
static uint32_t find_place(struct ms_choose *c, size_t k, size_t open)
{
    uint32_t first = (uint32_t)(k * c->replica_count / open);

    for (uint32_t i = 0; i < c->replica_count; i++) {
        uint32_t on = (first + i) % c->replica_count;

        if (c->replicas[on].count < c->slots) {
            c->replicas[on].count++;
            return on;
        }
    }
    return MS_NOWHERE;
}

/* What runs already, where it runs. */
static void add_running(const struct ms_scheduler *s,
                        struct ms_choose *c,
                        double share,
                        size_t open,
                        uint64_t *seed)
{
    size_t at = 0, n = 0;

    for (uint32_t k = 0; k < c->replica_count; k++)
        c->replicas[k].count = 0;
    for (size_t k = 0; k < s->replica_count; k++) {
        const struct ms_gen_replica *r = &s->replicas[k];

        if (r->state != MS_REPLICA_OPEN)
            continue;
        for (uint32_t i = r->first; i != MS_NONE; i = s->requests[i].after)
            if (!s->requests[i].ends && is_in_share(n++, share))
                add_item(s, c, &s->requests[i], find_place(c, at, open), seed);
        at++;
    }
}

/* Items in order of submission, `share` of them, and then what runs. The samples of a group
 * share what is uncertain of their prompt. */
static void add_items(struct ms_scheduler *s,
                      struct ms_choose *c,
                      double share,
                      size_t open,
                      uint64_t *order)
{
    uint64_t seed = (s->plans + 1) * SEED | 1;

    for (size_t i = 0; i < s->queue.count; i++)
        order[i] = (uint64_t)s->queue.at[i].tie << 32 | s->queue.at[i].index;
    qsort(order, s->queue.count, sizeof *order, by_submission);
    for (size_t i = 0; i < s->queue.count; i++)
        if (is_in_share(i, share))
            add_item(s, c, &s->requests[(uint32_t)order[i]], MS_NOWHERE, &seed);
    add_running(s, c, share, open, &seed);
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

/* Requests that the step has: they wait, or run. */
static size_t live(const struct ms_scheduler *s)
{
    return s->queue.count + s->stats.running + s->stats.aborting;
}

/* A session's later turns come when the one that waits has ended: at the beginning they are
 * taken for one long answer with it, but what a session has had by then is not modelled. */
static bool has_later_turns(const struct ms_scheduler *s)
{
    for (size_t i = 0; i < s->queue.count; i++)
        if (s->groups[s->requests[s->queue.at[i].index].group].turn > 0)
            return true;
    return false;
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
    return c->replica_count > 0 && c->a > 0 && s->queue.count > 0 &&
           ms_lengths_groups(s->lengths) >= KNOWN_GROUPS &&
           live(s) > (size_t)c->replica_count * c->slots &&
           (s->stats.running == 0 || !has_later_turns(s));
}

static bool
reserve(struct ms_scheduler *s, struct ms_choose *c, double share, uint64_t **order)
{
    size_t n = (size_t)((double)live(s) * share) + 2;
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
    c->worst = candidates[k].worst;
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

/* What is known is too little, or wrong, for a simulation to be believed. */
static bool is_mistrusted(const struct ms_scheduler *s)
{
    return s->predicted > 0 && s->misses / s->predicted > MISTRUST;
}

static int best_of(const struct ms_scheduler *s, const double *means)
{
    int usual = ms_lengths_icc(s->lengths) < MS_ICC_MIN ? FIFO : LONGEST, best = usual;

    if (is_mistrusted(s))
        return FIFO;
    for (int k = 0; k < CANDIDATES; k++)
        if (means[k] < BETTER * means[usual] && means[k] < means[best])
            best = k;
    return best;
}

void ms_choose(struct ms_scheduler *s)
{
    struct ms_choose c;
    uint64_t *order;
    double means[CANDIDATES], length, share;
    size_t open;
    int best;

    s->plans++;
    s->choose_ns = s->now_ns;
    s->choose_order = s->order;
    if (!measure(s, &c))
        return;
    open = c.replica_count;
    length = mean_length(s);
    share = scale_down(&c, live(s), length);
    if (!reserve(s, &c, share, &order))
        return;
    add_items(s, &c, share, open, order);
    if (try_all(&c, length, means) == 0)
        return;
    best = best_of(s, means);
    s->choice = (struct ms_choice){.order = candidates[best].order,
                                   .worst = candidates[best].worst,
                                   .slice = candidates[best].slice * length,
                                   .began_ns = s->now_ns,
                                   .expected_ns = means[best],
                                   .of = s->order + s->disturbed,
                                   .work = c.work};
}

bool ms_choose_is_due(const struct ms_scheduler *s)
{
    uint64_t new = s->order - s->choose_order;

    return s->now_ns - s->choose_ns >= AGAIN_NS &&
           (new *AGAIN_SHARE >= s->stats.groups || !ms_choice_holds(s));
}

void ms_choice_ended(struct ms_scheduler *s)
{
    double expected_ns = s->choice.expected_ns;

    if (expected_ns > 0 && s->choice.of == s->order + s->disturbed) {
        double took_ns = (double)(s->now_ns - s->choice.began_ns);

        s->predicted = s->predicted * MISSES_KEEP + 1;
        s->misses = s->misses * MISSES_KEEP + fabs(took_ns / expected_ns - 1);
    }
    s->choice.expected_ns = 0;
}

bool ms_choice_holds(const struct ms_scheduler *s)
{
    return s->choice.order != MS_ORDER_UNKNOWN &&
           (double)(s->now_ns - s->choice.began_ns) <= EXPIRES * s->choice.expected_ns;
}

double ms_choice_worst(const struct ms_scheduler *s, const struct ms_gen_request *q)
{
    const struct ms_gen_group *g = &s->groups[q->group];

    return ms_choose_worst_left(worst(g, s->choice.worst, q->max_new), q->generated) +
           (double)g->later + 1e-3 * ((double)g->expected - q->generated);
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
            if (s->requests[i].state == MS_REQUEST_RUNNING &&
                !ms_gen_request_is_last_chance(s, &s->requests[i]))
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
