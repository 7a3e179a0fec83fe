/* heap.h - freed memory that the process keeps to use again
 *
 * The C library takes each big allocation from the kernel and gives it back when it is
 * freed. Code that allocates the same sizes again and again, such as numpy with its
 * temporary arrays, then faults all pages in again each time, which can take a third of
 * its time.
 */
#ifndef MS_BASE_HEAP_H
#define MS_BASE_HEAP_H

#include <stdbool.h>

/* From now on allocations below MS_HEAP_MAP_MIN come from the heap, and up to MS_HEAP_KEEP_MAX
 * of what is freed at its end stay there. False if the environment has settings of its own
 * for malloc: those hold. */
bool ms_heap_keep(void);

#endif
