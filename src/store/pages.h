/* pages.h - maps of the arena, and the memory behind them
 *
 * A huge page is worth much here: a process that maps 256 MiB for the first time takes 128 faults
 * instead of thousands (2 ms instead of 100), and memory is cleared nine times as fast. The
 * kernel makes one for a block of shared memory when it is asked to join the block's
 * pages, whatever its default is, unless the machine's owner denies it. Where it cannot,
 * pages are small and nothing else changes.
 */
#ifndef MS_STORE_PAGES_H
#define MS_STORE_PAGES_H

#include <stdint.h>

/* All of the file, shared, from a multiple of MS_SPACE_BLOCK on, and in no core dump. NULL:
 * there is no room for it. Undo with munmap. */
void *ms_pages_map(int fd, uint64_t size, int prot);

/* A part of it, in whole pages, that this process may write for itself alone. */
void *ms_pages_map_private(int fd, uint64_t at, uint64_t len);

/* Memory behind [at, at + len) of a map that may be written, in whole blocks; what is there
 * already stays. A negative errno if there is none, -EINVAL: an old kernel. */
int ms_pages_commit(uint8_t *at, uint64_t len);

/* Memory of our own, `size` bytes in whole blocks, all of it there; NULL: there is none.
 * Undo with munmap. */
void *ms_pages_make(uint64_t size);

#endif
