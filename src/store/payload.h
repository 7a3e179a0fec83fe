/* payload.h - the path of a big payload, and the sizes at which it forks
 *
 * 1. Python pickles the value; buffers of MS_PAYLOAD_BUFFER_MIN bytes and more come out of
 *    band, smaller ones are in the pickle (python/muster/_data/serialize.py).
 * 2. Columns of MS_PAYLOAD_ARRAY_MIN bytes and more become objects of their own, which can be
 *    divided and passed on unread (python/core/piece.c). If the pickle and all other buffers have
 *    MS_PAYLOAD_MIN bytes or more, they become one object; pickles of up to
 *    MS_PAYLOAD_PICKLE_MAX bytes stay in the message (python/core/stored.c).
 * 3. Both go through ms_store_client_find_all, which refers to what is in the arena already,
 *    and ms_store_client_write: room in one round trip, then one copy, past the cache if it
 *    has MS_PAYLOAD_COPY_BIG bytes or more.
 * 4. The message names the objects (stored.h). The receiver attaches all of them in one round
 *    trip and reads them where they are; its agent fetches what is another node's
 *    (peers/peers.h), of a large object only the range that is wanted, if that saves
 *    MS_PAYLOAD_SLICE_MIN bytes.
 */
#ifndef MS_STORE_PAYLOAD_H
#define MS_STORE_PAYLOAD_H

#include <stddef.h>
#include <stdint.h>

#define MS_PAYLOAD_BUFFER_MIN ((size_t)2 << 10)
#define MS_PAYLOAD_PICKLE_MAX ((size_t)16 << 10)
#define MS_PAYLOAD_ARRAY_MIN  ((size_t)64 << 10)
#define MS_PAYLOAD_SLICE_MIN  ((uint64_t)64 << 10)
#define MS_PAYLOAD_MIN        ((size_t)256 << 10)
#define MS_PAYLOAD_COPY_BIG   ((uint64_t)16 << 20)
#define MS_PAYLOAD_MATES_MAX                                                           \
    ((size_t)64 << 20) /* objects read with the first of them */

#endif
