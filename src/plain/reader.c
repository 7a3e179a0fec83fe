/* reader.c - read plain data from the wire, one value at a time */
#include "plain/plain.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };
enum { TENSOR_DTYPE = 1, TENSOR_SHAPE = 2, TENSOR_DATA = 4 };
enum { ITEMS = 1, NAMED = 2, ENTRY_KEY = 1, ENTRY_VALUE = 2 };

struct field {
    uint32_t number;
    unsigned wire;
    uint64_t n; /* of a varint or a fixed number */
    struct ms_plain_cursor bytes;
};

static int read_varint(struct ms_plain_cursor *c, uint64_t *out)
{
    uint64_t n = 0;

    for (unsigned shift = 0; shift < 64; shift += 7) {
        uint8_t byte;

        if (c->at == c->end)
            return -EBADMSG;
        byte = *c->at++;
        if (shift == 63 && byte > 1)
            return -EBADMSG;
        n |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *out = n;
            return 0;
        }
    }
    return -EBADMSG;
}

static int read_fixed(struct ms_plain_cursor *c, size_t size, uint64_t *out)
{
    uint64_t n = 0;

    if ((size_t)(c->end - c->at) < size)
        return -EBADMSG;
    memcpy(&n, c->at, size);
    c->at += size;
    *out = le64toh(n);
    return 0;
}

static int read_bytes(struct ms_plain_cursor *c, struct ms_plain_cursor *out)
{
    uint64_t len;
    int rc = read_varint(c, &len);

    if (rc < 0 || len > (size_t)(c->end - c->at))
        return -EBADMSG;
    *out = (struct ms_plain_cursor){c->at, c->at + len};
    c->at += len;
    return 0;
}

/* 1, 0 at the end, -EBADMSG. */
static int next_field(struct ms_plain_cursor *c, struct field *f)
{
    uint64_t key;
    int rc;

    if (c->at == c->end)
        return 0;
    if (read_varint(c, &key) < 0 || key >> 3 == 0 || key >> 3 >= 1u << 29)
        return -EBADMSG;
    f->number = (uint32_t)(key >> 3);
    f->wire = key & 7;
    switch (f->wire) {
    case VARINT:
        rc = read_varint(c, &f->n);
        break;
    case FIXED64:
        rc = read_fixed(c, 8, &f->n);
        break;
    case FIXED32:
        rc = read_fixed(c, 4, &f->n);
        break;
    case BYTES:
        rc = read_bytes(c, &f->bytes);
        break;
    default:
        return -EBADMSG;
    }
    return rc < 0 ? rc : 1;
}

static size_t cursor_len(struct ms_plain_cursor c)
{
    return (size_t)(c.end - c.at);
}

/* ---- tensors --------------------------------------------------------------------- */

static int add_dim(struct ms_plain_item *out, uint64_t size)
{
    if (out->tensor.ndim == MS_PLAIN_DIMS_MAX)
        return -EBADMSG;
    out->tensor.shape[out->tensor.ndim++] = size;
    return 0;
}

static int read_shape(const struct field *f, struct ms_plain_item *out)
{
    struct ms_plain_cursor c = f->bytes;
    uint64_t size;

    if (f->wire == VARINT) /* not packed */
        return add_dim(out, f->n);
    if (f->wire != BYTES)
        return -EBADMSG;
    while (c.at != c.end)
        if (read_varint(&c, &size) < 0 || add_dim(out, size) < 0)
            return -EBADMSG;
    return 0;
}

static int read_tensor_field(const struct field *f, struct ms_plain_item *out)
{
    switch (f->number) {
    case TENSOR_DTYPE:
        if (f->wire != VARINT || f->n == 0 || f->n > MUSTER_COMPLEX128)
            return -EBADMSG;
        out->tensor.dtype = (enum muster_dtype)f->n;
        return 0;
    case TENSOR_SHAPE:
        return read_shape(f, out);
    case TENSOR_DATA:
        if (f->wire != BYTES)
            return -EBADMSG;
        out->tensor.at = f->bytes.at;
        out->tensor.len = cursor_len(f->bytes);
        return 0;
    default:
        return 0;
    }
}

static int read_tensor(struct ms_plain_cursor c, struct ms_plain_item *out)
{
    struct field f;
    size_t size;
    int rc;

    out->tensor.dtype = 0;
    out->tensor.ndim = 0;
    out->tensor.at = c.end;
    out->tensor.len = 0;
    while ((rc = next_field(&c, &f)) > 0)
        if (read_tensor_field(&f, out) < 0)
            return -EBADMSG;
    if (rc < 0 ||
        ms_plain_tensor_size(
            out->tensor.dtype, out->tensor.shape, out->tensor.ndim, &size) < 0 ||
        size != out->tensor.len)
        return -EBADMSG;
    return 0;
}

