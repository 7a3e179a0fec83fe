/* rows.c - lists of runs: sliced, reordered, repeated, joined */
#include "batch/rows.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

void ms_rows_init(struct ms_rows *r)
{
    *r = (struct ms_rows){0};
}

void ms_rows_finish(struct ms_rows *r)
{
    free(r->runs);
    *r = (struct ms_rows){0};
}

/* ---- building -------------------------------------------------------------------- */

static int grow(struct ms_rows *r)
{
    size_t capacity = r->capacity ? 2 * r->capacity : 4;
    struct ms_row_run *runs = realloc(r->runs, capacity * sizeof *runs);

    if (!runs)
        return -ENOMEM;
    r->runs = runs;
    r->capacity = capacity;
    return 0;
}

static uint64_t row_of(const struct ms_row_run *run, uint64_t i)
{
    return run->first +
           (uint64_t)run->step * i; /* modulo 2^64: a step may be negative */
}

/* True if `run` goes on where `last` ends, which is then longer. */
static bool join(struct ms_row_run *last, const struct ms_row_run *run)
{
    int64_t step = last->count > 1 ? last->step : (int64_t)(run->first - last->first);

    if (last->block != run->block || (run->count > 1 && run->step != step) ||
        row_of(last, last->count - 1) + (uint64_t)step != run->first)
        return false;
    last->step = step;
    last->count += run->count;
    return true;
}

int ms_rows_add(struct ms_rows *r, struct ms_row_run run)
{
    if (run.count == 0)
        return 0;
    if (run.count > MS_ROWS_MAX - r->count)
        return -E2BIG;
    if (run.count == 1)
        run.step = 1;
    if (r->run_count && join(&r->runs[r->run_count - 1], &run)) {
        r->count += run.count;
        r->runs[r->run_count - 1].end = r->count;
        return 0;
    }
    if (r->run_count == r->capacity && grow(r) < 0)
        return -ENOMEM;
    r->count += run.count;
    run.end = r->count;
    r->runs[r->run_count++] = run;
    return 0;
}

int ms_rows_append(struct ms_rows *r,
                   const struct ms_rows *from,
                   const struct ms_move *to)
{
    int rc = 0;

    for (size_t i = 0; i < from->run_count && rc == 0; i++) {
        struct ms_row_run run = from->runs[i];

        if (to) {
            run.first -= to[run.block].first;
            run.block = to[run.block].block;
        }
        rc = ms_rows_add(r, run);
    }
    return rc;
}

static int by_number(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

    return x < y ? -1 : x > y;
}

int ms_rows_append_packed(struct ms_rows *r,
                          const struct ms_rows *from,
                          uint32_t *blocks,
                          size_t *block_count)
{
    size_t count = 0;
    int rc = 0;

    for (size_t i = 0; i < from->run_count; i++)
        blocks[i] = from->runs[i].block;
    if (from->run_count)
        qsort(blocks, from->run_count, sizeof *blocks, by_number);
    for (size_t i = 0; i < from->run_count; i++)
        if (!count || blocks[count - 1] != blocks[i])
            blocks[count++] = blocks[i];
    for (size_t i = 0; i < from->run_count && rc == 0; i++) {
        struct ms_row_run run = from->runs[i];
        const uint32_t *at =
            bsearch(&run.block, blocks, count, sizeof *blocks, by_number);

        assert(at);
        run.block = (uint32_t)(at - blocks);
        rc = ms_rows_add(r, run);
    }
    *block_count = count;
    return rc;
}

/* ---- looking --------------------------------------------------------------------- */

