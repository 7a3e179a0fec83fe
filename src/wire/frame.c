/* frame.c - the fixed header of a frame, encoded and checked */
#include "wire/frame.h"
#include "base/limits.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

_Static_assert(sizeof(struct ms_frame) == MS_FRAME_SIZE, "a frame has no padding");

/* Between the host's order of bytes and little-endian. */
static void swap(struct ms_frame *f)
{
    f->op = htole16(f->op);
    f->flags = htole16(f->flags);
    f->length = htole32(f->length);
    f->core = htole32(f->core);
    f->call_id = htole64(f->call_id);
    f->total = htole64(f->total);
    f->budget_ns = htole64(f->budget_ns);
    f->ack = htole64(f->ack);
}

void ms_frame_encode(const struct ms_frame *f, uint8_t out[MS_FRAME_SIZE])
{
    struct ms_frame e = *f;

    e.magic = MS_FRAME_MAGIC;
    e.version = MS_FRAME_VERSION;
    swap(&e);
    memcpy(out, &e, sizeof e);
}

/* Big bodies are for payloads; everything else is small. */
uint64_t ms_frame_total_max(uint8_t kind)
{
    switch (kind) {
    case MS_KIND_CALL:
    case MS_KIND_REPLY:
    case MS_KIND_ITEM:
        return MS_MESSAGE_MAX;
    case MS_KIND_METHOD:
        return MS_METHOD_NAME_MAX;
    case MS_KIND_CONTROL:
    case MS_KIND_ERROR:
        return MS_CONTROL_MAX;
    case MS_KIND_DATA:
        return MS_DATA_MAX;
    default:
        return MS_CHUNK_MAX;
    }
}

uint64_t ms_frame_length_max(uint8_t kind)
{
    return kind == MS_KIND_DATA ? MS_DATA_MAX : MS_CHUNK_MAX;
}

static int check_lengths(const struct ms_frame *f, struct ms_error *err)
{
    uint64_t max = ms_frame_total_max(f->kind), longest = ms_frame_length_max(f->kind);

    if (f->length > longest)
        return ms_error_set(err,
                            -EMSGSIZE,
                            "a frame of %u bytes, at most %llu are allowed",
                            f->length,
                            (unsigned long long)longest);
    if (f->total > max)
        return ms_error_set(err,
                            -EMSGSIZE,
                            "a message of %llu bytes, at most %llu are allowed",
                            (unsigned long long)f->total,
                            (unsigned long long)max);
    if (f->kind == MS_KIND_DATA && (f->length != f->total || !f->length))
        return ms_error_set(err, -EPROTO, "data that is empty or in pieces");
    if (f->flags & MS_FRAME_MORE_OF) {
        if (f->length == 0 || f->length > max - f->total)
            return ms_error_set(err, -EPROTO, "a later piece of impossible length");
    } else if (f->length > f->total) {
        return ms_error_set(err, -EPROTO, "a frame longer than its message");
    } else if (f->length == 0 && f->total != 0) {
        return ms_error_set(err, -EPROTO, "an empty first piece");
    }
    return 0;
}

int ms_frame_decode(const uint8_t in[MS_FRAME_SIZE],
                    struct ms_frame *f,
                    struct ms_error *err)
{
    struct ms_frame got;
    int rc;

    if (in[0] != MS_FRAME_MAGIC)
        return ms_error_set(err, -EPROTO, "not a frame (first byte is 0x%02x)", in[0]);
    if (in[1] != MS_FRAME_VERSION)
        return ms_error_set(err,
                            -EPROTONOSUPPORT,
                            "frames of version %u, this side speaks %u",
                            in[1],
                            MS_FRAME_VERSION);
    memcpy(&got, in, sizeof got);
    swap(&got);
    got.flags &= (uint16_t)~MS_FRAME_IGNORED;
    if (got.kind == 0 || (got.kind > MS_KIND_LAST && got.kind < MS_KIND_IGNORED))
        return ms_error_set(err, -EPROTO, "a frame of unknown kind %u", got.kind);
    if (got.codec > MS_CODEC_LAST && got.kind < MS_KIND_IGNORED)
        return ms_error_set(err, -EPROTO, "a frame of unknown codec %u", got.codec);
    if (got.flags & ~MS_FRAME_FLAGS)
        return ms_error_set(err, -EPROTO, "a frame with unknown flags");
    rc = check_lengths(&got, err);
    if (rc == 0)
        *f = got;
    return rc;
}
