/* space.h - which bytes of the arena are whose, and which have memory behind them
 *
 * The arena is one sparse file of `size` bytes, of which at most `limit` may be given out
 * at a time. It is larger than the limit on purpose: address space costs nothing, and
 * with room to spare fragments do no harm.
 *
 * Memory is taken and given back in blocks of MS_SPACE_BLOCK. A block is committed before
 * a byte of it is given out, and stays so when its last byte is freed: pages that are
 * there, zeroed and mapped by all processes are what makes the next use fast. Blocks that
 * are not used are given back when memory is short, or after a while.
 *
 * Pure: it decides and remembers. The owner of the file does what it says:
 *
 *   ms_space_alloc           a range; then, for every ms_space_missing run in it,
 *                            allocate memory and say ms_space_set_memory
 *   ms_space_free            give the range back
 *   ms_space_idle            runs of blocks without use: punch them out of the file and
 *                            say ms_space_set_memory
 */
#ifndef MS_STORE_SPACE_H
#define MS_STORE_SPACE_H

#include "base/list.h"
#include "base/map.h"

#include <stdbool.h>
#include <stdint.h>

#define MS_SPACE_BLOCK ((uint64_t)2 << 20) /* what memory is taken in */
#define MS_SPACE_ALIGN ((uint64_t)64)      /* of every range */

/* Free ranges are kept in classes by size: four to each power of two. A range of class c
 * has at least the smallest size of c, so that any range of a class above that of what is
 * wanted fits. */
enum { MS_SPACE_CLASS_SHIFT = 2, MS_SPACE_CLASSES = 64 << MS_SPACE_CLASS_SHIFT };

struct ms_space {
    uint64_t size, limit;
    uint64_t used;      /* bytes given out */
    uint64_t committed; /* bytes with memory */

    /* of space.c alone */
    struct ms_list order;
    struct ms_list classes[MS_SPACE_CLASSES];
    uint64_t filled[MS_SPACE_CLASSES / 64]; /* which classes have a range */
    struct ms_map given;                    /* by address + 1 */
    uint32_t *users;                        /* of each block: ranges that touch it */
    bool *has_memory;
};

struct ms_block_run {
    uint64_t at, len;
};

/* `size` is rounded up to blocks. NULL: out of memory. */
struct ms_space *ms_space_create(uint64_t size, uint64_t limit);
void ms_space_destroy(struct ms_space *s);

/* Room for `len` bytes: 0 and *at. -ENOSPC: above the limit, or no hole is large enough;
 * -ENOMEM. The range has len rounded up to MS_SPACE_ALIGN (at least one). */
int ms_space_alloc(struct ms_space *s, uint64_t len, uint64_t *at);
/* The range that begins at `at`, as it was given out. */
void ms_space_free(struct ms_space *s, uint64_t at);

/* The first run of blocks that [at, at + len) touches and that have no memory. */
bool ms_space_missing(const struct ms_space *s,
                      uint64_t at,
                      uint64_t len,
                      struct ms_block_run *run);
/* The first run, from `from` on, of blocks that have memory and no use. */
bool ms_space_idle(const struct ms_space *s, uint64_t from, struct ms_block_run *run);
/* The run has memory from now on, or has none. */
void ms_space_set_memory(struct ms_space *s, const struct ms_block_run *run, bool on);

/* Is everything as it should be? For tests: walks all of it. */
bool ms_space_check(const struct ms_space *s);

#endif
