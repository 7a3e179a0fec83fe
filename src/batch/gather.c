/* gather.c - copies the payload of rows into one place */
#include "batch/gather.h"

#include <string.h>

void ms_gather_fixed(const struct ms_rows *r,
                     const struct ms_fixed_part *blocks,
                     size_t row_bytes,
                     uint8_t *out)
{
    for (size_t at = 0; at < r->run_count; at++) {
        const struct ms_row_run *run = &r->runs[at];
        const struct ms_fixed_part *b = &blocks[run->block];
        const uint8_t *from = b->base + run->first * b->stride;
        int64_t step = run->step * (int64_t)b->stride;

        if (step == (int64_t)row_bytes) {
            memcpy(out, from, run->count * row_bytes);
            out += run->count * row_bytes;
            continue;
        }
        for (uint64_t i = 0; i < run->count; i++, out += row_bytes)
            memcpy(out, from + (int64_t)i * step, row_bytes);
    }
}

void ms_gather_offsets(const struct ms_rows *r,
                       const struct ms_ragged_part *blocks,
                       int64_t *out)
{
    int64_t sum = 0;

    *out++ = 0;
    for (size_t at = 0; at < r->run_count; at++) {
        const struct ms_row_run *run = &r->runs[at];
        const int64_t *offsets = blocks[run->block].offsets + run->first;

        for (uint64_t i = 0; i < run->count; i++) {
            const int64_t *row = offsets + (int64_t)i * run->step;

            sum += row[1] - row[0];
            *out++ = sum;
        }
    }
}

static size_t ragged_row(const struct ms_ragged_part *b,
                         uint64_t row,
                         uint64_t count,
                         size_t element_bytes,
                         uint8_t *out)
{
    int64_t first = b->offsets[row];
    size_t bytes = (size_t)(b->offsets[row + count] - first) * element_bytes;

    if (bytes > 0)
        memcpy(out, b->values + (size_t)first * element_bytes, bytes);
    return bytes;
}

void ms_gather_ragged(const struct ms_rows *r,
                      const struct ms_ragged_part *blocks,
                      size_t element_bytes,
                      uint8_t *out)
{
    for (size_t at = 0; at < r->run_count; at++) {
        const struct ms_row_run *run = &r->runs[at];
        const struct ms_ragged_part *b = &blocks[run->block];
        uint64_t together = run->step == 1 ? run->count : 1;

        for (uint64_t i = 0; i < run->count; i += together)
            out += ragged_row(
                b, run->first + (uint64_t)run->step * i, together, element_bytes, out);
    }
}
