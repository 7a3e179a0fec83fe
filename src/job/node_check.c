/* node_check.c - pairs for two rounds of node checks, and what their results say */
#include "job/node_check.h"
#include "base/cleanup.h"
#include "base/limits.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int ms_node_check_init(struct ms_node_check *c, uint32_t count, struct ms_error *err)
{
    bool ok = true;

    *c = (struct ms_node_check){.count = count, .slow_milli = MS_NODE_SLOW_MILLI};
    if (count < 1 || count > MS_NODE_CHECK_MAX)
        return ms_error_set(
            err, -EINVAL, "%u nodes: 1 to %u can be checked", count, MS_NODE_CHECK_MAX);
    for (unsigned r = 0; r < MS_NODE_CHECK_ROUNDS; r++) {
        c->passed[r] = calloc(count, sizeof(bool));
        c->failed[r] = calloc(count, sizeof(bool));
        c->time_ns[r] = calloc(count, sizeof(int64_t));
        c->pairs[r] = calloc(count, sizeof(struct ms_node_pair));
        ok = ok && c->passed[r] && c->failed[r] && c->time_ns[r] && c->pairs[r];
    }
    if (ok)
        return 0;
    ms_node_check_finish(c);
    return ms_error_set(err, -ENOMEM, "out of memory");
}

void ms_node_check_finish(struct ms_node_check *c)
{
    for (unsigned r = 0; r < MS_NODE_CHECK_ROUNDS; r++) {
        free(c->passed[r]);
        free(c->failed[r]);
        free(c->time_ns[r]);
        free(c->pairs[r]);
    }
    *c = (struct ms_node_check){0};
}

void ms_node_check_report(struct ms_node_check *c,
                          unsigned round,
                          uint32_t node,
                          bool passed,
                          int64_t time_ns)
{
    if (!passed) {
        c->failed[round][node] = true;
    } else if (!c->passed[round][node] || time_ns < c->time_ns[round][node]) {
        c->passed[round][node] = true;
        c->time_ns[round][node] = time_ns;
    }
}

static bool has_passed(const struct ms_node_check *c, unsigned round, uint32_t node)
{
    return c->passed[round][node] && !c->failed[round][node];
}

/* ---- pairs ----------------------------------------------------------------------- */

static void add_pair(struct ms_node_check *c, unsigned round, uint32_t a, uint32_t b)
{
    c->pairs[round][c->pair_count[round]++] = (struct ms_node_pair){a, b};
}

/* What a sort compares: the time of the first round, a failure above all. */
struct ranked {
    uint32_t node;
    int64_t time_ns;
};

static int by_time(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;

    if (x->time_ns != y->time_ns)
        return x->time_ns < y->time_ns ? -1 : 1;
    return x->node < y->node ? -1 : x->node > y->node;
}

static void plan_neighbours(struct ms_node_check *c)
{
    for (uint32_t i = 0; i < c->count; i += 2)
        add_pair(c, 0, i, i + 1 < c->count ? i + 1 : i);
}

static void plan_fast_with_slow(struct ms_node_check *c)
{
    MS_CLEANUP(ms_cleanup_free) struct ranked *all = calloc(c->count, sizeof *all);
    uint32_t low = 0, high = c->count - 1, failed = 0;

    if (!all) /* the first round says what it can */
        return;
    for (uint32_t i = 0; i < c->count; i++) {
        bool ok = has_passed(c, 0, i);

        all[i] = (struct ranked){i, ok ? c->time_ns[0][i] : INT64_MAX};
        failed += !ok;
    }
    qsort(all, c->count, sizeof *all, by_time);
    if (c->count == 2 && failed > 0) { /* nobody else is there */
        add_pair(c, 1, 0, 0);
        add_pair(c, 1, 1, 1);
    } else if (c->count == 3 && failed == 2) {
        add_pair(c, 1, all[0].node, all[1].node);
        add_pair(c, 1, all[0].node, all[2].node);
    } else {
        for (; low < high; low++, high--)
            add_pair(c, 1, all[low].node, all[high].node);
        if (low == high)
            add_pair(c, 1, all[low].node, all[low].node);
    }
}

