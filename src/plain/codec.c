/* codec.c - decode a message into a value, and encode a value */
#include "base/cleanup.h"
#include "plain/value.h"

#include <errno.h>
#include <string.h>

struct ms_value_block {
    uint8_t *memory; /* the message; the tree points into it */
    uint8_t *at;     /* where the next part goes */
    struct muster_value root;
};

void ms_value_block_free(struct ms_value_block *t)
{
    free(t->memory);
    free(t);
}

/* ---- how much there is ----------------------------------------------------------- */

struct measure {
    size_t nodes, size;
    struct ms_error *err;
};

static int bad(struct ms_error *err)
{
    return ms_error_set(err, -EBADMSG, "this is not plain data");
}

static int measure(struct measure *m, struct ms_plain_cursor c, unsigned depth);

/* What is in a container. The arguments of a call are two in one: positional, and named. */
enum parts { ITEMS, ENTRIES, NAMED };

static int next_part(struct ms_plain_cursor *c,
                     enum parts parts,
                     struct ms_plain_key *key,
                     struct ms_plain_cursor *value)
{
    return parts == ITEMS ? ms_plain_next_item(c, value)
                          : ms_plain_next_entry(c, parts == NAMED, key, value);
}

static int measure_parts(struct measure *m,
                         struct ms_plain_cursor c,
                         enum parts parts,
                         unsigned depth)
{
    struct ms_plain_cursor value;
    struct ms_plain_key key;
    int rc;

    while ((rc = next_part(&c, parts, &key, &value)) > 0) {
        m->size +=
            parts == ITEMS ? sizeof(struct muster_value) : sizeof(struct ms_entry);
        rc = measure(m, value, depth + 1);
        if (rc < 0)
            return rc;
    }
    return rc < 0 ? bad(m->err) : 0;
}

static bool is_aligned(const void *at)
{
    return (uintptr_t)at % MS_PLAIN_ALIGN == 0;
}

static int measure(struct measure *m, struct ms_plain_cursor c, unsigned depth)
{
    struct ms_plain_item item;

    if (depth > MS_PLAIN_DEPTH_MAX)
        return ms_error_set(m->err,
                            -E2BIG,
                            "plain data that is nested deeper than %u",
                            MS_PLAIN_DEPTH_MAX);
    if (++m->nodes > MS_PLAIN_NODES_MAX)
        return ms_error_set(m->err,
                            -E2BIG,
                            "plain data of more than %zu values (a tensor is one)",
                            MS_PLAIN_NODES_MAX);
    if (ms_plain_read(c, &item) < 0)
        return bad(m->err);
    if (item.kind == MUSTER_LIST)
        return measure_parts(m, item.inside, ITEMS, depth);
    if (item.kind == MUSTER_MAP)
        return measure_parts(m, item.inside, ENTRIES, depth);
    if (item.kind == MUSTER_TENSOR) {
        m->size += sizeof(struct ms_tensor);
        if (!is_aligned(item.tensor.at))
            m->size += item.tensor.len + 2 * MS_PLAIN_ALIGN;
    }
    return 0;
}

/* ---- building; all of it was found right ----------------------------------------- */

static void *take(struct ms_value_block *t, size_t size)
{
    void *at = t->at;

    t->at += size;
    return at;
}

/* A NUL behind it: it moves over the last byte of its length, which was read. */
static char *terminate(const char *text, size_t len)
{
    char *at = (char *)(uintptr_t)text - 1;

    memmove(at, text, len);
    at[len] = '\0';
    return at;
}

static void
build(struct ms_value_block *t, struct ms_plain_cursor c, struct muster_value *out);

static size_t count_parts(struct ms_plain_cursor c, enum parts parts)
{
    struct ms_plain_cursor value;
    struct ms_plain_key key;
    size_t count = 0;

    while (next_part(&c, parts, &key, &value) > 0)
        count++;
    return count;
}

static void build_list(struct ms_value_block *t,
                       struct ms_plain_cursor list,
                       struct muster_value *out)
{
    struct ms_plain_cursor c;
    size_t count = count_parts(list, ITEMS);

    *out = (struct muster_value){.kind = MUSTER_LIST, .frozen = true};
    out->list.count = count;
    out->list.items = take(t, count * sizeof *out->list.items);
    for (size_t i = 0; i < count; i++) {
        ms_plain_next_item(&list, &c);
        build(t, c, &out->list.items[i]);
    }
}

static void build_map(struct ms_value_block *t,
                      struct ms_plain_cursor map,
                      enum parts parts,
                      struct muster_value *out)
{
    struct ms_plain_cursor c;
    struct ms_plain_key key;
    size_t count = count_parts(map, parts);

