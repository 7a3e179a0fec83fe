/* value.h - plain data: what calls carry between programs of any language
 *
 * A value is null, a truth value, a 64-bit integer, a double, a text (UTF-8), bytes, a
 * list, a map from texts to values, or a tensor. Python has the same as None, bool, int,
 * float, str, bytes, list (tuples too), dict with str keys, and numpy arrays.
 *
 * Ownership. A value that you have made, or that a function gave you as a result, is
 * yours until you give it away or destroy it. A list and a map own what is in them:
 * muster_list_append and muster_map_set take the value over, also when they fail, and
 * muster_list_at and muster_map_find lend it to you for as long as the container lives
 * and is not changed. A value must not be used by two threads at once while one of them
 * changes it.
 *
 * Failure. Makers give NULL when out of memory (or, for a text, if it is not UTF-8).
 * NULL may be passed on: appending it gives -ENOMEM, looking into it finds nothing,
 * destroying it does nothing. So a value can be built without a check at each step:
 *
 *     struct muster_value *args = muster_value_list();
 *     muster_list_append(args, muster_value_text("how long is this"));
 *     muster_list_append(args, muster_value_float(0.5));
 *
 * if the calls' results are looked at where the arguments are used: a list that could not
 * take an element is marked, and sending it fails with the same errno.
 *
 * Values that came in a message are read-only: changing them gives -EROFS;
 * muster_value_copy gives one that can be changed.
 */
#ifndef MUSTER_VALUE_H
#define MUSTER_VALUE_H

#include <muster/common.h>
#include <muster/error.h>

struct muster_value;

enum muster_kind {
    MUSTER_NULL = 0,
    MUSTER_BOOL = 1,
    MUSTER_INT = 2,
    MUSTER_FLOAT = 3,
    MUSTER_TEXT = 4,
    MUSTER_BYTES = 5,
    MUSTER_LIST = 6,
    MUSTER_MAP = 7,
    MUSTER_TENSOR = 8,
};

/* Elements of a tensor, little-endian. */
enum muster_dtype {
    MUSTER_DTYPE_BOOL = 1, /* one byte each */
    MUSTER_INT8 = 2,
    MUSTER_UINT8 = 3,
    MUSTER_INT16 = 4,
    MUSTER_UINT16 = 5,
    MUSTER_INT32 = 6,
    MUSTER_UINT32 = 7,
    MUSTER_INT64 = 8,
    MUSTER_UINT64 = 9,
    MUSTER_FLOAT16 = 10,
    MUSTER_BFLOAT16 = 11,
    MUSTER_FLOAT32 = 12,
    MUSTER_FLOAT64 = 13,
    MUSTER_COMPLEX64 = 14,
    MUSTER_COMPLEX128 = 15,
};

enum { MUSTER_DIMS_MAX = 16 };

MUSTER_BEGIN

/* ---- making ------------------------------------------------------------------------ */

MUSTER_API struct muster_value *muster_value_null(void);
MUSTER_API struct muster_value *muster_value_bool(bool truth);
MUSTER_API struct muster_value *muster_value_int(int64_t integer);
MUSTER_API struct muster_value *muster_value_float(double real);
/* Copied. NULL also if it is not UTF-8. */
MUSTER_API struct muster_value *muster_value_text(const char *text);
MUSTER_API struct muster_value *muster_value_text_n(const char *text, size_t len);
/* Copied. */
MUSTER_API struct muster_value *muster_value_bytes(const void *data, size_t len);
MUSTER_API struct muster_value *muster_value_list(void);
MUSTER_API struct muster_value *muster_value_map(void);
/* In C order; `shape` has `ndim` (at most MUSTER_DIMS_MAX) sizes, ndim 0 is one element.
 * `data` is copied; NULL: zeros, to be written through muster_tensor_data_mut. */
MUSTER_API struct muster_value *muster_value_tensor(enum muster_dtype dtype,
                                                    const uint64_t *shape,
                                                    uint32_t ndim,
                                                    const void *data);
/* Without a copy: `data` must stay until the value is destroyed, or its call has begun. */
MUSTER_API struct muster_value *muster_value_tensor_view(enum muster_dtype dtype,
                                                         const uint64_t *shape,
                                                         uint32_t ndim,
                                                         const void *data);

