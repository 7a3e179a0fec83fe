/* partition.c - rows to parts of equal weight: the heaviest first, or by differencing */
#include "batch/partition.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdlib.h>

struct weighed {
    int64_t weight;
    uint32_t row;
};

/* ---- the heaviest first ---------------------------------------------------------- */

struct part {
    uint64_t weight;
    size_t rows;
    uint32_t number;
};

static bool is_lighter(const struct part *a, const struct part *b)
{
    return a->weight != b->weight ? a->weight < b->weight : a->number < b->number;
}

/* The first of the heap has changed, or is a new one: put it where it belongs. */
static void sift(struct part *heap, uint32_t count)
{
    for (uint32_t i = 0;;) {
        uint32_t least = i, left = 2 * i + 1;

        for (uint32_t child = left; child < left + 2 && child < count; child++)
            if (is_lighter(&heap[child], &heap[least]))
                least = child;
        if (least == i)
            return;
        struct part swap = heap[i];

        heap[i] = heap[least];
        heap[least] = swap;
        i = least;
    }
}

/* A part that has its rows leaves the heap. With `equal`, count % parts parts may have one
 * more than the others: `longer` of them are left. */
static int by_longest_first(const struct weighed *rows,
                            size_t count,
                            uint32_t parts,
                            bool equal,
                            uint32_t *part_of)
{
    MS_CLEANUP(ms_cleanup_free) struct part *heap = calloc(parts, sizeof *heap);
    size_t each = equal ? count / parts : count, longer = equal ? count % parts : 0;
    uint32_t open = parts;

    if (!heap)
        return -ENOMEM;
    for (uint32_t i = 0; i < parts; i++)
        heap[i].number = i;
    for (size_t i = 0; i < count; i++) {
        while (heap[0].rows >= each + (longer > 0)) {
            heap[0] = heap[--open];
            sift(heap, open);
        }
        if (heap[0].rows == each)
            longer--;
        part_of[rows[i].row] = heap[0].number;
        heap[0].weight += (uint64_t)rows[i].weight;
        heap[0].rows++;
        sift(heap, open);
    }
    return 0;
}

/* ---- differencing (Karmarkar and Karp) -------------------------------------------- */

/* A guess is a partition of some of the rows: `parts` bins, the heaviest first. At first
 * every row (with `equal`: every `parts` rows) is a guess of its own. Two guesses become
 * one by putting the heaviest bin of one to the lightest of the other; always those two
 * that are the most uneven. Bins are lists of rows, so that joining two costs nothing.
 *
 * With `equal` all bins of a guess have one row each at first, but for the last guess,
 * which has the rows that are left: so two bins differ by one row at most.
 */
enum { NONE = -1 };

struct bin {
    uint64_t weight;
    int64_t first, last; /* rows, in `next`; NONE */
};

struct guess {
    struct bin *bins;
    uint64_t order; /* of two that are equally uneven, the earlier one */
};

struct work {
    uint32_t parts;
    struct guess *heap;
    size_t count;
    int64_t *next; /* the row after this one in its bin */
    uint64_t made;
};

static uint64_t spread(const struct work *w, const struct guess *g)
{
    return g->bins[0].weight - g->bins[w->parts - 1].weight;
}

static bool goes_first(const struct work *w, size_t a, size_t b)
{
    uint64_t x = spread(w, &w->heap[a]), y = spread(w, &w->heap[b]);

    return x != y ? x > y : w->heap[a].order < w->heap[b].order;
}

static void swap(struct work *w, size_t a, size_t b)
{
    struct guess g = w->heap[a];

    w->heap[a] = w->heap[b];
    w->heap[b] = g;
}

static void push(struct work *w, struct guess g)
{
    size_t i = w->count++;

    g.order = w->made++;
    w->heap[i] = g;
    for (; i > 0 && goes_first(w, i, (i - 1) / 2); i = (i - 1) / 2)
        swap(w, i, (i - 1) / 2);
}

static struct guess pop(struct work *w)
{
    struct guess top = w->heap[0];

    w->heap[0] = w->heap[--w->count];
    for (size_t i = 0;;) {
        size_t best = i, left = 2 * i + 1;

        for (size_t child = left; child < left + 2 && child < w->count; child++)
            if (goes_first(w, child, best))
                best = child;
        if (best == i)
            return top;
        swap(w, i, best);
        i = best;
    }
}

static void bin_join(struct work *w, struct bin *to, const struct bin *from)
{
    to->weight += from->weight;
    if (from->first == NONE)
        return;
    if (to->first == NONE)
        to->first = from->first;
    else
        w->next[to->last] = from->first;
    to->last = from->last;
}

static int heavier_bin(const void *a, const void *b)
{
    const struct bin *x = a, *y = b;

    if (x->weight != y->weight)
        return x->weight > y->weight ? -1 : 1;
    return x->first < y->first ? -1 : x->first > y->first;
}

