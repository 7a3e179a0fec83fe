#include "store/slice.h"

#include "base/clock.h"
#include "store/peers/peers.h"

#define IS_SLICE (UINT64_C(1) << 63)

/* Of 64 bits others, all of them different. */
static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
    return x ^ (x >> 31);
}

uint64_t ms_slice_id(uint64_t of, uint64_t offset, uint64_t len)
{
    uint64_t id = mix(of + UINT64_C(0x9E3779B97F4A7C15));

    id = mix(id + offset + UINT64_C(0x9E3779B97F4A7C15));
    return mix(id + len + UINT64_C(0x9E3779B97F4A7C15)) | IS_SLICE;
}

bool ms_slice_is(uint64_t id)
{
    return id & IS_SLICE;
}

static bool is_same(const struct ms_object *o, const Muster__PeerHold *m)
{
    return o->whole && o->whole->id == m->of && o->len == m->len &&
           o->at - o->whole->at == m->offset;
}

struct ms_object *ms_slice_find(struct ms_store *s,
                                const Muster__PeerHold *m,
                                struct ms_object **whole,
                                bool *is_new)
{
    struct ms_object *o = ms_table_find(&s->table, s->table.node, m->id);
    struct ms_object *from;

    *whole = NULL;
    *is_new = false;
    if (o || !m->of)
        return o && m->of && !is_same(o, m) ? NULL : o;
    from = ms_table_find(&s->table, s->table.node, m->of);
    if (!from || !ms_slice_is(m->id) || !m->len || m->offset > from->len ||
        m->len > from->len - m->offset)
        return NULL;
    if (!from->is_ready) {
        *whole = from->spilled ? from : NULL;
        return NULL;
    }
    o = ms_table_slice(&s->table, from, m->id, m->offset, m->len, ms_now_ns());
    if (!o)
        return NULL;
    ms_table_pin(o);
    *is_new = true;
    return o;
}
