#include "orchestrator/ray/zip.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum {
    LOCAL_SIG = 0x04034b50,
    CENTRAL_SIG = 0x02014b50,
    END_SIG = 0x06054b50,
    VERSION = 20,
    MADE_BY_UNIX = 3 << 8 | VERSION,
    DATE = 1 << 5 | 1, /* 1 January 1980: the first that there is */
    STORED = 0,
    DEFLATED = 8,
    REGULAR = 0100000,
    NAME_MAX_LEN = 4096,
    LEVEL = 6
};

void ms_zip_init(struct ms_zip *z)
{
    *z = (struct ms_zip){0};
    ms_buf_init(&z->out);
    ms_buf_init(&z->central);
}

void ms_zip_finish(struct ms_zip *z)
{
    ms_buf_finish(&z->out);
    ms_buf_finish(&z->central);
}

/* There is room already. */
static void put(struct ms_buf *b, uint32_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        b->data[b->len++] = (uint8_t)(value >> 8 * i);
}

struct entry {
    const char *name;
    size_t name_len, len, packed_len;
    uint32_t mode, crc, offset;
    uint16_t method;
};

/* What both headers have in the middle. */
static void put_facts(struct ms_buf *b, const struct entry *e)
{
    put(b, VERSION, 2);
    put(b, 0, 2);
    put(b, e->method, 2);
    put(b, 0, 2);
    put(b, DATE, 2);
    put(b, e->crc, 4);
    put(b, (uint32_t)e->packed_len, 4);
    put(b, (uint32_t)e->len, 4);
    put(b, (uint32_t)e->name_len, 2);
    put(b, 0, 2);
}

static void put_name(struct ms_buf *b, const struct entry *e)
{
    memcpy(b->data + b->len, e->name, e->name_len);
    b->len += e->name_len;
}

/* Deflated, malloc'd; NULL with *len 0: not worth it, with 1: out of memory. */
static uint8_t *deflated(const void *data, size_t size, size_t *len)
{
    z_stream s = {.next_in = (uint8_t *)(uintptr_t)data, .avail_in = (uInt)size};
    uint8_t *out = size > 0 ? malloc(size) : NULL;
    int rc;

    *len = size > 0 && !out;
    if (!out)
        return NULL;
    if (deflateInit2(&s, LEVEL, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) !=
        Z_OK) {
        free(out);
        *len = 1;
        return NULL;
    }
    s.next_out = out;
    s.avail_out = (uInt)size - 1;
    rc = deflate(&s, Z_FINISH);
    *len = s.total_out;
    deflateEnd(&s);
    if (rc == Z_STREAM_END)
        return out;
    free(out);
    *len = 0;
    return NULL;
}

static int
add(struct ms_zip *z, struct entry *e, const void *data, const uint8_t *packed)
{
    if (ms_buf_reserve(&z->out, 30 + e->name_len + e->packed_len) < 0 ||
        ms_buf_reserve(&z->central, 46 + e->name_len) < 0)
        return -ENOMEM;
    put(&z->out, LOCAL_SIG, 4);
    put_facts(&z->out, e);
    put_name(&z->out, e);
    if (e->packed_len > 0)
        memcpy(z->out.data + z->out.len, packed ? packed : data, e->packed_len);
    z->out.len += e->packed_len;

    put(&z->central, CENTRAL_SIG, 4);
    put(&z->central, MADE_BY_UNIX, 2);
    put_facts(&z->central, e);
    put(&z->central, 0, 2); /* comment */
    put(&z->central, 0, 2); /* disk */
    put(&z->central, 0, 2);
    put(&z->central, (REGULAR | e->mode) << 16, 4);
    put(&z->central, e->offset, 4);
    put_name(&z->central, e);
    z->count++;
    return 0;
}

int ms_zip_add(
    struct ms_zip *z, const char *name, uint32_t mode, const void *data, size_t len)
{
    struct entry e = {.name = name,
                      .name_len = strlen(name),
                      .len = len,
                      .mode = mode,
                      .offset = (uint32_t)z->out.len};
    uint8_t *packed;
    int rc;

    if (e.name_len == 0 || e.name_len > NAME_MAX_LEN || name[0] == '/')
        return -EINVAL;
    if (len > MS_ZIP_MAX - z->out.len - e.name_len - 30 ||
        z->count == MS_ZIP_ENTRIES_MAX)
        return -EFBIG;
    packed = deflated(data, len, &e.packed_len);
    if (!packed && e.packed_len)
        return -ENOMEM;
    e.method = packed ? DEFLATED : STORED;
    e.packed_len = packed ? e.packed_len : len;
    e.crc = (uint32_t)crc32_z(0, data, len);
    rc = add(z, &e, data, packed);
    free(packed);
    return rc;
}

int ms_zip_end(struct ms_zip *z)
{
    uint32_t offset = (uint32_t)z->out.len, size = (uint32_t)z->central.len;

    if (ms_buf_append(&z->out, z->central.data, z->central.len) < 0 ||
        ms_buf_reserve(&z->out, 22) < 0)
        return -ENOMEM;
    put(&z->out, END_SIG, 4);
    put(&z->out, 0, 4); /* disks */
    put(&z->out, z->count, 2);
    put(&z->out, z->count, 2);
    put(&z->out, size, 4);
    put(&z->out, offset, 4);
    put(&z->out, 0, 2);
    return 0;
}
