/* plain.h - plain data on the wire (codec 2)
 *
 * The messages Value and Arguments of proto/muster.proto, written and read by hand: a
 * protobuf library makes an object for each value, which for a list of numbers takes ten
 * times as long as the numbers. What is written here any protobuf library can read, and
 * the reverse.
 *
 * Writing is one pass: the lengths of containers are filled in afterwards, as varints of
 * five bytes. Big blocks of bytes are not copied but referred to (ms_plain_iov). A
 * tensor's data lies at a multiple of MS_PLAIN_ALIGN from the start of the message.
 *
 * Reading is by cursors, one value at a time, nothing allocated. Unknown fields are
 * skipped; all else that a correct writer would not write is -EBADMSG. The reader
 * counts the depth and the values (MS_PLAIN_DEPTH_MAX, MS_PLAIN_NODES_MAX).
 */
#ifndef MS_PLAIN_PLAIN_H
#define MS_PLAIN_PLAIN_H

#include "base/buf.h"
#include "base/limits.h"
#include "muster/value.h"

#include "base/utf8.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

enum { MS_PLAIN_ALIGN = 16, MS_PLAIN_IOV_MAX = 2 * MS_PLAIN_REFS_MAX + 1 };

/* Bytes of a tensor; -EINVAL for an unknown type, too many dimensions, or a product that
 * does not fit. */
int ms_plain_tensor_size(enum muster_dtype dtype,
                         const uint64_t *shape,
                         uint32_t ndim,
                         size_t *size);

/* ---- writing --------------------------------------------------------------------- */

struct ms_plain_writer {
    struct ms_buf buf;
    struct {
        size_t at; /* in buf: it goes before what stands there */
        const void *data;
        size_t len;
    } refs[MS_PLAIN_REFS_MAX];
    int ref_count;
    size_t ref_bytes;
    size_t nodes; /* values so far */
    int rc;       /* the first failure; later writes do nothing */
};

/* Where a value stands; see `put` below. */
enum ms_plain_place {
    MS_PLAIN_ROOT = 0,       /* it is the whole message */
    MS_PLAIN_ITEM = 1,       /* of a list; a positional argument */
    MS_PLAIN_ENTRY_VALUE = 2 /* of an entry */
};

struct ms_plain_mark {
    size_t at;    /* of the length, in buf */
    size_t total; /* bytes before it, references too */
    bool nested;  /* there is one around it */
    size_t outer_at, outer_total;
};

void ms_plain_writer_init(struct ms_plain_writer *w);
void ms_plain_writer_finish(struct ms_plain_writer *w);

void ms_plain_put_null(struct ms_plain_writer *w, enum ms_plain_place place);
void ms_plain_put_bool(struct ms_plain_writer *w,
                       enum ms_plain_place place,
                       bool truth);
void ms_plain_put_int(struct ms_plain_writer *w,
                      enum ms_plain_place place,
                      int64_t integer);
void ms_plain_put_float(struct ms_plain_writer *w,
                        enum ms_plain_place place,
                        double real);
/* MUSTER_TEXT or MUSTER_BYTES; long bytes are borrowed until the writer is finished. */
void ms_plain_put_data(struct ms_plain_writer *w,
                       enum ms_plain_place place,
                       enum muster_kind kind,
                       const void *data,
                       size_t len);
/* Likewise. The size must be what dtype and shape say. */
void ms_plain_put_tensor(struct ms_plain_writer *w,
                         enum ms_plain_place place,
                         enum muster_dtype dtype,
                         const uint64_t *shape,
                         uint32_t ndim,
                         const void *data,
                         size_t size);

/* MUSTER_LIST or MUSTER_MAP: begin, then its ITEMs or its entries, then end. */
struct ms_plain_mark ms_plain_begin(struct ms_plain_writer *w,
                                    enum ms_plain_place place,
                                    enum muster_kind kind);
void ms_plain_end(struct ms_plain_writer *w, struct ms_plain_mark mark);

/* An entry of a map (`named`: a named argument): begin, one ENTRY_VALUE, end. */
struct ms_plain_mark ms_plain_begin_entry(struct ms_plain_writer *w,
                                          bool named,
                                          const char *key,
                                          size_t len);

/* The message; borrows from the writer. The count, or the writer's failure. */
int ms_plain_iov(const struct ms_plain_writer *w, struct iovec iov[MS_PLAIN_IOV_MAX]);
size_t ms_plain_size(const struct ms_plain_writer *w);
/* The message in one malloc'd block, which is yours then. 0, or the writer's failure. */
int ms_plain_flatten(const struct ms_plain_writer *w, uint8_t **data, size_t *len);

/* ---- reading --------------------------------------------------------------------- */

struct ms_plain_cursor {
    const uint8_t *at, *end;
};

/* One value, without what is in it. */
struct ms_plain_item {
    enum muster_kind kind;
    union {
        bool truth;
        int64_t integer;
        double real;
        struct {
            const uint8_t *at;
            size_t len;
        } data;                        /* text (valid UTF-8), bytes */
        struct ms_plain_cursor inside; /* list, map */
        struct {
            enum muster_dtype dtype;
            uint32_t ndim;
            uint64_t shape[MS_PLAIN_DIMS_MAX];
            const uint8_t *at;
            size_t len; /* is what dtype and shape say */
        } tensor;
    };
};

/* float32 to bfloat16, to the nearest, as torch does (`out` may be `data`); and back. */
void ms_bfloat16_narrow(const uint8_t *data, size_t count, uint8_t *out);
void ms_bfloat16_widen(const uint8_t *data, size_t count, uint8_t *out);

/* The value in [c.at, c.end). 0 or -EBADMSG. */
int ms_plain_read(struct ms_plain_cursor c, struct ms_plain_item *out);

/* The next element of a list, or the next positional argument (named ones are passed
 * over): 1, 0 at the end, -EBADMSG. */
int ms_plain_next_item(struct ms_plain_cursor *list, struct ms_plain_cursor *value);

struct ms_plain_key {
    const char *at;
    size_t len;
};

/* The next entry of a map or, `named`, of the named arguments. A key is valid UTF-8 without
 * NUL. */
int ms_plain_next_entry(struct ms_plain_cursor *map,
                        bool named,
                        struct ms_plain_key *key,
                        struct ms_plain_cursor *value);

/* What stood before the body in its block may have moved it off its alignment, which
 * tensors rely on: the body, perhaps moved within the block. */
const uint8_t *ms_plain_align(const uint8_t *memory, const uint8_t *body, size_t len);

#endif
