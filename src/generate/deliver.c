/* deliver.c - finished groups: judged, handed out in batches, too old */
#include "generate/scheduler_impl.h"

#include <errno.h>
#include <math.h>

#define BIAS_KNOWN    512  /* samples: with fewer the bias is chance */
#define SURPLUS_LESS  0.95 /* of the share, at each group while it is too much */
#define SURPLUS_MORE  1.02 /* and while it is not */
#define SURPLUS_LEAST 0.01 /* so that it comes back from next to nothing */

/* ---- the length bias --------------------------------------------------------------- */

void ms_bias_add(uint64_t *bins, uint32_t tokens)
{
    int bin = (int)(log2(tokens > 0 ? tokens : 1) * 3);

    bins[bin < MS_BIAS_BINS ? bin : MS_BIAS_BINS - 1]++;
}

double ms_scheduler_bias(const struct ms_scheduler *s)
{
    double all = 0, out = 0, at_all = 0, at_out = 0, most = 0;

    for (int i = 0; i < MS_BIAS_BINS; i++) {
        all += (double)s->bins_all[i];
        out += (double)s->bins_out[i];
    }
    if (all == 0 || out == 0)
        return 0;
    for (int i = 0; i < MS_BIAS_BINS; i++) {
        at_all += (double)s->bins_all[i] / all;
        at_out += (double)s->bins_out[i] / out;
        most = fmax(most, fabs(at_all - at_out));
    }
    return most;
}

static double generated(const struct ms_scheduler *s)
{
    uint64_t n = 0;

    for (int i = 0; i < MS_BIAS_BINS; i++)
        n += s->bins_all[i];
    return (double)n;
}

/* Who takes the first that end takes the short ones: with less to choose from less so. */
static void adapt_surplus(struct ms_scheduler *s)
{
    if (generated(s) < BIAS_KNOWN)
        return;
    if (ms_scheduler_bias(s) > s->o.bias_max)
        s->surplus_share *= SURPLUS_LESS;
    else
        s->surplus_share = fmin(1, s->surplus_share * SURPLUS_MORE + SURPLUS_LEAST);
}

/* ---- finished ---------------------------------------------------------------------- */

static bool is_too_old(const struct ms_scheduler *s, uint32_t version)
{
    return (uint64_t)version + s->o.staleness_max < s->version;
}

static bool is_stale(const struct ms_scheduler *s, const struct ms_gen_group *g)
{
    return is_too_old(s, g->oldest);
}

static void refill(struct ms_scheduler *s, uint32_t groups)
{
    ms_decide(s, MS_REFILL)->tokens = groups;
}

static void drop_and_refill(struct ms_scheduler *s, uint32_t i, uint8_t why)
{
    ms_gen_group_drop(s, i, why);
    refill(s, 1);
}

static void accept(struct ms_scheduler *s, uint32_t i)
{
    struct ms_gen_group *g = &s->groups[i];

    if (is_stale(s, g)) {
        drop_and_refill(s, i, MS_WHY_STALE);
        return;
    }
    g->state = MS_GROUP_READY;
    ms_staleness_accept(&s->admission);
    ms_gen_list_insert(s, &s->ready, i);
}

void ms_deliver_finished(struct ms_scheduler *s, uint32_t i)
{
    ms_decide(s, MS_READY)->group = s->groups[i].id;
    if (s->o.filter)
        s->groups[i].state = MS_GROUP_JUDGED;
    else
        accept(s, i);
}

int ms_deliver_verdict(struct ms_scheduler *s, const struct ms_generate_event *e)
{
    uint32_t i = ms_gen_group_find(s, e->id);

    if (i == MS_NONE)
        return -ENOENT;
    if (s->groups[i].state != MS_GROUP_JUDGED)
        return -EINVAL;
    if (e->keep) {
        accept(s, i);
        return 0;
    }
    drop_and_refill(s, i, MS_WHY_FILTERED);
    return 0;
}

/* ---- batches ----------------------------------------------------------------------- */

/* What it has is for nothing. */
static bool is_in_vain(const struct ms_scheduler *s, const struct ms_gen_request *q)
{
    return q->generated > 0 && is_too_old(s, q->oldest);
}

/* It cannot have enough samples that are not too old. */
static bool is_hopeless(const struct ms_scheduler *s, const struct ms_gen_group *g)
{
    uint32_t may_be = g->done;

    for (uint32_t i = g->first; i != MS_NONE; i = s->requests[i].next) {
        const struct ms_gen_request *q = &s->requests[i];

        if (q->state != MS_REQUEST_DONE && !q->ends)
            may_be += !is_in_vain(s, q);
    }
    return may_be < g->wanted || (g->done > 0 && is_stale(s, g));
}