/* ---- values ---------------------------------------------------------------------- */

/* The wire type of each kind's field. */
static const unsigned wire_of[] = {[MUSTER_BOOL] = VARINT,
                                   [MUSTER_INT] = VARINT,
                                   [MUSTER_FLOAT] = FIXED64,
                                   [MUSTER_TEXT] = BYTES,
                                   [MUSTER_BYTES] = BYTES,
                                   [MUSTER_LIST] = BYTES,
                                   [MUSTER_MAP] = BYTES,
                                   [MUSTER_TENSOR] = BYTES};

static int read_field(const struct field *f, struct ms_plain_item *out)
{
    if (f->wire != wire_of[f->number])
        return -EBADMSG;
    out->kind = (enum muster_kind)f->number;
    switch (out->kind) {
    case MUSTER_BOOL:
        out->truth = f->n != 0;
        return 0;
    case MUSTER_INT:
        out->integer = (int64_t)(f->n >> 1 ^ (f->n & 1 ? UINT64_MAX : 0));
        return 0;
    case MUSTER_FLOAT:
        memcpy(&out->real, &f->n, sizeof out->real);
        return 0;
    case MUSTER_LIST:
    case MUSTER_MAP:
        out->inside = f->bytes;
        return 0;
    case MUSTER_TENSOR:
        return read_tensor(f->bytes, out);
    default:
        out->data.at = f->bytes.at;
        out->data.len = cursor_len(f->bytes);
        if (out->kind == MUSTER_TEXT &&
            !ms_utf8_is_valid((const char *)out->data.at, out->data.len))
            return -EBADMSG;
        return 0;
    }
}

int ms_plain_read(struct ms_plain_cursor c, struct ms_plain_item *out)
{
    struct field f;
    int rc;

    out->kind = MUSTER_NULL;
    while ((rc = next_field(&c, &f)) > 0) {
        if (f.number > MUSTER_TENSOR)
            continue;
        if (out->kind != MUSTER_NULL || read_field(&f, out) < 0)
            return -EBADMSG; /* two kinds at once, or a wrong one */
    }
    return rc;
}

/* ---- containers ------------------------------------------------------------------ */

/* The next field of this number, others passed over. */
static int
next_of(struct ms_plain_cursor *c, uint32_t number, struct ms_plain_cursor *out)
{
    struct field f;
    int rc;

    while ((rc = next_field(c, &f)) > 0) {
        if (f.number != number)
            continue;
        if (f.wire != BYTES)
            return -EBADMSG;
        *out = f.bytes;
        return 1;
    }
    return rc;
}

int ms_plain_next_item(struct ms_plain_cursor *list, struct ms_plain_cursor *value)
{
    return next_of(list, ITEMS, value);
}

static int read_entry(struct ms_plain_cursor c,
                      struct ms_plain_key *key,
                      struct ms_plain_cursor *v)
{
    struct field f;
    int rc;

    *key = (struct ms_plain_key){"", 0};
    *v = (struct ms_plain_cursor){c.end, c.end}; /* null */
    while ((rc = next_field(&c, &f)) > 0) {
        if (f.number > ENTRY_VALUE)
            continue;
        if (f.wire != BYTES)
            return -EBADMSG;
        if (f.number == ENTRY_VALUE)
            *v = f.bytes;
        else
            *key = (struct ms_plain_key){(const char *)f.bytes.at, cursor_len(f.bytes)};
    }
    if (rc < 0 || !ms_utf8_is_valid(key->at, key->len) ||
        memchr(key->at, 0, key->len) != NULL)
        return -EBADMSG;
    return 1;
}

int ms_plain_next_entry(struct ms_plain_cursor *map,
                        bool named,
                        struct ms_plain_key *key,
                        struct ms_plain_cursor *value)
{
    struct ms_plain_cursor entry;
    int rc = next_of(map, named ? NAMED : ITEMS, &entry);

    return rc > 0 ? read_entry(entry, key, value) : rc;
}

const uint8_t *ms_plain_align(const uint8_t *memory, const uint8_t *body, size_t len)
{
    size_t off = (uintptr_t)body % MS_PLAIN_ALIGN;
    uint8_t *to = (uint8_t *)(uintptr_t)body - off;

    if (off == 0 || to < memory)
        return body;
    return memmove(to, body, len);
}
