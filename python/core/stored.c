/* stored.c - payloads whose big parts are in a store: laid out, and read */
#include "store.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "store/payload.h"
#include "wire/frame.h"

#include <string.h>

enum { INLINE_IOV_MAX = 16 };

static size_t padded(size_t len, size_t to)
{
    return (len + to - 1) / to * to;
}

/* ---- writing --------------------------------------------------------------------- */

/* Where each part goes, and which objects that makes. Part 0 is the pickle. */
struct layout {
    size_t part_count;
    struct ms_stored_part *parts;
    struct ms_store_bytes *bytes; /* of each part */
    struct core_hold *hold;
    struct ms_stored_name *names;
};

static void layout_finish(struct layout *l)
{
    for (size_t i = 0; l->bytes && i < l->part_count; i++)
        ms_held_unref(l->bytes[i].held);
    free(l->parts);
    free(l->bytes);
    free(l->names);
    core_hold_unref(l->hold);
}

static int layout_init(struct layout *l, const struct core_payload *p, size_t refs)
{
    size_t parts = (size_t)p->buffer_count + 1, objects = parts + refs + 1;

    *l = (struct layout){.part_count = parts,
                         .parts = calloc(parts, sizeof *l->parts),
                         .bytes = calloc(parts, sizeof *l->bytes),
                         .names = calloc(objects, sizeof *l->names),
                         .hold = core_hold_new(objects)};
    if (l->parts && l->bytes && l->names && l->hold)
        return 0;
    layout_finish(l);
    core_no_memory();
    return -1;
}

/* The number of an object in the layout; takes the reference. */
static int layout_add(struct layout *l, struct ms_held *h)
{
    struct core_hold *hold = l->hold;

    for (size_t i = 0; i < hold->count; i++)
        if (hold->objects[i].held == h) {
            ms_held_unref(h);
            return (int)i;
        }
    ms_held_name(h, &l->names[hold->count]);
    hold->objects[hold->count].held = h;
    return (int)hold->count++;
}

/* See payload.h. 0, or -1 with an exception set. */
static int
store_parts(struct ms_store_client *c, struct layout *l, enum core_stored_how how)
{
    size_t first = l->bytes[0].len <= MS_PAYLOAD_PICKLE_MAX;
    uint64_t fresh =
        c ? ms_store_client_find_all(c, l->bytes + first, l->part_count - first) : 0;
    uint64_t least = how == CORE_STORED_PUT ? 1 : MS_PAYLOAD_MIN;

    if (fresh >= least && (ms_store_client_limit(c) || how == CORE_STORED_PUT) &&
        core_store_write(c, l->bytes + first, l->part_count - first, true) < 0)
        return -1;
    for (size_t i = 0; i < l->part_count; i++) {
        struct ms_store_bytes *b = &l->bytes[i];

        l->parts[i] = (struct ms_stored_part){
            .len = b->len,
            .offset = b->offset,
            .object = b->held ? layout_add(l, MS_TAKE(b->held)) : -1};
    }
    return 0;
}

static int add_refs(struct layout *l, PyObject *refs, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        MS_CLEANUP(core_unref) PyObject *item = PySequence_GetItem(refs, i);
        struct ms_held *h = item ? core_held_get(item) : NULL;

        if (!h)
            return -1;
        layout_add(l, ms_held_ref(h));
    }
    return 0;
}

static void add_inline(struct core_payload *p, const void *at, size_t len)
{
    static const uint8_t zeros[MS_STORED_ALIGN];
    size_t pad = padded(len, MS_STORED_ALIGN) - len;

    p->iov[p->count++] = (struct iovec){(void *)(uintptr_t)at, len};
    if (pad)
        p->iov[p->count++] = (struct iovec){(void *)(uintptr_t)zeros, pad};
}

/* More inline parts than fit into one iovec: put them into one block. */
static int gather(struct core_payload *p, const struct layout *l)
{
    size_t total = 0, at = 0;

    for (size_t i = 0; i < l->part_count; i++)
        if (l->parts[i].object < 0)
            total += padded(l->parts[i].len, MS_STORED_ALIGN);
    p->gathered = calloc(1, total ? total : 1);
    if (!p->gathered)
        return core_no_memory();
    for (size_t i = 0; i < l->part_count; i++)
        if (l->parts[i].object < 0) {
            if (l->parts[i].len)
                memcpy(p->gathered + at, l->bytes[i].data, l->parts[i].len);
            at += padded(l->parts[i].len, MS_STORED_ALIGN);
        }
    p->iov[p->count++] = (struct iovec){p->gathered, total};
    return 0;
}

