/* writer.c - write plain data in one pass */
#include "plain/plain.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { VARINT = 0, FIXED64 = 1, BYTES = 2 }; /* wire types */

/* Numbers of the fields in Value, Tensor and ValueEntry. */
enum { ENTRY_KEY = 1, TENSOR_DTYPE = 1, TENSOR_SHAPE, TENSOR_PAD, TENSOR_DATA };
enum { NAMED = 2, LENGTH_SIZE = 5, VARINT_MAX = 10 };

#define LENGTH_MAX ((uint64_t)1 << 35) /* of a varint of LENGTH_SIZE bytes */

void ms_plain_writer_init(struct ms_plain_writer *w)
{
    ms_buf_init(&w->buf);
    w->ref_count = 0;
    w->ref_bytes = 0;
    w->nodes = 0;
    w->rc = 0;
}

void ms_plain_writer_finish(struct ms_plain_writer *w)
{
    ms_buf_finish(&w->buf);
}

size_t ms_plain_size(const struct ms_plain_writer *w)
{
    return w->buf.len + w->ref_bytes;
}

/* Room for `n` bytes, or NULL. */
static uint8_t *room(struct ms_plain_writer *w, size_t n)
{
    if (w->rc == 0)
        w->rc = ms_buf_reserve(&w->buf, n);
    return w->rc == 0 ? w->buf.data + w->buf.len : NULL;
}

/* One more value. */
static uint8_t *value_room(struct ms_plain_writer *w, size_t n)
{
    if (w->rc == 0 && ++w->nodes > MS_PLAIN_NODES_MAX)
        w->rc = -E2BIG;
    return room(w, n);
}

static uint8_t *put_varint(uint8_t *at, uint64_t n)
{
    for (; n >= 0x80; n >>= 7)
        *at++ = (uint8_t)(n | 0x80);
    *at++ = (uint8_t)n;
    return at;
}

static size_t varint_size(uint64_t n)
{
    size_t size = 1;

    for (; n >= 0x80; n >>= 7)
        size++;
    return size;
}

static uint8_t tag(unsigned field, unsigned wire)
{
    return (uint8_t)(field << 3 | wire);
}

/* The head of a value of `size` bytes, where it is not the whole message. */
static uint8_t *put_head(uint8_t *at, enum ms_plain_place place, size_t size)
{
    if (place == MS_PLAIN_ROOT)
        return at;
    *at++ = tag(place, BYTES);
    return put_varint(at, size);
}

static void advance(struct ms_plain_writer *w, const uint8_t *to)
{
    w->buf.len = (size_t)(to - w->buf.data);
}

/* ---- scalars --------------------------------------------------------------------- */

void ms_plain_put_null(struct ms_plain_writer *w, enum ms_plain_place place)
{
    uint8_t *at = value_room(w, 2);

    if (at)
        advance(w, put_head(at, place, 0));
}

static void put_number(struct ms_plain_writer *w,
                       enum ms_plain_place place,
                       enum muster_kind kind,
                       uint64_t n)
{
    uint8_t *at = value_room(w, 3 + VARINT_MAX);

    if (!at)
        return;
    at = put_head(at, place, 1 + varint_size(n));
    *at++ = tag(kind, VARINT);
    advance(w, put_varint(at, n));
}

void ms_plain_put_bool(struct ms_plain_writer *w, enum ms_plain_place place, bool truth)
{
    put_number(w, place, MUSTER_BOOL, truth);
}

void ms_plain_put_int(struct ms_plain_writer *w,
                      enum ms_plain_place place,
                      int64_t integer)
{
    uint64_t n = (uint64_t)integer;

    put_number(w, place, MUSTER_INT, n << 1 ^ (integer < 0 ? UINT64_MAX : 0));
}

void ms_plain_put_float(struct ms_plain_writer *w,
                        enum ms_plain_place place,
                        double real)
{
    uint8_t *at = value_room(w, 11);
    uint64_t bits;

    if (!at)
        return;
    memcpy(&bits, &real, sizeof bits);
    bits = htole64(bits);
    at = put_head(at, place, 9);
    *at++ = tag(MUSTER_FLOAT, FIXED64);
    memcpy(at, &bits, sizeof bits);
    advance(w, at + sizeof bits);
}

/* ---- bytes ----------------------------------------------------------------------- */

/* By reference if it is long and may be. */
static void put_raw(struct ms_plain_writer *w, const void *data, size_t len, bool refer)
{
    if (refer && len >= MS_PLAIN_REF_MIN && w->ref_count < MS_PLAIN_REFS_MAX) {
        w->refs[w->ref_count].at = w->buf.len;
        w->refs[w->ref_count].data = data;
        w->refs[w->ref_count++].len = len;
        w->ref_bytes += len;
    } else if (w->rc == 0 && len) {
        w->rc = ms_buf_append(&w->buf, data, len);
    }
}

void ms_plain_put_data(struct ms_plain_writer *w,
                       enum ms_plain_place place,
                       enum muster_kind kind,
                       const void *data,
                       size_t len)
{
    uint8_t *at;

    if (len > MS_MESSAGE_MAX && w->rc == 0)
        w->rc = -E2BIG;
    at = value_room(w, 2 + 2 * VARINT_MAX);
    if (!at)
        return;
    at = put_head(at, place, 1 + varint_size(len) + len);
    *at++ = tag(kind, BYTES);
    advance(w, put_varint(at, len));
    put_raw(w, data, len, kind == MUSTER_BYTES);
}

/* ---- containers ------------------------------------------------------------------ */

