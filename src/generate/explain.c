/* explain.c - why a request is where it is, from the state when it is asked for */
#include "generate/explain.h"

#include "base/cleanup.h"
#include "generate/scheduler_impl.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

static uint32_t find(const struct ms_scheduler *s, uint64_t group, uint32_t seq)
{
    uint32_t g = ms_gen_group_find(s, group), i;

    if (g == MS_NONE)
        return MS_NONE;
    for (i = s->groups[g].first; i != MS_NONE; i = s->requests[i].next)
        if (s->requests[i].seq == seq)
            return i;
    return MS_NONE;
}

static void
explain_place(const struct ms_scheduler *s, uint32_t i, struct ms_explanation *x)
{
    static const uint8_t states[] = {
        [MS_REQUEST_HELD] = MS_EXPLAIN_HELD,
        [MS_REQUEST_QUEUED] = MS_EXPLAIN_QUEUED,
        [MS_REQUEST_PARKED] = MS_EXPLAIN_PARKED,
        [MS_REQUEST_RUNNING] = MS_EXPLAIN_RUNNING,
        [MS_REQUEST_ABORTING] = MS_EXPLAIN_ABORTING,
        [MS_REQUEST_DONE] = MS_EXPLAIN_DONE,
    };
    const struct ms_gen_request *q = &s->requests[i];

    x->state = states[q->state];
    x->placed = q->placed;
    x->why = q->why;
    x->attempt = q->attempt;
    x->replica = q->replica;
    x->epoch = q->replica < s->replica_count ? s->replicas[q->replica].epoch : 0;
    x->target = q->target;
    x->failures = q->failures;
    x->since_ns = q->since_ns;
}

static void
explain_length(const struct ms_scheduler *s, uint32_t i, struct ms_explanation *x)
{
    const struct ms_gen_request *q = &s->requests[i];
    const struct ms_gen_group *g = &s->groups[q->group];
    struct ms_length_guess guess = g->guess;
    double most = q->max_new;

    x->prompt = q->prompt;
    x->generated = q->generated;
    x->max_new = q->max_new;
    x->oldest = q->oldest;
    x->hint = g->hint;
    x->siblings_ended = g->sums.n;
    for (uint32_t k = g->first; k != MS_NONE; k = s->requests[k].next)
        x->siblings_live += k != i && s->requests[k].state != MS_REQUEST_DONE &&
                            s->requests[k].generated > 0;
    x->history = ms_lengths_samples(s->lengths, g->key);
    x->correlation = ms_lengths_icc(s->lengths);
    x->expected = q->generated;
    x->high = q->generated;
    if (q->state == MS_REQUEST_DONE)
        return;
    if (g->state == MS_GROUP_HELD) /* it has not been guessed yet */
        guess = ms_lengths_guess(s->lengths, g->key, g->hint, &g->sums, NULL, 0);
    x->expected += ms_length_remaining(guess, q->generated, q->max_new);
    x->high += ms_length_below(guess, 0.9, q->generated, q->max_new);
    x->high = fmin(x->high, most);
}

static void
explain_queue(const struct ms_scheduler *s, uint32_t i, struct ms_explanation *x)
{
    const struct ms_gen_request *q = &s->requests[i];

    x->policy = s->o.policy->name;
    x->order = s->o.policy->order ? s->o.policy->order(s) : x->policy;
    x->queued = s->queue.count;
    if (q->state != MS_REQUEST_QUEUED)
        return;
    x->rank = q->rank;
    x->ahead = ms_queue_ahead(s, i);
}

int ms_scheduler_explain(const struct ms_scheduler *s,
                         uint64_t id,
                         uint64_t group,
                         uint32_t seq,
                         struct ms_explanation *out)
{
    uint32_t i = id != 0 ? ms_gen_request_find(s, id) : find(s, group, seq);
    const struct ms_gen_request *q;

    if (i == MS_NONE)
        return -ENOENT;
    q = &s->requests[i];
    *out = (struct ms_explanation){.id = ms_gen_request_id(s, i),
                                   .group = s->groups[q->group].id,
                                   .key = s->groups[q->group].key,
                                   .seq = q->seq};
    explain_place(s, i, out);
    explain_length(s, i, out);
    explain_queue(s, i, out);
    return 0;
}