    *out = (struct muster_value){.kind = MUSTER_MAP, .frozen = true};
    out->map.count = count;
    out->map.entries = take(t, count * sizeof *out->map.entries);
    for (size_t i = 0; i < count; i++) {
        static char none[1];
        struct ms_entry *e = &out->map.entries[i];

        next_part(&map, parts, &key, &c);
        e->key_len = key.len;
        e->key = key.len ? terminate(key.at, key.len) : none;
        build(t, c, &e->value);
    }
}

static void build_tensor(struct ms_value_block *t,
                         const struct ms_plain_item *item,
                         struct muster_value *out)
{
    struct ms_tensor *tensor = take(t, sizeof *tensor);

    *tensor = (struct ms_tensor){.dtype = item->tensor.dtype,
                                 .ndim = item->tensor.ndim,
                                 .data = item->tensor.at,
                                 .size = item->tensor.len};
    memcpy(tensor->shape, item->tensor.shape, tensor->ndim * sizeof *tensor->shape);
    if (!is_aligned(tensor->data)) {
        size_t off = (uintptr_t)t->at % MS_PLAIN_ALIGN;

        t->at += (MS_PLAIN_ALIGN - off) % MS_PLAIN_ALIGN;
        tensor->data = memcpy(t->at, item->tensor.at, tensor->size);
        t->at += (tensor->size + MS_PLAIN_ALIGN - 1) / MS_PLAIN_ALIGN * MS_PLAIN_ALIGN;
    }
    out->tensor = tensor;
}

static void
build(struct ms_value_block *t, struct ms_plain_cursor c, struct muster_value *out)
{
    struct ms_plain_item item;

    ms_plain_read(c, &item);
    *out = (struct muster_value){.kind = (uint8_t)item.kind, .frozen = true};
    switch (item.kind) {
    case MUSTER_NULL:
        break;
    case MUSTER_BOOL:
        out->truth = item.truth;
        break;
    case MUSTER_INT:
        out->integer = item.integer;
        break;
    case MUSTER_FLOAT:
        out->real = item.real;
        break;
    case MUSTER_TEXT:
        out->data.len = item.data.len;
        out->data.at = terminate((const char *)item.data.at, item.data.len);
        break;
    case MUSTER_BYTES:
        out->data.len = item.data.len;
        out->data.at = (char *)(uintptr_t)item.data.at;
        break;
    case MUSTER_LIST:
        build_list(t, item.inside, out);
        break;
    case MUSTER_MAP:
        build_map(t, item.inside, ENTRIES, out);
        break;
    case MUSTER_TENSOR:
        build_tensor(t, &item, out);
        break;
    }
}

/* A tree with room for what was measured. Takes `memory`, also on failure. */
static struct ms_value_block *tree_create(uint8_t *memory, const struct measure *m)
{
    size_t head = (sizeof(struct ms_value_block) + MS_PLAIN_ALIGN - 1) /
                  MS_PLAIN_ALIGN * MS_PLAIN_ALIGN;
    struct ms_value_block *t = malloc(head + m->size);

    if (!t) {
        free(memory);
        ms_error_set(m->err, -ENOMEM, "out of memory");
        return NULL;
    }
    t->memory = memory;
    t->at = (uint8_t *)t + head;
    return t;
}

static struct muster_value *rooted(struct ms_value_block *t)
{
    t->root.tree = t;
    return &t->root;
}

struct muster_value *
ms_value_decode(uint8_t *memory, const uint8_t *body, size_t len, struct ms_error *err)
{
    struct measure m = {.err = err};
    struct ms_plain_cursor c;
    struct ms_value_block *t;

    body = ms_plain_align(memory, body, len);
    c = (struct ms_plain_cursor){body, body + len};
    if (measure(&m, c, 0) < 0) {
        free(memory);
        return NULL;
    }
    t = tree_create(memory, &m);
    if (!t)
        return NULL;
    build(t, c, &t->root);
    return rooted(t);
}

struct muster_value *ms_value_decode_arguments(uint8_t *memory,
                                               const uint8_t *body,
                                               size_t len,
                                               struct ms_error *err)
{
    struct measure m = {.size = 2 * sizeof(struct muster_value), .err = err};
    struct muster_value *parts;
    struct ms_plain_cursor c;
    struct ms_value_block *t;

    body = ms_plain_align(memory, body, len);
    c = (struct ms_plain_cursor){body, body + len};
    if (measure_parts(&m, c, ITEMS, 0) < 0 || measure_parts(&m, c, NAMED, 0) < 0) {
        free(memory);
        return NULL;
    }
    t = tree_create(memory, &m);
    if (!t)
        return NULL;
    parts = take(t, 2 * sizeof *parts);
    /* first the keys and texts of one, then of the other: each is changed once, after
     * it was read, and the other's fields are passed over by their lengths alone */
    build_list(t, c, &parts[0]);
    build_map(t, c, NAMED, &parts[1]);
    t->root = (struct muster_value){.kind = MUSTER_LIST, .frozen = true};
    t->root.list.items = parts;
    t->root.list.count = 2;
    return rooted(t);
}

