/* partition.c - rows to parts of equal weight: the heaviest row to the lightest part */
#include "batch/partition.h"

#include "base/cleanup.h"
#include "batch/partition_impl.h"

#include <errno.h>
#include <stdlib.h>

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

/* A part that has its rows leaves the heap. With `equal`, count % parts parts may have
 * one more than the others. */
struct quota {
    size_t rows;
    uint32_t longer;
};

static bool is_full(const struct part *p, struct quota *q)
{
    if (p->rows < q->rows)
        return false;
    if (p->rows == q->rows && q->longer > 0)
        return false;
    return true;
}

static void longest_first(const struct ms_weighed *rows,
                          size_t count,
                          struct part *heap,
                          uint32_t parts,
                          bool equal,
                          uint32_t *part_of)
{
    struct quota q = {.rows = equal ? count / parts : count,
                      .longer = equal ? (uint32_t)(count % parts) : 0};
    uint32_t open = parts;

    for (size_t i = 0; i < count; i++) {
        while (is_full(&heap[0], &q)) {
            heap[0] = heap[--open];
            sift(heap, open);
        }
        if (heap[0].rows == q.rows)
            q.longer--;
        part_of[rows[i].row] = heap[0].number;
        heap[0].weight += (uint64_t)rows[i].weight;
        heap[0].rows++;
        sift(heap, open);
    }
}

static int by_longest_first(const struct ms_weighed *rows,
                            size_t count,
                            uint32_t parts,
                            bool equal,
                            uint32_t *part_of)
{
    MS_CLEANUP(ms_cleanup_free) struct part *heap = calloc(parts, sizeof *heap);

    if (!heap)
        return -ENOMEM;
    for (uint32_t i = 0; i < parts; i++)
        heap[i].number = i;
    longest_first(rows, count, heap, parts, equal, part_of);
    return 0;
}

/* ---- both ways ------------------------------------------------------------------- */

static int heaviest_first(const void *a, const void *b)
{
    const struct ms_weighed *x = a, *y = b;

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
    struct ms_weighed *rows = rc < 0 ? NULL : calloc(count + 1, sizeof *rows);

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
        rows[i] = (struct ms_weighed){.weight = weights[i], .row = (uint32_t)i};
    qsort(rows, count, sizeof *rows, heaviest_first);
    rc = differs ? ms_partition_by_differencing(rows, count, parts, equal, part_of)
                 : by_longest_first(rows, count, parts, equal, part_of);
    return rc < 0 ? ms_error_sys(err, rc, "%zu rows", count) : 0;
}