/* ---- for people -------------------------------------------------------------------- */

static const char *name_of(const char *const *names, size_t count, uint32_t i)
{
    return i < count && names[i] ? names[i] : "?";
}

const char *ms_explain_state_name(uint32_t state)
{
    static const char *const names[] = {[MS_EXPLAIN_HELD] = "held",
                                        [MS_EXPLAIN_QUEUED] = "queued",
                                        [MS_EXPLAIN_PARKED] = "parked",
                                        [MS_EXPLAIN_RUNNING] = "running",
                                        [MS_EXPLAIN_ABORTING] = "aborting",
                                        [MS_EXPLAIN_DONE] = "done"};

    return name_of(names, MS_COUNT(names), state);
}

const char *ms_explain_placed_name(uint32_t placed)
{
    static const char *const names[] = {[MS_PLACED_NOT] = "not placed",
                                        [MS_PLACED_LOAD] = "by load",
                                        [MS_PLACED_WARM] = "by warm prefix",
                                        [MS_PLACED_PLANNED] = "by plan"};

    return name_of(names, MS_COUNT(names), placed);
}

const char *ms_generate_why_name(uint32_t why)
{
    static const char *const names[] = {[MS_WHY_NONE] = "none",
                                        [MS_WHY_CANCELLED] = "cancelled",
                                        [MS_WHY_DEADLINE] = "deadline",
                                        [MS_WHY_SILENT] = "silent",
                                        [MS_WHY_MOVED] = "moved",
                                        [MS_WHY_WEIGHTS] = "weights",
                                        [MS_WHY_DRAINED] = "drained",
                                        [MS_WHY_SURPLUS] = "surplus",
                                        [MS_WHY_POISON] = "poison",
                                        [MS_WHY_STALE] = "stale",
                                        [MS_WHY_FILTERED] = "filtered",
                                        [MS_WHY_FAILED] = "failed",
                                        [MS_WHY_LOST] = "replica lost",
                                        [MS_WHY_CHUNK] = "end of chunk",
                                        [MS_WHY_YIELDED] = "made way",
                                        [MS_WHY_PREEMPTED] = "preempted",
                                        [MS_WHY_REFUSED] = "refused"};

    return name_of(names, MS_COUNT(names), why);
}

static int print_place(const struct ms_explanation *x, char *text, size_t size)
{
    const char *state = ms_explain_state_name(x->state);

    switch (x->state) {
    case MS_EXPLAIN_QUEUED:
        return snprintf(text,
                        size,
                        "queued, %llu of %llu ahead by %s",
                        (unsigned long long)x->ahead,
                        (unsigned long long)x->queued,
                        x->order);
    case MS_EXPLAIN_PARKED:
        return snprintf(
            text, size, "waits for replica %u, its prefix is there", x->replica);
    case MS_EXPLAIN_RUNNING:
    case MS_EXPLAIN_ABORTING:
        return snprintf(text,
                        size,
                        "%s on replica %u, attempt %u, placed %s",
                        state,
                        x->replica,
                        x->attempt,
                        ms_explain_placed_name(x->placed));
    default:
        return snprintf(text, size, "%s", state);
    }
}

const char *
ms_explanation_print(const struct ms_explanation *x, char *text, size_t size)
{
    int n = print_place(x, text, size);

    if (x->why != MS_WHY_NONE && n >= 0 && (size_t)n < size)
        n += snprintf(text + n,
                      size - (size_t)n,
                      "; %s: %s",
                      x->state == MS_EXPLAIN_ABORTING ? "why" : "left its replica",
                      ms_generate_why_name(x->why));
    if (x->state != MS_EXPLAIN_DONE && n >= 0 && (size_t)n < size)
        snprintf(
            text + n,
            size - (size_t)n,
            "; %u tokens of about %.0f (90 %%: %.0f), known from %.0f past samples, "
            "%u ended and %u running siblings%s",
            x->generated,
            x->expected,
            x->high,
            x->history,
            x->siblings_ended,
            x->siblings_live,
            x->hint ? ", and the caller's hint" : "");
    return text;
}
