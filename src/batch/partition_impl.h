/* partition_impl.h - what the two ways of partition.h share */
#ifndef MS_BATCH_PARTITION_IMPL_H
#define MS_BATCH_PARTITION_IMPL_H

#include "batch/partition.h"

struct ms_weighed {
    int64_t weight;
    uint32_t row;
};

/* `rows` are sorted, the heaviest first. 0 or -ENOMEM. */
int ms_partition_by_differencing(const struct ms_weighed *rows,
                                 size_t count,
                                 uint32_t parts,
                                 bool equal,
                                 uint32_t *part_of);

#endif
