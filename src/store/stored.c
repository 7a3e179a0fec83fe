/* stored.c - the message that names stored objects: read, checked, written */
#include "store/stored.h"

#include "base/limits.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

enum { HEAD_SIZE = 32, NAME_SIZE = 40, PART_SIZE = 16, OBJECT_SHIFT = 48 };

#define OFFSET_MASK ((UINT64_C(1) << OBJECT_SHIFT) - 1)

static uint64_t get64(const uint8_t *at)
{
    uint64_t v;

    memcpy(&v, at, sizeof v);
    return le64toh(v);
}

static uint32_t get32(const uint8_t *at)
{
    uint32_t v;

    memcpy(&v, at, sizeof v);
    return le32toh(v);
}

static size_t pad(size_t len, size_t to)
{
    return (len + to - 1) / to * to;
}

/* ---- reading --------------------------------------------------------------------- */

bool ms_stored_next(const struct ms_stored *s, size_t *at, struct ms_stored_name *name)
{
    const uint8_t *p = s->body + HEAD_SIZE + *at;

    if (HEAD_SIZE + *at >= s->parts_at)
        return false;
    *name = (struct ms_stored_name){.node = get64(p),
                                    .id = get64(p + 8),
                                    .len = get64(p + 16),
                                    .at = get64(p + 24),
                                    .address = (const char *)p + NAME_SIZE,
                                    .address_len = get32(p + 32)};
    *at += NAME_SIZE + pad(name->address_len, 8);
    return true;
}

static const uint8_t *name_at(const struct ms_stored *s, uint32_t index)
{
    size_t at = HEAD_SIZE;

    while (index--)
        at += NAME_SIZE + pad(get32(s->body + at + 32), 8);
    return s->body + at;
}

bool ms_stored_part(const struct ms_stored *s,
                    struct ms_stored_walk *walk,
                    struct ms_stored_part *part)
{
    const uint8_t *p = s->body + s->parts_at + walk->next * PART_SIZE;
    uint64_t place;

    if (walk->next == s->part_count)
        return false;
    if (!walk->inline_at)
        walk->inline_at =
            pad(s->parts_at + (size_t)s->part_count * PART_SIZE, MS_STORED_ALIGN);
    part->len = get64(p);
    place = get64(p + 8);
    if (place == MS_PART_INLINE) {
        part->object = -1;
        part->offset = walk->inline_at;
        walk->inline_at += pad(part->len, MS_STORED_ALIGN);
    } else {
        part->object = (int)(place >> OBJECT_SHIFT);
        part->offset = place & OFFSET_MASK;
    }
    walk->next++;
    return true;
}

static int check_names(struct ms_stored *s, size_t names_len)
{
    size_t at = 0;

    for (uint32_t i = 0; i < s->object_count; i++) {
        const uint8_t *p = s->body + HEAD_SIZE + at;

        if (names_len - at < NAME_SIZE || get32(p + 32) > MS_ADDR_LIST_MAX ||
            pad(get32(p + 32), 8) > names_len - at - NAME_SIZE ||
            get64(p + 16) > MS_STORE_OBJECT_MAX || !get64(p) || !get64(p + 8))
            return -EPROTO;
        at += NAME_SIZE + pad(get32(p + 32), 8);
    }
    return at == names_len ? 0 : -EPROTO;
}

static int check_parts(const struct ms_stored *s)
{
    struct ms_stored_walk walk = {0};
    struct ms_stored_part part;
    int object = -1;
    uint64_t room = 0;

    while (walk.next < s->part_count) {
        /* before the walk adds it up */
        if (get64(s->body + s->parts_at + walk.next * PART_SIZE) > MS_STORE_OBJECT_MAX)
            return -EPROTO;
        ms_stored_part(s, &walk, &part);
        if (part.object >= 0 && (uint32_t)part.object >= s->object_count)
            return -EPROTO;
        if (part.object < 0) {
            if (part.offset > s->len || part.len > s->len - part.offset)
                return -EPROTO;
            continue;
        }
        if (part.object != object) {
            object = part.object;
            room = get64(name_at(s, (uint32_t)object) + 16);
        }
        if (part.offset > room || part.len > room - part.offset)
            return -EPROTO;
    }
    return 0;
}

