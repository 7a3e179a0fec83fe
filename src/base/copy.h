/* copy.h - copying what is bigger than caches
 *
 * memcpy reads a line of the target into the cache before it overwrites it, unless a piece
 * is larger than the whole cache. Columns of a batch are smaller than that one by one, but
 * not together: written past the cache they take two thirds of the time.
 */
#ifndef MS_BASE_COPY_H
#define MS_BASE_COPY_H

#include <stddef.h>

/* As memcpy; for memory that is not read again by this core soon. */
void ms_copy_past_cache(void *to, const void *from, size_t len);

#endif