/* The run that has row i. */
static size_t find_run(const struct ms_rows *r, uint64_t i)
{
    size_t low = 0, high = r->run_count - 1;

    assert(i < r->count);
    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (r->runs[middle].end <= i)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static uint64_t start_of(const struct ms_rows *r, size_t run)
{
    return r->runs[run].end - r->runs[run].count;
}

void ms_rows_at(const struct ms_rows *r, uint64_t i, uint32_t *block, uint64_t *row)
{
    size_t at = find_run(r, i);

    *block = r->runs[at].block;
    *row = row_of(&r->runs[at], i - start_of(r, at));
}

int ms_rows_spans(const struct ms_rows *r, struct ms_span *spans, size_t block_count)
{
    for (size_t i = 0; i < block_count; i++)
        spans[i] = (struct ms_span){.first = UINT64_MAX};
    for (size_t i = 0; i < r->run_count; i++) {
        const struct ms_row_run *run = &r->runs[i];
        uint64_t a = run->first, b = row_of(run, run->count - 1);
        struct ms_span *s;

        if (run->block >= block_count)
            return -ERANGE;
        s = &spans[run->block];
        s->count += run->count;
        if ((a < b ? a : b) < s->first)
            s->first = a < b ? a : b;
        if ((a < b ? b : a) + 1 > s->end)
            s->end = (a < b ? b : a) + 1;
    }
    return 0;
}

bool ms_rows_is_view(const struct ms_rows *r)
{
    return r->run_count == 1;
}

/* ---- rows of rows ---------------------------------------------------------------- */

/* Within one run at a time. */
static int slice(const struct ms_rows *r,
                 uint64_t first,
                 uint64_t count,
                 int64_t step,
                 struct ms_rows *out)
{
    uint64_t stride = step < 0 ? 0 - (uint64_t)step : (uint64_t)step;
    size_t at = find_run(r, first);
    int rc = 0;

    while (count > 0 && rc == 0) {
        uint64_t in = first - start_of(r, at);
        uint64_t room = step < 0 ? in : r->runs[at].count - 1 - in;
        uint64_t n = room / stride + 1;
        struct ms_row_run run = {.block = r->runs[at].block,
                                 .first = row_of(&r->runs[at], in),
                                 .step = r->runs[at].step * step};

        run.count = n < count ? n : count;
        rc = ms_rows_add(out, run);
        count -= run.count;
        first += (uint64_t)step * run.count;
        if (count > 0) /* in steps of 1 it goes on with the next run */
            at = step == 1 ? at + 1 : find_run(r, first);
    }
    return rc;
}

/* The last row of a slice is there too. */
static bool
slice_fits(const struct ms_rows *r, uint64_t first, uint64_t count, int64_t step)
{
    uint64_t stride = step < 0 ? 0 - (uint64_t)step : (uint64_t)step;
    uint64_t room = step < 0 ? first : r->count - 1 - first;

    return count - 1 <= room / stride;
}

int ms_rows_slice(const struct ms_rows *r,
                  uint64_t first,
                  uint64_t count,
                  int64_t step,
                  struct ms_rows *out,
                  struct ms_error *err)
{
    if (count == 0)
        return 0;
    if (step == 0 || first >= r->count || !slice_fits(r, first, count, step))
        return ms_error_set(err,
                            -ERANGE,
                            "%llu rows from %llu in steps of %lld: there are %llu",
                            (unsigned long long)count,
                            (unsigned long long)first,
                            (long long)step,
                            (unsigned long long)r->count);
    return slice(r, first, count, count == 1 ? 1 : step, out);
}

int ms_rows_take(const struct ms_rows *r,
                 const int64_t *indexes,
                 size_t count,
                 struct ms_rows *out,
                 struct ms_error *err)
{
    int rc = 0;

    for (size_t i = 0; i < count && rc == 0; i++) {
        int64_t index = indexes[i] < 0 ? indexes[i] + (int64_t)r->count : indexes[i];
        struct ms_row_run run = {.count = 1, .step = 1};

        if (index < 0 || (uint64_t)index >= r->count)
            return ms_error_set(err,
                                -ERANGE,
                                "there is no row %lld: there are %llu",
                                (long long)indexes[i],
                                (unsigned long long)r->count);
        ms_rows_at(r, (uint64_t)index, &run.block, &run.first);
        rc = ms_rows_add(out, run);
    }
    return rc;
}

static int interleaved(const struct ms_rows *r, uint64_t times, struct ms_rows *out)
{
    int rc = 0;

    for (size_t at = 0; at < r->run_count; at++)
        for (uint64_t i = 0; i < r->runs[at].count && rc == 0; i++)
            rc = ms_rows_add(out,
                             (struct ms_row_run){.block = r->runs[at].block,
                                                 .first = row_of(&r->runs[at], i),
                                                 .count = times});
    return rc;
}

int ms_rows_repeat(const struct ms_rows *r,
                   uint64_t times,
                   bool interleave,
                   struct ms_rows *out)
{
    int rc = 0;

    if (!r->count)
        return 0; /* however often */
    if (times > MS_ROWS_MAX / r->count)
        return -E2BIG;
    if (interleave && times != 1)
        return times ? interleaved(r, times, out) : 0;
    for (uint64_t i = 0; i < times && rc == 0; i++)
        rc = ms_rows_append(out, r, NULL);
    return rc;
}