/* What stands before the inline parts. */
static int put_head(struct core_payload *p,
                    struct ms_store_client *c,
                    enum core_stored_how how,
                    const struct layout *l)
{
    MS_CLEANUP(ms_buf_finish) struct ms_buf head = {0};

    if (ms_stored_encode(&head,
                         c && how == CORE_STORED_CALL ? ms_store_client_holder(c) : 0,
                         c ? ms_store_client_node(c) : 0,
                         l->names,
                         l->hold ? l->hold->count : 0,
                         l->parts,
                         l->part_count,
                         l->hold ? ms_now_ns() : 0) < 0)
        return core_no_memory();
    p->codec = MS_CODEC_STORED;
    p->iov[p->count++] = (struct iovec){head.data, head.len};
    p->head = MS_TAKE(head.data);
    return 0;
}

static int lay_out(struct core_payload *p,
                   struct layout *l,
                   struct ms_store_client *c,
                   enum core_stored_how how)
{
    size_t inlines = 0;

    if (store_parts(c, l, how) < 0 ||
        (p->refs && add_refs(l, p->refs, PySequence_Size(p->refs)) < 0))
        return -1;
    if (l->hold->count > MS_STORED_OBJECTS_MAX)
        return core_fail(PyExc_ValueError,
                         "a payload refers to %zu objects, at most %d are possible",
                         l->hold->count,
                         MS_STORED_OBJECTS_MAX);
    if (put_head(p, c, how, l) < 0)
        return -1;
    for (size_t i = 0; i < l->part_count; i++)
        inlines += l->parts[i].object < 0;
    if (inlines > INLINE_IOV_MAX)
        return gather(p, l);
    for (size_t i = 0; i < l->part_count; i++)
        if (l->parts[i].object < 0)
            add_inline(p, l->bytes[i].data, l->parts[i].len);
    return 0;
}

/* Nothing but a pickle: the usual case of a small call or result. */
static int lay_out_bare(struct core_payload *p,
                        const char *pickle,
                        size_t len,
                        struct ms_store_client *c)
{
    struct ms_stored_part part = {.len = len, .object = -1};
    struct layout l = {.part_count = 1, .parts = &part};

    if (c && put_head(p, c, CORE_STORED_CALL, &l) < 0)
        return -1;
    p->iov[p->count++] = (struct iovec){(void *)(uintptr_t)pickle, len};
    return 0;
}

int core_stored_lay_out(struct core_payload *p, enum core_stored_how how)
{
    Py_ssize_t ref_count = p->refs ? PySequence_Size(p->refs) : 0, len;
    struct ms_store_client *c = NULL;
    struct layout l;
    bool is_small;
    char *pickle;
    int rc;

    if (ref_count < 0 || PyBytes_AsStringAndSize(p->pickle, &pickle, &len) < 0)
        return -1;
    is_small = !ref_count && !p->buffer_count && (size_t)len <= MS_PAYLOAD_PICKLE_MAX;
    if (how != CORE_STORED_NONE && !(is_small && how == CORE_STORED_RESULT))
        c = core_store_get(); /* a worker opens its store when a payload first needs it */
    if (!c && ref_count) {
        core_raise_kind("bad_result", "it has a Ref, and the caller has no store");
        return -1;
    }
    if (c ? is_small && how == CORE_STORED_CALL : !p->buffer_count)
        return lay_out_bare(p, pickle, (size_t)len, c);
    if (layout_init(&l, p, (size_t)ref_count) < 0)
        return -1;
    l.bytes[0] = (struct ms_store_bytes){.data = pickle, .len = (uint64_t)len};
    for (Py_ssize_t i = 0; i < p->buffer_count; i++)
        l.bytes[i + 1] = (struct ms_store_bytes){.data = p->buffers[i].buf,
                                                 .len = (uint64_t)p->buffers[i].len};
    rc = lay_out(p, &l, c, how);
    if (rc == 0 && l.hold->count)
        p->hold = MS_TAKE(l.hold);
    layout_finish(&l);
    return rc;
}

/* ---- reading --------------------------------------------------------------------- */

/* The objects of a payload, held while it is read. */
struct reading {
    struct ms_stored s;
    struct ms_stored_name *names;
    struct ms_held **held;
    PyObject **views; /* of those whose bytes are wanted */
};

