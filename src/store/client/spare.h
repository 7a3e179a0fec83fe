/* spare.h - memory that is used again
 *
 * Columns of several parts are put together in new memory. Fresh pages cost more than the
 * copy itself: the kernel takes a fault for each and clears it, and all that goes when the
 * column does. So blocks that are not needed any more are kept for the next column. They
 * are lent to the kernel meanwhile (MADV_FREE): short of memory it takes them without
 * asking, and the next to use them gets fresh pages.
 *
 * A block begins at a multiple of MS_SPACE_BLOCK and is a number of those, so that huge
 * pages fit. What is in it is not defined. The caller has one owner for each block; here
 * are only those that have none. Not locked, and no clock: a pool belongs to its
 * caller, and a forked child has a pool and blocks of its own.
 */
#ifndef MS_STORE_SPARE_H
#define MS_STORE_SPARE_H

#include <stddef.h>
#include <stdint.h>

enum { MS_SPARE_COUNT_MAX = 64 };

struct ms_spare_block {
    uint8_t *at;
    size_t len;
};

struct ms_spare {
    struct ms_spare_block blocks[MS_SPARE_COUNT_MAX]; /* the longest unused first */
    size_t count;
    uint64_t bytes, limit; /* of all blocks */
};

void ms_spare_init(struct ms_spare *s, uint64_t limit);
/* Unmaps all that are kept. */
void ms_spare_finish(struct ms_spare *s);

/* The smallest kept block of at least `len` bytes, unless a fourth of it and more would
 * be of no use; .at is NULL if there is none: make one. */
struct ms_spare_block ms_spare_take(struct ms_spare *s, size_t len);
/* Give a block back. Where all would be more than the limit, the longest unused go. */
void ms_spare_give(struct ms_spare *s, struct ms_spare_block block);

/* A new block of at least `len` bytes, with its memory; .at is NULL: there is none. Needs
 * no pool. */
struct ms_spare_block ms_spare_make(size_t len);

#endif
