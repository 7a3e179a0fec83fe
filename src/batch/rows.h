/* rows.h - which rows of which blocks, in which order
 *
 * A batch keeps its columns in blocks that are never changed or copied. What chunk, slice,
 * reorder, repeat and concat make are rows: a list of runs, each a number of rows of one
 * block at equal distances. So these operations move no payload, and cost as much as they
 * have runs.
 *
 * Rows are built once and are constant then. Blocks are numbers here; their owner
 * knows what they are. Pure.
 */
#ifndef MS_BATCH_ROWS_H
#define MS_BATCH_ROWS_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MS_ROWS_MAX ((uint64_t)1 << 40)

/* Rows first, first + step, ... of a block. The step may be 0 (the same row again) or
 * negative. */
struct ms_row_run {
    uint32_t block;
    uint64_t first, count;
    int64_t step;
    uint64_t end; /* rows of all runs up to and with this one; of rows.c */
};

struct ms_rows {
    struct ms_row_run *runs;
    size_t run_count, capacity;
    uint64_t count;
};

void ms_rows_init(struct ms_rows *r); /* none */
void ms_rows_finish(struct ms_rows *r);

/* Append a run; it is joined to the last one where that is possible. 0, -E2BIG, -ENOMEM. */
int ms_rows_add(struct ms_rows *r, struct ms_row_run run);

/* Where a block has gone: row `first` of it is row 0 of `block` now. */
struct ms_move {
    uint32_t block;
    uint64_t first;
};

/* Append all of `from`, whose block b has moved as to[b] says (NULL: none has); its rows are
 * within. */
int ms_rows_append(struct ms_rows *r,
                   const struct ms_rows *from,
                   const struct ms_move *to);

/* What follows appends to `out`; on failure `out` is to be finished, no more.
 * 0, -ERANGE with the reason, -E2BIG, -ENOMEM. */

/* `count` rows from `first`, `step` apart (not 0). */
int ms_rows_slice(const struct ms_rows *r,
                  uint64_t first,
                  uint64_t count,
                  int64_t step,
                  struct ms_rows *out,
                  struct ms_error *err);

/* The rows of these indexes; negative ones count from the end. */
int ms_rows_take(const struct ms_rows *r,
                 const int64_t *indexes,
                 size_t count,
                 struct ms_rows *out,
                 struct ms_error *err);

/* Each row `times` times: one after another (interleaved), or the whole again and again. */
int ms_rows_repeat(const struct ms_rows *r,
                   uint64_t times,
                   bool interleave,
                   struct ms_rows *out);

/* Where row i is. `i` is below count. */
void ms_rows_at(const struct ms_rows *r, uint64_t i, uint32_t *block, uint64_t *row);

/* What is used of one block: `count` rows (0: none) of first to end - 1; rows that are
 * there twice count twice. */
struct ms_span {
    uint64_t first, end, count;
};

/* Of each of the blocks. -ERANGE: there are rows of others too. */
int ms_rows_spans(const struct ms_rows *r, struct ms_span *spans, size_t block_count);

/* Append all of `from` with its blocks counted anew, without those that have no rows: block
 * i was blocks[i]. `blocks` has room for as many as `from` has runs. */
int ms_rows_append_packed(struct ms_rows *r,
                          const struct ms_rows *from,
                          uint32_t *blocks,
                          size_t *block_count);

/* All rows are one run: then a column of it is a view of the block's column. An empty
 * one is a view of nothing: false. */
bool ms_rows_is_view(const struct ms_rows *r);

#endif
