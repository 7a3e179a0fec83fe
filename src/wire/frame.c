/* frame.c - the fixed header of a frame, encoded and checked */
#include "wire/frame.h"
#include "base/limits.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

/* As it travels; all numbers are little-endian. */
struct encoded {
    uint8_t magic, version, kind, codec;
    uint16_t op, flags;
    uint32_t length, core;
    uint64_t call_id, total, budget_ns, ack;
};

_Static_assert(sizeof(struct encoded) == MS_FRAME_SIZE, "a frame has no padding");

void ms_frame_encode(const struct ms_frame *f, uint8_t out[MS_FRAME_SIZE])
{
    struct encoded e = {.magic = MS_FRAME_MAGIC,
                        .version = MS_FRAME_VERSION,
                        .kind = f->kind,
                        .codec = f->codec,
                        .op = htole16(f->op),
                        .flags = htole16(f->flags),
                        .length = htole32(f->length),
                        .core = htole32(f->core),
                        .call_id = htole64(f->call_id),
                        .total = htole64(f->total),
                        .budget_ns = htole64(f->budget_ns),
                        .ack = htole64(f->ack)};

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
    struct encoded e;
    int rc;

    if (in[0] != MS_FRAME_MAGIC)
        return ms_error_set(err, -EPROTO, "not a frame (first byte is 0x%02x)", in[0]);
    if (in[1] != MS_FRAME_VERSION)
        return ms_error_set(err,
                            -EPROTONOSUPPORT,
                            "frames of version %u, this side speaks %u",
                            in[1],
                            MS_FRAME_VERSION);
    memcpy(&e, in, sizeof e);
    got = (struct ms_frame){.kind = e.kind,
                            .codec = e.codec,
                            .op = le16toh(e.op),
                            .flags = le16toh(e.flags),
                            .length = le32toh(e.length),
                            .core = le32toh(e.core),
                            .call_id = le64toh(e.call_id),
                            .total = le64toh(e.total),
                            .budget_ns = le64toh(e.budget_ns),
                            .ack = le64toh(e.ack)};
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
