/* gather.h - the payload of rows, put together
 *
 * This is the one place of the batch that copies payload. Fixed columns have rows of
 * equal size at equal distances; ragged ones have values without padding and the offsets
 * of the rows in them. Pure.
 */
#ifndef MS_BATCH_GATHER_H
#define MS_BATCH_GATHER_H

#include "batch/rows.h"

/* A column of one block. */
struct ms_fixed_part {
    const uint8_t *base;
    uint64_t count;  /* rows */
    uint64_t stride; /* bytes from row to row */
};

struct ms_ragged_part {
    const uint8_t *values;
    const int64_t *offsets; /* [count + 1], in elements, growing */
    uint64_t count;
};

/* Copy the rows, each of `row_bytes`, one after another to `out`. */
void ms_gather_fixed(const struct ms_rows *r,
                     const struct ms_fixed_part *blocks,
                     size_t row_bytes,
                     uint8_t *out);

/* The offsets of the gathered rows, [r->count + 1], from 0; out[r->count] is how many
 * elements there are. */
void ms_gather_offsets(const struct ms_rows *r,
                       const struct ms_ragged_part *blocks,
                       int64_t *out);

/* Their values, each element of `element_bytes`. */
void ms_gather_ragged(const struct ms_rows *r,
                      const struct ms_ragged_part *blocks,
                      size_t element_bytes,
                      uint8_t *out);

#endif
