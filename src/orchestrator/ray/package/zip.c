/* zip.c - writes a zip archive in memory */
#include "orchestrator/ray/package/zip.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers in a zip are so");

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

#define PACKED __attribute__((packed))

/* What both headers have in the middle. */
struct facts {
    uint16_t version, flags, method, time, date;
    uint32_t crc, packed_len, len;
    uint16_t name_len, extra_len;
} PACKED;

struct local {
    uint32_t sig;
    struct facts facts;
} PACKED;

struct central {
    uint32_t sig;
    uint16_t made_by;
    struct facts facts;
    uint16_t comment_len, disk, kind;
    uint32_t mode, offset;
} PACKED;

struct end {
    uint32_t sig;
    uint16_t disk, directory_disk, disk_count, count;
    uint32_t size, offset;
    uint16_t comment_len;
} PACKED;

void ms_zip_init(struct ms_zip *z)
{
    *z = (struct ms_zip){0};
}

void ms_zip_finish(struct ms_zip *z)
{
    ms_buf_finish(&z->out);
    ms_buf_finish(&z->central);
}

/* Deflated, malloc'd; NULL with *len 0: not worth it, with 1: out of memory. */
static uint8_t *deflated(const void *data, size_t size, size_t *len)
{
    z_stream s = {.next_in = (uint8_t *)(uintptr_t)data, .avail_in = (uInt)size};
    uint8_t *out = size > 0 ? malloc(size) : NULL;
    int rc;

    *len = size > 0;
    if (!out || deflateInit2(
                    &s, LEVEL, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
        free(out);
        return NULL;
    }
    s.next_out = out;
    s.avail_out = (uInt)size - 1;
    rc = deflate(&s, Z_FINISH);
    *len = rc == Z_STREAM_END ? s.total_out : 0;
    deflateEnd(&s);
    if (rc == Z_STREAM_END)
        return out;
    free(out);
    return NULL;
}

static int
add(struct ms_zip *z, const char *name, uint32_t mode, struct facts f, const void *data)
{
    const struct local local = {LOCAL_SIG, f};
    const struct central central = {.sig = CENTRAL_SIG,
                                    .made_by = MADE_BY_UNIX,
                                    .facts = f,
                                    .mode = (REGULAR | mode) << 16,
                                    .offset = (uint32_t)z->out.len};

    if (ms_buf_append(&z->out, &local, sizeof local) < 0 ||
        ms_buf_append(&z->out, name, f.name_len) < 0 ||
        ms_buf_append(&z->out, data, f.packed_len) < 0 ||
        ms_buf_append(&z->central, &central, sizeof central) < 0 ||
        ms_buf_append(&z->central, name, f.name_len) < 0)
        return -ENOMEM;
    z->count++;
    return 0;
}

int ms_zip_add(
    struct ms_zip *z, const char *name, uint32_t mode, const void *data, size_t len)
{
    size_t name_len = strlen(name), packed_len;
    uint8_t *packed;
    int rc;

    if (name_len == 0 || name_len > NAME_MAX_LEN || name[0] == '/')
        return -EINVAL;
    if (len > MS_ZIP_MAX - z->out.len - name_len - sizeof(struct local) ||
        z->count == MS_ZIP_ENTRIES_MAX)
        return -EFBIG;
    packed = deflated(data, len, &packed_len);
    if (!packed && packed_len)
        return -ENOMEM;
    rc = add(z,
             name,
             mode,
             (struct facts){.version = VERSION,
                            .method = packed ? DEFLATED : STORED,
                            .date = DATE,
                            .crc = (uint32_t)crc32_z(0, data, len),
                            .packed_len = (uint32_t)(packed ? packed_len : len),
                            .len = (uint32_t)len,
                            .name_len = (uint16_t)name_len},
             packed ? packed : data);
    free(packed);
    return rc;
}

int ms_zip_end(struct ms_zip *z)
{
    const struct end end = {.sig = END_SIG,
                            .disk_count = (uint16_t)z->count,
                            .count = (uint16_t)z->count,
                            .size = (uint32_t)z->central.len,
                            .offset = (uint32_t)z->out.len};

    if (ms_buf_append(&z->out, z->central.data, z->central.len) < 0 ||
        ms_buf_append(&z->out, &end, sizeof end) < 0)
        return -ENOMEM;
    return 0;
}
