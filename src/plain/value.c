/* value.c - values as objects: made, read, changed, copied and freed */
#include "plain/value.h"
#include "base/cleanup.h"

#include <errno.h>
#include <string.h>

enum { ROOM_MIN = 4, COPY_DEPTH_MAX = 1024 };

static struct muster_value *make(struct muster_value content)
{
    struct muster_value *v = malloc(sizeof *v);

    if (v)
        *v = content;
    return v;
}

/* ---- making ---------------------------------------------------------------------- */

struct muster_value *muster_value_null(void)
{
    return make((struct muster_value){.kind = MUSTER_NULL});
}

struct muster_value *muster_value_bool(bool truth)
{
    return make((struct muster_value){.kind = MUSTER_BOOL, .truth = truth});
}

struct muster_value *muster_value_int(int64_t integer)
{
    return make((struct muster_value){.kind = MUSTER_INT, .integer = integer});
}

struct muster_value *muster_value_float(double real)
{
    return make((struct muster_value){.kind = MUSTER_FLOAT, .real = real});
}

static char *copy_text(const void *data, size_t len)
{
    char *copy = malloc(len + 1);

    if (!copy)
        return NULL;
    if (len)
        memcpy(copy, data, len);
    copy[len] = '\0';
    return copy;
}

static struct muster_value *
make_data(enum muster_kind kind, const void *data, size_t len)
{
    char *copy = data || !len ? copy_text(data, len) : NULL;
    struct muster_value *v = NULL;

    if (copy)
        v = make((struct muster_value){.kind = (uint8_t)kind, .data = {copy, len}});
    if (!v)
        free(copy);
    return v;
}

struct muster_value *muster_value_text_n(const char *text, size_t len)
{
    return (text || !len) && ms_utf8_is_valid(text, len)
               ? make_data(MUSTER_TEXT, text, len)
               : NULL;
}

struct muster_value *muster_value_text(const char *text)
{
    return text ? muster_value_text_n(text, strlen(text)) : NULL;
}

struct muster_value *muster_value_bytes(const void *data, size_t len)
{
    return make_data(MUSTER_BYTES, data, len);
}

struct muster_value *muster_value_list(void)
{
    return make((struct muster_value){.kind = MUSTER_LIST});
}

struct muster_value *muster_value_map(void)
{
    return make((struct muster_value){.kind = MUSTER_MAP});
}

static struct muster_value *
make_tensor(enum muster_dtype dtype, const uint64_t *shape, uint32_t ndim)
{
    struct muster_value *v = NULL;
    struct ms_tensor *t;
    size_t size;

    if (ms_plain_tensor_size(dtype, shape, ndim, &size) < 0)
        return NULL;
    t = malloc(sizeof *t);
    if (t) {
        *t = (struct ms_tensor){.dtype = dtype, .ndim = ndim, .size = size};
        if (ndim)
            memcpy(t->shape, shape, ndim * sizeof *shape);
        v = make((struct muster_value){.kind = MUSTER_TENSOR, .tensor = t});
    }
    if (!v)
        free(t);
    return v;
}

struct muster_value *muster_value_tensor_view(enum muster_dtype dtype,
                                              const uint64_t *shape,
                                              uint32_t ndim,
                                              const void *data)
{
    struct muster_value *v = data ? make_tensor(dtype, shape, ndim) : NULL;

    if (v)
        v->tensor->data = data;
    return v;
}

struct muster_value *muster_value_tensor(enum muster_dtype dtype,
                                         const uint64_t *shape,
                                         uint32_t ndim,
                                         const void *data)
{
    struct muster_value *v = make_tensor(dtype, shape, ndim);
    void *copy;

    if (!v)
        return NULL;
    copy = calloc(1, v->tensor->size ? v->tensor->size : 1);
    if (!copy) {
        muster_value_destroy(v);
        return NULL;
    }
    if (data && v->tensor->size)
        memcpy(copy, data, v->tensor->size);
    v->tensor->data = copy;
    v->tensor->owned = true;
    return v;
}

/* ---- ending ---------------------------------------------------------------------- */

/* It owns parts that are freed one by one. */
static bool has_parts(const struct muster_value *v)
{
    return !v->tree && !v->frozen && (v->kind == MUSTER_LIST || v->kind == MUSTER_MAP);
}

static void finish_leaf(struct muster_value *v)
{
    if (v->tree) {
        ms_value_block_free(v->tree); /* it may stand in there itself */
    } else if (v->frozen) {
        return;
    } else if (v->kind == MUSTER_TEXT || v->kind == MUSTER_BYTES) {
        free(v->data.at);
    } else if (v->kind == MUSTER_TENSOR) {
        if (v->tensor->owned)
            free((void *)(uintptr_t)v->tensor->data);
        free(v->tensor);
    }
}

/* The last part that is left of a container, which it then has no more; NULL: there is none,
 * and its array was freed. */