static void reading_finish(struct reading *r)
{
    for (size_t i = 0; i < r->s.object_count; i++) {
        ms_held_unref(r->held ? r->held[i] : NULL);
        Py_XDECREF(r->views ? r->views[i] : NULL);
    }
    free(r->names);
    free(r->held);
    free(r->views);
}

/* Hold the objects, without their bytes. To be finished, also after a failure. */
static int reading_init(struct reading *r, const uint8_t *body, size_t len)
{
    struct ms_error err = {0};
    size_t n, at = 0;

    if (ms_stored_parse(&r->s, body, len, &err) < 0) {
        r->s.object_count = 0;
        return core_fail(PyExc_ValueError, "%s", err.text);
    }
    n = r->s.object_count + 1;
    r->names = calloc(n, sizeof *r->names);
    r->held = calloc(n, sizeof(*r->held));
    r->views = calloc(n, sizeof(*r->views));
    if (!r->names || !r->held || !r->views)
        return core_no_memory();
    for (size_t i = 0; ms_stored_next(&r->s, &at, &r->names[i]);)
        i++;
    return core_store_attach(r->names, r->s.object_count, true, r->held);
}

/* All are held by now; those that parts lie in are wanted with their bytes. */
static int reading_fetch(struct reading *r)
{
    struct ms_stored_walk walk = {0};
    struct ms_stored_part part;

    while (ms_stored_part(&r->s, &walk, &part)) {
        MS_CLEANUP(core_unref) PyObject *held = NULL;
        struct ms_held *again = NULL;

        if (part.object < 0 || r->views[part.object])
            continue;
        if (core_store_attach(&r->names[part.object], 1, false, &again) < 0)
            return -1;
        held = core_held_new(again, CORE_HELD_READS);
        r->views[part.object] = held ? PyMemoryView_FromObject(held) : NULL;
        if (!r->views[part.object])
            return -1;
    }
    return 0;
}

/* A part as a view; `block` is that of the body. */
static PyObject *
part_view(const struct reading *r, const struct ms_stored_part *part, PyObject *block)
{
    PyObject *from = part->object < 0 ? block : r->views[part->object];

    return PySequence_GetSlice(
        from, (Py_ssize_t)part->offset, (Py_ssize_t)(part->offset + part->len));
}

static PyObject *load(const struct reading *r, PyObject *block)
{
    MS_CLEANUP(core_unref) PyObject *list = PyList_New(0), *pickle = NULL;
    struct ms_stored_walk walk = {0};
    struct ms_stored_part part;

    if (list && ms_stored_part(&r->s, &walk, &part))
        pickle = part_view(r, &part, block);
    while (pickle && ms_stored_part(&r->s, &walk, &part))
        if (!core_append(list, part_view(r, &part, block)))
            return NULL;
    return pickle ? PyObject_CallFunctionObjArgs(core_loads, pickle, list, NULL) : NULL;
}

/* Nothing but a pickle: the usual case of a small call. */
static bool is_bare(const struct ms_stored *s, struct ms_stored_part *pickle)
{
    struct ms_stored_walk walk = {0};

    return s->object_count == 0 && s->part_count == 1 &&
           ms_stored_part(s, &walk, pickle);
}

PyObject *core_stored_decode(uint8_t *memory, const uint8_t *body, size_t len)
{
    MS_CLEANUP(core_unref) PyObject *owner = NULL, *block = NULL;
    MS_CLEANUP(reading_finish) struct reading r = {0};
    struct ms_stored_part pickle;
    struct ms_stored s;

    if (ms_stored_parse(&s, body, len, NULL) == 0 && is_bare(&s, &pickle))
        return core_load_bare(memory, body + pickle.offset, pickle.len);
    body = ms_plain_align(memory, body, len);
    owner = core_memory_new(memory, free, body, len); /* takes the memory */
    if (!owner || reading_init(&r, body, len) < 0 || reading_fetch(&r) < 0)
        return NULL;
    block = PyMemoryView_FromObject(owner);
    return block ? load(&r, block) : NULL;
}

PyObject *core_stored_ref(const uint8_t *body, size_t len)
{
    MS_CLEANUP(core_unref) PyObject *list = PyList_New(0);
    MS_CLEANUP(reading_finish) struct reading r = {0};

    if (!list || reading_init(&r, body, len) < 0)
        return NULL;
    for (size_t i = 0; i < r.s.object_count; i++)
        if (!core_append(list, core_held_new(ms_held_ref(r.held[i]), CORE_HELD_RESTS)))
            return NULL;
    return Py_BuildValue("y#O", (const char *)body, (Py_ssize_t)len, list);
}
