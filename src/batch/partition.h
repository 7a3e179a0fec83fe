/* partition.h - rows shared out so that every part has about the same weight
 *
 * Weights are token counts. Two ways: the heaviest row first to the lightest part (fast,
 * good), and Karmarkar and Karp's differencing (slower, better where few rows are very
 * long). With `equal`, the numbers of rows of two parts differ by at most one.
 *
 * The same input gives the same parts: of equal weights the earlier row goes first. Pure.
 */
#ifndef MS_BATCH_PARTITION_H
#define MS_BATCH_PARTITION_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define MS_PARTITION_ROWS_MAX  ((size_t)1 << 28)
#define MS_PARTITION_PARTS_MAX ((uint32_t)1 << 16)
#define MS_PARTITION_BINS_MAX  ((size_t)1 << 26) /* of differencing: rows x parts */

enum ms_partition_way { MS_PARTITION_LONGEST_FIRST, MS_PARTITION_DIFFERENCING };

/* The part of each row, part_of[count]. 0; -EINVAL (no part, a negative weight), -E2BIG,
 * -ENOMEM. */
int ms_partition(const int64_t *weights,
                 size_t count,
                 uint32_t parts,
                 enum ms_partition_way way,
                 bool equal,
                 uint32_t *part_of,
                 struct ms_error *err);

#endif
