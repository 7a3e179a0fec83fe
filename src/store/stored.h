/* stored.h - a payload whose big parts are in a store (codec MS_CODEC_STORED)
 *
 *   0 u64 holder   of the caller: to whom results may be granted; 0 in a result
 *   8 u64 node     the store of its node
 *  16 u32 objects  that are named below
 *  20 u32 parts    the first is the pickle, the others are its buffers
 *  24 u32 length of the names, 28 u32 second in which it was written, of its machine's clock
 *  32 names        u64 node, u64 id, u64 length, u64 place in its node's arena, u32
 *                  length of the address, u32 zero, the address; padded to 8
 *     parts        u64 length, u64 place: PART_INLINE, or the number of an object << 48 |
 *                  offset in it
 *     the parts that are inline, each at a multiple of 16
 *
 * Every object that the payload refers to is named, also those of references inside the
 * pickle, so that the carrier knows what to hold. All numbers are little-endian. Pure.
 */
#ifndef MS_STORE_STORED_H
#define MS_STORE_STORED_H

#include "base/buf.h"
#include "base/error.h"

#include <stdbool.h>
#include <stdint.h>

#define MS_PART_INLINE   UINT64_MAX
#define MS_PLACE_UNKNOWN UINT64_MAX /* of an object whose bytes are not read just now */

enum {
    MS_STORED_OBJECTS_MAX = 4096,
    MS_STORED_PARTS_MAX = 1 << 20,
    MS_STORED_ALIGN = 16
};

struct ms_stored_name {
    uint64_t node, id, len, at;
    const char *address; /* without a NUL; borrowed */
    uint32_t address_len;
    uint64_t of, offset; /* of a slice that is asked for (slice.h); not encoded */
};

struct ms_stored_part {
    uint64_t len;
    uint64_t offset; /* in the object, or in the body */
    int object;      /* -1: inline */
};

/* A body that was checked: names and parts fit into it and into their objects. */
struct ms_stored {
    uint64_t holder, node;
    uint32_t written_s;
    uint32_t object_count, part_count;
    const uint8_t *body;
    size_t len;
    size_t parts_at;
};

/* 0, or -EPROTO with the reason. The body is borrowed. */
int ms_stored_parse(struct ms_stored *s,
                    const uint8_t *body,
                    size_t len,
                    struct ms_error *err);

/* Whether the places of an answer's objects still hold: what they were granted for has not
 * lapsed, and will not before it is confirmed. Of a process that was stopped in between it
 * may have: then the store is asked where they are, if they are. */
bool ms_stored_is_fresh(const struct ms_stored *s, int64_t now_ns);

/* One name after the other: start with *at = 0; false at the end. */
bool ms_stored_next(const struct ms_stored *s, size_t *at, struct ms_stored_name *name);
/* Parts in order: start with *at = 0 and *inline_at = 0. */
struct ms_stored_walk {
    size_t next, inline_at;
};
bool ms_stored_part(const struct ms_stored *s,
                    struct ms_stored_walk *walk,
                    struct ms_stored_part *part);

/* All that stands before the inline parts. 0 or -ENOMEM. `parts` have object -1 where they
 * are inline; those follow in order, each padded to MS_STORED_ALIGN, and so is this. */
int ms_stored_encode(struct ms_buf *out,
                     uint64_t holder,
                     uint64_t node,
                     const struct ms_stored_name *names,
                     size_t name_count,
                     const struct ms_stored_part *parts,
                     size_t part_count,
                     int64_t now_ns);

#endif