/* A field whose length is filled in later. */
static void begin(struct ms_plain_writer *w, unsigned field, size_t *at, size_t *total)
{
    uint8_t *to = room(w, 1 + LENGTH_SIZE);

    *at = *total = 0;
    if (!to)
        return;
    *to = tag(field, BYTES);
    *at = w->buf.len + 1;
    w->buf.len += 1 + LENGTH_SIZE;
    *total = ms_plain_size(w);
}

static void end(struct ms_plain_writer *w, size_t at, size_t total)
{
    uint64_t len = ms_plain_size(w) - total;

    if (w->rc < 0)
        return;
    if (len >= LENGTH_MAX) {
        w->rc = -E2BIG;
        return;
    }
    for (size_t i = 0; i < LENGTH_SIZE; i++, len >>= 7)
        w->buf.data[at + i] =
            (uint8_t)((len & 0x7f) | (i + 1 < LENGTH_SIZE ? 0x80 : 0));
}

struct ms_plain_mark ms_plain_begin(struct ms_plain_writer *w,
                                    enum ms_plain_place place,
                                    enum muster_kind kind)
{
    struct ms_plain_mark mark = {.nested = place != MS_PLAIN_ROOT};

    value_room(w, 0);
    if (mark.nested)
        begin(w, place, &mark.outer_at, &mark.outer_total);
    begin(w, kind, &mark.at, &mark.total);
    return mark;
}

struct ms_plain_mark
ms_plain_begin_entry(struct ms_plain_writer *w, bool named, const char *key, size_t len)
{
    struct ms_plain_mark mark = {0};
    uint8_t *at;

    begin(w, named ? NAMED : 1, &mark.at, &mark.total);
    at = room(w, 1 + VARINT_MAX);
    if (!at)
        return mark;
    *at++ = tag(ENTRY_KEY, BYTES);
    advance(w, put_varint(at, len));
    put_raw(w, key, len, false);
    return mark;
}

void ms_plain_end(struct ms_plain_writer *w, struct ms_plain_mark mark)
{
    end(w, mark.at, mark.total);
    if (mark.nested)
        end(w, mark.outer_at, mark.outer_total);
}

/* ---- tensors --------------------------------------------------------------------- */

static void put_shape(struct ms_plain_writer *w, const uint64_t *shape, uint32_t ndim)
{
    uint8_t *at = room(w, 2 + VARINT_MAX * (size_t)ndim + LENGTH_SIZE);
    size_t size = 0;

    if (!at || ndim == 0)
        return;
    for (uint32_t i = 0; i < ndim; i++)
        size += varint_size(shape[i]);
    *at++ = tag(TENSOR_SHAPE, BYTES);
    at = put_varint(at, size);
    for (uint32_t i = 0; i < ndim; i++)
        at = put_varint(at, shape[i]);
    advance(w, at);
}

/* So that what follows its own tag and length lies at a multiple of MS_PLAIN_ALIGN. */
static void put_pad(struct ms_plain_writer *w)
{
    size_t off = (ms_plain_size(w) + 1 + LENGTH_SIZE) % MS_PLAIN_ALIGN, pad;
    uint8_t *at = room(w, 2 + MS_PLAIN_ALIGN);

    if (!at || off == 0)
        return;
    pad = (2 * MS_PLAIN_ALIGN - off - 2) % MS_PLAIN_ALIGN;
    *at++ = tag(TENSOR_PAD, BYTES);
    *at++ = (uint8_t)pad;
    memset(at, 0, pad);
    advance(w, at + pad);
}

void ms_plain_put_tensor(struct ms_plain_writer *w,
                         enum ms_plain_place place,
                         enum muster_dtype dtype,
                         const uint64_t *shape,
                         uint32_t ndim,
                         const void *data,
                         size_t size)
{
    struct ms_plain_mark mark = ms_plain_begin(w, place, MUSTER_TENSOR);
    size_t data_at, data_total;
    uint8_t *at = room(w, 2);

    assert(ndim <= MS_PLAIN_DIMS_MAX);
    if (!at)
        return;
    *at++ = tag(TENSOR_DTYPE, VARINT);
    *at++ = (uint8_t)dtype;
    advance(w, at);
    put_shape(w, shape, ndim);
    put_pad(w);
    begin(w, TENSOR_DATA, &data_at, &data_total);
    put_raw(w, data, size, true);
    end(w, data_at, data_total);
    ms_plain_end(w, mark);
}

/* ---- the message ----------------------------------------------------------------- */

int ms_plain_iov(const struct ms_plain_writer *w, struct iovec iov[MS_PLAIN_IOV_MAX])
{
    size_t from = 0;
    int count = 0;

    if (w->rc < 0)
        return w->rc;
    if (ms_plain_size(w) > MS_MESSAGE_MAX)
        return -E2BIG;
    for (int i = 0; i < w->ref_count; i++) {
        iov[count++] = (struct iovec){w->buf.data + from, w->refs[i].at - from};
        iov[count++] =
            (struct iovec){(void *)(uintptr_t)w->refs[i].data, w->refs[i].len};
        from = w->refs[i].at;
    }
    if (w->buf.len > from)
        iov[count++] = (struct iovec){w->buf.data + from, w->buf.len - from};
    return count;
}

int ms_plain_flatten(const struct ms_plain_writer *w, uint8_t **data, size_t *len)
{
    struct iovec iov[MS_PLAIN_IOV_MAX];
    int count = ms_plain_iov(w, iov);
    uint8_t *out, *at;

    if (count < 0)
        return count;
    out = at = malloc(ms_plain_size(w) + 1);
    if (!out)
        return -ENOMEM;
    for (int i = 0; i < count; i++)
        at = (uint8_t *)memcpy(at, iov[i].iov_base, iov[i].iov_len) + iov[i].iov_len;
    *data = out;
    *len = ms_plain_size(w);
    return 0;
}