bool ms_deliver_drop_old(struct ms_scheduler *s, uint32_t i)
{
    if (is_hopeless(s, &s->groups[i])) {
        ms_gen_group_drop(s, i, MS_WHY_STALE);
        return true;
    }
    for (uint32_t q = s->groups[i].first; q != MS_NONE; q = s->requests[q].next)
        if (s->requests[q].state != MS_REQUEST_DONE && !s->requests[q].ends &&
            is_in_vain(s, &s->requests[q])) {
            s->disturbed++;
            ms_gen_request_end(s, q, MS_WHY_STALE);
        }
    return false;
}

/* Of groups that run; how many were dropped. */
static uint32_t drop_old(struct ms_scheduler *s)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < s->group_count; i++)
        n += s->groups[i].state == MS_GROUP_OPEN && ms_deliver_drop_old(s, i);
    return n;
}

int ms_deliver_advance(struct ms_scheduler *s, const struct ms_generate_event *e)
{
    uint32_t stale = 0;

    if (e->version < s->version)
        return -EINVAL;
    s->version = e->version;
    if (s->order == 0) /* before the first group: a job that is restored */
        ms_staleness_recover(&s->admission, s->version);
    /* the list is ordered by the oldest version */
    while (s->ready.first != MS_NONE && is_stale(s, &s->groups[s->ready.first])) {
        ms_gen_group_drop(s, s->ready.first, MS_WHY_STALE);
        stale++;
    }
    stale += drop_old(s);
    if (stale > 0)
        refill(s, stale);
    for (size_t i = 0; i < s->queue.count; i++)
        ms_gen_request_order(s,
                             s->queue.at[i].index); /* for some it is the last chance */
    ms_queue_sort(s);
    return 0;
}

int ms_deliver_pull(struct ms_scheduler *s, const struct ms_generate_event *e)
{
    if (e->id == 0 || e->samples == 0 || s->pull_id != 0)
        return -EINVAL;
    for (uint32_t i = s->leased.first; i != MS_NONE; i = s->groups[i].after)
        if (s->groups[i].batch == e->id)
            return -EEXIST;
    s->pull_id = e->id;
    s->pull_wanted = e->samples;
    return 0;
}

static void lease(struct ms_scheduler *s, uint32_t i)
{
    struct ms_gen_group *g = &s->groups[i];
    struct ms_generate_decision *d = ms_decide(s, MS_DELIVER);

    ms_gen_list_remove(s, &s->ready, i);
    ms_gen_list_add(s, &s->leased, i);
    g->state = MS_GROUP_LEASED;
    g->batch = s->pull_id;
    d->group = g->id;
    d->id = s->pull_id;
    d->version = g->oldest;
}

void ms_deliver(struct ms_scheduler *s)
{
    if (s->pull_id == 0 || s->ready.count < s->pull_wanted)
        return;
    for (; s->pull_wanted > 0; s->pull_wanted--)
        lease(s, s->ready.first);
    ms_decide(s, MS_BATCH)->id = s->pull_id;
    s->pull_id = 0;
}

static void consume(struct ms_scheduler *s, uint32_t i)
{
    struct ms_gen_group *g = &s->groups[i];

    s->stats.delivered++;
    s->stats.tokens += g->tokens;
    for (uint32_t q = g->first; q != MS_NONE; q = s->requests[q].next)
        if (s->requests[q].state == MS_REQUEST_DONE && !s->requests[q].ends)
            ms_bias_add(s->bins_out, s->requests[q].generated);
    if (g->has_surplus)
        adapt_surplus(s);
    ms_gen_group_release(s, i);
}

int ms_deliver_take(struct ms_scheduler *s, const struct ms_generate_event *e)
{
    uint32_t i = ms_gen_group_find(s, e->id);

    if (i == MS_NONE)
        return -ENOENT;
    if (s->groups[i].state != MS_GROUP_READY)
        return -EAGAIN;
    ms_gen_list_remove(s, &s->ready, i);
    consume(s, i);
    return 0;
}

/* Of the groups of one batch; -ENOENT: it has none. */
static int each_of_batch(struct ms_scheduler *s, uint64_t batch, bool back)
{
    int rc = -ENOENT;

    for (uint32_t i = s->leased.first, next; i != MS_NONE; i = next) {
        next = s->groups[i].after;
        if (s->groups[i].batch != batch)
            continue;
        rc = 0;
        ms_gen_list_remove(s, &s->leased, i);
        if (!back) {
            consume(s, i);
            continue;
        }
        s->groups[i].state = MS_GROUP_READY;
        ms_gen_list_insert(s, &s->ready, i);
        if (is_stale(s, &s->groups[i]))
            drop_and_refill(s, i, MS_WHY_STALE);
    }
    return rc;
}

int ms_deliver_consumed(struct ms_scheduler *s, const struct ms_generate_event *e)
{
    return each_of_batch(s, e->id, false);
}

int ms_deliver_returned(struct ms_scheduler *s, const struct ms_generate_event *e)
{
    return each_of_batch(s, e->id, true);
}