/* The two most uneven guesses become one. */
static void merge(struct work *w)
{
    struct guess a = pop(w), b = pop(w);

    for (uint32_t i = 0; i < w->parts; i++)
        bin_join(w, &a.bins[i], &b.bins[w->parts - 1 - i]);
    qsort(a.bins, w->parts, sizeof *a.bins, heavier_bin);
    push(w, a);
}

/* The guesses that one begins with; `bins` are for all of them. */
static void push_all(struct work *w,
                     const struct weighed *rows,
                     size_t count,
                     size_t each,
                     struct bin *bins)
{
    for (size_t i = 0; i < count; i += each, bins += w->parts) {
        for (uint32_t j = 0; j < w->parts; j++) {
            bool has = j < each && i + j < count;

            bins[j] = (struct bin){.weight = has ? (uint64_t)rows[i + j].weight : 0,
                                   .first = has ? (int64_t)rows[i + j].row : NONE,
                                   .last = has ? (int64_t)rows[i + j].row : NONE};
        }
        push(w, (struct guess){.bins = bins});
    }
}

static void number_rows(const struct work *w, const struct guess *g, uint32_t *part_of)
{
    for (uint32_t i = 0; i < w->parts; i++)
        for (int64_t row = g->bins[i].first; row != NONE; row = w->next[row])
            part_of[row] = i;
}

static int by_differencing(const struct weighed *rows,
                           size_t count,
                           uint32_t parts,
                           bool equal,
                           uint32_t *part_of)
{
    size_t each = equal ? parts : 1, guesses = (count + each - 1) / each;
    MS_CLEANUP(ms_cleanup_free)
    struct guess *heap = calloc(guesses + 1, sizeof *heap);
    MS_CLEANUP(ms_cleanup_free)
    struct bin *bins = calloc(guesses * parts + 1, sizeof *bins);
    MS_CLEANUP(ms_cleanup_free) int64_t *next = calloc(count + 1, sizeof *next);
    struct work w = {.parts = parts, .heap = heap, .next = next};

    if (!heap || !bins || !next)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++)
        next[i] = NONE;
    push_all(&w, rows, count, each, bins);
    while (w.count > 1)
        merge(&w);
    if (w.count == 1)
        number_rows(&w, &w.heap[0], part_of);
    return 0;
}

/* ---- both ways ------------------------------------------------------------------- */

static int heaviest_first(const void *a, const void *b)
{
    const struct weighed *x = a, *y = b;

    if (x->weight != y->weight)
        return x->weight > y->weight ? -1 : 1;
    return x->row < y->row ? -1 : x->row > y->row;
}

static int
check(const int64_t *weights, size_t count, uint32_t parts, struct ms_error *err)
{
    uint64_t sum = 0;

    if (parts == 0 || parts > MS_PARTITION_PARTS_MAX)
        return ms_error_set(err,
                            -EINVAL,
                            "rows are shared out to 1 to %u parts, not to %u",
                            MS_PARTITION_PARTS_MAX,
                            parts);
    if (count > MS_PARTITION_ROWS_MAX)
        return ms_error_set(
            err, -E2BIG, "%zu rows: at most %zu", count, MS_PARTITION_ROWS_MAX);
    for (size_t i = 0; i < count; i++) {
        if (weights[i] < 0)
            return ms_error_set(
                err, -EINVAL, "row %zu has the weight %lld", i, (long long)weights[i]);
        if (__builtin_add_overflow(sum, (uint64_t)weights[i], &sum))
            return ms_error_set(err, -E2BIG, "the weights are too big to be added");
    }
    return 0;
}

int ms_partition(const int64_t *weights,
                 size_t count,
                 uint32_t parts,
                 enum ms_partition_way way,
                 bool equal,
                 uint32_t *part_of,
                 struct ms_error *err)
{
    int rc = check(weights, count, parts, err);
    bool differs = way == MS_PARTITION_DIFFERENCING;
    MS_CLEANUP(ms_cleanup_free)
    struct weighed *rows = rc < 0 ? NULL : calloc(count + 1, sizeof *rows);

    if (rc < 0)
        return rc;
    if (differs && !equal && count > MS_PARTITION_BINS_MAX / parts)
        return ms_error_set(err,
                            -E2BIG,
                            "%zu rows to %u parts are too many for differencing: take "
                            "the longest first",
                            count,
                            parts);
    if (!rows)
        return ms_error_sys(err, -ENOMEM, "%zu rows", count);
    for (size_t i = 0; i < count; i++)
        rows[i] = (struct weighed){.weight = weights[i], .row = (uint32_t)i};
    qsort(rows, count, sizeof *rows, heaviest_first);
    rc = differs ? by_differencing(rows, count, parts, equal, part_of)
                 : by_longest_first(rows, count, parts, equal, part_of);
    return rc < 0 ? ms_error_sys(err, rc, "%zu rows", count) : 0;
}