const struct ms_node_pair *
ms_node_check_plan(struct ms_node_check *c, unsigned round, size_t *count)
{
    if (c->pair_count[round] == 0) {
        if (round == 0)
            plan_neighbours(c);
        else
            plan_fast_with_slow(c);
    }
    *count = c->pair_count[round];
    return c->pairs[round];
}

/* ---- verdicts -------------------------------------------------------------------- */

/* Its partner in this pair: itself, if it was alone; -1: it is not in it. */
static int64_t partner(const struct ms_node_pair *p, uint32_t node)
{
    if (p->a != node && p->b != node)
        return -1;
    return p->a == node ? p->b : p->a;
}

enum company { ALONE, PAIRED };

/* Is there a check of this node, alone or with another one, that ended so? */
static bool
has_been(const struct ms_node_check *c, uint32_t node, enum company with, bool passed)
{
    for (unsigned r = 0; r < MS_NODE_CHECK_ROUNDS; r++)
        for (size_t i = 0; i < c->pair_count[r]; i++) {
            int64_t other = partner(&c->pairs[r][i], node);

            if (other >= 0 && (other != node) == (with == PAIRED) &&
                (passed ? c->passed[r][node] : c->failed[r][node]))
                return true;
        }
    return false;
}

/* Of one that failed with others and never passed with one: by what is known of those. */
static enum ms_node_verdict judge_by_partners(const struct ms_node_check *c,
                                              uint32_t node)
{
    bool are_faulty = true;

    for (unsigned r = 0; r < MS_NODE_CHECK_ROUNDS; r++)
        for (size_t i = 0; i < c->pair_count[r]; i++) {
            int64_t other = partner(&c->pairs[r][i], node);

            if (other < 0 || other == node)
                continue;
            if (has_been(c, (uint32_t)other, PAIRED, true))
                return MS_NODE_FAULTY;
            are_faulty = are_faulty && has_been(c, (uint32_t)other, ALONE, false);
        }
    return are_faulty && has_been(c, node, ALONE, true) ? MS_NODE_GOOD
                                                        : MS_NODE_SUSPECT;
}

int64_t ms_node_check_time_ns(const struct ms_node_check *c, uint32_t node)
{
    int64_t best = -1;

    for (unsigned r = 0; r < MS_NODE_CHECK_ROUNDS; r++)
        if (c->passed[r][node] && (best < 0 || c->time_ns[r][node] < best))
            best = c->time_ns[r][node];
    return best;
}

int64_t ms_node_check_median_ns(const struct ms_node_check *c)
{
    MS_CLEANUP(ms_cleanup_free) struct ranked *all = calloc(c->count, sizeof *all);
    size_t n = 0;

    for (uint32_t i = 0; all && i < c->count; i++) {
        int64_t time_ns = ms_node_check_time_ns(c, i);

        if (time_ns >= 0)
            all[n++] = (struct ranked){i, time_ns};
    }
    if (n == 0)
        return -1;
    qsort(all, n, sizeof *all, by_time);
    return all[(n - 1) / 2].time_ns;
}

enum ms_node_verdict ms_node_check_verdict(const struct ms_node_check *c, uint32_t node)
{
    enum ms_node_verdict verdict = MS_NODE_GOOD;
    int64_t time_ns = ms_node_check_time_ns(c, node);

    if (has_been(c, node, ALONE, false))
        verdict = MS_NODE_FAULTY;
    else if (has_been(c, node, PAIRED, false) && !has_been(c, node, PAIRED, true))
        verdict = judge_by_partners(c, node);
    else if (time_ns < 0)
        verdict = MS_NODE_SUSPECT; /* nothing was reported of it */
    if (verdict == MS_NODE_GOOD &&
        (double)time_ns * 1000 >
            (double)c->slow_milli * (double)ms_node_check_median_ns(c))
        verdict = MS_NODE_STRAGGLER;
    return verdict;
}