static struct muster_value *take_part(struct muster_value *v)
{
    if (v->kind == MUSTER_LIST && v->list.count)
        return &v->list.items[--v->list.count];
    if (v->kind == MUSTER_LIST) {
        free(v->list.items);
        return NULL;
    }
    if (v->map.count) {
        free(v->map.entries[--v->map.count].key);
        return &v->map.entries[v->map.count].value;
    }
    free(v->map.entries);
    return NULL;
}

/* Free what it owns, but not itself. Values may be nested deeper than a stack is. */
static void finish(struct muster_value *v)
{
    struct muster_value *at = v;

    if (!has_parts(v)) {
        finish_leaf(v);
        return;
    }
    while (at) {
        struct muster_value *part = take_part(at);

        if (!part) {
            at = at->above;
        } else if (has_parts(part)) {
            part->above = at;
            at = part;
        } else {
            finish_leaf(part);
        }
    }
}

void muster_value_destroy(struct muster_value *v)
{
    bool in_tree;

    if (!v)
        return;
    in_tree = v->tree != NULL;
    if (v->frozen && !in_tree)
        return; /* a part of a tree is not its reader's to destroy */
    finish(v);
    if (!in_tree)
        free(v);
}

/* Its content, into a container; the shell is freed. */
static struct muster_value move(struct muster_value *v)
{
    struct muster_value content = *v;

    if (!v->tree)
        free(v);
    return content;
}

/* ---- looking --------------------------------------------------------------------- */

enum muster_kind muster_value_kind(const struct muster_value *v)
{
    return v ? (enum muster_kind)v->kind : MUSTER_NULL;
}

static bool is(const struct muster_value *v, enum muster_kind kind)
{
    return v && v->kind == kind;
}

int muster_value_get_bool(const struct muster_value *v, bool *out)
{
    if (!is(v, MUSTER_BOOL))
        return -EINVAL;
    *out = v->truth;
    return 0;
}

int muster_value_get_int(const struct muster_value *v, int64_t *out)
{
    if (!is(v, MUSTER_INT))
        return -EINVAL;
    *out = v->integer;
    return 0;
}

int muster_value_get_float(const struct muster_value *v, double *out)
{
    if (is(v, MUSTER_INT))
        *out = (double)v->integer;
    else if (is(v, MUSTER_FLOAT))
        *out = v->real;
    else
        return -EINVAL;
    return 0;
}

static const char *
get_data(const struct muster_value *v, enum muster_kind kind, size_t *len)
{
    if (!is(v, kind))
        return NULL;
    if (len)
        *len = v->data.len;
    return v->data.at;
}

const char *muster_value_get_text(const struct muster_value *v, size_t *len)
{
    return get_data(v, MUSTER_TEXT, len);
}

const void *muster_value_get_bytes(const struct muster_value *v, size_t *len)
{
    return get_data(v, MUSTER_BYTES, len);
}

/* ---- lists ----------------------------------------------------------------------- */

size_t muster_list_count(const struct muster_value *list)
{
    return is(list, MUSTER_LIST) ? list->list.count : 0;
}

const struct muster_value *muster_list_at(const struct muster_value *list, size_t index)
{
    return index < muster_list_count(list) ? &list->list.items[index] : NULL;
}

/* Room for one more element of `size` bytes in the array at *at. */
static int grow(struct muster_value *v, void **at, size_t count, size_t size)
{
    uint32_t more;
    void *grown;

    if (count < v->room)
        return 0;
    if (count >= MS_PLAIN_NODES_MAX)
        return -E2BIG;
    more = v->room ? 2 * v->room : ROOM_MIN;
    grown = realloc(*at, more * size);
    if (!grown)
        return -ENOMEM;
    *at = grown;
    v->room = more;
    return 0;
}

/* May something be put into it? */
static int check_container(struct muster_value *v,
                           enum muster_kind kind,
                           const struct muster_value *item)
{
    int rc = !v ? -ENOMEM : v->kind != kind ? -EINVAL : v->frozen ? -EROFS : 0;

    return rc == 0 && !item ? -ENOMEM : rc;
}

static int give_up(struct muster_value *container, struct muster_value *item, int rc)
{
    if (container && !container->frozen)
        container->spoiled = (int16_t)rc;
    muster_value_destroy(item);
    return rc;
}

int muster_list_append(struct muster_value *list, struct muster_value *item)
{
    int rc = check_container(list, MUSTER_LIST, item);
    void *items;

    if (rc == 0) {
        items = list->list.items;
        rc = grow(list, &items, list->list.count, sizeof *list->list.items);
        list->list.items = items;
    }
    if (rc < 0)
        return give_up(list, item, rc);
    list->list.items[list->list.count++] = move(item);
    return 0;
}

/* ---- maps ------------------------------------------------------------------------ */

size_t muster_map_count(const struct muster_value *map)
{
    return is(map, MUSTER_MAP) ? map->map.count : 0;
}

/* The last of that key: a message may have it twice. */
static struct ms_entry *find_entry(const struct muster_value *map, const char *key)
{
    size_t len = strlen(key);