struct muster_value *
ms_value_over_bytes(uint8_t *memory, const uint8_t *body, size_t len)
{
    struct measure m = {0};
    struct ms_value_block *t = tree_create(memory, &m);
    static char none[1];

    if (!t)
        return NULL;
    t->root = (struct muster_value){.kind = MUSTER_BYTES, .frozen = true};
    t->root.data.at = len ? (char *)(uintptr_t)body : none;
    t->root.data.len = len;
    return rooted(t);
}

/* ---- encoding -------------------------------------------------------------------- */

static void put(struct ms_plain_writer *w,
                enum ms_plain_place place,
                const struct muster_value *v,
                unsigned depth);

static void
put_items(struct ms_plain_writer *w, const struct muster_value *list, unsigned depth)
{
    for (size_t i = 0; i < list->list.count; i++)
        put(w, MS_PLAIN_ITEM, &list->list.items[i], depth);
}

static void put_entries(struct ms_plain_writer *w,
                        bool named,
                        const struct muster_value *map,
                        unsigned depth)
{
    for (size_t i = 0; i < map->map.count; i++) {
        const struct ms_entry *e = &map->map.entries[i];
        struct ms_plain_mark mark = ms_plain_begin_entry(w, named, e->key, e->key_len);

        put(w, MS_PLAIN_ENTRY_VALUE, &e->value, depth);
        ms_plain_end(w, mark);
    }
}

static void put_container(struct ms_plain_writer *w,
                          enum ms_plain_place place,
                          const struct muster_value *v,
                          unsigned depth)
{
    struct ms_plain_mark mark;

    if (v->spoiled)
        w->rc = w->rc < 0 ? w->rc : v->spoiled;
    if (depth == MS_PLAIN_DEPTH_MAX)
        w->rc = w->rc < 0 ? w->rc : -E2BIG;
    if (w->rc < 0)
        return;
    mark = ms_plain_begin(w, place, (enum muster_kind)v->kind);
    if (v->kind == MUSTER_LIST)
        put_items(w, v, depth + 1);
    else
        put_entries(w, false, v, depth + 1);
    ms_plain_end(w, mark);
}

static void put(struct ms_plain_writer *w,
                enum ms_plain_place place,
                const struct muster_value *v,
                unsigned depth)
{
    switch (muster_value_kind(v)) {
    case MUSTER_NULL:
        ms_plain_put_null(w, place);
        break;
    case MUSTER_BOOL:
        ms_plain_put_bool(w, place, v->truth);
        break;
    case MUSTER_INT:
        ms_plain_put_int(w, place, v->integer);
        break;
    case MUSTER_FLOAT:
        ms_plain_put_float(w, place, v->real);
        break;
    case MUSTER_TEXT:
    case MUSTER_BYTES:
        ms_plain_put_data(w, place, (enum muster_kind)v->kind, v->data.at, v->data.len);
        break;
    case MUSTER_LIST:
    case MUSTER_MAP:
        put_container(w, place, v, depth);
        break;
    case MUSTER_TENSOR:
        ms_plain_put_tensor(w,
                            place,
                            v->tensor->dtype,
                            v->tensor->shape,
                            v->tensor->ndim,
                            v->tensor->data,
                            v->tensor->size);
        break;
    }
}

void ms_value_encode(struct ms_plain_writer *w,
                     enum ms_plain_place place,
                     const struct muster_value *v)
{
    put(w, place, v, 0);
}

void ms_value_encode_arguments(struct ms_plain_writer *w,
                               const struct muster_value *args,
                               const struct muster_value *kwargs)
{
    if ((args && args->kind != MUSTER_LIST) || (kwargs && kwargs->kind != MUSTER_MAP))
        w->rc = -EINVAL;
    else if (args && args->spoiled)
        w->rc = args->spoiled;
    else if (kwargs && kwargs->spoiled)
        w->rc = kwargs->spoiled;
    if (w->rc < 0)
        return;
    if (args)
        put_items(w, args, 1);
    if (kwargs)
        put_entries(w, true, kwargs, 1);
}

int muster_value_encode(const struct muster_value *v, void **data, size_t *len)
{
    struct ms_plain_writer w;
    uint8_t *out = NULL;
    int rc;

    ms_plain_writer_init(&w);
    ms_value_encode(&w, MS_PLAIN_ROOT, v);
    rc = ms_plain_flatten(&w, &out, len);
    ms_plain_writer_finish(&w);
    if (rc == 0)
        *data = out;
    return rc;
}

struct muster_value *
muster_value_decode(const void *data, size_t len, struct muster_error *err)
{
    struct ms_error e = {.code = -ENOMEM, .text = "out of memory"};
    uint8_t *copy = ms_bytes_copy(data, len);
    struct muster_value *v = copy ? ms_value_decode(copy, copy, len, &e) : NULL;

    if (!v)
        muster_error_set(err, e.code, NULL, "%s", e.text);
    return v;
}