int ms_stored_parse(struct ms_stored *s,
                    const uint8_t *body,
                    size_t len,
                    struct ms_error *err)
{
    uint32_t names_len;

    if (len < HEAD_SIZE)
        return ms_error_set(err, -EPROTO, "the stored payload is too short");
    *s = (struct ms_stored){.holder = get64(body),
                            .node = get64(body + 8),
                            .object_count = get32(body + 16),
                            .part_count = get32(body + 20),
                            .written_s = get32(body + 28),
                            .body = body,
                            .len = len};
    names_len = get32(body + 24);
    s->parts_at = HEAD_SIZE + (size_t)names_len;
    if (s->object_count > MS_STORED_OBJECTS_MAX || s->part_count == 0 ||
        s->part_count > MS_STORED_PARTS_MAX || names_len % 8 ||
        names_len > len - HEAD_SIZE ||
        (size_t)s->part_count * PART_SIZE > len - s->parts_at ||
        check_names(s, names_len) < 0 || check_parts(s) < 0)
        return ms_error_set(err, -EPROTO, "the stored payload is malformed");
    return 0;
}

bool ms_stored_is_fresh(const struct ms_stored *s, int64_t now_ns)
{
    uint32_t age_s = (uint32_t)(now_ns / MS_NS_PER_S) - s->written_s;

    return age_s <= MS_STORE_LEASE_NS / MS_NS_PER_S / 2;
}

/* ---- writing --------------------------------------------------------------------- */

static void put64(uint8_t *at, uint64_t v)
{
    v = htole64(v);
    memcpy(at, &v, sizeof v);
}

static void put32(uint8_t *at, uint32_t v)
{
    v = htole32(v);
    memcpy(at, &v, sizeof v);
}

static uint8_t *write_name(uint8_t *p, const struct ms_stored_name *n)
{
    put64(p, n->node);
    put64(p + 8, n->id);
    put64(p + 16, n->len);
    put64(p + 24, n->at);
    put32(p + 32, n->address_len);
    if (n->address_len)
        memcpy(p + NAME_SIZE, n->address, n->address_len);
    return p + NAME_SIZE + pad(n->address_len, 8);
}

int ms_stored_encode(struct ms_buf *out,
                     uint64_t holder,
                     uint64_t node,
                     const struct ms_stored_name *names,
                     size_t name_count,
                     const struct ms_stored_part *parts,
                     size_t part_count,
                     int64_t now_ns)
{
    size_t names_len = 0, len;
    uint8_t *p;

    for (size_t i = 0; i < name_count; i++)
        names_len += NAME_SIZE + pad(names[i].address_len, 8);
    len = pad(HEAD_SIZE + names_len + part_count * PART_SIZE, MS_STORED_ALIGN);
    if (ms_buf_reserve(out, len) < 0)
        return -ENOMEM;
    p = out->data + out->len;
    memset(p, 0, len);
    out->len += len;
    put64(p, holder);
    put64(p + 8, node);
    put32(p + 16, (uint32_t)name_count);
    put32(p + 20, (uint32_t)part_count);
    put32(p + 24, (uint32_t)names_len);
    put32(p + 28, (uint32_t)(now_ns / MS_NS_PER_S));
    p += HEAD_SIZE;
    for (size_t i = 0; i < name_count; i++)
        p = write_name(p, &names[i]);
    for (size_t i = 0; i < part_count; i++, p += PART_SIZE) {
        put64(p, parts[i].len);
        put64(p + 8,
              parts[i].object < 0
                  ? MS_PART_INLINE
                  : (uint64_t)parts[i].object << OBJECT_SHIFT | parts[i].offset);
    }
    return 0;
}