    for (size_t i = muster_map_count(map); i-- > 0;) {
        struct ms_entry *e = &map->map.entries[i];

        if (e->key_len == len && memcmp(e->key, key, len) == 0)
            return e;
    }
    return NULL;
}

const struct muster_value *muster_map_find(const struct muster_value *map,
                                           const char *key)
{
    struct ms_entry *e = key ? find_entry(map, key) : NULL;

    return e ? &e->value : NULL;
}

const struct muster_value *
muster_map_at(const struct muster_value *map, size_t index, const char **key)
{
    if (index >= muster_map_count(map))
        return NULL;
    if (key)
        *key = map->map.entries[index].key;
    return &map->map.entries[index].value;
}

static int
add_entry(struct muster_value *map, const char *key, struct muster_value *item)
{
    void *entries = map->map.entries;
    int rc = grow(map, &entries, map->map.count, sizeof *map->map.entries);
    struct ms_entry *e;
    size_t len = strlen(key);
    char *copy;

    map->map.entries = entries;
    if (rc < 0)
        return rc;
    copy = copy_text(key, len);
    if (!copy)
        return -ENOMEM;
    e = &map->map.entries[map->map.count++];
    *e = (struct ms_entry){.key = copy, .key_len = len, .value = move(item)};
    return 0;
}

int muster_map_set(struct muster_value *map, const char *key, struct muster_value *item)
{
    int rc = check_container(map, MUSTER_MAP, item);
    struct ms_entry *e;

    if (rc == 0 && (!key || !ms_utf8_is_valid(key, strlen(key))))
        rc = -EINVAL;
    if (rc < 0)
        return give_up(map, item, rc);
    e = find_entry(map, key);
    if (e) {
        finish(&e->value);
        e->value = move(item);
        return 0;
    }
    rc = add_entry(map, key, item);
    return rc < 0 ? give_up(map, item, rc) : 0;
}

/* ---- tensors --------------------------------------------------------------------- */

enum muster_dtype muster_tensor_dtype(const struct muster_value *t)
{
    return is(t, MUSTER_TENSOR) ? t->tensor->dtype : (enum muster_dtype)0;
}

uint32_t muster_tensor_ndim(const struct muster_value *t)
{
    return is(t, MUSTER_TENSOR) ? t->tensor->ndim : 0;
}

const uint64_t *muster_tensor_shape(const struct muster_value *t)
{
    return is(t, MUSTER_TENSOR) ? t->tensor->shape : NULL;
}

uint64_t muster_tensor_count(const struct muster_value *t)
{
    if (!is(t, MUSTER_TENSOR))
        return 0;
    return t->tensor->size / muster_dtype_size(t->tensor->dtype);
}

const void *muster_tensor_data(const struct muster_value *t, size_t *size)
{
    if (!is(t, MUSTER_TENSOR))
        return NULL;
    if (size)
        *size = t->tensor->size;
    return t->tensor->data;
}

void *muster_tensor_data_mut(struct muster_value *t)
{
    if (!is(t, MUSTER_TENSOR) || !t->tensor->owned)
        return NULL;
    return (void *)(uintptr_t)t->tensor->data;
}

/* ---- copies ---------------------------------------------------------------------- */

static struct muster_value *copy_at(const struct muster_value *v, unsigned depth);

static int
copy_into(struct muster_value *to, const struct muster_value *from, unsigned depth)
{
    int rc = 0;

    if (from->kind == MUSTER_LIST)
        for (size_t i = 0; rc == 0 && i < from->list.count; i++)
            rc = muster_list_append(to, copy_at(&from->list.items[i], depth));
    else
        for (size_t i = 0; rc == 0 && i < from->map.count; i++)
            rc = muster_map_set(to,
                                from->map.entries[i].key,
                                copy_at(&from->map.entries[i].value, depth));
    return rc;
}

static struct muster_value *copy_at(const struct muster_value *v, unsigned depth)
{
    struct muster_value *copy;

    switch (muster_value_kind(v)) {
    case MUSTER_TEXT:
    case MUSTER_BYTES:
        return make_data((enum muster_kind)v->kind, v->data.at, v->data.len);
    case MUSTER_TENSOR:
        return muster_value_tensor(
            v->tensor->dtype, v->tensor->shape, v->tensor->ndim, v->tensor->data);
    case MUSTER_LIST:
    case MUSTER_MAP:
        copy = depth < COPY_DEPTH_MAX ? make((struct muster_value){.kind = v->kind})
                                      : NULL;
        if (copy && copy_into(copy, v, depth + 1) < 0) {
            muster_value_destroy(copy);
            return NULL;
        }
        return copy;
    default: /* the integer is the biggest of them */
        return make((struct muster_value){.kind = (uint8_t)muster_value_kind(v),
                                          .integer = v ? v->integer : 0});
    }
}

struct muster_value *muster_value_copy(const struct muster_value *v)
{
    return copy_at(v, 0);
}