/* NULL: out of memory, or nested deeper than 1,024. */
MUSTER_API struct muster_value *muster_value_copy(const struct muster_value *v);
MUSTER_API void muster_value_destroy(struct muster_value *v);

/* ---- looking ----------------------------------------------------------------------- */

/* MUSTER_NULL also for NULL. */
MUSTER_API enum muster_kind muster_value_kind(const struct muster_value *v);
MUSTER_API const char *muster_kind_name(enum muster_kind kind); /* "list" */

/* 0; -EINVAL if it is of another kind (or NULL), and *out is untouched. A float may be
 * read from an integer. */
MUSTER_API int muster_value_get_bool(const struct muster_value *v, bool *out);
MUSTER_API int muster_value_get_int(const struct muster_value *v, int64_t *out);
MUSTER_API int muster_value_get_float(const struct muster_value *v, double *out);

/* Borrowed, with a NUL behind it; NULL if it is of another kind. `len` may be NULL. */
MUSTER_API const char *muster_value_get_text(const struct muster_value *v, size_t *len);
/* Borrowed; NULL if it is of another kind. Bytes that are empty are not NULL. */
MUSTER_API const void *muster_value_get_bytes(const struct muster_value *v,
                                              size_t *len);

/* ---- lists ------------------------------------------------------------------------- */

MUSTER_API size_t muster_list_count(const struct muster_value *list); /* 0: no list */
/* Borrowed; NULL behind the end. */
MUSTER_API const struct muster_value *muster_list_at(const struct muster_value *list,
                                                     size_t index);
/* Takes `item`, also on failure. 0, -EINVAL (no list), -EROFS, -ENOMEM, -E2BIG (4 Mi
 * elements, which is more than a message has). */
MUSTER_API int muster_list_append(struct muster_value *list, struct muster_value *item);

/* ---- maps -------------------------------------------------------------------------- */

MUSTER_API size_t muster_map_count(const struct muster_value *map); /* 0: no map */
/* Borrowed; NULL if the key is not there. */
MUSTER_API const struct muster_value *muster_map_find(const struct muster_value *map,
                                                      const char *key);
/* The entries in the order in which they were set; NULL behind the end. */
MUSTER_API const struct muster_value *
muster_map_at(const struct muster_value *map, size_t index, const char **key);
/* Takes `item`, also on failure; `key` is copied. Replaces what was there. 0, -EINVAL (no
 * map, or a key that is not UTF-8), -EROFS, -ENOMEM, -E2BIG. */
MUSTER_API int
muster_map_set(struct muster_value *map, const char *key, struct muster_value *item);

/* ---- tensors ----------------------------------------------------------------------- */

MUSTER_API enum muster_dtype muster_tensor_dtype(const struct muster_value *t);
MUSTER_API uint32_t muster_tensor_ndim(const struct muster_value *t);
/* `ndim` sizes, borrowed; NULL if it is no tensor. */
MUSTER_API const uint64_t *muster_tensor_shape(const struct muster_value *t);
MUSTER_API uint64_t muster_tensor_count(const struct muster_value *t); /* of elements */
/* Borrowed, at a multiple of 16; NULL if it is no tensor. `size`, in bytes, may be NULL. */
MUSTER_API const void *muster_tensor_data(const struct muster_value *t, size_t *size);
/* Of a tensor made here by muster_value_tensor or _copy; else NULL. */
MUSTER_API void *muster_tensor_data_mut(struct muster_value *t);
MUSTER_API size_t muster_dtype_size(enum muster_dtype dtype); /* bytes; 0: unknown */
MUSTER_API const char *muster_dtype_name(enum muster_dtype dtype); /* "float32" */

/* ---- bytes and back ---------------------------------------------------------------- */

/* As it goes over the wire (message Value of doc/c.md); *data is malloc'd and yours.
 * -ENOMEM, or -E2BIG beyond a limit. */
MUSTER_API int
muster_value_encode(const struct muster_value *v, void **data, size_t *len);
/* NULL with the reason in err (may be NULL). The bytes are copied. */
MUSTER_API struct muster_value *
muster_value_decode(const void *data, size_t len, struct muster_error *err);

MUSTER_END

#endif
